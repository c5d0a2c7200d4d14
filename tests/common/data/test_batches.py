from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
import torch

from common.data import Batch, DataError, DataSpec, ExampleSet, TrainBatches
from common.data.arrays import Arrays
from common.data.augmentation import crop_flip
from common.data.batches import batch_bounds, batches_in_epoch
from common.data.examples import open_examples
from common.data.kinds import Augment, Image
from common.data.targets import ClassLabels


def example_set(count: int, size: int = 1) -> ExampleSet:
    """Image ``i`` is filled with the value ``i``; its label is ``i`` modulo 3."""
    values = torch.arange(count, dtype=torch.float32)
    images = values.view(-1, 1, 1, 1).expand(-1, 1, size, size).clone()
    return ExampleSet(images, torch.arange(count) % 3)


def batches(examples: ExampleSet, seed: int = 0, **changes: Any) -> TrainBatches:
    arguments = {"batch_size": 4, "drop_last": False, "epochs": 1, "steps": 0} | changes
    return TrainBatches(examples, generator=torch.Generator().manual_seed(seed), **arguments)


def indices(made: list[Batch]) -> list[list[int]]:
    return [batch.index.tolist() for batch in made]


@pytest.mark.parametrize(
    ("count", "drop_last", "sizes"),
    [
        (8, False, [4, 4]),
        (10, False, [4, 4, 2]),
        (10, True, [4, 4]),
        (9, False, [4, 5]),  # one example alone has no variance for BatchNorm
        (9, True, [4, 4]),
        (5, False, [5]),
        (4, False, [4]),
        (3, False, [3]),
        (3, True, [3]),  # the only batch is kept
        (1, False, [1]),
        (1, True, [1]),
    ],
)
def test_an_epoch_is_cut_into_batches(count: int, drop_last: bool, sizes: list[int]) -> None:
    bounds = batch_bounds(count, 4, drop_last=drop_last)
    assert batches_in_epoch(count, 4, drop_last=drop_last) == len(bounds)
    assert [end - begin for begin, end in bounds] == sizes
    assert bounds[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(bounds))


def test_batches_of_one_stay_batches_of_one() -> None:
    assert batch_bounds(3, 1, drop_last=False) == [(0, 1), (1, 2), (2, 3)]


def test_an_epoch_holds_every_example_once() -> None:
    made = list(batches(example_set(10)))
    assert sorted(chain.from_iterable(indices(made))) == list(range(10))


def test_index_says_where_images_and_labels_come_from() -> None:
    for batch in batches(example_set(10), epochs=2):
        assert batch.x.flatten().tolist() == batch.index.tolist()
        assert batch.y.tolist() == [row % 3 for row in batch.index.tolist()]


def test_every_epoch_has_an_order_of_its_own() -> None:
    made = indices(list(batches(example_set(40), batch_size=40, epochs=3)))
    assert len({tuple(order) for order in made}) == 3
    assert tuple(range(40)) not in {tuple(order) for order in made}


def test_steps_go_on_through_new_permutations() -> None:
    training = batches(example_set(10), steps=7, epochs=1, drop_last=True)
    made = indices(list(training))
    assert len(training) == len(made) == 7
    # Two batches of 4 an epoch; each epoch has 8 different examples.
    for epoch in (made[0:2], made[2:4], made[4:6]):
        assert len(set(chain.from_iterable(epoch))) == 8


def test_fewer_steps_than_an_epoch_end_early() -> None:
    assert len(list(batches(example_set(40), steps=3, epochs=5))) == 3


def test_the_length_is_the_number_of_batches() -> None:
    training = batches(example_set(10), epochs=3)
    assert len(training) == len(list(training)) == 9


def test_one_seed_gives_the_same_batches_and_another_seed_others() -> None:
    first, again, other = (indices(list(batches(example_set(20), seed=seed))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_a_single_example_can_be_trained_on_in_every_step() -> None:
    assert indices(list(batches(example_set(1), steps=3))) == [[0]] * 3


@pytest.mark.parametrize("augment", [None, crop_flip])
def test_mapped_and_resident_sets_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, augment: Augment | None
) -> None:
    spec = DataSpec("npz", Image((3, 8, 8), (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)), ClassLabels(3))
    images = np.random.default_rng(0).integers(0, 256, (17, 3, 8, 8)).astype(np.uint8)
    made = {}
    for limit in ("0", "10"):
        monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", limit)
        examples = open_examples(
            Arrays(images, np.arange(17) % 3), np.arange(17), spec, torch.device("cpu")
        )
        assert examples.resident is (limit == "10")
        made[limit] = list(batches(examples, epochs=2, augment=augment))
    assert len(made["0"]) == len(made["10"]) == 8
    for mapped, resident in zip(made["0"], made["10"], strict=True):
        assert torch.equal(mapped.x, resident.x)
        assert torch.equal(mapped.y, resident.y)
        assert torch.equal(mapped.index, resident.index)


def test_augmentation_changes_the_images_but_not_the_order() -> None:
    images = torch.rand(20, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    examples = ExampleSet(images, torch.arange(20) % 3)
    plain = list(batches(examples))
    changed = list(batches(examples, augment=crop_flip))
    assert indices(plain) == indices(changed)
    assert not torch.equal(plain[0].x, changed[0].x)
    assert torch.equal(examples.x, images)


def test_an_empty_set_is_refused() -> None:
    with pytest.raises(DataError, match="no examples to train on"):
        batches(example_set(0))


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"epochs": 0}, {"steps": -1}])
def test_numbers_out_of_range_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="needed are a batch_size and epochs from 1"):
        batches(example_set(3), **wrong)
