"""The report says what happened, of any run, and nothing that a site sends becomes HTML."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from scripts.moonflower.experiments.experiment import read_experiment
from scripts.moonflower.pages import words
from scripts.moonflower.pages.command import write_after_run
from scripts.moonflower.pages.page import report, view_of, write_report
from scripts.moonflower.pages.participation import alarms_of, clients_of, refusals_of
from tests.scripts.experiments.written import facts_of, line_of, write_experiment

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


def page_of(folder: Path) -> str:
    """Return the report of one experiment."""
    return report([read_experiment(folder)])


class Tags(HTMLParser):
    """Collects what is an element, and what it would run or load."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.loaded: list[str] = []
        self.handlers: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.names.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]


def test_the_result_is_a_sentence_with_the_worst_client_and_the_best_round(tmp_path: Path) -> None:
    lines = [line_of(n) for n in (1, 2, 3, 4)]
    lines[3]["global"]["accuracy"] = 0.25  # the best was round 3, 1 - exp(-3/8) = 0.313
    said = words.result_of(read_experiment(write_experiment(tmp_path / "trial", lines)))
    assert "The run has finished after 4 rounds." in said
    assert "The global model's accuracy is 0.250" in said
    # 1 - exp(-4/8) = 0.393, times 0.6 + 0.4 / 3
    assert "the worst is client-0000 with 0.289" in said
    assert said.endswith("The best model was that of round 3, with 0.313.")


def test_nothing_that_sites_send_becomes_an_element_or_a_handler(tmp_path: Path) -> None:
    line = line_of(1)
    line["refused"] = {EVIL: EVIL}
    line["alarms"] = [EVIL]
    line["clients"]["per-client"][EVIL] = 0.5
    line["clients"]["worst"]["name"] = EVIL
    line["train"][EVIL] = 1.0
    facts = facts_of("trial", **{"data.class-names": f"{EVIL},b,c"})
    facts["clients"].append({"name": EVIL, "examples-per-label": [1, 2, 3]})
    facts["versions"][EVIL] = EVIL
    page = page_of(write_experiment(tmp_path / "trial", [line], facts))
    tags = Tags(page)
    assert "&lt;script&gt;alert(1)" in page
    assert not tags.names & {"script", "img", "iframe", "object"}
    assert tags.handlers == []
    assert all(address.startswith("data:") for address in tags.loaded)


def test_the_page_has_no_script_and_asks_no_network(tmp_path: Path) -> None:
    page = page_of(write_experiment(tmp_path / "trial", [line_of(1)]))
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    assert not re.findall(r"https?://|url\((?!#)|@import", page)


def test_who_was_refused_when_and_why_and_who_is_worst_can_be_read(tmp_path: Path) -> None:
    lines = [line_of(n) for n in range(1, 8)]
    for number in (2, 3, 4, 6):
        lines[number - 1]["refused"] = {"client-0002": "not finite"}
    lines[4]["missing"] = ["client-0001"]
    lines[6]["evaluation"]["refused"] = {"client-0001": "no finite loss"}
    experiment = read_experiment(write_experiment(tmp_path / "trial", lines))
    assert clients_of(experiment)[0].name == "client-0000"
    assert [(r.client, r.phase, r.rounds, r.reason) for r in refusals_of(lines)] == [
        ("client-0001", "evaluation", "7", "no finite loss"),
        ("client-0002", "training", "2-4, 6", "not finite"),
        ("client-0001", "training", "5", "no answer in time"),
    ]
    page = report([experiment])
    assert "2-4, 6" in page
    assert "refused (5)" in page


def test_an_alarm_that_comes_again_is_one_sentence_with_its_rounds() -> None:
    lines = [{"round": n, "alarms": ["a"] if n != 2 else ["b", "a"]} for n in (1, 2, 3)]
    assert [(a.text, a.rounds) for a in alarms_of(lines)] == [("a", "1-3"), ("b", "2")]


def test_settings_that_differ_from_the_defaults_are_shown_and_make_the_command(
    tmp_path: Path,
) -> None:
    facts = facts_of("trial", **{"moon.mu": 5.0, "data.class-names": "a b,c"})
    experiment = read_experiment(write_experiment(tmp_path / "trial", [line_of(1)], facts))
    shown = {d.name: (d.value, d.default) for d in words.differences_of(experiment)}
    assert shown == {
        "moon.mu": ("5.0", "1.0"), "data.class-names": ("a b,c", '""'), "num-rounds": ("4", "20"),
    }  # fmt: skip
    # Of version 0.1, which did not say whose shares they are: as many as there were.
    assert words.command_of(experiment) == (
        "moonflower simulate --clients 3 -c 'data.class-names=a b,c' -c moon.mu=5.0 -c num-rounds=4"
    )
    facts["clients"][0]["partition"] = ""
    deployed = read_experiment(write_experiment(tmp_path / "deployed", [line_of(1)], facts))
    assert words.command_of(deployed).startswith("moonflower run SUPERLINK -c ")


def changed(**keys: Any) -> list[dict[str, Any]]:
    """Return the lines of one round with other values."""
    return [{**line_of(1), **keys}]


ODD: dict[str, list[dict[str, Any]]] = {
    "no round yet": [],
    "one round": [line_of(1)],
    "nothing evaluated": changed(clients=None, **{"global": None, "evaluation": None}),
    "a loss that is not finite": changed(train={"loss": None}),
    "clients only": changed(**{"global": None}),
    "regression": changed(
        **{"global": {"rmse": 2.0, "mae": 1.0, "r2": None, "loss": 4.0, "examples": 9}},
        clients={"mean": 2.0, "std": 0.0, "worst": {"name": "a", "rmse": 2.0},
                 "per-client": {"a": 2.0}},
    ),
    "version 0.1": [
        {"round": 1, "train": {"loss": 1.0}, "clients": {"mean": 0.5}, "refused": {}}
    ],
    "foreign types": changed(
        train=[], clients=3, refused=["x"], missing={}, alarms="no", seconds=None, bytes=[1],
        cosines={"a": 1, "b": {"update": None}}, evaluation=7, **{"update-norms": {"a": "b"}},
    ),
    "a matrix that is none": changed(
        **{"global": {"accuracy": 0.5, "confusion-matrix": [[1, 2], [3]], "calibration": [{}]}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_every_run_gives_a_page(tmp_path: Path, odd: str) -> None:
    folder = write_experiment(tmp_path / "trial", ODD[odd], finished=False)
    page = page_of(folder)
    assert "trial" in page
    assert page.rstrip().endswith("</html>")
    assert "nan" not in re.findall(r' d="([^"]*)"', page)


def test_an_error_is_read_with_less_being_better(tmp_path: Path) -> None:
    lines = [
        {"round": n, "global": {"rmse": error}, "clients": {
            "mean": error, "worst": {"name": "b", "rmse": error + 1},
            "per-client": {"a": error - 1, "b": error + 1}}}
        for n, error in ((1, 4.0), (2, 3.0))
    ]  # fmt: skip
    experiment = read_experiment(write_experiment(tmp_path / "trial", lines))
    assert [client.name for client in clients_of(experiment)][:2] == ["b", "a"]
    assert experiment.best == (2, 3.0)


def test_new_scores_are_drawn_by_their_shape(tmp_path: Path) -> None:
    line = line_of(1, classes=2)
    line["global"] |= {
        "sharpness": 0.5,
        "precision": [0.5, None],
        "confusion-matrix": [[3, 1], [0, 0]],
        "calibration": [{"confidence": 0.5, "hits": 0.4, "examples": 9}],
    }
    line["cosines"] = {"client-0000": {"update": 0.5}, "client-0001": {"update": 0.7}}
    experiment = read_experiment(write_experiment(tmp_path / "trial", [line]))
    titles = [p.title for section in view_of(experiment)["sections"] for p in section.pictures]
    assert {
        "sharpness",
        "Scores by class",
        "Confusion: share of each true class",
        "calibration: hits by confidence",
        "Cosine with the mean: update",
        "MOON's similarities",
    } <= set(titles)


def test_several_experiments_stand_side_by_side_with_what_differs(tmp_path: Path) -> None:
    one = write_experiment(tmp_path / "one", [line_of(1)], facts_of("one", **{"moon.mu": 1.0}))
    two = write_experiment(tmp_path / "two", [line_of(1)], facts_of("two", **{"moon.mu": 5.0}))
    page = report([read_experiment(one), read_experiment(two)])
    assert "2 experiments side by side" in page
    assert re.search(r"moon\.mu</th><td>1\.0</td><td>5\.0</td>", page)
    assert page.count("<details>") == 2


def test_a_report_that_can_not_be_written_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1)])
    (folder / "report.html").mkdir()
    write_after_run(folder)
    assert "warning: no report was written" in capsys.readouterr().err
    (folder / "report.html").rmdir()
    write_after_run(folder)
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    write_after_run(tmp_path / "absent")
    assert capsys.readouterr() == ("", "")


def test_a_report_replaces_the_one_before_whole(tmp_path: Path) -> None:
    folder = write_experiment(tmp_path / "trial", [line_of(1)])
    first = write_report(folder).read_text()
    assert [path.name for path in folder.glob("*report*")] == ["report.html"]
    assert "1 / 4" in first
