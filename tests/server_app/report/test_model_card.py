"""The card says what a model is, and names no site."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard

from common.data import data_spec
from common.tasks import build_task
from server_app.report.model_card import Subject, model_card
from tests.settings import make_settings

CLIENTS = {
    "mean": 0.75,
    "std": 0.15,
    "worst": {"name": "st-elsewhere", "accuracy": 0.6},
    "weighted": 0.8,
    "loss": 0.5,
    "examples": 40,
    "per-class": [0.5] * 10,
    "per-client": {"st-elsewhere": 0.6, "princeton": 0.9, "empty": None},
    "undefined": {"per-client": {"empty": "there are no examples"}},
}
LINE: dict[str, Any] = {
    "round": 7,
    "global": {"accuracy": 0.875, "loss": 0.25, "examples": 400, "per-class": [0.875] * 10},
    "clients": CLIENTS,
}


def subject(line: dict[str, Any] | None = None, **overrides: Any) -> Subject:
    settings = make_settings(**overrides)
    return Subject(
        experiment="demo",
        settings=settings,
        spec=data_spec(settings.data),
        task=build_task(settings),
        line=LINE if line is None else LINE | line,
        sites=3,
        examples=1234,
        whole=True,
    )


def front_matter(card: str) -> Any:
    match = re.match(r"---\n(.*?)\n---\n", card, re.DOTALL)
    assert match
    return yaml.safe_load(match.group(1))


def test_its_head_is_what_hugging_face_reads() -> None:
    card = model_card(subject(algorithm="moon+fedgen"), "a" * 64)
    data = ModelCard(card).data
    assert data.pipeline_tag == "image-classification"
    assert data.tags[-2:] == ["moon", "fedgen"]
    assert data.model_name == "demo"
    found = {(each.metric_name, each.metric_value) for each in data.eval_results}
    assert found == {
        ("global accuracy", 0.875),
        ("global loss", 0.25),
        ("sites accuracy", 0.8),
        ("sites loss", 0.5),
    }


def test_it_says_how_scores_spread_over_sites_and_names_none() -> None:
    card = model_card(subject(), "a" * 64)
    assert "| accuracy | 0.875 | 0.8 |" in card
    assert "Over 2 sites, each on its own examples, accuracy is 0.75 ± 0.15" in card
    assert "from 0.6 to 0.9." in card
    for name in ("st-elsewhere", "princeton", "empty"):
        assert name not in card


def test_it_says_on_what_it_was_trained_and_with_which_settings() -> None:
    card = model_card(subject(algorithm="moon", **{"moon.mu": 2.5}), "ab" * 32)
    assert "| sites | 3 |" in card
    assert "| training examples | 1,234, all sites together |" in card
    assert "| `moon.mu` | `2.5` |" in card
    assert "fedgen." not in card, "what did not take part is not shown"
    assert "## What it must not be used for" in card
    assert f"`{'ab' * 32}`" in card


def test_what_was_not_evaluated_has_no_scores() -> None:
    card = model_card(subject({"global": None, "clients": None}), "a" * 64)
    assert "Nothing was evaluated in this round." in card
    assert "model-index" not in front_matter(card)


def test_a_score_that_is_not_defined_is_left_out() -> None:
    nothing = {"mean": None, "std": None, "weighted": None, "per-client": {"empty": None}}
    card = model_card(subject({"global": {"accuracy": None}, "clients": nothing}), "a" * 64)
    assert "Nothing was evaluated in this round." in card


def test_a_regression_on_tables_prints_its_numbers() -> None:
    table = {"data.source": "npz", "data.kind": "table", "data.features": 4}
    line = {"global": {"rmse": 1.5}, "clients": None}
    card = model_card(subject(line, **{"task.name": "regression"}, **table), "a" * 64)
    assert front_matter(card)["pipeline_tag"] == "tabular-regression"
    assert '(answers,) = model.run(["numbers"], {"x": x})\nprint(answers)' in card
    assert "float32 `[n, 4]`" in card


def test_a_model_without_its_private_parts_is_not_to_be_loaded() -> None:
    card = model_card(dataclasses.replace(subject(), whole=False), "a" * 64)
    assert "without\na site's own part it gives no answers" in card
    assert "onnxruntime" not in card


@pytest.mark.parametrize("classes", ["a|b,c", "x: y,z", "ä,ö"])
def test_odd_names_of_classes_break_neither_table_nor_head(classes: str) -> None:
    own = {"data.source": "folder", "data.image-shape": "1x8x8", "data.num-classes": 2}
    card = model_card(subject(**own, **{"data.class-names": classes}), "a" * 64)
    assert front_matter(card)["library_name"] == "onnx"
    (row,) = [line for line in card.splitlines() if line.startswith("| classes |")]
    assert row.replace("\\|", "").count("|") == 3


def test_loading_takes_six_lines_at_most() -> None:
    for overrides in ({}, {"data.source": "mnist", "model.name": "fedgen-cnn"}):
        card = model_card(subject(**overrides), "a" * 64)
        (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
        assert 1 < len(code.splitlines()) <= 6
        compile(code, "card", "exec")
