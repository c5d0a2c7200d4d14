"""Who took part, and who does after a resumption."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from server_app.clients.query import Client
from server_app.experiment.settings_file import note_resumption, read_settings, write_settings
from tests.settings import make_settings

SITES = {"data.source": "npz", "data.image-shape": "1x8x8", "data.num-classes": 2}


def client(name: str, *counts: int) -> Client:
    return Client(name=name, node_id=1, examples_per_label=counts)


def test_a_site_with_new_data_goes_on_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings(**SITES)
    write_settings(tmp_path, settings, "id", [client("a", 1, 2), client("b", 3, 4)])
    with caplog.at_level(logging.WARNING, "moonflower"):
        note_resumption(tmp_path, settings, "id", [client("a", 1, 7), client("b", 3, 4)])
    (said,) = caplog.messages
    assert said.endswith("than before:\n  a: 3 examples then, 8 now")
    assert read_settings(tmp_path)["clients"][0]["examples-per-label"] == [1, 7]


def test_who_is_away_is_named_and_stays_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = make_settings()
    write_settings(tmp_path, settings, "id", [client("a", 1), client("b", 3)])
    with caplog.at_level(logging.WARNING, "moonflower"):
        note_resumption(tmp_path, settings, "id", [client("b", 3)])
    (said,) = caplog.messages
    assert "goes on without a," in said
    assert [each["name"] for each in read_settings(tmp_path)["clients"]] == ["a", "b"]


def test_what_a_resumption_has_changed_stays_written_down(tmp_path: Path) -> None:
    clients = [client("a", 1)]
    write_settings(tmp_path, make_settings(experiment="e"), "id", clients)
    resumed = {"experiment": "e", "resume": True, "resume-changes": "moon.mu", "moon.mu": 5.0}
    note_resumption(tmp_path, make_settings(**resumed), "id", clients)
    changed = read_settings(tmp_path)["resumed"][0]["changed"]
    assert changed["moon.mu"] == {"then": 1.0, "now": 5.0}
    assert sorted(changed) == ["moon.mu", "resume", "resume-changes"]
