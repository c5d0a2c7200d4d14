"""Which replies may be aggregated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict

from common import records
from server_app.admission import admit, error_text, explain
from tests.server_app.toy import reply_content

F32 = np.float32
MODEL = {"weight": np.ones((2, 3), F32), "seen": np.array(4, np.int64)}
METRICS = {records.NUM_EXAMPLES: 8, records.LOSS: 0.5}


def packed(arrays: dict[str, Any]) -> ArrayRecord:
    """Return an ArrayRecord of NumPy arrays."""
    return ArrayRecord({name: Array(values) for name, values in arrays.items()})


def answer(content: RecordDict | Error) -> Message:
    """Return a reply to a message of no importance."""
    return Message(content, reply_to=Message(RecordDict(), 5, records.TRAIN))


def good(**metrics: Any) -> Message:
    """Return a faultless train reply, with other metrics where given."""
    return answer(reply_content(packed(MODEL), MetricRecord(METRICS | metrics)))


def with_arrays(**arrays: Any) -> Message:
    """Return a train reply with other arrays where given, without those given as None."""
    changed = {n: v for n, v in (MODEL | arrays).items() if v is not None}
    return answer(reply_content(packed(changed), MetricRecord(METRICS)))


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
    return answer(RecordDict({records.ARRAYS: packed(MODEL)}))


def renamed_record() -> Message:
    """Return a reply whose ArrayRecord has another name, on which FedAvg would end the run."""
    return answer(RecordDict({"weights": packed(MODEL), records.METRICS: MetricRecord(METRICS)}))


def garbage() -> Message:
    """Return a reply whose bytes are no array."""
    arrays = ArrayRecord(
        {
            "weight": Array("float32", (2, 3), "numpy.ndarray", b"not an array"),
            "seen": Array(MODEL["seen"]),
        }
    )
    return answer(reply_content(arrays, MetricRecord(METRICS)))


def lying_header() -> Message:
    """Return a reply whose header says [2, 3] over bytes of [3, 2]."""
    array = Array(np.ones((3, 2), F32))
    array.shape = (2, 3)
    arrays = ArrayRecord({"weight": array, "seen": Array(MODEL["seen"])})
    return answer(reply_content(arrays, MetricRecord(METRICS)))


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
    "lying header": (lying_header, r"float32\[3, 2\], the model has float32\[2, 3\]"),
    "zero examples": (lambda: with_examples(0), r"num-examples is 0, allowed is 1 to 2\*\*40"),
    "negative": (lambda: with_examples(-3), "num-examples is -3"),
    "huge": (lambda: with_examples(2**40 + 1), "num-examples is 1099511627777"),
    "nan examples": (lambda: with_examples(float("nan")), "num-examples is nan"),
    "list": (lambda: with_examples([8]), r"num-examples is \[8\]"),
    "nan loss": (lambda: good(loss=float("nan")), "'loss' is nan, which is not finite"),
    "inf in a list": (lambda: good(parts=[1.0, float("inf")]), "'parts' is"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_reply_is_left_out_with_its_reason_and_the_others_stay(case: str) -> None:
    make, reason = REFUSED[case]
    replies = {"a": good(), "b": make(), "c": good()}
    admission = admit(replies, packed(MODEL))
    assert list(admission.admitted) == ["a", "c"]
    assert admission.admitted["a"] is replies["a"]
    assert list(admission.refused) == ["b"]
    with pytest.raises(ValueError, match=reason):
        raise ValueError(admission.refused["b"])


@pytest.mark.parametrize("examples", [1, 2**40, 12.0])
def test_num_examples_from_1_to_2_to_the_40_is_admitted(examples: float) -> None:
    assert list(admit({"a": with_examples(examples)}, packed(MODEL)).admitted) == ["a"]


def test_metrics_unlike_those_of_most_clients_are_refused() -> None:
    replies = {"a": good(extra=1.0), "b": good(), "c": good()}
    admission = admit(replies, packed(MODEL))
    assert list(admission.admitted) == ["b", "c"]
    assert "missing [], extra ['extra']" in admission.refused["a"]


def test_a_list_of_another_length_counts_as_another_metric() -> None:
    replies = {"a": good(parts=[1.0]), "b": good(parts=[1.0, 2.0]), "c": good(parts=[3.0, 4.0])}
    admission = admit(replies, packed(MODEL))
    assert list(admission.admitted) == ["b", "c"]
    assert "missing ['parts[2]'], extra ['parts[1]']" in admission.refused["a"]


def test_in_a_tie_of_metrics_the_first_name_decides() -> None:
    replies = {"a": good(extra=1.0), "b": good()}
    assert list(admit(replies, packed(MODEL)).admitted) == ["a"]


def test_refused_replies_have_no_say_in_what_most_clients_report() -> None:
    odd = {"extra": 1.0, records.NUM_EXAMPLES: 0}
    replies = {"a": good(**odd), "b": good(**odd), "c": good()}
    assert list(admit(replies, packed(MODEL)).admitted) == ["c"]


def test_an_integer_buffer_is_not_asked_whether_it_is_finite() -> None:
    assert list(admit({"a": with_arrays(seen=np.array(2**60))}, packed(MODEL)).admitted) == ["a"]


COUNTS = {records.NUM_EXAMPLES: 0, records.CORRECT: 0, records.CLASS_TOTAL: [0, 0]}


def evaluation(metrics: dict[str, Any]) -> Message:
    """Return an evaluate reply."""
    return answer(RecordDict({records.METRICS: MetricRecord(metrics)}))


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [
        (COUNTS | {records.CLASS_TOTAL: [0]}, "a list of 2 numbers was expected"),
        (COUNTS | {records.CORRECT: [0]}, "one number was expected"),
        ({}, "'num-examples'] are missing"),
    ],
)
def test_needed_metrics_must_be_there_and_have_their_length(
    metrics: dict[str, Any], reason: str
) -> None:
    replies = {"a": evaluation(COUNTS), "b": evaluation(metrics)}
    needed = {records.CORRECT: None, records.CLASS_TOTAL: 2}
    admission = admit(replies, None, needed=needed, fewest_examples=0)
    assert list(admission.admitted) == ["a"]
    assert reason in admission.refused["b"]


def test_no_replies_give_no_replies() -> None:
    admission = admit({}, packed(MODEL))
    assert (admission.admitted, admission.refused) == ({}, {})


def test_one_reason_of_many_clients_is_said_once() -> None:
    reasons = {f"c{n}": "no disk" for n in range(10)} | {"d": "no net"}
    assert explain(reasons) == "  10 clients (c0, c1, c2, ...): no disk\n  d: no net"


def test_a_long_error_keeps_its_end_where_the_cause_stands() -> None:
    text = error_text(answer(Error(2, "Traceback\n  line\n" * 100 + "ValueError: the cause")))
    assert text.endswith("ValueError: the cause")
    assert "\n" not in text
    assert len(text) < 620


def test_an_error_without_words_is_named_by_its_code() -> None:
    assert error_text(answer(Error(8, None))) == "error code 8"
