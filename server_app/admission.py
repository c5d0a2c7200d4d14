"""Which replies may be aggregated, and why the others may not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord

from common import records

MOST_EXAMPLES = 2**40
"""A client that claims more would drown every other; no data set is that large."""

Shape = Mapping[str, int | None]
"""Keys of a MetricRecord; None for a number, a length for a list of numbers."""


@dataclass(frozen=True)
class Admission:
    """Replies sorted into usable and not.

    Attributes
    ----------
    admitted : Mapping[str, Message]
        By client name, in the order of the replies.
    refused : Mapping[str, str]
        Why, by client name.
    """

    admitted: Mapping[str, Message]
    refused: Mapping[str, str]


def admit(
    replies: Mapping[str, Message],
    reference: ArrayRecord | None,
    *,
    needed: Shape | None = None,
    fewest_examples: int = 1,
) -> Admission:
    """Check every reply; never raises for what a reply contains.

    Parameters
    ----------
    replies : Mapping[str, Message]
        By client name, sorted.
    reference : ArrayRecord or None
        The global model whose names, shapes and dtypes a train reply must repeat. None for
        replies without arrays.
    needed : Mapping[str, int or None], optional
        Metrics that must be there, None for a number, else the length of a list.
    fewest_examples : int
        Least allowed ``num-examples``: 1 in training, 0 in evaluation.

    Returns
    -------
    Admission
        A reply is refused if it is an error; has not exactly one ArrayRecord (with a reference)
        and one MetricRecord under the expected names; its arrays differ from the reference or hold
        a NaN or an infinity; ``num-examples`` is outside ``[fewest_examples, 2**40]``; a metric is
        not finite; or its metrics are not the ones that most other replies have, since
        Flower's aggregators end the run on those.
    """
    shapes = None if reference is None else _array_shapes(reference)
    refused: dict[str, str] = {}
    for name, reply in replies.items():
        reason = _why_not(reply, shapes, needed or {}, fewest_examples)
        if reason:
            refused[name] = reason
    admitted = {name: reply for name, reply in replies.items() if name not in refused}
    refused |= _differ_from_majority(admitted)
    return Admission(
        admitted={name: reply for name, reply in admitted.items() if name not in refused},
        refused={name: refused[name] for name in replies if name in refused},
    )


def explain(reasons: Mapping[str, str]) -> str:
    """Return one indented line per reason, with the clients it is true of."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        groups.setdefault(reason, []).append(name)
    lines = []
    for reason, names in groups.items():
        shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
        who = shown if len(names) == 1 else f"{len(names)} clients ({shown})"
        lines.append(f"  {who}: {reason}")
    return "\n".join(lines)


def error_text(reply: Message) -> str:
    """Return a reply's error on one line, the end of it where it is very long."""
    text = " ".join((reply.error.reason or f"error code {reply.error.code}").split())
    return text if len(text) <= 600 else "... " + text[-600:]


def _why_not(
    reply: Message,
    shapes: Mapping[str, tuple[tuple[int, ...], str]] | None,
    needed: Shape,
    fewest_examples: int,
) -> str:
    if reply.has_error():
        return error_text(reply)
    if not reply.has_content():
        return "the reply is empty"
    if shapes is not None:
        arrays = reply.content.array_records
        if list(arrays) != [records.ARRAYS]:
            return f"needs exactly one ArrayRecord {records.ARRAYS!r}, has {sorted(arrays)}"
        problem = _wrong_arrays(arrays[records.ARRAYS], shapes)
        if problem:
            return problem
    metrics = reply.content.metric_records
    if list(metrics) != [records.METRICS]:
        return f"needs exactly one MetricRecord {records.METRICS!r}, has {sorted(metrics)}"
    return _wrong_metrics(metrics[records.METRICS], needed, fewest_examples)


def _array_shapes(arrays: ArrayRecord) -> dict[str, tuple[tuple[int, ...], str]]:
    return {name: (tuple(array.shape), str(array.dtype)) for name, array in arrays.items()}


def _wrong_arrays(arrays: ArrayRecord, shapes: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    if set(arrays) != set(shapes):
        missing, extra = sorted(set(shapes) - set(arrays)), sorted(set(arrays) - set(shapes))
        return f"its arrays have other names than the model: missing {missing}, extra {extra}"
    for name, expected in shapes.items():
        try:
            values = arrays[name].numpy()
        except Exception as error:  # bytes from outside: whatever numpy says, it is unreadable
            return f"array {name!r} can't be read: {error}"
        # What was unpacked, not what the header claims.
        found = (values.shape, str(values.dtype))
        if found != expected:
            return f"array {name!r} is {_describe(found)}, the model has {_describe(expected)}"
        if np.issubdtype(values.dtype, np.inexact) and not np.isfinite(values).all():
            bad = values.size - int(np.isfinite(values).sum())
            return f"array {name!r} holds NaN or infinity in {bad} of {values.size} places"
    return ""


def _describe(found: tuple[tuple[int, ...], str]) -> str:
    shape, dtype = found
    return f"{dtype}{list(shape)}"


def _wrong_metrics(metrics: MetricRecord, needed: Shape, fewest_examples: int) -> str:
    shape = _metric_shape(metrics)
    absent = sorted({records.NUM_EXAMPLES, *needed} - set(shape))
    if absent:
        return f"metrics {absent} are missing"
    for key, length in needed.items():
        if shape[key] != length:
            wanted = "one number" if length is None else f"a list of {length} numbers"
            return f"metric {key!r} is {metrics[key]!r}, {wanted} was expected"
    examples = metrics[records.NUM_EXAMPLES]
    if isinstance(examples, list) or not fewest_examples <= examples <= MOST_EXAMPLES:
        return f"{records.NUM_EXAMPLES} is {examples!r}, allowed is {fewest_examples} to 2**40"
    for key, value in metrics.items():
        numbers = value if isinstance(value, list) else [value]
        if not all(math.isfinite(number) for number in numbers):
            return f"metric {key!r} is {value!r}, which is not finite"
    return ""


def _metric_shape(metrics: MetricRecord) -> dict[str, int | None]:
    return {key: len(value) if isinstance(value, list) else None for key, value in metrics.items()}


def _differ_from_majority(replies: Mapping[str, Message]) -> dict[str, str]:
    """Return why replies with unusual metrics are refused; in a tie the first name decides."""
    shapes = {
        name: frozenset(_metric_shape(reply.content.metric_records[records.METRICS]).items())
        for name, reply in replies.items()
    }
    if len(set(shapes.values())) <= 1:
        return {}
    usual, _ = Counter(shapes.values()).most_common(1)[0]
    return {
        name: "its metrics are not those of most clients: "
        f"missing {_keys(usual - shape)}, extra {_keys(shape - usual)}"
        for name, shape in shapes.items()
        if shape != usual
    }


def _keys(items: frozenset[tuple[str, int | None]]) -> list[str]:
    return sorted(key if length is None else f"{key}[{length}]" for key, length in items)
