"""The model that this node is to train."""

from __future__ import annotations

from collections.abc import Iterator

from client_app.computation import check_computation
from client_app.local_model import build_local_model
from common.config import Settings
from common.models import MODELS
from common.node import Node
from scripts.moonflower.doctor.findings import Finding, failed, ok

_VARIABLE = "MOONFLOWER_MODEL_NAME"


def check_model(settings: Settings | None) -> Iterator[Finding]:
    """Build the model of the run to come, with this node's own encoder if it chose one.

    Without settings, only the chosen name is looked at.

    Raises
    ------
    SettingsError
        What the query would answer: a model that is unknown or that doesn't fit the run, a
        precision that is not for this device.
    """
    node = Node.from_config({})
    if settings is None:
        if node.model_name and node.model_name not in MODELS:
            found = f"{_VARIABLE} is {node.model_name!r}, which is no model"
            yield failed("model", found, f"choose one of {', '.join(sorted(MODELS))}, or none")
        return
    model = build_local_model(settings, node)
    check_computation(settings.train, node.device)
    name = node.model_name or settings.model.name
    count = sum(parameter.numel() for parameter in model.parameters())
    whose = "this node's own encoder" if name != settings.model.name else "the run's"
    yield ok("model", f"{name} ({whose}), {count:,} parameters, {settings.train.precision}")
