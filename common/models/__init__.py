"""Models: an encoder and a predictor each, by name (``registry.py``), and saved ones."""

from common.models.registry import MODELS, Builder, build_model, check_model, count_parameters
from common.models.saved import (
    SavedModel,
    SavedModelError,
    load_facts,
    load_model,
    read_saved,
    save_model,
)
from common.models.split import SplitModel, private_names, shared_parameters

__all__ = [
    "MODELS",
    "Builder",
    "SavedModel",
    "SavedModelError",
    "SplitModel",
    "build_model",
    "check_model",
    "count_parameters",
    "load_facts",
    "load_model",
    "private_names",
    "read_saved",
    "save_model",
    "shared_parameters",
]
