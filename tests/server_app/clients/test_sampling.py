"""Which clients take part."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from server_app.clients.sampling import choose_clients, without

NAMES = [f"client-{index:04d}" for index in range(20)]


def test_the_choice_depends_on_the_set_of_names_not_on_their_order() -> None:
    chosen = choose_clients(NAMES, 0.5, 3, 7, "train")
    assert chosen == choose_clients(reversed(NAMES), 0.5, 3, 7, "train")


@pytest.mark.parametrize(
    ("seed", "server_round", "purpose"), [(4, 7, "train"), (3, 8, "train"), (3, 7, "evaluate")]
)
def test_seed_round_and_purpose_each_change_the_choice(
    seed: int, server_round: int, purpose: str
) -> None:
    assert choose_clients(NAMES, 0.5, 3, 7, "train") != choose_clients(
        NAMES, 0.5, seed, server_round, purpose
    )


def test_the_choice_is_sorted_and_without_repetition() -> None:
    chosen = choose_clients(NAMES, 0.5, 3, 7, "train")
    assert len(chosen) == 10
    assert chosen == sorted(set(chosen))


@pytest.mark.parametrize(
    ("fraction", "count", "wanted"),
    [(1.0, 20, 20), (0.5, 5, 2), (0.29, 100, 29), (0.1, 30, 3), (0.01, 20, 1)],
)
def test_a_fraction_is_rounded_down_but_never_to_nobody(
    fraction: float, count: int, wanted: int
) -> None:
    names = [f"c{index}" for index in range(count)]
    assert len(choose_clients(names, fraction, 0, 1, "train")) == wanted


def test_no_fewer_than_at_least_and_no_more_than_there_are() -> None:
    assert len(choose_clients(NAMES, 0.1, 0, 1, "train", at_least=5)) == 5
    assert choose_clients(["a"], 0.1, 0, 1, "train", at_least=5) == ["a"]


def test_fraction_zero_and_no_clients_choose_nobody() -> None:
    assert choose_clients(NAMES, 0.0, 0, 1, "evaluate", at_least=5) == []
    assert choose_clients([], 1.0, 0, 1, "train") == []


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan")])
def test_a_fraction_outside_0_to_1_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="allowed is 0 to 1"):
        choose_clients(NAMES, fraction, 0, 1, "train")


def test_every_client_is_chosen_in_the_long_run() -> None:
    seen = {name for n in range(1, 40) for name in choose_clients(NAMES, 0.25, 0, n, "train")}
    assert seen == set(NAMES)


def test_the_choice_leaves_global_generators_alone() -> None:
    states = (random.getstate(), torch.random.get_rng_state(), np.random.get_state()[1].copy())
    choose_clients(NAMES, 0.5, 3, 7, "train")
    assert random.getstate() == states[0]
    assert torch.equal(torch.random.get_rng_state(), states[1])
    assert np.array_equal(np.random.get_state()[1], states[2])


def test_those_that_failed_are_left_out_unless_too_few_would_be_left() -> None:
    names = ("c", "a", "b")
    assert without(frozenset(), names, at_least=1) == (["a", "b", "c"], [])
    assert without({"b", "gone"}, names, at_least=2) == (["a", "c"], ["b"])
    assert without({"b"}, names, at_least=3) == (["a", "b", "c"], [])
