"""What can be wrong with a reply: pure functions that return the reason, or "" for nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord

from common import records
from common.data.statistics import LARGEST
from common.text import shown
from common.wire import WireError, check_names, unpacked

MOST_EXAMPLES = 2**40
"""A client that claims more would drown every other; no data set is that large."""

LARGEST_METRIC = 3.4e38
"""What a float32 can hold: numbers beyond it are made up, and their sum may overflow."""

NOT_FINITE = "NaN or infinity"
"""Part of every reason that speaks of numbers which are not finite."""

_MEAN, _VARIANCE, _BATCHES = ".running_mean", ".running_var", ".num_batches_tracked"
"""End the names of BatchNorm's buffers in PyTorch."""

Shape = Mapping[str, int | None]
"""Keys of a MetricRecord; None for a number, a length for a list of numbers."""


@dataclass(frozen=True)
class ArrayFindings:
    """What a look at a reply's arrays has shown.

    Attributes
    ----------
    problem : str
        Why they can't be averaged, or "".
    update_norm : float
        L2 norm of the change of the parameters; meaningless with a problem. May be infinite.
    scales : Mapping[str, float]
        By layer with running statistics: the root of the sum over its channels of mean squared
        plus variance, which is the size of what the client has seen there.
    """

    problem: str
    update_norm: float = 0.0
    scales: Mapping[str, float] = field(default_factory=dict)


def inspect_arrays(
    arrays: ArrayRecord, reference: Mapping[str, np.ndarray], parameters: Set[str]
) -> ArrayFindings:
    """Compare a reply's arrays with the global model, one array at a time.

    Parameters
    ----------
    arrays : ArrayRecord
        What came.
    reference : Mapping[str, ndarray]
        The model that was sent.
    parameters : Set[str]
        Names whose change counts in the norm. BatchNorm's running statistics are not among
        them: they follow the scale of the activations, and an honest client moves them far.

    Returns
    -------
    ArrayFindings
        A problem are other names, shapes or dtypes than the reference has, arrays that can't be
        read, values that are not finite, and variances below 0.
    """
    squares = 0.0
    seen: dict[str, float] = {}
    try:
        check_names(arrays, reference)
        for name, expected in reference.items():
            values = unpacked(name, arrays[name])
            problem = _wrong_values(name, values, expected)
            if problem:
                return ArrayFindings(problem)
            if name in parameters:
                squares += _squared_distance(values, expected)
            elif name.endswith((_MEAN, _VARIANCE)):
                layer = name.rpartition(".")[0]
                seen[layer] = seen.get(layer, 0.0) + _second_moment(name, values)
    except WireError as error:
        return ArrayFindings(str(error))
    scales = {layer: math.sqrt(moment) for layer, moment in seen.items()}
    return ArrayFindings("", math.sqrt(squares), scales)


def update_norm(after: ArrayRecord, before: ArrayRecord, parameters: Set[str]) -> float:
    """Return the L2 norm of ``after - before`` over the parameters, one array at a time."""
    return math.sqrt(
        math.fsum(
            _squared_distance(after[name].numpy(), before[name].numpy())
            for name in before
            if name in parameters
        )
    )


def scaled_update(
    arrays: ArrayRecord,
    reference: Mapping[str, np.ndarray],
    parameters: Set[str],
    factor: float,
) -> ArrayRecord:
    """Return ``reference + factor * (arrays - reference)`` for the parameters.

    The other arrays stay as they are.
    """
    scaled = ArrayRecord()
    for name, array in arrays.items():
        if name not in parameters:
            scaled[name] = array
            continue
        before, values = reference[name], array.numpy()
        # In float64: the difference of two large float32 numbers can be infinite.
        change = (values.astype(np.float64) - before) * factor
        scaled[name] = Array(np.asarray(before + change, dtype=values.dtype))
    return scaled


def wrong_metrics(
    metrics: MetricRecord, wanted: Shape, fewest_examples: int, most_examples: int | None
) -> str:
    """Return why a reply's metrics can't be used.

    Parameters
    ----------
    metrics : MetricRecord
    wanted : Mapping[str, int or None]
        What it must hold, and nothing else, besides ``num-examples``: Flower's aggregators end the
        run on replies whose metrics differ.
    fewest_examples : int
    most_examples : int or None
        What the client said at the query, where that is a limit.
    """
    return (
        _wrong_form(metrics, wanted)
        or _wrong_number_of_examples(metrics, fewest_examples, most_examples)
        or _wrong_numbers(metrics)
    )


def _wrong_form(metrics: MetricRecord, wanted: Shape) -> str:
    names = {records.NUM_EXAMPLES, *wanted}
    missing, extra = sorted(names - set(metrics)), sorted(set(metrics) - names)
    if missing or extra:
        return (
            f"its metrics are not those that this run's clients report: missing {shown(missing)}, "
            f"extra {shown(extra)}; does it run the same version of this app?"
        )
    for key, length in wanted.items():
        value = metrics[key]
        if (len(value) if isinstance(value, list) else None) != length:
            form = "one number" if length is None else f"a list of {length} numbers"
            return f"metric {key!r} is {shown(value)}, {form} was expected"
    return ""


def _wrong_number_of_examples(metrics: MetricRecord, fewest: int, most: int | None) -> str:
    examples = metrics[records.NUM_EXAMPLES]
    if (
        isinstance(examples, list)
        or not fewest <= examples <= MOST_EXAMPLES
        or examples != int(examples)
    ):
        return (
            f"{records.NUM_EXAMPLES} is {shown(examples)}, allowed is {fewest} to 2**40, in whole "
            "numbers"
        )
    if most is not None and examples > most:
        return (
            f"{records.NUM_EXAMPLES} is {examples!r}, but it had {most} when it was asked; if its "
            "data have grown, it takes part with all of them from the next round on"
        )
    return ""


def _wrong_numbers(metrics: MetricRecord) -> str:
    for key, value in metrics.items():
        numbers = value if isinstance(value, list) else [value]
        if not all(math.isfinite(number) for number in numbers):
            return f"metric {key!r} is {shown(value)}: {NOT_FINITE}"
        if not all(abs(number) <= LARGEST_METRIC for number in numbers):
            return f"metric {key!r} is {shown(value)}, allowed is up to {LARGEST_METRIC:g}"
    return ""


def malformed_label_counts(counts: object, num_classes: int) -> str:
    """Return why ``counts`` are not ``num_classes`` whole numbers from 0 to 2**40."""
    if (
        isinstance(counts, list)
        and len(counts) == num_classes
        and all(isinstance(n, int) and 0 <= n <= MOST_EXAMPLES for n in counts)
    ):
        return ""
    return f"its label counts are {shown(counts)}; expected are {num_classes} whole numbers from 0"


def wrong_moments(moments: Sequence[object], columns: int, examples: int) -> str:
    """Return why these can't be a client's moments.

    Parameters
    ----------
    moments : sequence of three
        What came: values that are present, their sums, and the sums of their squares.
    columns : int
    examples : int
        Training examples that the client says it has.
    """
    form = f"{columns} of each were expected. Does it run the same version of this app?"
    if not all(isinstance(each, list) and len(each) == columns for each in moments):
        return f"its moments per column are {shown(moments)}; {form}"
    for column, (present, total, squares) in enumerate(zip(*moments, strict=True)):
        if not _are_moments(present, total, squares, examples):
            return (
                f"column {column} of its data: {shown(present)} values of {examples} examples "
                f"have the sum {shown(total)} and the sum of squares {shown(squares)}, which no "
                f"values within {LARGEST:g} have"
            )
    return ""


def _are_moments(present: object, total: object, squares: object, examples: int) -> bool:
    if not (isinstance(present, int) and isinstance(total, float) and isinstance(squares, float)):
        return False
    # Sums are rounded: what holds exactly for the values holds nearly for them.
    most, nearly = LARGEST * (1 + 1e-9), 1 + 1e-9
    return (
        0 <= present <= examples
        and abs(total) <= present * most
        and 0 <= squares <= present * most**2
        # Cauchy and Schwarz. A NaN fails each of these.
        and total * total <= present * squares * nearly
    )


def wrong_label_counts(
    counts: object, held: Sequence[int], num_examples: int, most_drawn: int | None
) -> str:
    """Return why a client's label counts can't be its.

    Parameters
    ----------
    counts : object
        What came.
    held : Sequence[int]
        Examples per label when the client was asked who it is, of length ``num_classes``.
    num_examples : int
        What the same reply says, at least 1.
    most_drawn : int or None
        None where all examples are counted: then the counts add up to ``num_examples``. Else
        the counts start at 1, and the batches of a round hold at most this many examples.
    """
    classes = len(held)
    malformed = malformed_label_counts(counts, classes)
    if malformed or not isinstance(counts, list):
        return malformed
    if most_drawn is None:
        if sum(counts) != num_examples:
            return f"its label counts add up to {sum(counts)}, but num-examples is {num_examples}"
        if any(n > had for n, had in zip(counts, held, strict=True)):
            return f"its label counts are {counts}, but it had {list(held)} when it was asked"
        return ""
    drawn = sum(counts) - classes
    if min(counts) < 1 or not 1 <= drawn <= most_drawn:
        return (
            f"its label counts are {counts}; they start at 1, and a round draws 1 to "
            f"{most_drawn} examples"
        )
    strange = [label for label, had in enumerate(held) if had == 0 and counts[label] > 1]
    return f"it counts labels {strange}, of which it has no example" if strange else ""


def _wrong_values(name: str, values: np.ndarray, expected: np.ndarray) -> str:
    # What was unpacked, not what the header claims.
    found, wanted = ((each.shape, str(each.dtype)) for each in (values, expected))
    if found != wanted:
        return f"array {name!r} is {_describe(found)}, the model has {_describe(wanted)}"
    if np.issubdtype(values.dtype, np.inexact):
        bad = values.size - int(np.isfinite(values).sum())
        if bad:
            return f"array {name!r} holds {NOT_FINITE} in {bad} of {values.size} places"
    if name.endswith(_VARIANCE) and (values < 0).any():
        return f"array {name!r} holds a variance below 0"  # its square root would be NaN
    if name.endswith(_BATCHES) and not ((values >= 0) & (values <= MOST_EXAMPLES)).all():
        return f"array {name!r} counts {values.tolist()} batches, allowed is 0 to 2**40"
    return ""


def _second_moment(name: str, values: np.ndarray) -> float:
    wide = values.astype(np.float64)
    with np.errstate(over="ignore"):
        return float(np.sum(wide if name.endswith(_VARIANCE) else np.square(wide)))


def _describe(found: tuple[tuple[int, ...], str]) -> str:
    shape, dtype = found
    return f"{dtype}{list(shape)}"


def _squared_distance(one: np.ndarray, other: np.ndarray) -> float:
    # A float64 model may be so far off that the square is infinite, which is an answer too.
    with np.errstate(over="ignore"):
        change = one.astype(np.float64) - other
        return float(np.sum(np.square(change, out=change)))
