"""All problems of a run config are said at once, each with what was given and what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from common.config import SettingsError, check_name, flat, nested
from tests.settings import make_settings

NPZ = {"data.source": "npz", "data.image-shape": "1x28x28", "data.num-classes": 2}
FOLDER = {**NPZ, "data.source": "folder"}


def problems(**overrides: Any) -> list[str]:
    """Return the lines that say what is wrong."""
    with pytest.raises(SettingsError) as caught:
        make_settings(**overrides)
    return str(caught.value).splitlines()[1:]


def test_problems_of_several_tables_and_of_several_settings_together_are_all_said() -> None:
    lines = problems(
        **{
            "algorithm": "moon+sgd",
            "resume": True,  # without a name of an experiment
            "data.source": "npz",  # without shape and classes
            "data.validation-fraction": 0.0,  # while clients evaluate on it
            "model.name": "vgg",
            "moon.mu": "high",
            "moon.nu": 1,
        }
    )
    keys = [line.split(":")[0].strip() for line in lines]
    assert keys == [
        "algorithm",
        "resume",
        "data.client-test",
        "data.image-shape",
        "data.num-classes",
        "model.name",
        "moon.mu",
        "moon.nu",
    ]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"moon.mu": "high"}, "moon.mu: Input should be a valid number; given was 'high'"),
        ({"moon.mu": -1}, "moon.mu: Input should be greater than or equal to 0; given was -1"),
        ({"train.batch-size": 1.5}, "given was 1.5"),
        ({"train.drop-last": 1}, "given was 1"),
        ({"data.alpha": float("nan")}, "data.alpha: Input should be a finite number"),
        ({"algorithm": "moon+moon"}, "given was 'moon+moon'"),
        ({"model.name": "vgg"}, "model.name: Input should be 'char-lstm', 'cnn1d'"),
        ({"moon.nu": 1}, "moon.nu: unknown setting; docs/settings.md lists them all"),
        ({"experiment": "../up"}, "experiment: experiment '../up' can't be used as a folder name"),
        ({**NPZ, "data.image-shape": "0x28x28"}, "data.image-shape: "),
        ({**NPZ, "data.num-classes": 1}, "data.num-classes: source 'npz' needs"),
        ({"data.num-classes": 10}, "data.num-classes: source 'digits' has its own"),
        ({**NPZ, "data.image-shape": "1x28x10000"}, "data.image-shape: "),
        (
            {**NPZ, "data.class-names": "cat,dog"},
            "data.class-names: only sources 'folder', 'table' and",
        ),
        (
            {**FOLDER, "data.class-names": "cat"},
            "data.class-names: 1 names, but data.num",
        ),
        ({**FOLDER, "data.class-names": "cat,cat"}, "data.class-names: names of folders"),
        (
            {**FOLDER, "data.class-names": "cat,../x"},
            "data.class-names: names of folders",
        ),
        (
            {**FOLDER, "data.class-names": "cat, dog"},
            "data.class-names: names of folders",
        ),
        ({"fedgen.start-round": 1}, "fedgen.start-round: Input should be greater than"),
        ({"train.batch-size": 2**31}, "train.batch-size: Input should be at most 2147483647"),
        ({"model.projection-dim": 70_000}, "model.projection-dim: Input should be less than or"),
        ({"experiment": "prepared"}, "experiment: the state folder keeps prepared data"),
        ({"moon.mu.x": 1}, "moon.mu.x: unknown setting"),
        ({"algorithm.x.y": 1}, "algorithm.x.y: unknown setting"),
        ({"algorithm": "scaffold+feddyn"}, "algorithm: scaffold and feddyn both"),
        ({"algorithm": "fedprox+feddyn"}, "algorithm: feddyn has fedprox's term in it"),
        ({"algorithm": "scaffold"}, "train: scaffold reads the mean gradient"),  # momentum 0.9
        (
            {"algorithm": "scaffold", "train.momentum": 0.0, "train.optimizer": "adam"},
            "train: scaffold reads the mean gradient",
        ),
        (
            {"algorithm": "feddyn", "server.aggregator": "fedmedian"},
            "server: feddyn adds up all clients' corrections",
        ),
        (
            {"algorithm": "feddyn", "server.max-update-norm": 9.0, "server.norm-policy": "clip"},
            "server: server.norm-policy 'clip' changes replies that feddyn reads",
        ),
        ({"server.learning-rate-decay": 0.9}, "server: server.aggregator 'fedavg' has no learning"),
        ({"server.learning-rate-warm-up": 1}, "server: server.aggregator 'fedavg' has no learning"),
        ({"train.learning-rate-rounds": 0}, "train.learning-rate-rounds: Input should be greater"),
        ({"moon.mu-start": 0.5}, "moon.mu-rounds: moon.mu-start needs it"),
        ({"moon.temperature-start": 0.5}, "moon.temperature-rounds: moon.temperature-start and"),
        ({"moon.temperature-rounds": 5}, "moon.temperature-rounds: moon.temperature-start and"),
        ({"resume-changes": "moon.mu"}, "resume-changes: only a run that is resumed"),
        (
            {"resume": True, "experiment": "e", "resume-changes": "moon.mu,seed"},
            "resume-changes: seed can't change in the middle",
        ),
        ({"server.client-weights": "a=0"}, "server.client-weights: names of clients with a number"),
        ({"server.client-weights": "a=2,a=3"}, "each name once"),
        ({"server.client-weights": "a=2, b=3"}, "wrong is [' b=3']"),
        ({"server.client-weights": "a=inf"}, "wrong is ['a=inf']"),
        (
            {"server.client-weights": "a=2", "server.aggregator": "fedmedian"},
            "server.client-weights: server.aggregator 'fedmedian' counts all clients alike",
        ),
        (
            {"server.client-weights": "a=2", "algorithm": "feddyn"},
            "server: server.client-weights can't go with feddyn",
        ),
        ({"feddyn.alpha": 0}, "feddyn.alpha: Input should be greater than 0"),
        ({"moon": 5}, "moon: a table of settings, not a value; given was 5"),
    ],
)
def test_a_problem_names_the_setting_and_what_was_given(
    overrides: dict[str, Any], message: str
) -> None:
    (line,) = problems(**overrides)
    assert message in line


def test_a_whole_number_is_a_number() -> None:
    # `flwr run -c moon.mu=5` hands over an int.
    assert make_settings(**{"moon.mu": 5}).moon.mu == 5.0


def test_site_data_with_shape_and_classes_are_accepted() -> None:
    assert make_settings(**NPZ).data.is_site_data
    assert not make_settings().data.is_site_data


def test_a_run_can_be_resumed_by_name_only() -> None:
    assert make_settings(experiment="mine", resume=True).resume
    (line,) = problems(resume=True)
    assert "experiment=NAME" in line


def test_fedavg_adds_nothing_to_a_sum() -> None:
    assert make_settings(algorithm="fedavg").algorithms == ()
    assert make_settings(algorithm="fedavg+moon+fedgen").algorithms == ("moon", "fedgen")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\\b", "a\0", "a b", "é", "a\n", "x" * 65])
def test_names_that_could_leave_their_folder_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="client name"):
        check_name(name, "client name")


@pytest.mark.parametrize("name", ["a", "site-a_1.2", "..a", "x" * 64])
def test_other_names_are_kept(name: str) -> None:
    assert check_name(name, "client name") == name


def test_dotted_keys_and_tables_are_each_others_reverse() -> None:
    dotted = {"seed": 1, "moon.mu": 2.0, "moon.temperature": 0.5}
    tables = {"seed": 1, "moon": {"mu": 2.0, "temperature": 0.5}}
    assert nested(dotted) == tables
    assert flat(tables) == dotted
