"""Which replies may be aggregated, and why the others may not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common import NDArray

from common import records
from common.text import safe_text, shown
from common.wire import WireError
from server_app.replies.checks import Shape, inspect_arrays, scaled_update, wrong_metrics
from server_app.replies.comparison import CHANGE, Sizes, farthest, unlike_the_others


@dataclass(frozen=True)
class ModelRules:
    """What the arrays of a train reply must be.

    Attributes
    ----------
    reference : ArrayRecord
        The global model that was sent: names, shapes and dtypes are its.
    parameters : Set[str]
        Names of the arrays whose change is measured.
    max_update_norm : float
        Largest L2 norm of that change; 0: no limit.
    clip : bool
        Scale a larger change down instead of refusing the reply.
    norm_multiple, statistics_multiple : float
        See :func:`server_app.replies.comparison.unlike_the_others`; 0: no limit.
    decode : callable
        Makes the client's model of what came, or raises WireError.
    """

    reference: ArrayRecord
    parameters: Set[str] = frozenset()
    max_update_norm: float = 0.0
    clip: bool = False
    norm_multiple: float = 0.0
    statistics_multiple: float = 0.0
    decode: Callable[[ArrayRecord], ArrayRecord] = lambda arrays: arrays

    @cached_property
    def unpacked(self) -> dict[str, NDArray]:
        """The reference, unpacked once for all replies of a round."""
        return {name: array.numpy() for name, array in self.reference.items()}


def _nothing_wrong(client: str, reply: Message) -> str:
    return ""


@dataclass(frozen=True)
class Rules:
    """What a reply must be.

    Attributes
    ----------
    server_round : int
        That it must say it answers.
    model : ModelRules or None
        None for replies without arrays.
    metrics : Mapping[str, int or None]
        What it reports besides ``num-examples``: None for a number, else the length of a list.
    fewest_examples : int
        Least allowed ``num-examples``: 1 in training, 0 in evaluation.
    most_examples : Mapping[str, int]
        Largest allowed ``num-examples`` by client; 2**40 for one that is not there.
    further : callable
        ``(client, reply) -> reason``, asked when nothing else is wrong.
    in_doubt : callable
        Told the client whose ``num-examples`` is not the largest allowed.
    """

    server_round: int
    model: ModelRules | None = None
    metrics: Shape = field(default_factory=dict)
    fewest_examples: int = 1
    most_examples: Mapping[str, int] = field(default_factory=dict)
    further: Callable[[str, Message], str] = _nothing_wrong
    in_doubt: Callable[[str], None] = lambda client: None


@dataclass(frozen=True)
class Admission:
    """Replies sorted into usable and not.

    Attributes
    ----------
    admitted : dict[str, Message]
        By client name, in its order.
    refused : dict[str, str]
        Why, by client name, in its order.
    update_norms : dict[str, float]
        L2 norm of each admitted client's change of the parameters, as it came.
    clipped : tuple[str, ...]
        Admitted clients whose change was scaled down.
    farthest : str
        The admitted client whose reply is most unlike the others'; empty without arrays.
    """

    admitted: dict[str, Message]
    refused: dict[str, str]
    update_norms: dict[str, float]
    clipped: tuple[str, ...]
    farthest: str = ""


class Gate:
    """Admits replies one by one, as they come.

    A reply is refused if it is an error; answers another round; has not exactly one ArrayRecord
    (where a model is expected) and one MetricRecord under the expected names; its arrays differ
    from the model or hold a NaN or an infinity; its change is too large; ``num-examples`` is out
    of range; its metrics are not those of this run, or not finite; :attr:`Rules.further` says so;
    or, at the end, it is far larger than most others. Nothing that a reply contains raises, and a
    reason is safe to show.

    Parameters
    ----------
    rules : Rules
    keep : callable
        Where the arrays of an admitted reply wait: takes and returns an ArrayRecord.
    """

    def __init__(
        self, rules: Rules, keep: Callable[[ArrayRecord], ArrayRecord] = lambda arrays: arrays
    ) -> None:
        self._rules = rules
        self._keep = keep
        self._admitted: dict[str, Message] = {}
        self._refused: dict[str, str] = {}
        self._norms: dict[str, float] = {}
        self._sizes: dict[str, Sizes] = {}
        self._clipped: set[str] = set()

    def receive(self, name: str, reply: Message) -> str:
        """Admit ``reply`` of the client ``name``, or return why not."""
        if name in self._admitted or name in self._refused:
            return "it has replied already"  # the first one counts
        reason = safe_text(self._why_not(name, reply))
        if reason:
            self._refused[name] = reason
            return reason
        del reply.content[records.REPLY]
        self._admitted[name] = reply
        if self._rules.model is not None:
            arrays = records.of_type(reply.content, ArrayRecord)[records.ARRAYS]
            reply.content[records.ARRAYS] = self._keep(arrays)
        return ""

    def close(self) -> Admission:
        """Return all that came, sorted by name; nothing may be received afterwards."""
        sizes = {name: self._sizes[name] for name in sorted(self._admitted) if name in self._sizes}
        refused = self._refused | self._unlike(sizes)
        admitted = {n: self._admitted[n] for n in sorted(self._admitted) if n not in refused}
        sizes = {name: sizes[name] for name in admitted if name in sizes}
        return Admission(
            admitted=admitted,
            refused={name: refused[name] for name in sorted(refused)},
            update_norms={name: self._norms[name] for name in sizes},
            clipped=tuple(name for name in admitted if name in self._clipped),
            farthest=farthest(sizes) if sizes else "",
        )

    def _unlike(self, sizes: Mapping[str, Sizes]) -> dict[str, str]:
        model = self._rules.model
        if model is None:
            return {}
        return unlike_the_others(sizes, model.norm_multiple, model.statistics_multiple)

    def _why_not(self, name: str, reply: Message) -> str:
        rules = self._rules
        reason = (
            _unusable(reply)
            or _wrong_round(reply, rules.server_round)
            or self._wrong_metrics(name, reply)
            or rules.further(name, reply)
        )
        # Last, since it unpacks the whole model.
        return reason or (self._wrong_arrays(name, reply, rules.model) if rules.model else "")

    def _wrong_metrics(self, name: str, reply: Message) -> str:
        metrics = records.of_type(reply.content, MetricRecord)
        if list(metrics) != [records.METRICS]:
            return f"needs exactly one MetricRecord {records.METRICS!r}, has {_names(metrics)}"
        rules = self._rules
        most = rules.most_examples.get(name)
        if most is not None and metrics[records.METRICS].get(records.NUM_EXAMPLES) != most:
            rules.in_doubt(name)
        return wrong_metrics(metrics[records.METRICS], rules.metrics, rules.fewest_examples, most)

    def _wrong_arrays(self, name: str, reply: Message, rules: ModelRules) -> str:
        found = records.of_type(reply.content, ArrayRecord)
        if list(found) != [records.ARRAYS]:
            return f"needs exactly one ArrayRecord {records.ARRAYS!r}, has {_names(found)}"
        try:
            arrays = rules.decode(found[records.ARRAYS])
        except WireError as error:
            return str(error)
        # From here on what came encoded is forgotten.
        reply.content[records.ARRAYS] = arrays
        findings = inspect_arrays(arrays, rules.unpacked, rules.parameters)
        if findings.problem:
            return findings.problem
        norm, limit = findings.update_norm, rules.max_update_norm
        self._norms[name] = norm
        self._sizes[name] = {CHANGE: norm, **findings.scales}
        if limit == 0 or norm <= limit:
            return ""
        # An infinite change can't be scaled down to anything.
        if not rules.clip or math.isinf(norm):
            return (
                f"its change of the model has norm {norm:.6g}, server.max-update-norm is {limit:g}"
            )
        self._clipped.add(name)
        self._sizes[name] = {CHANGE: limit, **findings.scales}
        clipped = scaled_update(arrays, rules.unpacked, rules.parameters, limit / norm)
        reply.content[records.ARRAYS] = clipped
        return ""


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
    return safe_text(reply.error.reason or f"error code {reply.error.code}", keep_end=True)


def _unusable(reply: Message) -> str:
    if reply.has_error():
        return error_text(reply)
    return "" if reply.has_content() else "the reply is empty"


def _wrong_round(reply: Message, server_round: int) -> str:
    record = records.of_type(reply.content, ConfigRecord).get(records.REPLY)
    answered = None if record is None else record.get(records.ROUND)
    if answered is None:
        return (
            f"it doesn't say which round it answers (ConfigRecord {records.REPLY!r}); does it run "
            "the same version of this app?"
        )
    if answered != server_round:
        return f"it answers round {shown(answered)}, this is round {server_round}"
    return ""


def _names(found: Mapping[str, object]) -> str:
    return shown(sorted(found))
