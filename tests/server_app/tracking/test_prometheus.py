"""What Prometheus reads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from server_app.tracking.destination import PROMETHEUS_VARIABLE, Source
from server_app.tracking.growing_file import whole_lines
from server_app.tracking.prometheus import COUNTERS, GAUGES, Standing, exposition
from server_app.tracking.textfile import Textfile
from tests.server_app.tracking.rounds import line_of, make_experiment
from tests.settings import ROOT


def samples(text: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """Return values by name and by the values of the labels, sorted by their names."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            key = tuple(value for _, value in sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def test_the_text_says_where_an_experiment_stands_and_counts_from_the_first_round() -> None:
    standing = Standing("exp", 5)
    standing.add(line_of(1, alarms=["one", "two"], missing=["d"]), 1000.0)
    standing.add(line_of(2), 1002.0)
    found = samples(exposition([standing]))
    assert found["moonflower_round"] == {("exp",): 2}
    assert found["moonflower_rounds"] == {("exp",): 5}
    assert found["moonflower_running"] == {("exp",): 1}
    assert found["moonflower_last_round_timestamp_seconds"] == {("exp",): 1002}
    assert found["moonflower_score"][("exp", "global", "accuracy")] == 0.8
    assert found["moonflower_score"][("exp", "worst", "accuracy")] == 0.5
    assert found["moonflower_client_score"] == {("a", "exp"): 1.0, ("b", "exp"): 0.5}
    assert found["moonflower_clients"][("exp", "missing")] == 0
    assert found["moonflower_alarms_total"] == {("exp",): 2}
    assert found["moonflower_refused_replies_total"] == {("c", "exp"): 2}
    assert found["moonflower_missing_replies_total"] == {("d", "exp"): 1}
    assert found["moonflower_bytes_total"] == {("received", "exp"): 100, ("sent", "exp"): 200}
    assert found["moonflower_training_seconds_total"] == {("exp",): 4}


def test_a_round_without_evaluation_keeps_the_scores_of_the_last_one_that_had() -> None:
    standing = Standing("exp")
    standing.add(line_of(1), 0.0)
    standing.add(line_of(2, clients=None, **{"global": None}), 0.0)
    assert samples(exposition([standing]))["moonflower_score"][("exp", "global", "loss")] == 0.4


def test_no_experiment_gives_no_metric() -> None:
    assert exposition([]) == b""


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_file_is_whole_after_every_round_and_node_exporter_may_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int
) -> None:
    folder = make_experiment(tmp_path / "exp")
    monkeypatch.setenv(PROMETHEUS_VARIABLE, str(tmp_path / "text"))
    path = tmp_path / "text" / "moonflower-exp.prom"
    lines = whole_lines(folder / "metrics.jsonl")
    before = os.umask(umask)
    try:
        file = Textfile(Source(folder))
        file.open(lines[:2])
        assert samples(path.read_bytes())["moonflower_round"] == {("exp",): 2}
        file.add(lines[2])
        # Three rounds of two seconds, from 1,000 s on.
        assert samples(path.read_bytes())["moonflower_last_round_timestamp_seconds"] == {
            ("exp",): 1006
        }
        file.close(finished=True)
    finally:
        os.umask(before)
    found = samples(path.read_bytes())
    assert (found["moonflower_running"], found["moonflower_finished"]) == (
        {("exp",): 0},
        {("exp",): 1},
    )
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(path.parent.iterdir()) == [path]


def test_every_metric_that_the_grafana_dashboard_names_exists() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [each["query"] for each in board["templating"]["list"] if "query" in each]
    named = {name for query in queries for name in re.findall(r"moonflower_\w+", str(query))}
    known = {*GAUGES, *(f"{name}_total" for name in COUNTERS)}
    assert named
    assert named <= known
    assert known <= named, "shown nowhere"


def test_the_dashboard_shows_the_health_that_the_docs_tell_prometheus_to_ask_for() -> None:
    board = json.loads((ROOT / "docs" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    jobs = {job for query in queries for job in re.findall(r'probe_\w+{job="([^"]+)"}', query)}
    assert jobs
    configured = (ROOT / "docs" / "tracking.md").read_text()
    assert all(f"job_name: {job}" in configured for job in jobs)
