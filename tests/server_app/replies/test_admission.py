"""Which replies may be aggregated."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)

from common import records
from common.wire import decode_update
from server_app.replies.admission import (
    Admission,
    Gate,
    ModelRules,
    Rules,
    error_text,
    explain,
)
from tests.server_app.toy import reply_content

ROUND = 3

F32 = np.float32
MODEL = {"weight": np.ones((2, 3), F32), "seen": np.array(4, np.int64)}
METRICS = {records.NUM_EXAMPLES: 8, records.LOSS: 0.5}
REPORTED = {records.LOSS: None}


def packed(arrays: dict[str, Any]) -> ArrayRecord:
    """Return an ArrayRecord of NumPy arrays."""
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def answer(content: RecordDict | Error) -> Message:
    """Return a reply to a message of no importance."""
    return Message(content, reply_to=Message(RecordDict(), 5, records.TRAIN))


def admit(replies: dict[str, Message], **rules: Any) -> Admission:
    """Let ``replies`` through a gate whose model is MODEL."""
    usual = {"server_round": ROUND, "model": ModelRules(packed(MODEL)), "metrics": REPORTED}
    gate = Gate(Rules(**usual | rules))
    for name, reply in replies.items():
        gate.receive(name, reply)
    return gate.close()


def good(**metrics: Any) -> Message:
    """Return a faultless train reply, with other metrics where given."""
    return answer(reply_content(packed(MODEL), MetricRecord(METRICS | metrics), ROUND))


def with_arrays(**arrays: Any) -> Message:
    """Return a train reply with other arrays where given, without those given as None."""
    changed = {n: v for n, v in (MODEL | arrays).items() if v is not None}
    return answer(reply_content(packed(changed), MetricRecord(METRICS), ROUND))


def with_examples(value: Any) -> Message:
    """Return a train reply that claims ``value`` examples."""
    return good(**{records.NUM_EXAMPLES: value})


def two_array_records() -> Message:
    """Return a reply that Flower's aggregators would end the run on."""
    reply = good()
    reply.content["more"] = packed(MODEL)
    return reply


def no_metrics() -> Message:
    """Return a reply of arrays alone."""
    reply = good()
    del reply.content[records.METRICS]
    return reply


def renamed_record() -> Message:
    """Return a reply whose ArrayRecord has another name, on which FedAvg would end the run."""
    reply = good()
    reply.content["weights"] = reply.content.pop(records.ARRAYS)
    return reply


def of_round(server_round: Any) -> Message:
    """Return a reply that says it answers that round, or nothing of it for None."""
    reply = good()
    del reply.content[records.REPLY]
    if server_round is not None:
        reply.content[records.REPLY] = ConfigRecord({records.ROUND: server_round})
    return reply


def empty() -> Message:
    """Return a reply without any record."""
    return answer(RecordDict())


def garbage() -> Message:
    """Return a reply whose bytes are no array."""
    arrays = ArrayRecord(
        {
            "weight": Array("float32", (2, 3), "numpy.ndarray", b"not an array"),
            "seen": Array(MODEL["seen"]),
        }
    )
    return answer(reply_content(arrays, MetricRecord(METRICS), ROUND))


def archive() -> Message:
    """Return a reply with an npz file, which NumPy reads as well, in place of an array."""
    packed_twice = io.BytesIO()
    np.savez(packed_twice, weight=MODEL["weight"])
    arrays = ArrayRecord(
        {
            "weight": Array("float32", (2, 3), "numpy.ndarray", packed_twice.getvalue()),
            "seen": Array(MODEL["seen"]),
        }
    )
    return answer(reply_content(arrays, MetricRecord(METRICS), ROUND))


def lying_header() -> Message:
    """Return a reply whose header says [2, 3] over bytes of [3, 2]."""
    array = Array(np.ones((3, 2), F32))
    array.shape = (2, 3)
    arrays = ArrayRecord({"weight": array, "seen": Array(MODEL["seen"])})
    return answer(reply_content(arrays, MetricRecord(METRICS), ROUND))


REFUSED: dict[str, tuple[Callable[[], Message], str]] = {
    "error": (lambda: answer(Error(2, "out of memory")), "out of memory"),
    "two array records": (two_array_records, "exactly one ArrayRecord 'arrays'"),
    "no metrics": (no_metrics, "exactly one MetricRecord 'metrics'"),
    "renamed": (renamed_record, r"exactly one ArrayRecord 'arrays', has \['weights'\]"),
    "missing name": (lambda: with_arrays(seen=None), r"missing \['seen'\], extra \[\]"),
    "extra name": (lambda: with_arrays(more=np.ones(1)), r"missing \[\], extra \['more'\]"),
    "shape": (
        lambda: with_arrays(weight=np.ones((3, 2), F32)),
        r"'weight' is float32\[3, 2\], the model has float32\[2, 3\]",
    ),
    "dtype": (lambda: with_arrays(weight=np.ones((2, 3))), r"float64\[2, 3\], the model has"),
    "nan": (
        lambda: with_arrays(weight=np.array([[1, np.nan, 1], [np.inf, 1, 1]], F32)),
        "NaN or infinity in 2 of 6",
    ),
    "garbage": (garbage, "can't be read"),
    "archive": (archive, "'weight' can't be read: it is a NpzFile, not one array"),
    "lying header": (lying_header, r"float32\[3, 2\], the model has float32\[2, 3\]"),
    "zero examples": (lambda: with_examples(0), r"num-examples is 0, allowed is 1 to 2\*\*40"),
    "negative": (lambda: with_examples(-3), "num-examples is -3"),
    "half an example": (lambda: with_examples(1.5), "num-examples is 1.5.*in whole numbers"),
    "huge": (lambda: with_examples(2**40 + 1), "num-examples is 1099511627777"),
    "nan examples": (lambda: with_examples(float("nan")), "num-examples is nan"),
    "list": (lambda: with_examples([8]), r"num-examples is \[8\]"),
    "nan loss": (lambda: good(loss=float("nan")), "'loss' is nan: NaN or infinity"),
    "round before": (lambda: of_round(2), "it answers round 2, this is round 3"),
    "round after": (lambda: of_round(4), "it answers round 4, this is round 3"),
    "round in words": (lambda: of_round("3"), "it answers round '3', this is round 3"),
    "no round": (lambda: of_round(None), "doesn't say which round it answers"),
    "nothing": (empty, "doesn't say which round it answers"),
    "inf loss": (lambda: good(loss=float("inf")), "'loss' is inf: NaN or infinity"),
    "loss beyond a float32": (lambda: good(loss=1e308), r"1e\+308, allowed is up to 3.4e\+38"),
    "loss far below 0": (lambda: good(loss=-1e308), "'loss' is -1e"),
    "another metric": (lambda: good(extra=1.0), r"missing \[\], extra \['extra'\]"),
    "a list for a number": (lambda: good(loss=[1.0, 2.0]), r"'loss' is \[1.0, 2.0\], one number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_reply_is_left_out_with_its_reason_and_the_others_stay(case: str) -> None:
    make, reason = REFUSED[case]
    replies = {"a": good(), "b": make(), "c": good()}
    admission = admit(replies)
    assert list(admission.admitted) == ["a", "c"]
    assert admission.admitted["a"] is replies["a"]
    assert list(admission.refused) == ["b"]
    with pytest.raises(ValueError, match=reason):
        raise ValueError(admission.refused["b"])


@pytest.mark.parametrize("examples", [1, 2**40, 12.0])
def test_num_examples_from_1_to_2_to_the_40_is_admitted(examples: float) -> None:
    assert list(admit({"a": with_examples(examples)}).admitted) == ["a"]


def test_what_a_run_reports_is_decided_by_its_settings_and_not_by_who_sends_what() -> None:
    # A tie, which the first name would have won; and a majority.
    replies = {"a": good(extra=1.0), "b": good(), "c": good(extra=1.0)}
    assert list(admit(replies).admitted) == ["b"]


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31mROOT\nfake\u202e", "k" * 10**6])
def test_a_name_that_came_is_shown_safely(name: str) -> None:
    reply = good()
    reply.content["\x1b]0;" + name] = ConfigRecord({"x": 1})
    for bad in (good(**{name: 1.0}), of_round(name), with_arrays(**{name: np.ones(1)})):
        (reason,) = admit({"b": bad}).refused.values()
        assert reason.isprintable()
        assert len(reason) < 620
    assert list(admit({"a": reply}).admitted) == ["a"], "what nobody reads harms nobody"


def test_an_integer_buffer_is_not_asked_whether_it_is_finite() -> None:
    assert list(admit({"a": with_arrays(seen=np.array(2**60))}).admitted) == ["a"]


COUNTS = {records.NUM_EXAMPLES: 0, "correct": 0, "class-total": [0, 0]}


def evaluation(metrics: dict[str, Any]) -> Message:
    """Return an evaluate reply."""
    answers = ConfigRecord({records.ROUND: ROUND})
    return answer(RecordDict({records.METRICS: MetricRecord(metrics), records.REPLY: answers}))


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (COUNTS | {"class-total": [0]}, "a list of 2 numbers was expected"),
        (COUNTS | {"correct": [0]}, "one number was expected"),
        ({}, "missing ['class-total', 'correct', 'num-examples'], extra []"),
    ],
)
def test_metrics_must_be_there_and_have_their_length(found: dict[str, Any], reason: str) -> None:
    replies = {"a": evaluation(COUNTS), "b": evaluation(found)}
    metrics = {"correct": None, "class-total": 2}
    admission = admit(replies, model=None, metrics=metrics, fewest_examples=0)
    assert list(admission.admitted) == ["a"]
    assert reason in admission.refused["b"]


def test_no_replies_give_no_replies() -> None:
    admission = admit({})
    assert (admission.admitted, admission.refused) == ({}, {})


def test_replies_come_in_any_order_and_are_sorted_by_name() -> None:
    replies = {name: good() for name in ("c", "a", "d", "b")} | {"f": empty(), "e": empty()}
    admission = admit(replies)
    assert list(admission.admitted) == ["a", "b", "c", "d"]
    assert list(admission.refused) == ["e", "f"]


def test_of_two_replies_of_one_client_the_first_counts() -> None:
    gate = Gate(Rules(ROUND, ModelRules(packed(MODEL)), REPORTED))
    first, second = good(), good()
    assert gate.receive("a", first) == ""
    assert "replied already" in gate.receive("a", second)
    assert gate.receive("b", empty()) != ""
    assert "replied already" in gate.receive("b", good()), "a refused client can't try again"
    admission = gate.close()
    assert admission.admitted["a"] is first
    assert list(admission.refused) == ["b"]


def test_what_only_the_gate_reads_is_taken_out_of_the_reply() -> None:
    assert list(admit({"a": good()}).admitted["a"].content) == [records.ARRAYS, records.METRICS]


def test_nobody_may_have_more_examples_than_when_it_was_asked() -> None:
    replies = {"a": with_examples(8), "b": with_examples(8), "c": with_examples(8)}
    admission = admit(replies, most_examples={"a": 8, "b": 7})
    assert list(admission.admitted) == ["a", "c"]
    assert "num-examples is 8, but it had 7 when it was asked" in admission.refused["b"]


def test_whoever_has_other_examples_than_when_it_was_asked_is_told_of() -> None:
    in_doubt: list[str] = []
    replies = {name: with_examples(count) for name, count in zip("abcd", (8, 9, 7, 5), strict=True)}
    known = dict.fromkeys("abc", 8)
    admission = admit(replies, most_examples=known, in_doubt=in_doubt.append)
    assert in_doubt == ["b", "c"]
    assert list(admission.admitted) == ["a", "c", "d"]


def test_a_further_rule_sees_client_and_reply_and_its_reason_is_given() -> None:
    replies = {"a": good(), "b": good()}

    def further(client: str, reply: Message) -> str:
        assert reply is replies[client]
        return "no" if client == "b" else ""

    admission = admit(replies, further=further)
    assert list(admission.admitted) == ["a"]
    assert admission.refused == {"b": "no"}


def test_arrays_of_admitted_replies_alone_are_kept_where_the_gate_is_told() -> None:
    kept: list[ArrayRecord] = []

    def keep(arrays: ArrayRecord) -> ArrayRecord:
        kept.append(arrays)
        return packed({"elsewhere": np.ones(1)})

    gate = Gate(Rules(ROUND, ModelRules(packed(MODEL)), REPORTED), keep)
    arrays = {"a": good(), "b": with_examples(0)}
    for name, reply in arrays.items():
        gate.receive(name, reply)
    assert len(kept) == 1
    content = gate.close().admitted["a"].content
    assert list(content.array_records[records.ARRAYS]) == ["elsewhere"]


# The model's weight is 2 x 3 ones: one more in all six places is a change of norm sqrt(6).
MOVED = {"weight": np.full((2, 3), 2, F32), "seen": np.array(99, np.int64)}


def with_limit(limit: float, *, clip: bool = False) -> Admission:
    """Admit a reply that moved all weights by one, and one that moved none."""
    rules = ModelRules(packed(MODEL), {"weight"}, limit, clip)
    return admit({"a": with_arrays(**MOVED), "b": good()}, model=rules)


@pytest.mark.parametrize("limit", [0.0, 2.4496])  # sqrt(6) is 2.44949
def test_a_change_within_the_limit_is_admitted_as_it_is(limit: float) -> None:
    admission = with_limit(limit, clip=True)
    assert admission.refused == {}
    assert admission.clipped == ()
    assert admission.update_norms == {"a": pytest.approx(6**0.5), "b": 0.0}
    arrays = admission.admitted["a"].content.array_records[records.ARRAYS]
    assert (arrays["weight"].numpy() == 2).all()


def test_a_change_beyond_the_limit_is_refused_with_both_numbers() -> None:
    admission = with_limit(2.4494)
    assert list(admission.admitted) == ["b"]
    assert "norm 2.44949, server.max-update-norm is 2.4494" in admission.refused["a"]
    assert admission.update_norms == {"b": 0.0}


def test_or_scaled_down_to_it_but_for_what_is_no_parameter() -> None:
    admission = with_limit(6**0.5 / 4, clip=True)
    assert admission.clipped == ("a",)
    assert admission.update_norms["a"] == pytest.approx(6**0.5), "the norm that came"
    arrays = admission.admitted["a"].content.array_records[records.ARRAYS]
    np.testing.assert_allclose(arrays["weight"].numpy(), np.full((2, 3), 1.25))
    assert arrays["weight"].dtype == "float32"
    assert int(arrays["seen"].numpy()) == 99


def test_buffers_do_not_count_in_the_norm() -> None:
    arrays = {"weight": np.ones((2, 3), F32), "seen": np.array(10**6, np.int64)}
    rules = ModelRules(packed(MODEL), {"weight"}, 0.1)
    assert admit({"a": with_arrays(**arrays)}, model=rules).update_norms == {"a": 0.0}


def test_a_change_too_large_for_any_number_is_refused_even_with_clipping() -> None:
    # A float32's largest value, twice: the square fits into a float64, so only a float64 model
    # can have an infinite norm.
    reference = packed({"weight": np.full(2, -1e300)})
    reply = answer(
        reply_content(packed({"weight": np.full(2, 1e300)}), MetricRecord(METRICS), ROUND)
    )
    admission = admit({"a": reply}, model=ModelRules(reference, {"weight"}, 1.0, clip=True))
    assert "norm inf" in admission.refused["a"]


def test_one_reason_of_many_clients_is_said_once() -> None:
    reasons = {f"c{n}": "no disk" for n in range(10)} | {"d": "no net"}
    assert explain(reasons) == "  10 clients (c0, c1, c2, ...): no disk\n  d: no net"


def test_a_long_error_keeps_its_end_where_the_cause_stands() -> None:
    text = error_text(answer(Error(2, "Traceback\n  line\n" * 100 + "ValueError: the cause")))
    assert text.endswith("ValueError: the cause")
    assert "\n" not in text
    assert len(text) < 620


def test_what_a_client_makes_long_does_not_fill_log_and_metrics() -> None:
    long = "x" * 10**6
    replies = {
        "a": good(**{long: 1.0}),
        "b": with_arrays(**{long: np.ones(1)}),
        "c": of_round(long),
        "d": good(),
        "e": good(),
    }
    refused = admit(replies).refused
    assert list(refused) == ["a", "b", "c"]
    assert all(len(reason) < 620 for reason in refused.values())


def test_an_error_without_words_is_named_by_its_code() -> None:
    assert error_text(answer(Error(8, None))) == "error code 8"


LARGE = {"weight": np.full((2, 3), 101, F32)}
"""A hundred times the change of MOVED."""


def crowd(odd: Message, size: int = 4, **model: Any) -> Admission:
    """Admit so many replies, of which b is ``odd`` and the others are MOVED."""
    rules = ModelRules(packed(MODEL), {"weight"}, **model)
    replies = {name: with_arrays(**MOVED) for name in "acdefg"[: size - 1]}
    return admit(replies | {"b": odd}, model=rules)


def test_a_change_beyond_a_multiple_of_the_median_is_refused_with_its_numbers() -> None:
    admission = crowd(with_arrays(**LARGE), norm_multiple=99.9)
    assert list(admission.admitted) == ["a", "c", "d"]
    assert admission.refused["b"] == (
        "its change of the model has norm 244.949, more than server.norm-multiple (99.9) times "
        "the median of this round's replies, 2.44949"
    )
    assert list(admission.update_norms) == ["a", "c", "d"]


@pytest.mark.parametrize(("multiple", "size"), [(100.1, 4), (0.0, 4), (2.0, 3)])
def test_one_within_it_is_not_nor_without_a_limit_nor_of_three(multiple: float, size: int) -> None:
    admission = crowd(with_arrays(**LARGE), size, norm_multiple=multiple)
    assert admission.refused == {}
    assert admission.farthest == "b"


def test_what_was_clipped_counts_with_what_is_left_of_it() -> None:
    limits = {"max_update_norm": 6**0.5 * 2, "clip": True}
    assert crowd(with_arrays(**LARGE), norm_multiple=3.0, **limits).clipped == ("b",)
    assert list(crowd(with_arrays(**LARGE), norm_multiple=1.5, **limits).refused) == ["b"]


def test_what_is_refused_for_itself_is_no_part_of_the_median() -> None:
    # Of 1, 1, 100, 100 and a refused one the median is 50.5; of three NaN and four it is the same.
    rules = ModelRules(packed(MODEL), {"weight"}, norm_multiple=1.9)
    bad = {name: with_arrays(weight=np.full((2, 3), np.nan, F32)) for name in "xyz"}
    some = {"a": with_arrays(**MOVED), "b": with_arrays(**LARGE)}
    more = {"c": with_arrays(**MOVED), "d": with_arrays(**LARGE)}
    assert list(admit(bad | some | more, model=rules).refused) == ["b", "d", "x", "y", "z"]


NORMED = MODEL | {"n.running_mean": F32([0, 0]), "n.running_var": F32([1, 1])}


def normed(mean: float, variance: float) -> Message:
    """Return a reply whose two channels have such running statistics."""
    arrays = NORMED | {"n.running_mean": F32([mean] * 2), "n.running_var": F32([variance] * 2)}
    return answer(reply_content(packed(arrays), MetricRecord(METRICS), ROUND))


@pytest.mark.parametrize(("mean", "variance"), [(1e6, 1e-8), (0.0, 1e12), (-1e6, 1.0), (3e38, 0.0)])
def test_running_statistics_beyond_a_multiple_of_the_median_are_refused(
    mean: float, variance: float
) -> None:
    rules = ModelRules(packed(NORMED), {"weight"}, statistics_multiple=10.0)
    honest = {name: normed(0.5, 1.5) for name in "acd"}
    admission = admit(honest | {"b": normed(mean, variance)}, model=rules)
    assert list(admission.admitted) == ["a", "c", "d"]
    # Of two channels: sqrt(2 * (0.25 + 1.5)) = 1.87083
    assert "its running statistics of 'n' have scale" in admission.refused["b"]
    assert "server.statistics-multiple (10) times" in admission.refused["b"]
    assert "1.87083" in admission.refused["b"]
    assert admission.farthest == "a"


@pytest.mark.parametrize(("others", "refused"), [("ac", ["b"]), ("a", [])])
def test_running_statistics_are_compared_from_three_replies_on(
    others: str, refused: list[str]
) -> None:
    rules = ModelRules(packed(NORMED), {"weight"}, statistics_multiple=10.0)
    honest = {name: normed(0.5, 1.5) for name in others}
    admission = admit(honest | {"b": normed(1e6, 1e-8)}, model=rules)
    assert list(admission.refused) == refused


@pytest.mark.parametrize(
    ("batches", "problem"), [(2**40, ""), (2**40 + 1, "counts"), (-1, "counts")]
)
def test_a_count_of_batches_is_bounded(batches: int, problem: str) -> None:
    model = MODEL | {"n.num_batches_tracked": np.array(0)}
    sent = MODEL | {"n.num_batches_tracked": np.array(batches)}
    reply = answer(reply_content(packed(sent), MetricRecord(METRICS), ROUND))
    refused = admit({"a": reply}, model=ModelRules(packed(model), {"weight"})).refused
    assert problem in refused.get("a", "")
    assert bool(refused) == bool(problem)


def test_a_dead_channel_and_one_that_is_alive_beside_it_are_honest() -> None:
    # Behind a ReLU a channel may be 0 for all examples of a client: its variance decays to 0.
    rules = ModelRules(packed(NORMED), {"weight"}, statistics_multiple=10.0)
    replies = {"a": normed(0, 0), "b": normed(0.5, 1), "c": normed(1, 4), "d": normed(0, 1e-30)}
    assert admit(replies, model=rules).refused == {}


def test_of_replies_that_are_all_the_model_as_it_was_one_that_moved_is_not_refused() -> None:
    rules = ModelRules(packed(MODEL), {"weight"}, norm_multiple=10.0)
    replies = {"a": good(), "b": with_arrays(**MOVED), "c": good(), "d": good()}
    admission = admit(replies, model=rules)
    assert admission.refused == {}
    assert admission.farthest == "b"


class TestEncodedReplies:
    """Checks and sums see the client's model, whatever it travelled as."""

    PARAMETERS = frozenset({"weight"})
    STEPS = np.array([[127, 0, 0], [0, 0, 0]], np.int8)

    def reply(self, **arrays: Any) -> Message:
        sent = {"weight": self.STEPS, "seen": MODEL["seen"], records.SCALES: F32([2])} | arrays
        return answer(reply_content(packed(sent), MetricRecord(METRICS), ROUND))

    def admit(self, reply: Message, **limits: Any) -> Admission:
        reference = packed(MODEL)
        rules = ModelRules(
            reference,
            self.PARAMETERS,
            decode=lambda came: decode_update(came, reference, self.PARAMETERS, "int8"),
            **limits,
        )
        return admit({"a": reply}, model=rules)

    def weight(self, admission: Admission) -> Any:
        return admission.admitted["a"].content.array_records[records.ARRAYS]["weight"].numpy()

    def test_an_admitted_reply_holds_the_decoded_model_and_the_norm_is_its(self) -> None:
        admission = self.admit(self.reply())
        # 1 + 127 * 2, and 1 elsewhere
        assert self.weight(admission).tolist() == [[255, 1, 1], [1, 1, 1]]
        assert admission.update_norms == {"a": 254}
        arrays = admission.admitted["a"].content.array_records[records.ARRAYS]
        assert list(arrays) == list(MODEL)

    def test_a_decoded_change_is_clipped(self) -> None:
        admission = self.admit(self.reply(), max_update_norm=127.0, clip=True)
        assert self.weight(admission).tolist() == [[128, 1, 1], [1, 1, 1]]
        assert admission.clipped == ("a",)

    def test_a_decoded_change_is_refused_for_its_norm(self) -> None:
        refused = self.admit(self.reply(), max_update_norm=127.0).refused["a"]
        assert "norm 254, server.max-update-norm is 127" in refused

    @pytest.mark.parametrize(
        ("arrays", "reason"),
        [
            ({records.SCALES: F32([-2])}, "the scale of array 'weight' is -2.0"),
            ({records.SCALES: F32([3e38])}, "'weight' holds NaN or infinity in 1 of 6 places"),
            ({"weight": MODEL["weight"]}, "'weight' came as float32[2, 3]"),
            ({"seen": np.array(4, np.int32)}, "array 'seen' is int32[], the model has int64[]"),
        ],
    )
    def test_what_is_malformed_is_refused_with_the_reason(
        self, arrays: dict[str, Any], reason: str
    ) -> None:
        assert reason in self.admit(self.reply(**arrays)).refused["a"]

    def test_a_reply_of_a_client_that_does_not_encode_is_refused(self) -> None:
        assert "missing [':scales']" in self.admit(good()).refused["a"]
