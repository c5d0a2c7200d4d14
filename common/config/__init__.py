"""Run config -> frozen, validated settings.

No field has a default here: the defaults live in ``pyproject.toml`` under
``[tool.flwr.app.config]``, and Flower merges them with ``-c``. ``docs/settings.md`` is made from
the descriptions of the fields.
"""

from common.config.algorithms import (
    ALGORITHMS,
    SERVER_ONLY,
    FedDynSettings,
    FedGenSettings,
    FedProxSettings,
    MoonSettings,
)
from common.config.columns import Categorical, canonical
from common.config.data import DataSettings
from common.config.learning import ModelSettings, TrainSettings
from common.config.learning_rate import LearningRateSettings
from common.config.names import NAME_PATTERN, SettingsError, check_name
from common.config.nesting import flat, nested
from common.config.server import ServerSettings
from common.config.settings import Settings, parse_settings
from common.config.task import TaskSettings
from common.config.wire import WireDtype, WireSettings

__all__ = [
    "ALGORITHMS",
    "NAME_PATTERN",
    "SERVER_ONLY",
    "Categorical",
    "DataSettings",
    "FedDynSettings",
    "FedGenSettings",
    "FedProxSettings",
    "LearningRateSettings",
    "ModelSettings",
    "MoonSettings",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "TaskSettings",
    "TrainSettings",
    "WireDtype",
    "WireSettings",
    "canonical",
    "check_name",
    "flat",
    "nested",
    "parse_settings",
]
