"""Models and their registry."""

from common.models.split import SplitModel

MODELS: dict[str, object] = {}

__all__ = ["MODELS", "SplitModel"]
