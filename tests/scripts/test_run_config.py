"""What a person types becomes a checked run config."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.config import SettingsError
from scripts.moonflower.repository import PRESETS
from scripts.moonflower.run_config import make_plan, read_overrides, read_preset

PRESET_NAMES = sorted(path.stem for path in PRESETS.glob("*.toml"))


def test_values_are_toml_and_bare_words_are_strings() -> None:
    assert read_overrides("moon.mu=5 data.source=mnist data.download=true seed='x y'") == {
        "moon.mu": 5,
        "data.source": "mnist",
        "data.download": True,
        "seed": "x y",
    }
    assert read_overrides("train.learning-rate=3e-4") == {"train.learning-rate": 0.0003}


@pytest.mark.parametrize("text", ["moon.mu", "moon.mu 5", "=5", "moon.mu=5 and"])
def test_what_is_no_pair_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(SettingsError, match=r"moon\.mu=5"):
        read_overrides(text)


def test_an_inline_table_changes_only_what_it_names() -> None:
    plan = make_plan(None, ["moon={mu=3}"], {}, None)
    assert (plan.settings.moon.mu, plan.settings.moon.buffer_size) == (3.0, 1)


def test_an_empty_name_of_a_preset_is_no_preset() -> None:
    with pytest.raises(SettingsError, match="preset ''"):
        make_plan("", [], {}, None)


def test_a_path_of_a_toml_file_stands_for_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('algorithm = "fedgen"\n[moon]\nmu = 2\n')
    assert read_overrides(str(file)) == {"algorithm": "fedgen", "moon.mu": 2}


def test_a_broken_toml_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "broken.toml"
    file.write_text("moon.mu = = 2\n")
    with pytest.raises(SettingsError, match=r"broken\.toml can't be read as TOML"):
        read_overrides(str(file))


def test_options_win_over_run_config_which_wins_over_the_preset() -> None:
    plan = make_plan("moon-cifar10", ["moon.mu=1 num-rounds=7"], {"num-rounds": 3}, None)
    assert plan.settings.moon.mu == 1.0
    assert plan.settings.num_rounds == 3
    assert plan.settings.moon.temperature == 0.5
    assert plan.settings.data.source == "cifar10"


@pytest.mark.parametrize(
    ("preset", "run_config", "clients", "expected_clients", "expected_minimum"),
    [
        (None, [], None, 10, 10),
        (None, [], 3, 3, 3),
        (None, ["server.min-clients=5"], None, 5, 5),
        (None, ["server.min-clients=2"], None, 10, 2),
        ("fedgen-official", [], None, 20, 20),
        ("fedgen-official", [], 4, 4, 4),
        ("fedgen-official", ["server.min-clients=3"], 4, 4, 3),
    ],
)
def test_all_clients_are_waited_for_unless_fewer_are_asked_for(
    preset: str | None,
    run_config: list[str],
    clients: int | None,
    expected_clients: int,
    expected_minimum: int,
) -> None:
    plan = make_plan(preset, run_config, {}, clients)
    assert plan.clients == expected_clients
    assert plan.settings.server.min_clients == expected_minimum


def test_a_simulation_gives_ray_time_to_start_unless_told_otherwise() -> None:
    assert make_plan(None, [], {}, None).settings.server.start_timeout == 300.0
    plan = make_plan(None, ["server.start-timeout=5"], {}, None)
    assert plan.settings.server.start_timeout == 5.0


def test_waiting_for_more_clients_than_there_are_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"min-clients = 6, but --clients is 5"):
        make_plan(None, ["server.min-clients=6"], {}, 5)


def test_more_replies_than_clients_are_not_waited_for() -> None:
    with pytest.raises(SettingsError, match=r"min-replies = 6, but there are 5 clients"):
        make_plan(None, ["server.min-replies=6"], {}, 5)


def test_a_wrong_type_of_min_clients_is_reported_and_not_replaced() -> None:
    with pytest.raises(SettingsError, match=r"server\.min-clients: .*given was 'many'"):
        make_plan(None, ["server.min-clients=many"], {}, None)


def test_an_experiment_without_a_name_is_named_after_algorithm_and_data() -> None:
    plan = make_plan(None, ["algorithm=moon+fedgen"], {}, None)
    assert plan.settings.experiment.startswith("moon-fedgen-digits-")
    assert plan.overrides["experiment"] == plan.settings.experiment


def test_an_unknown_preset_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(
        SettingsError,
        match=r"'moon'.*fedgen-head-only, fedgen-official, fedgen-paper, .*moon-cifar10",
    ):
        read_preset("moon")


def test_the_presets_of_both_papers_exist() -> None:
    papers = {"fedgen-head-only", "fedgen-official", "fedgen-paper", "moon-cifar10"}
    assert papers <= set(PRESET_NAMES)


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_every_preset_gives_valid_settings_and_waits_for_all_its_clients(name: str) -> None:
    plan = make_plan(name, [], {}, None)
    clients = {"moon": 10, "fedgen": 20, "heart": 4, "shakespeare": 10}
    assert plan.clients == clients[name.split("-", maxsplit=1)[0]]
    assert plan.settings.server.min_clients == plan.clients


@pytest.mark.parametrize("name", ["fedgen-head-only", "fedgen-official", "fedgen-paper"])
def test_fedgen_presets_set_every_fedgen_setting(name: str) -> None:
    from tests.settings import default_run_config

    wanted = {key for key in default_run_config() if key.startswith("fedgen.")}
    assert wanted <= set(read_preset(name))


def test_fedgen_head_only_is_the_published_code_with_only_the_predictor_shared() -> None:
    head_only, code = read_preset("fedgen-head-only"), read_preset("fedgen-official")
    assert head_only == {**code, "model.sharing": "predictor"}


def test_the_two_fedgen_presets_differ_where_paper_and_code_do() -> None:
    paper, code = read_preset("fedgen-paper"), read_preset("fedgen-official")
    for key in (
        "data.partition",
        "data.client-test",
        "model.batch-norm-buffers",
        "server.weighting",
        "fedgen.noise",
        "fedgen.teacher",
        "fedgen.labels",
        "fedgen.label-counts",
        "fedgen.alpha",
        "fedgen.beta",
        "fedgen.decay",
    ):
        assert paper[key] != code[key], key
