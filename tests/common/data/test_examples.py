from __future__ import annotations

import numpy as np
import pytest
import torch

from common.data import DataError, DataSpec, ExampleSet
from common.data.arrays import Arrays
from common.data.examples import open_examples
from common.data.kinds import Image
from common.data.targets import ClassLabels

SPEC = DataSpec("npz", Image((2, 3, 2), (0.5, 0.25), (0.5, 0.125)), ClassLabels(4))
CPU = torch.device("cpu")


def arrays(dtype: type[np.generic] = np.uint8) -> Arrays:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (20, 2, 3, 2)).astype(np.uint8)
    stored = images if dtype is np.uint8 else (images / 255).astype(np.float32)
    return Arrays(stored, generator.integers(0, 4, 20))


def opened(
    monkeypatch: pytest.MonkeyPatch, *, resident: bool, dtype: type[np.generic] = np.uint8
) -> ExampleSet:
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "1" if resident else "0")
    examples = open_examples(arrays(dtype), np.array([19, 3, 4, 5, 11, 0, 7]), SPEC, CPU)
    assert examples.resident is resident
    return examples


def test_values_are_scaled_to_one_and_normalised_per_channel() -> None:
    images = np.zeros((2, 2, 1, 2), dtype=np.uint8)
    images[1] = [[[255, 51]], [[255, 51]]]
    spec = DataSpec("mnist", Image((2, 1, 2), (0.5, 0.25), (0.5, 0.125)), ClassLabels(2))
    examples = open_examples(Arrays(images, np.array([0, 1])), np.array([1, 0]), spec, CPU)
    # 255 -> 1, 51 -> 0.2; (1 - .5) / .5 = 1, (.2 - .5) / .5 = -.6, (1 - .25) / .125 = 6,
    # (.2 - .25) / .125 = -.4, (0 - .5) / .5 = -1, (0 - .25) / .125 = -2
    expected = torch.tensor([[[[1.0, -0.6]], [[6.0, -0.4]]], [[[-1.0, -1.0]], [[-2.0, -2.0]]]])
    torch.testing.assert_close(examples.x, expected)
    assert examples.y.tolist() == [1, 0]
    assert examples.y.dtype == torch.int64


def test_digits_are_scaled_by_16() -> None:
    spec = DataSpec("digits", Image((1, 1, 1), (0.0,), (1.0,), white=16.0), ClassLabels(2))
    stored = Arrays(np.array([[[[4]]]], dtype=np.uint8), np.array([0]))
    assert open_examples(stored, np.array([0]), spec, CPU).x.item() == 0.25


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_mapped_and_resident_sets_give_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: type[np.generic]
) -> None:
    resident = opened(monkeypatch, resident=True, dtype=dtype)
    mapped = opened(monkeypatch, resident=False, dtype=dtype)
    index = torch.tensor([6, 0, 2, 2])
    assert torch.equal(resident.take(index), mapped.take(index))
    for size in (1, 3, 7, 100):
        pairs = zip(resident.batches_in_order(size), mapped.batches_in_order(size), strict=True)
        for (x, y), (mapped_x, mapped_y) in pairs:
            assert torch.equal(x, mapped_x)
            assert torch.equal(y, mapped_y)


@pytest.mark.parametrize("resident", [True, False])
def test_batches_in_order_hold_every_example_once(
    monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    examples = opened(monkeypatch, resident=resident)
    batches = list(examples.batches_in_order(3))
    assert [len(y) for _, y in batches] == [3, 3, 1]
    assert torch.equal(torch.cat([x for x, _ in batches]), examples.take(torch.arange(7)))
    assert torch.cat([y for _, y in batches]).tolist() == examples.y.tolist()


@pytest.mark.parametrize("resident", [True, False])
def test_reading_changes_neither_the_stored_values_nor_the_set(
    monkeypatch: pytest.MonkeyPatch, resident: bool
) -> None:
    stored = arrays(np.float32)
    before = stored.x.copy()
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "1" if resident else "0")
    examples = open_examples(stored, np.arange(20), SPEC, CPU)
    examples.take(torch.arange(4)).zero_()
    assert (stored.x == before).all()
    assert examples.take(torch.arange(4)).abs().sum() > 0


@pytest.mark.parametrize("resident", [True, False])
def test_an_empty_set_has_no_batches(monkeypatch: pytest.MonkeyPatch, resident: bool) -> None:
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "1" if resident else "-0")
    examples = open_examples(arrays(), np.arange(0), SPEC, CPU)
    assert len(examples) == 0
    assert list(examples.batches_in_order(4)) == []


def test_the_loader_leaves_torchs_global_generator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = opened(monkeypatch, resident=False)
    before = torch.random.get_rng_state()
    list(examples.batches_in_order(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_mapped_set_has_no_tensor_of_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"7 examples don't fit.*MOONFLOWER_RESIDENT_MB"):
        _ = opened(monkeypatch, resident=False).x


def test_images_and_labels_must_match() -> None:
    with pytest.raises(DataError, match="3 examples and 2 labels"):
        ExampleSet(torch.zeros(3, 1, 1, 1), torch.zeros(2, dtype=torch.int64))
