"""Who may resume an experiment, with which settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from common.config import Settings, flat
from common.config.settings import CHANGEABLE
from server_app.errors import NothingToResumeError, OutputError, ResumeError
from server_app.experiment.resume import FREE_TO_CHANGE, check_settings, locked, refuse_missing
from tests.settings import default_run_config, make_settings


def saved(**overrides: Any) -> dict[str, Any]:
    """Return settings as settings.json holds them."""
    return make_settings(experiment="exp", **overrides).model_dump(by_alias=True)


def now(**overrides: Any) -> Settings:
    """Return the settings of the resumed run."""
    return make_settings(experiment="exp", resume=True, **overrides)


def test_the_same_settings_may_go_on(caplog: pytest.LogCaptureFixture) -> None:
    check_settings(saved(), now())
    assert caplog.messages == []


def test_every_setting_that_differs_is_named_with_both_values() -> None:
    with pytest.raises(ResumeError) as caught:
        check_settings(saved(seed=1), now(**{"seed": 2, "moon.mu": 5.0, "train.batch-size": 8}))
    message = str(caught.value)
    assert "seed: started with 1, now 2" in message
    assert "moon.mu: started with 1.0, now 5.0" in message
    assert "train.batch-size: started with 32, now 8" in message
    assert "server.aggregator" not in message


def test_more_rounds_are_allowed_and_fewer_are_not() -> None:
    check_settings(saved(**{"num-rounds": 5}), now(**{"num-rounds": 9}))
    with pytest.raises(ResumeError, match="num-rounds: started with 5, now 4"):
        check_settings(saved(**{"num-rounds": 5}), now(**{"num-rounds": 4}))


def test_waiting_and_keeping_may_change() -> None:
    changed = {
        "server.round-deadline": 5.0,
        "server.straggler-grace": 1.0,
        "server.start-timeout": 9.0,
        "server.keep-checkpoints": 7,
        "server.min-clients": 1,
    }
    check_settings(saved(), now(**changed))
    with pytest.raises(ResumeError) as caught:
        check_settings(saved(), now(**changed, seed=1))
    message = str(caught.value)
    assert "seed: started with 0, now 1" in message
    assert [key for key in changed if f"{key}: started with" in message] == []


def test_what_is_free_to_change_exists() -> None:
    assert set(default_run_config()) >= FREE_TO_CHANGE


def test_nothing_that_shapes_a_round_is_free_to_change() -> None:
    tables = ("model.", "train.", "moon.", "fedgen.", "fedprox.")
    assert not [name for name in FREE_TO_CHANGE if name.startswith(tables)]
    assert not FREE_TO_CHANGE & {"seed", "algorithm", "server.min-replies", "server.exclude-rounds"}


def test_a_resumed_run_may_change_what_it_names_and_nothing_else() -> None:
    changed = {"train.learning-rate": 0.001, "moon.mu": 5.0}
    freed = {"resume-changes": "train.learning-rate,moon.mu"}
    check_settings(saved(), now(**changed, **freed))
    with pytest.raises(ResumeError, match=r"fedprox\.mu: started with") as caught:
        check_settings(saved(), now(**changed, **freed, **{"fedprox.mu": 1.0}))
    assert "moon.mu: started" not in str(caught.value)
    # What it named once is not free for ever.
    with pytest.raises(ResumeError, match=r"moon\.mu: started with"):
        check_settings(saved(), now(**changed, **{"resume-changes": "train.learning-rate"}))


def test_every_setting_that_may_be_named_exists() -> None:
    named = [name for name in default_run_config() if CHANGEABLE.fullmatch(name)]
    # train and server: a learning rate and four more each; mu of fedprox; seven of moon, five of
    # fedgen: were one renamed, it would be missing here.
    assert len(named) == 10 + 1 + 7 + 5


def test_a_setting_of_another_version_is_no_reason_to_refuse() -> None:
    older = saved()
    del older["moon"]["buffer-size"]
    older["gone"] = 1
    check_settings(older, now())
    assert "gone" in flat(older)


def test_a_missing_experiment_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(NothingToResumeError, match=r"'mine'(.|\n)*other"):
        refuse_missing(tmp_path / "mine")
    with pytest.raises(NothingToResumeError, match="none"):
        refuse_missing(tmp_path / "nowhere" / "mine")


def test_two_servers_can_t_work_on_one_folder(tmp_path: Path) -> None:
    with (
        locked(tmp_path),
        pytest.raises(OutputError, match="another server is working"),
        locked(tmp_path, timeout=0.01),
    ):
        pass
    with locked(tmp_path, timeout=0.01):
        pass
