"""What all other tests of this folder compare with."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from tests.failures.app_copy import make_app
from tests.failures.federation import Federation
from tests.failures.reference import SETTINGS, differences


def test_a_deployment_gives_the_bits_of_the_same_run_in_one_process(
    federation: Federation, undisturbed: dict[str, Tensor], tmp_path: Path
) -> None:
    app = make_app(tmp_path)
    run = federation.submit(app.folder, {**SETTINGS, "experiment": "undisturbed"})
    run.wait()
    assert differences(run.final(), undisturbed) == []
