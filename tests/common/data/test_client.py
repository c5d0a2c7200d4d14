from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.config import Settings
from common.data import DataError, ExampleSet, TrainBatches, load_client_data, load_server_test_set
from common.data.arrays import Arrays
from common.data.examples import open_examples
from common.data.splits import Rows
from common.node import Folders
from tests.common.data.conftest import MakeNode
from tests.settings import make_settings

CPU = torch.device("cpu")


def mnist(**overrides: Any) -> Settings:
    keys = {f"data.{key.replace('_', '-')}": value for key, value in overrides.items()}
    return make_settings(**{"data.source": "mnist", "data.partition": "iid"} | keys)


def site_settings(**overrides: Any) -> Settings:
    keys = {"data.source": "npz", "data.image-shape": "1x6x5", "data.num-classes": 3}
    return make_settings(**keys | {f"data.{k.replace('_', '-')}": v for k, v in overrides.items()})


def write_npz(folders: Folders, labels: list[int], name: str = "train.npz") -> None:
    """Image ``i`` is filled with the value ``i``."""
    images = np.arange(len(labels), dtype=np.uint8).repeat(30).reshape(-1, 6, 5)
    np.savez(folders.data / name, x=images, y=np.array(labels, dtype=np.int64))


def stored_labels(examples: ExampleSet) -> list[int]:
    """Recover the labels from the images of ``write_mnist``: pixels are 20 * label."""
    pixels = (examples.x[:, 0, 3, 3] * 0.5 + 0.5) * 255
    return [round(value) // 20 for value in pixels.tolist()]


def stored_values(examples: ExampleSet) -> list[int]:
    """Recover the values that the images of ``write_npz`` are filled with."""
    return [round(value) for value in ((examples.x[:, 0, 0, 0] * 0.5 + 0.5) * 255).tolist()]


def test_a_client_holds_its_partition_less_its_validation_split(
    synthetic_mnist: Folders, make_node: MakeNode
) -> None:
    client = load_client_data(mnist(validation_fraction=0.2), make_node(0, 4))
    assert (len(client.train), len(client.evaluation)) == (20, 5)
    assert client.train.x.shape == (20, 1, 28, 28)
    assert client.label_counts.tolist() == np.bincount(client.train.y, minlength=10).tolist()
    assert client.label_counts.dtype == torch.int64


def test_images_stay_with_their_labels(synthetic_mnist: Folders, make_node: MakeNode) -> None:
    client = load_client_data(mnist(), make_node(2, 4))
    assert stored_labels(client.train) == client.train.y.tolist()
    assert stored_labels(client.evaluation) == client.evaluation.y.tolist()


def test_all_clients_together_hold_the_training_set(
    synthetic_mnist: Folders, make_node: MakeNode
) -> None:
    total = torch.zeros(10, dtype=torch.int64)
    for number in range(4):
        client = load_client_data(mnist(), make_node(number, 4))
        total += client.label_counts + torch.bincount(client.evaluation.y, minlength=10)
    assert total.tolist() == [10] * 10


def test_the_same_client_gets_the_same_examples_twice(
    synthetic_mnist: Folders, make_node: MakeNode
) -> None:
    first, second = (load_client_data(mnist(), make_node(1, 4)) for _ in range(2))
    assert torch.equal(first.train.y, second.train.y)
    assert torch.equal(first.evaluation.x, second.evaluation.x)


def test_the_seed_chooses_the_validation_split(folders: Folders, make_node: MakeNode) -> None:
    write_npz(folders, [0, 1, 2] * 20)
    first, other = (
        load_client_data(
            make_settings(
                **{"data.source": "npz", "data.image-shape": "1x6x5", "data.num-classes": 3},
                seed=seed,
            ),
            make_node(None),
        )
        for seed in (0, 1)
    )
    assert stored_values(first.evaluation) != stored_values(other.evaluation)


def test_the_whole_test_set_can_be_the_evaluation_set(
    synthetic_mnist: Folders, make_node: MakeNode
) -> None:
    settings = mnist(client_test="global", validation_fraction=0.0)
    client = load_client_data(settings, make_node(3, 4))
    assert len(client.train) == 25
    assert torch.bincount(client.evaluation.y).tolist() == [4] * 10


def test_held_labels_are_those_of_the_clients_partition(
    synthetic_mnist: Folders, make_node: MakeNode
) -> None:
    settings = mnist(
        partition="classes-per-client", client_test="official", validation_fraction=0.0
    )
    for number in range(4):
        client = load_client_data(settings, make_node(number, 4))
        held = client.label_counts.nonzero().flatten().tolist()
        assert len(held) == 2
        # Of 4 test examples of a label, each of 4 clients may have one.
        assert client.evaluation.y.tolist() == held


def test_a_site_needs_no_partition(folders: Folders, make_node: MakeNode) -> None:
    write_npz(folders, [0, 1, 2] * 10)
    client = load_client_data(site_settings(), make_node(None, None))
    held = stored_values(client.train) + stored_values(client.evaluation)
    assert sorted(held) == list(range(30))


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes-per-client"])
def test_in_a_simulation_a_site_s_own_data_are_shared_among_the_clients(
    folders: Folders, make_node: MakeNode, partition: str
) -> None:
    write_npz(folders, [0, 1, 2] * 60)
    settings = site_settings(partition=partition)
    clients = [load_client_data(settings, make_node(number, 4)) for number in range(4)]
    held = [(stored_values(c.train), stored_values(c.evaluation)) for c in clients]
    # Every image is in one place: no client validates on what another trains on.
    assert sorted(value for both in held for side in both for value in side) == list(range(180))
    assert all(train and tested for train, tested in held)


def test_a_share_that_is_not_there_is_refused_for_own_data_too(
    folders: Folders, make_node: MakeNode
) -> None:
    write_npz(folders, [0, 1, 2] * 60)
    with pytest.raises(DataError, match="partition-id=4 and num-partitions=4"):
        load_client_data(site_settings(), make_node(4, 4))


def test_a_site_that_grows_never_validates_on_what_it_has_trained_on(
    folders: Folders, make_node: MakeNode
) -> None:
    def sides() -> tuple[set[int], set[int]]:
        client = load_client_data(site_settings(validation_fraction=0.2), make_node(None, None))
        return set(stored_values(client.train)), set(stored_values(client.evaluation))

    write_npz(folders, [0, 1] * 50)
    train, tested = sides()
    # New images come in between: neither the order nor the place of the old ones is kept.
    values = np.random.default_rng(0).permutation(200).astype(np.uint8)
    images = values.repeat(30).reshape(-1, 6, 5)
    np.savez(folders.data / "train.npz", x=images, y=values % 2)
    grown_train, grown_tested = sides()
    assert train <= grown_train
    assert tested <= grown_tested
    assert (len(train | tested), len(grown_train | grown_tested)) == (100, 200)


def test_a_site_takes_a_fraction_of_every_label(folders: Folders, make_node: MakeNode) -> None:
    write_npz(folders, [0] * 20 + [1] * 10)
    settings = site_settings(fraction=0.5, client_test="global", validation_fraction=0.0)
    write_npz(folders, [0, 1, 2], "test.npz")
    client = load_client_data(settings, make_node(None, None))
    assert client.label_counts.tolist() == [10, 5, 0]
    assert client.evaluation.y.tolist() == [0, 1, 2]


def test_a_site_evaluates_on_the_test_examples_whose_labels_it_holds(
    folders: Folders, make_node: MakeNode
) -> None:
    write_npz(folders, [0, 2] * 5)
    write_npz(folders, [0, 1, 2, 2], "test.npz")
    client = load_client_data(site_settings(client_test="official"), make_node(None, None))
    assert client.evaluation.y.tolist() == [0, 2, 2]


def test_a_site_without_the_test_set_that_is_wanted_is_told_what_to_add(
    folders: Folders, make_node: MakeNode
) -> None:
    write_npz(folders, [0, 1, 2])
    with pytest.raises(DataError, match=r"'site-a' has none.*add test\.npz.*'validation'"):
        load_client_data(site_settings(client_test="global"), make_node(None, None))


def test_only_the_examples_that_are_asked_for_are_opened(
    folders: Folders, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def counted(arrays: Arrays, rows: Rows, *others: Any) -> ExampleSet:
        opened.append(len(rows))
        return open_examples(arrays, rows, *others)

    monkeypatch.setattr("common.data.client.open_examples", counted)
    write_npz(folders, [0, 1] * 10)
    client = load_client_data(site_settings(validation_fraction=0.2), make_node(None, None))
    train = int(client.label_counts.sum())
    assert opened == []
    assert (len(client.evaluation), opened) == (20 - train, [20 - train])
    assert (len(client.train), len(client.train), opened) == (train, train, [20 - train, train])


def test_a_limit_that_is_no_number_is_said_before_any_example_is_opened(
    folders: Folders, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(folders, [0, 1])
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "much")
    with pytest.raises(DataError, match="MOONFLOWER_RESIDENT_MB='much' is not a number"):
        load_client_data(site_settings(), make_node(None, None))


@pytest.mark.parametrize(("number", "total"), [(None, None), (0, None), (None, 4), (4, 4)])
def test_a_shared_set_needs_a_partition(
    synthetic_mnist: Folders, make_node: MakeNode, number: int | None, total: int | None
) -> None:
    with pytest.raises(DataError, match=f"partition-id={number} and num-partitions={total}"):
        load_client_data(mnist(), make_node(number, total))


def test_a_client_without_examples_is_named(folders: Folders, make_node: MakeNode) -> None:
    write_npz(folders, [])
    with pytest.raises(DataError, match="client 'site-a' has no examples: source 'npz'"):
        load_client_data(site_settings(), make_node(None, None))


def test_an_empty_partition_is_named_with_its_settings(
    synthetic_mnist: Folders, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = [np.arange(100), np.arange(0)]
    monkeypatch.setattr("common.data.client.load_partitions", lambda *args: empty)
    with pytest.raises(
        DataError, match=r"'client-0001' has no examples: data\.partition='iid'.*partition 1 of 2"
    ):
        load_client_data(mnist(), make_node(1, 2))


def test_a_client_with_one_example_trains_on_it_and_evaluates_on_none(
    folders: Folders, make_node: MakeNode
) -> None:
    write_npz(folders, [2])
    client = load_client_data(site_settings(), make_node(None, None))
    assert (len(client.train), len(client.evaluation)) == (1, 0)
    assert client.label_counts.tolist() == [0, 0, 1]
    assert list(client.evaluation.batches_in_order(8)) == []
    generator = torch.Generator().manual_seed(0)
    made = TrainBatches(
        client.train, batch_size=32, drop_last=True, epochs=2, steps=0, generator=generator
    )
    assert [batch.y.tolist() for batch in made] == [[2], [2]]


def test_labels_that_no_client_has_count_zero(folders: Folders, make_node: MakeNode) -> None:
    write_npz(folders, [1] * 10)
    client = load_client_data(site_settings(), make_node(None, None))
    assert client.label_counts.tolist() == [0, 9, 0]


def test_a_mapped_client_holds_the_same_examples(
    synthetic_mnist: Folders, make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    resident = load_client_data(mnist(), make_node(0, 4))
    assert resident.train.resident
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "0")
    mapped = load_client_data(mnist(), make_node(0, 4))
    assert not mapped.train.resident
    assert torch.equal(mapped.train.take(torch.arange(len(mapped.train))), resident.train.x)


# the server


def test_images_too_small_for_the_augmentation_are_refused_before_training(
    folders: Folders, make_node: MakeNode
) -> None:
    # At most the height of 4 is too small; no data are needed to say so.
    settings = site_settings(image_shape="1x4x9", augmentation="crop-flip")
    with pytest.raises(DataError, match="these are 4x9"):
        load_client_data(settings, make_node(None, None))


def test_the_server_has_the_whole_test_set(synthetic_mnist: Folders) -> None:
    examples = load_server_test_set(mnist(), synthetic_mnist, CPU)
    assert examples is not None
    assert torch.bincount(examples.y).tolist() == [4] * 10


def test_the_servers_digits_are_the_same_for_every_seed(folders: Folders) -> None:
    first, second = (
        load_server_test_set(make_settings(seed=seed), folders, CPU) for seed in (0, 7)
    )
    assert first is not None
    assert second is not None
    assert torch.equal(first.x, second.x)


def test_the_server_needs_no_data_of_a_site(folders: Folders, tmp_path: Path) -> None:
    nowhere = Folders(tmp_path / "nowhere", folders.state, folders.output)
    assert load_server_test_set(site_settings(), nowhere, CPU) is None


def test_the_server_uses_a_sites_test_set_where_it_has_one(folders: Folders) -> None:
    write_npz(folders, [2, 1, 0], "test.npz")
    examples = load_server_test_set(site_settings(), folders, CPU)
    assert examples is not None
    assert examples.y.tolist() == [2, 1, 0]


def test_real_mnist_split_as_fedgens_code_does(
    real_data: Path, folders: Folders, make_node: MakeNode
) -> None:
    settings = mnist(
        partition="fedgen-official",
        alpha=0.1,
        fraction=0.5,
        client_test="official",
        validation_fraction=0.0,
    )
    real = Folders(real_data, folders.state, folders.output)
    total = torch.zeros(10, dtype=torch.int64)
    for number in range(20):
        node = make_node(number, 20)
        client = load_client_data(settings, type(node)(node.name, number, 20, CPU, real))
        total += client.label_counts
        tested = torch.bincount(client.evaluation.y, minlength=10)
        # The test set has 892 fives and 1,135 ones: 44 and 56 each for 20 clients.
        assert tested[5] == (44 if client.label_counts[5] else 0)
        assert tested[1] == (56 if client.label_counts[1] else 0)
    assert total.tolist() == [1500] * 10
