"""The pictures of one experiment, from what its lines hold: by their shape, not by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scripts.moonflower.experiments.experiment import Experiment
from scripts.moonflower.experiments.metrics_file import Line, at, number_at, series
from scripts.moonflower.pages.heat_map import HeatMap, heat_map
from scripts.moonflower.pages.line_chart import Band, Curve, LineChart, line_chart
from scripts.moonflower.pages.participation import clients_of, events_of, names_in
from scripts.moonflower.pages.scales import text_of
from scripts.moonflower.pages.timeline import Timeline, timeline

Picture = LineChart | HeatMap | Timeline

PER_CLIENT = "per-client"
NOT_OF_THE_LOSS = ("num-examples", "steps", "train-seconds")
GROUPS = {
    "sim": "MOON's similarities",
    "generator": "The generator's losses",
    "generated": "Loss on generated examples",
    "cosine": "Direction of updates",
}
"""What measurements of training whose names begin so are called together."""


@dataclass(frozen=True)
class Section:
    """A heading, what its pictures say, and the pictures."""

    title: str
    text: str
    pictures: list[Picture]


def sections_of(experiment: Experiment) -> list[Section]:
    """Return the sections that have a picture, in the order in which they are read."""
    found = [
        Section(title, text, [picture for picture in pictures if picture is not None])
        for title, text, pictures in _all(experiment)
    ]
    return [section for section in found if section.pictures]


def _all(experiment: Experiment) -> Iterator[tuple[str, str, list[Picture | None]]]:
    lines = experiment.lines
    yield "What went wrong", "", [what_went_wrong(lines)]
    yield (
        "How good it is",
        "The global model is measured by the server, on its test set; clients measure it on "
        "examples of their own, which nobody else sees. The area reaches from the worst client to "
        "the best one.",
        [headline_chart(experiment), _loss(lines), *_other_scores(experiment)],
    )
    yield (
        "Client by client",
        "A row is a client, the worst one first; a column is a round. Clear: not measured.",
        [client_map(experiment)],
    )
    yield "Class by class", _CLASSES, [*_class_pictures(experiment), *_calibration(lines)]
    yield (
        "Who has which data",
        "Training examples by label, as clients said when the run began. The prior is what "
        "generated labels are drawn from.",
        [label_map(experiment), _label_prior(experiment)],
    )
    yield (
        "What was minimised",
        "Means over clients. The loss is the sum of the task's own loss and the algorithm's terms.",
        [*_train_charts(experiment)],
    )
    yield (
        "How far clients drift",
        "Norms of the changes of the model in a round. The area reaches from the smallest client's "
        "to the largest.",
        [*_drift(lines)],
    )
    yield "What it took", "", [*_cost(lines)]


_CLASSES = "The newest evaluation. Of the global model where the server has a test set."


def headline_chart(experiment: Experiment) -> LineChart | None:
    """Return the headline: global, mean and worst client, and the band over clients."""
    lines, name = experiment.lines, experiment.headline.name
    return line_chart(
        name or "score",
        [
            Curve("global model", series(lines, "global", name)),
            Curve("mean client", series(lines, "clients", "mean")),
            Curve("worst client", series(lines, "clients", "worst", name)),
        ],
        [Band("clients", _spread(lines, lambda line: at(line, "clients", PER_CLIENT)))],
    )


def client_map(experiment: Experiment) -> HeatMap | None:
    """Return headline by client and evaluated round."""
    lines = [line for line in experiment.lines if at(line, "clients", PER_CLIENT)]
    names = [client.name for client in clients_of(experiment) if client.last]
    return heat_map(
        f"{experiment.headline.name} by client and round",
        names,
        [str(line["round"]) for line in lines],
        [[number_at(line, "clients", PER_CLIENT, name) for line in lines] for name in names],
        row_axis="client",
        column_axis="round",
        description="From the worst client down: "
        + ", ".join(f"{c.name} {text_of(c.last[1])}" for c in clients_of(experiment)[:5] if c.last),
    )


def what_went_wrong(lines: Sequence[Line]) -> Timeline | None:
    """Return the rounds of alarms, refusals and the like."""
    return timeline("Events by round", [line["round"] for line in lines], events_of(lines))


def label_map(experiment: Experiment) -> HeatMap | None:
    """Return training examples by client and class; of a task without classes by client."""
    clients = experiment.clients
    counts = {each["name"]: _numbers(each.get("examples-per-label")) or [] for each in clients}
    width = max((len(held) for held in counts.values()), default=0)
    if not width:
        return None
    columns = class_names(experiment, width) if width > 1 else ["examples"]
    return heat_map(
        "Examples by client and class" if width > 1 else "Examples by client",
        list(counts),
        columns,
        [[*held, *[None] * (width - len(held))] for held in counts.values()],
        row_axis="client",
        column_axis="class" if width > 1 else "",
        description=f"{len(counts)} clients with {sum(map(sum, counts.values())):g} examples.",
        is_count=True,
    )


def class_names(experiment: Experiment, count: int) -> list[str]:
    """Return the names of so many classes: the settings' where they give them, else numbers."""
    given = [
        name.strip() for name in str(experiment.settings.get("data.class-names", "")).split(",")
    ]
    return given if len(given) == count > 1 else [str(n) for n in range(count)]


def _loss(lines: Sequence[Line]) -> LineChart | None:
    return line_chart(
        "loss on test examples",
        [
            Curve("global model", series(lines, "global", "loss")),
            Curve("clients", series(lines, "clients", "loss")),
        ],
    )


def _other_scores(experiment: Experiment) -> Iterator[LineChart | None]:
    lines, shown = experiment.lines, {experiment.headline.name, "loss", "examples", "mean", "std"}
    shown |= {"weighted"}
    for name in _names(lines, "global", "clients"):
        if name not in shown:
            yield line_chart(
                name,
                [
                    Curve("global model", series(lines, "global", name)),
                    Curve("clients together", series(lines, "clients", name)),
                ],
            )


def _train_charts(experiment: Experiment) -> Iterator[LineChart | None]:
    lines = experiment.lines
    groups: dict[str, list[str]] = {"": []}
    for name in _names(lines, "train"):
        prefix = name.partition("-")[0]
        if name not in NOT_OF_THE_LOSS:
            groups.setdefault(prefix if prefix in GROUPS else "", []).append(name)
    yield line_chart(
        "Loss and its terms", [Curve(name, series(lines, "train", name)) for name in groups.pop("")]
    )
    for prefix, names in groups.items():
        yield line_chart(
            GROUPS[prefix], [Curve(name, series(lines, "train", name)) for name in names]
        )


def _drift(lines: Sequence[Line]) -> Iterator[LineChart | None]:
    yield line_chart(
        "Norm of updates",
        [
            Curve("global model", series(lines, "update-norm")),
            Curve("median client", _medians(lines, lambda line: line.get("update-norms"))),
        ],
        [Band("clients", _spread(lines, lambda line: line.get("update-norms")))],
    )
    for name in _names_below(lines, "cosines"):

        def of_round(line: Line, name: str = name) -> dict[str, Any]:
            found = at(line, "cosines")
            return (
                {c: at(each, name) for c, each in found.items()}
                if isinstance(found, Mapping)
                else {}
            )

        yield line_chart(
            f"Cosine with the mean: {name}",
            [Curve("median client", _medians(lines, of_round))],
            [Band("clients", _spread(lines, of_round))],
        )


def _cost(lines: Sequence[Line]) -> Iterator[LineChart | None]:
    phases = [name for name in _names(lines, "seconds") if name != "total"]
    yield line_chart(
        "Seconds per round by phase",
        [Curve(name, series(lines, "seconds", name)) for name in phases],
    )
    yield line_chart(
        "Megabytes per round",
        [
            Curve(
                name, [(n, None if y is None else y / 1e6) for n, y in series(lines, "bytes", name)]
            )
            for name in _names(lines, "bytes")
        ],
    )


def _class_pictures(experiment: Experiment) -> Iterator[Picture | None]:
    scores = newest_scores(experiment.lines)
    matrix = scores.get("confusion-matrix")
    rows = [_numbers(row) for row in matrix] if isinstance(matrix, list) else []
    if rows and all(row is not None and len(row) == len(rows) for row in rows):
        names = class_names(experiment, len(rows))
        shares = [[n / sum(row) if sum(row) else None for n in row] for row in rows if row]
        yield heat_map(
            "Confusion: share of each true class",
            names,
            names,
            shares,
            row_axis="true",
            column_axis="predicted",
            ends=(0.0, 1.0),
            description="Each row adds up to 1; what is right stands on the diagonal.",
        )
    lists = {name: row for name, value in scores.items() if (row := _gaps(value))}
    width = max((len(row) for row in lists.values()), default=0)
    lists = {name: row for name, row in lists.items() if len(row) == width > 1}
    yield (
        heat_map(
            "Scores by class",
            list(lists),
            class_names(experiment, width),
            list(lists.values()),
            row_axis="",
            column_axis="class",
            description=", ".join(lists),
        )
        if lists
        else None
    )


def _calibration(lines: Sequence[Line]) -> Iterator[LineChart | None]:
    """Yield a chart for each list of bins: what was claimed, and what came true."""
    for name, value in newest_scores(lines).items():
        bins = (
            [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
        )
        keys = [key for key in (bins[0] if bins else {}) if key != "examples"][:2]
        if len(keys) < 2:
            continue
        points = sorted(
            (100 * x, y)
            for each in bins
            if (x := number_at(each, keys[0])) is not None
            and (y := number_at(each, keys[1])) is not None
        )
        yield line_chart(
            f"{name}: {keys[1]} by {keys[0]}",
            [
                Curve("measured", [(round(x), y) for x, y in points]),
                Curve("ideal", [(0, 0.0), (100, 1.0)]),
            ],
            x_label="%",
        )


def newest_scores(lines: Sequence[Line]) -> Mapping[str, Any]:
    """Return the newest scores of the global model; where there are none, the clients' together."""
    for key in ("global", "clients"):
        for line in reversed(lines):
            if isinstance(found := line.get(key), Mapping):
                return found
    return {}


def _label_prior(experiment: Experiment) -> HeatMap | None:
    priors = [
        (line["round"], row)
        for line in experiment.lines
        if (row := _numbers(at(line, "train", "label-prior")))
    ]
    if not priors:
        return None
    first, last = priors[0], priors[-1]
    shown = [first, last] if last[1] != first[1] else [last]
    return heat_map(
        "FedGen's label prior",
        [f"round {number}" for number, _ in shown],
        class_names(experiment, len(last[1])),
        [row for _, row in shown],
        row_axis="",
        column_axis="class",
        description="Probability of each label of a generated example.",
    )


def _names(lines: Sequence[Line], *keys: str) -> list[str]:
    """Return what is a number under one of ``keys`` in any line, in order of appearance."""
    found: dict[str, None] = {}
    for line in lines:
        for key in keys:
            part = line.get(key)
            for name in names_in(part) if isinstance(part, Mapping) else ():
                if number_at(part, name) is not None:
                    found[name] = None
    return list(found)


def _names_below(lines: Sequence[Line], key: str) -> list[str]:
    """Return what is a number for any client under ``key``."""
    found: dict[str, None] = {}
    for line in lines:
        for client in names_in(line.get(key)):
            inner = at(line, key, client)
            found |= {name: None for name in names_in(inner) if number_at(inner, name) is not None}
    return list(found)


def _values(found: Any) -> list[float]:
    if not isinstance(found, Mapping):
        return []
    return [n for name in found if (n := number_at(found, name)) is not None]


def _spread(
    lines: Sequence[Line], of_round: Callable[[Line], Any]
) -> list[tuple[int, float, float]]:
    known = [(line["round"], _values(of_round(line))) for line in lines]
    return [(number, min(values), max(values)) for number, values in known if len(values) > 1]


def _medians(
    lines: Sequence[Line], of_round: Callable[[Line], Any]
) -> list[tuple[int, float | None]]:
    known = [(line["round"], sorted(_values(of_round(line)))) for line in lines]
    return [(number, values[len(values) // 2]) for number, values in known if values]


def _numbers(value: Any) -> list[float] | None:
    """Return a list of nothing but numbers, else None."""
    row = _gaps(value)
    return None if row is None or None in row else [n for n in row if n is not None]


def _gaps(value: Any) -> list[float | None] | None:
    """Return a list of numbers and nulls, else None."""
    if not isinstance(value, list) or not value:
        return None
    row = [number_at({"n": each}, "n") for each in value]
    odd = any(n is None and each is not None for n, each in zip(row, value, strict=True))
    return None if odd or all(n is None for n in row) else row
