"""The page that goes with a model: what it is, how good, for what, and how to load it.

Markdown with the front matter of Hugging Face's model cards. It speaks of how many sites and
examples there were and how scores spread over sites; it names no site.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.config import Settings, flat
from common.data import DataSpec
from common.tasks import Task

_PIPELINES = {
    ("image", "classification"): "image-classification",
    ("table", "classification"): "tabular-classification",
    ("table", "regression"): "tabular-regression",
    ("tokens", "classification"): "text-classification",
}
"""Hugging Face's names, by kind of data and task."""

_SHOWN = ("task", "data", "model", "train")
"""Tables of settings that say what a model is; the algorithm's own are shown beside them."""


@dataclass(frozen=True)
class Subject:
    """What a card is about.

    Attributes
    ----------
    experiment : str
    settings : Settings
    spec : DataSpec
    task : Task
    line : Mapping
        The model's round, as in ``metrics.jsonl``.
    sites : int
        Clients of which an update was used up to that round.
    examples : int
        Their training examples, all together.
    whole : bool
        Whether all parts of the model are there; not where some never left the clients.
    """

    experiment: str
    settings: Settings
    spec: DataSpec
    task: Task
    line: Mapping[str, Any]
    sites: int
    examples: int
    whole: bool


def model_card(subject: Subject, sha256: str) -> str:
    """Return the card.

    Parameters
    ----------
    subject : Subject
    sha256 : str
        Of ``model.safetensors``.
    """
    parts = (
        _front_matter(subject),
        _what(subject),
        _scores(subject),
        _training(subject),
        _LIMITS,
        _loading(subject) if subject.whole else _INCOMPLETE,
        f"## Checksum\n\nSHA-256 of `model.safetensors`: `{sha256}`\n",
    )
    return "\n".join(parts)


def _front_matter(subject: Subject) -> str:
    """Return YAML; JSON is YAML, so every value is written as JSON."""
    kind, task = subject.spec.kind.name, subject.settings.task.name
    pipeline = _PIPELINES.get((kind, task))
    metrics = [
        {"type": name, "name": f"{where} {name}", "value": value}
        for where, values in (("global", subject.line.get("global")), *_pooled(subject))
        for name, value in _single_numbers(values).items()
        if name != "examples"
    ]
    result = {
        "task": {"type": pipeline or task},
        "dataset": {"type": subject.spec.name, "name": subject.spec.name},
        "metrics": metrics,
    }
    head: dict[str, object] = {
        "library_name": "onnx",
        **({"pipeline_tag": pipeline} if pipeline else {}),
        "tags": ["federated-learning", "moonflower", *subject.settings.algorithm.split("+")],
        **({"model-index": [{"name": subject.experiment, "results": [result]}]} if metrics else {}),
    }
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()]
    return "\n".join(["---", *lines, "---", ""])


def _what(subject: Subject) -> str:
    spec, settings = subject.spec, subject.settings
    stored = " x ".join(map(str, spec.kind.stored_shape))
    classes = settings.data.classes
    rows = {
        "task": settings.task.name,
        "input": f"{spec.kind.stored}, {stored} ({' or '.join(spec.kind.dtypes)})",
        "gives": subject.task.answer,
        **({"classes": ", ".join(classes)} if classes else {}),
        "model": settings.model.name,
        "algorithm": settings.algorithm,
        "round": subject.line["round"],
        "sites": subject.sites,
        "training examples": f"{subject.examples:,}, all sites together",
    }
    return (
        f"# {subject.experiment}\n\n"
        f"A model for {settings.task.name}, trained by federated learning on {subject.sites} sites "
        "with Moonflower, a [Flower](https://flower.ai) app. No example left its site.\n\n"
        + _table(("what", ""), rows)
    )


def _scores(subject: Subject) -> str:
    lines = ["## Scores", ""]
    tested = _single_numbers(subject.line.get("global"))
    together = dict(_pooled(subject)).get("sites")
    columns = {
        name: values
        for name, values in (("test set", tested), ("sites", _single_numbers(together)))
        if values
    }
    if not columns:
        return "\n".join([*lines, "Nothing was evaluated in this round.", ""])
    names = list(dict.fromkeys(name for values in columns.values() for name in values))
    heading = {"test set": "the server's test set", "sites": "all sites' examples together"}
    lines += [
        f"| score | {' | '.join(heading[name] for name in columns)} |",
        f"|---|{'---|' * len(columns)}",
        *(
            f"| {name} | {' | '.join(_shown(each.get(name)) for each in columns.values())} |"
            for name in names
        ),
        "",
        *_spread(subject),
    ]
    return "\n".join(lines)


def _pooled(subject: Subject) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the scores of all sites' evaluation examples together, if there are any."""
    clients = subject.line.get("clients")
    if not clients:
        return []
    others = {"weighted", "mean", "std"}
    values = {subject.task.headline.name: clients.get("weighted")}
    return [("sites", values | {k: v for k, v in clients.items() if k not in others})]


def _spread(subject: Subject) -> list[str]:
    clients = subject.line.get("clients") or {}
    values = _single_numbers(clients.get("per-client")).values()
    if not values:
        return []
    return [
        f"Over {len(values)} sites, each on its own examples, {subject.task.headline.name} is "
        f"{_shown(clients['mean'])} ± {_shown(clients['std'])} (mean and standard deviation), from "
        f"{_shown(min(values))} to {_shown(max(values))}.",
        "",
    ]


def _training(subject: Subject) -> str:
    settings = subject.settings
    tables = settings.model_dump(by_alias=True)
    shown = {name: tables[name] for name in (*_SHOWN, *settings.algorithms) if name in tables}
    rows = {
        "num-rounds": settings.num_rounds,
        "seed": settings.seed,
        "server.aggregator": settings.server.aggregator,
        # What is off or empty says little.
        **{name: value for name, value in flat(shown).items() if value},
    }
    return "## Training\n\n" + _table(
        ("setting", ""), {f"`{name}`": f"`{json.dumps(v)}`" for name, v in rows.items()}
    )


_LIMITS = """## What it must not be used for

* **Other data.** It knows examples like those of its sites, in the form said above. On data of a
  site that had no part in the training it may be much worse than any number here: measure it there
  first (`moonflower evaluate`), and again when devices, protocols or people change.
* **Decisions about people that nobody looks at.** It has not been assessed for any purpose; it is
  no medical device. Scores are means: groups that are rare among the examples may fare worse.
* **Certainty.** Its answers are those of a neural network, sure of themselves also where they are
  wrong.
* **Keeping secrets.** Federated learning keeps examples at their sites, but a model may have
  memorised some. Whoever gets it can look for them.
"""

_INCOMPLETE = """## Loading

This folder holds only what the sites shared (`model.sharing`, `model.batch-norm-buffers`): without
a site's own part it gives no answers, and can't be exported.
"""


def _loading(subject: Subject) -> str:
    spec, answer = subject.spec, subject.task.answer
    shape = ", ".join(map(str, spec.kind.stored_shape))
    answers = (
        'names = json.loads(model.get_modelmeta().custom_metadata_map["class-names"])\n'
        "print([names[best] for best in answers.argmax(axis=1)])"
        if subject.settings.task.name == "classification"
        else "print(answers)"
    )
    return f"""## Loading

`model.onnx` beside this page is all that is needed, with Python's `numpy` and `onnxruntime`. Where
it is missing, whoever has Moonflower makes it once: `moonflower export-model . --to onnx`, in this
folder. Examples are given as they are stored, {spec.kind.dtypes[0]} `[n, {shape}]`; their
preparation is inside.

```python
import json, numpy as np, onnxruntime
model = onnxruntime.InferenceSession("model.onnx")
x = np.load("examples.npz")["x"]
(answers,) = model.run(["{answer}"], {{"x": x}})
{answers}
```
"""


def _single_numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the scores that are one number."""
    return {
        name: value
        for name, value in (values or {}).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else f"{value:,}"


def _table(head: tuple[str, str], rows: Mapping[str, object]) -> str:
    cells = [(name, str(value).replace("|", "\\|")) for name, value in rows.items()]
    lines = (f"| {name} | {value} |" for name, value in (head, ("---", "---"), *cells))
    return "\n".join([*lines, ""])
