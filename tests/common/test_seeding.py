"""Every random number follows from (seed, purpose, client, round) and from nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from common.seeding import derive_seed, numpy_generator, seeded_globally, torch_generator


def test_every_argument_makes_another_seed() -> None:
    seeds = {
        derive_seed(*each)
        for each in itertools.product((0, 1), ("a", "b"), ("", "site"), (0, 1, 11))
    }
    assert len(seeds) == 2 * 2 * 2 * 3
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_arguments_do_not_run_into_each_other() -> None:
    assert derive_seed(1, "a", "b", 1) != derive_seed(1, "ab", "", 1)
    assert derive_seed(1, "a", "1", 1) != derive_seed(1, "a", "", 11)


def test_a_seed_is_the_same_on_every_machine_and_in_every_version() -> None:
    # SHA-256 of "0", "batches", "client-0000", "1" joined by the unit separator, its first 8
    # bytes without the lowest bit: a change would make old experiments irreproducible.
    assert derive_seed(0, "batches", "client-0000", 1) == 6392352889473334321


def test_generators_draw_the_same_again_and_leave_the_global_ones_alone() -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    one, two = (torch.rand(3, generator=torch_generator(0, "x", "a", 2)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, torch.rand(3, generator=torch_generator(0, "x", "a", 3)))
    assert numpy_generator(0, "x").random() == numpy_generator(0, "x").random()
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state).all()


def test_initialisation_is_seeded_inside_the_block_only() -> None:
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    layers = []
    for _ in range(2):
        with seeded_globally(3, "model"):
            layers.append(torch.nn.Linear(2, 2))
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert torch.equal(torch.rand(2), expected)
