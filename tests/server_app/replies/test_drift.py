"""Cosines between the clients' updates and their mean, derived by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from server_app.replies.drift import Sent, update_cosines
from server_app.replies.spool import Spool

BODY, HEAD, MEAN = "encoder.weight", "predictor.weight", "encoder.norm.running_mean"


def record(**arrays: object) -> ArrayRecord:
    names = {"body": BODY, "head": HEAD, "mean": MEAN}
    return ArrayRecord(
        {names[key]: Array(np.asarray(values, np.float32)) for key, values in arrays.items()}
    )


def cosines(
    before: ArrayRecord, sent: Mapping[str, tuple[float, ArrayRecord]]
) -> dict[str, dict[str, float | None]]:
    return update_cosines({name: Sent(*each) for name, each in sent.items()}, before, {BODY, HEAD})


def test_each_client_is_compared_with_the_weighted_mean_of_all_updates() -> None:
    before = record(body=[1.0, 1.0], head=[5.0])
    found = cosines(
        before,
        {
            # Updates (3, 0 | 0) and (0, 4 | 1), weights 1 and 3: mean (3/4, 3 | 3/4).
            "a": (1.0, record(body=[4.0, 1.0], head=[5.0])),
            "b": (3.0, record(body=[1.0, 5.0], head=[6.0])),
        },
    )
    length = math.sqrt(0.75**2 + 3**2 + 0.75**2)
    assert found["a"]["update"] == pytest.approx(0.75 / length)
    assert found["b"]["update"] == pytest.approx((4 * 3 + 0.75) / (math.sqrt(17) * length))
    # Of the heads, a's stayed where it was, and b's went where the mean went.
    assert found["a"]["predictor"] is None
    assert found["b"]["predictor"] == pytest.approx(1.0)


def test_alike_is_one_opposite_is_minus_one_and_nothing_is_no_direction() -> None:
    before = record(body=[0.0, 0.0])
    sent = {"with": (2.0, record(body=[1.0, 2.0])), "against": (1.0, record(body=[-1.0, -2.0]))}
    found = cosines(before, sent)
    assert found["with"]["update"] == pytest.approx(1.0)
    assert found["against"]["update"] == pytest.approx(-1.0)
    assert found["with"]["predictor"] is None  # no head is shared
    still = cosines(before, {"a": (1.0, before), "b": (1.0, before)})
    assert still["a"]["update"] is None


def test_running_statistics_are_no_direction() -> None:
    before = record(body=[0.0, 0.0], mean=[0.0])
    sent = {
        "a": (1.0, record(body=[1.0, 0.0], mean=[100.0])),
        "b": (1.0, record(body=[0.0, 1.0], mean=[-900.0])),
    }
    assert cosines(before, sent)["a"]["update"] == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("memory", [0, 2**30])
def test_many_arrays_larger_than_a_part_in_memory_or_on_disk(tmp_path: Path, memory: int) -> None:
    random = np.random.default_rng(0)
    spool = Spool(tmp_path, memory)
    shapes = {f"encoder.{index}": (300, 101) for index in range(3)} | {HEAD: (10, 7)}

    def make(scale: float) -> ArrayRecord:
        return ArrayRecord(
            {
                name: Array(scale * random.standard_normal(s).astype(np.float32))
                for name, s in shapes.items()
            }
        )

    before = make(1.0)
    sent = {f"client-{index}": Sent(index + 1.0, spool.keep(make(0.1))) for index in range(4)}
    found = update_cosines(sent, before, set(shapes))

    def flat(arrays: ArrayRecord, beginning: str) -> np.ndarray:
        parts = [
            a.numpy().astype(np.float64).ravel()
            for n, a in arrays.items()
            if n.startswith(beginning)
        ]
        return np.concatenate(parts)

    for part, beginning in (("update", ""), ("predictor", "predictor.")):
        updates = {
            name: flat(each.arrays, beginning) - flat(before, beginning)
            for name, each in sent.items()
        }
        mean = sum(sent[name].weight * update for name, update in updates.items()) / 10
        for name, update in updates.items():
            expected = update @ mean / np.linalg.norm(update) / np.linalg.norm(mean)
            assert found[name][part] == pytest.approx(expected, abs=1e-5)


def test_an_update_that_float32_can_not_hold_has_no_cosine() -> None:
    before = record(body=[-3e38, 0.0])
    sent = {"a": (1.0, record(body=[3e38, 0.0])), "b": (1.0, record(body=[-3e38, 1.0]))}
    found = cosines(before, sent)
    assert found["a"]["update"] is None
    assert found["b"]["update"] is None
