"""A client sends replies that can't be averaged: each is left out, with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.in_process.grid import Fault as ReplyFault
from tests.in_process.grid import never
from tests.in_process.reference import SETTINGS, differences, reference
from tests.real.app_copy import Fault, make_app
from tests.real.loopback import Loopback

BAD = "client-0001"
REASONS = {
    "nan": "NaN or infinity",
    "infinity": "NaN or infinity",
    "wrong-shape": "the model has",
    "wrong-dtype": "the model has float32",
    "missing-key": "missing ['encoder",
    "extra-key": "extra ['another.weight']",
    "negative-examples": "num-examples is -5",
    "zero-examples": "num-examples is 0",
    "huge-examples": f"num-examples is {2**62}",
    "wrong-round": "round",
}
"""From what is wrong with the reply of round 1, 2, ... to a part of the reason."""


@pytest.mark.long
def test_bad_replies_of_every_kind_leave_the_result_to_the_others(
    federation: Loopback, tmp_path: Path
) -> None:
    settings = {
        **SETTINGS,
        "num-rounds": len(REASONS) + 1,
        "server.min-replies": 1,
        "experiment": "bad-replies",
    }
    faults = [Fault("replying", BAD, number, kind) for number, kind in enumerate(REASONS, 1)]
    run = federation.submit(make_app(tmp_path / "app", faults).folder, settings)
    run.wait()

    refused = {line["round"]: line["refused"] for line in run.lines()}
    for number, (kind, reason) in enumerate(REASONS.items(), 1):
        assert list(refused[number]) == [BAD], kind
        assert reason in refused[number][BAD], kind
    assert refused[len(REASONS) + 1] == {}, "an honest reply is counted again"

    silent = [ReplyFault(1, never, rounds=range(1, len(REASONS) + 1))]
    expected = reference(tmp_path / "reference", settings, faults=silent)
    assert differences(run.final(), expected) == []
