"""Asking nodes who they are."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from common import records
from common.config import Settings, SettingsError, check_name
from common.data import DataSpec, Moments, data_spec
from common.text import safe_text, shown
from server_app.clients.key_names import KeyNames
from server_app.exchange.clock import Clock
from server_app.exchange.exchange import Patience, exchange
from server_app.exchange.reminders import Reminders
from server_app.replies.admission import error_text
from server_app.replies.checks import malformed_label_counts, wrong_moments

# Flower's own words for "this node is not there", as opposed to "its ClientApp failed".
_NODE_IS_GONE = (
    ErrorCode.NODE_UNAVAILABLE,
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
)

_LONGEST_PROBLEM = 4000
"""Characters: a client may have a list of problems to tell."""

_LONGEST_FACT = 200
"""Characters; it is kept in ``settings.json``."""


@dataclass(frozen=True)
class Client:
    """A client as it described itself.

    Attributes
    ----------
    name : str
        Unique in a federation; the same after a restart.
    node_id : int
        Flower's number for the connection; changes with every restart of the SuperNode.
    examples_per_label : tuple[int, ...]
        Training examples, of length ``num_classes``.
    device, versions : str
        For the records only.
    partition : str
        Its share of a data set, built in or not, as "3 of 10"; empty for a site that keeps all of
        its own.
    moments : Moments or None
        Of its training examples, where the kind of data is standardised.
    """

    name: str
    node_id: int
    examples_per_label: tuple[int, ...]
    device: str = ""
    versions: str = ""
    partition: str = ""
    moments: Moments | None = None


def are_shares(clients: Collection[Client]) -> bool:
    """Return whether all hold a share of one data set, so that none is only its own affair.

    All, since one site's word must not change what is true of the others' own data.
    """
    return bool(clients) and all(client.partition for client in clients)


@dataclass(frozen=True)
class Answers:
    """What came back from a query.

    Attributes
    ----------
    clients : list[Client]
        Sorted by name, then by node id; two may have one name.
    errors : dict[int, tuple[str, str]]
        By node id: the client's name, as far as known, and why it can't take part.
    unreadable : dict[int, str]
        By node id: nodes whose answer could not be unpacked, and why. They have no say in whether
        a run begins.
    misnamed : dict[int, str]
        By node id: nodes that may not be called what they call themselves, and why. Nor have they.
    silent : dict[int, str]
        By node id: nodes that did not answer in time or are gone, and what is known about it.
    gone : set[int]
        Those of them that are not there, by Flower's word: they may come back.
    """

    clients: list[Client] = field(default_factory=list)
    errors: dict[int, tuple[str, str]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)
    misnamed: dict[int, str] = field(default_factory=dict)
    silent: dict[int, str] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    @property
    def known(self) -> set[int]:
        """Nodes about which nothing more has to be asked."""
        described = (client.node_id for client in self.clients)
        return {*described, *self.errors, *self.unreadable, *self.misnamed}

    def and_then(self, later: Answers) -> Answers:
        """Return what is known after asking the others ``later``."""
        clients = sorted([*self.clients, *later.clients], key=_by_name)
        silent = {n: why for n, why in self.silent.items() if n not in later.known} | later.silent
        gone = (self.gone - later.known) | later.gone
        return Answers(
            clients,
            self.errors | later.errors,
            self.unreadable | later.unreadable,
            self.misnamed | later.misnamed,
            silent,
            gone,
        )


def query(
    grid: Grid,
    node_ids: Iterable[int],
    settings: Settings,
    patience: Patience,
    clock: Clock,
    reminders: Reminders,
) -> Answers:
    """Ask ``node_ids`` for name, examples per label, device and versions.

    Nothing that a node answers raises: what can't be used is in ``errors``.
    """
    labels = {_label(node_id): node_id for node_id in sorted(node_ids)}
    content = RecordDict({records.CONFIG: ConfigRecord({records.EXPERIMENT: settings.experiment})})
    replies: dict[str, Message] = {}

    def receive(label: str, reply: Message) -> bool:
        replies[label] = reply
        return not reply.has_error()

    came = exchange(
        grid,
        [Message(content, node_id, records.QUERY) for node_id in labels.values()],
        receive,
        name_of=_label,
        patience=patience,
        clock=clock,
        reminders=reminders,
    )
    answers = Answers()
    for label in came.unreadable:
        answers.unreadable[labels[label]] = error_text(replies.pop(label))
    # Now: keys may have been registered while the nodes were asked.
    names = KeyNames.read()
    for label, reply in replies.items():
        _sort_in(answers, labels[label], reply, names, data_spec(settings.data))
    for label in came.missing:
        answers.silent[labels[label]] = f"no answer to the query within {came.seconds:.0f} s"
        if label not in came.unanswered.values():
            answers.silent[labels[label]] = "it is not online"
            answers.gone.add(labels[label])
    answers.clients.sort(key=_by_name)
    return answers


def _by_name(client: Client) -> tuple[str, int]:
    return client.name, client.node_id


def _label(node_id: int) -> str:
    return f"node {node_id}"


def _sort_in(
    answers: Answers, node_id: int, reply: Message, names: KeyNames, spec: DataSpec
) -> None:
    if reply.has_error():
        if reply.error.code in _NODE_IS_GONE:
            answers.silent[node_id] = error_text(reply)
            answers.gone.add(node_id)
        else:
            answers.errors[node_id] = (names.of(node_id) or _label(node_id), error_text(reply))
        return
    described = reply.content.config_records.get(records.CLIENT, ConfigRecord())
    name = str(described.get(records.CLIENT_NAME) or "")
    known_as = safe_text(name, _LONGEST_FACT)
    # Before anything else that it says, which would be said in another's name.
    if foreign := names.why_not(node_id, known_as):
        answers.misnamed[node_id] = foreign
        return
    problem = _why_not(name, described, spec)
    if problem:
        known_as = names.of(node_id) or known_as or _label(node_id)
        answers.errors[node_id] = (known_as, safe_text(problem, _LONGEST_PROBLEM))
        return
    counts = described[records.CLIENT_LABELS]
    answers.clients.append(
        Client(
            name=name,
            node_id=node_id,
            examples_per_label=tuple(int(n) for n in counts),  # type: ignore[union-attr]
            partition=_fact(described, records.CLIENT_PARTITION),
            device=_fact(described, records.CLIENT_DEVICE),
            versions=_fact(described, records.CLIENT_VERSIONS),
            moments=Moments(*map(tuple, _moments(described))) if spec.measured else None,  # type: ignore[arg-type]
        )
    )


def _moments(described: ConfigRecord) -> list[object]:
    keys = (records.CLIENT_PRESENT, records.CLIENT_SUMS, records.CLIENT_SQUARES)
    return [described.get(key) for key in keys]


def _fact(described: ConfigRecord, key: str) -> str:
    return safe_text(str(described.get(key, "")), _LONGEST_FACT)


def _why_not(name: str, described: ConfigRecord, spec: DataSpec) -> str:
    if described.get(records.CLIENT_ERROR):
        return str(described[records.CLIENT_ERROR])
    try:
        check_name(name, "client name")
    except SettingsError as error:
        return str(error)
    counts, num_classes = described.get(records.CLIENT_LABELS), spec.targets.groups
    if malformed_label_counts(counts, num_classes):
        return (
            f"its examples per label are {shown(counts)}; {num_classes} whole numbers from 0 to "
            "2**40 were expected. Does it run the same version of this app?"
        )
    if not sum(counts):  # type: ignore[arg-type]
        return (
            "it has no training examples: give it data, or use fewer clients or a larger "
            "data.min-partition-size"
        )
    if spec.measured:
        return wrong_moments(_moments(described), spec.measured, sum(counts))  # type: ignore[arg-type]
    return ""
