"""A ResNet-50 goes through the fence, both ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.deployment.sites import SETTINGS
from tests.real.deployment import Deployment
from tests.settings import ROOT


@pytest.mark.long
def test_a_resnet50_goes_both_ways(
    deployment: Deployment, record_property: Callable[[str, object], None]
) -> None:
    settings = {
        **SETTINGS,
        "algorithm": "fedavg",
        "num-rounds": 1,
        "model.name": "resnet50",
        "model.norm": "group",  # of 8x8 pixels, the last layers see one
        "train.local-steps": 1,
        "train.batch-size": 4,
        # One of the three trains.
        "server.fraction-train": 0.3,
        "server.min-replies": 1,
        "experiment": "resnet50",
    }
    run = deployment.submit(ROOT, settings)
    record_property("seconds", run.wait())
    line = run.lines()[0]
    # One, or all three if that one was too busy and the round was tried again.
    assert line["participants"]
    final = run.final()
    size = sum(tensor.numel() * tensor.element_size() for tensor in final.values())
    assert size > 93e6
    assert any(tensor.isnan().any() for tensor in final.values()) is False
