from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from common.config import DataSettings
from common.data import DataError, partition_indices
from tests.settings import ROOT, make_settings

LABELS = np.arange(10).repeat(60)
SCHEMES = ["iid", "dirichlet", "classes-per-client", "fedgen-official"]


def data_settings(partition: str, **overrides: Any) -> DataSettings:
    keys = {f"data.{key.replace('_', '-')}": value for key, value in overrides.items()}
    return make_settings(**{"data.source": "mnist", "data.partition": partition} | keys).data


@pytest.mark.parametrize("partition", SCHEMES)
def test_shares_are_disjoint_sorted_and_none_is_empty(partition: str) -> None:
    shares = partition_indices(LABELS, data_settings(partition, alpha=1.0), 5, seed=1)
    rows = np.concatenate(shares)
    assert len(shares) == 5
    assert len(np.unique(rows)) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(LABELS)
    assert all(len(share) > 0 and (np.diff(share) > 0).all() for share in shares)
    assert all(share.dtype == np.int64 for share in shares)


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes-per-client"])
def test_every_example_is_used_when_the_fraction_is_one(partition: str) -> None:
    shares = partition_indices(LABELS, data_settings(partition), 10, seed=0)
    assert sum(len(share) for share in shares) == 600


@pytest.mark.parametrize("partition", SCHEMES)
def test_one_seed_gives_the_same_shares_and_another_seed_others(partition: str) -> None:
    settings = data_settings(partition, alpha=1.0)
    first, again, other = (
        [share.tolist() for share in partition_indices(LABELS, settings, 4, seed)]
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "classes-per-client"])
def test_a_fraction_is_taken_of_every_label_first(partition: str) -> None:
    shares = partition_indices(LABELS, data_settings(partition, fraction=0.5), 10, seed=0)
    counts = np.bincount(LABELS[np.concatenate(shares)], minlength=10)
    assert counts.tolist() == [30] * 10


def test_iid_shares_have_equal_sizes_and_all_labels() -> None:
    shares = partition_indices(LABELS, data_settings("iid"), 4, seed=0)
    assert [len(share) for share in shares] == [150] * 4
    # 150 random examples lack a label with probability 10 * (9/10)**150, about 1e-6.
    assert all(len(np.unique(LABELS[share])) == 10 for share in shares)


def test_a_smaller_alpha_makes_clients_less_alike() -> None:
    def largest_label_share(alpha: float) -> float:
        shares = partition_indices(LABELS, data_settings("dirichlet", alpha=alpha), 5, seed=0)
        return float(np.mean([np.bincount(LABELS[s]).max() / len(s) for s in shares]))

    assert largest_label_share(0.1) > largest_label_share(100.0) + 0.2


def test_dirichlet_shares_respect_the_smallest_size() -> None:
    shares = partition_indices(
        LABELS, data_settings("dirichlet", alpha=0.1, min_partition_size=30), 8, seed=0
    )
    assert min(len(share) for share in shares) >= 30


def test_dirichlet_goes_on_with_other_seeds_where_one_gives_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flwr_datasets.partitioner import DirichletPartitioner

    seeds = []
    real = DirichletPartitioner._determine_partition_id_to_indices_if_needed

    def fail_three_times(self: DirichletPartitioner) -> None:
        if self._seed not in seeds:
            seeds.append(self._seed)
        if len(seeds) <= 3:
            raise ValueError("The max number of attempts (10) was reached.")
        real(self)

    monkeypatch.setattr(
        DirichletPartitioner, "_determine_partition_id_to_indices_if_needed", fail_three_times
    )
    shares = partition_indices(LABELS, data_settings("dirichlet"), 5, seed=0)
    assert len(shares) == 5
    assert len(seeds) == 4


def test_an_impossible_dirichlet_split_ends_with_the_settings_to_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("common.data.partition.DIRICHLET_SEEDS", 2)
    settings = data_settings("dirichlet", alpha=1e-3, min_partition_size=50)
    with pytest.raises(DataError, match=r"data\.alpha=0\.001.*in 22 draws.*larger data\.alpha"):
        partition_indices(LABELS, settings, 12, seed=0)


def test_classes_per_client_gives_each_client_that_many_labels() -> None:
    shares = partition_indices(
        LABELS, data_settings("classes-per-client", classes_per_client=3), 10, seed=0
    )
    assert [len(np.unique(LABELS[share])) for share in shares] == [3] * 10
    assert set(LABELS[np.concatenate(shares)]) == set(range(10))


def test_labels_that_no_client_gets_are_named_in_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = data_settings("classes-per-client", classes_per_client=1)
    partition_indices(LABELS, settings, 7, seed=0)
    assert "labels [7, 8, 9] go to no client" in caplog.text


def test_one_class_per_client_is_possible() -> None:
    shares = partition_indices(
        LABELS, data_settings("classes-per-client", classes_per_client=1), 10, seed=0
    )
    assert sorted(int(LABELS[share[0]]) for share in shares) == list(range(10))


def test_more_classes_per_client_than_labels_are_refused() -> None:
    settings = data_settings("classes-per-client", classes_per_client=11)
    with pytest.raises(DataError, match="classes-per-client=11 is more than the 10 labels"):
        partition_indices(LABELS, settings, 4, seed=0)


def test_a_label_wanted_by_more_clients_than_it_has_examples_is_refused() -> None:
    settings = data_settings("classes-per-client", classes_per_client=2)
    labels = np.array([0, 1, 1, 1])
    with pytest.raises(DataError, match="no split of 4 examples gives 3 clients 2 labels each"):
        partition_indices(labels, settings, 3, seed=0)


@pytest.mark.parametrize("partition", SCHEMES)
def test_more_clients_than_examples_are_refused(partition: str) -> None:
    with pytest.raises(DataError, match="600 training examples can't be shared among 601"):
        partition_indices(LABELS, data_settings(partition, min_partition_size=1), 601, seed=0)


def test_a_fraction_too_small_for_the_clients_is_refused() -> None:
    settings = data_settings("iid", fraction=0.1)
    with pytest.raises(DataError, match=r"60 training examples.*61 clients.*data\.fraction"):
        partition_indices(LABELS, settings, 61, seed=0)


def test_no_partition_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="among 0 clients"):
        partition_indices(LABELS, data_settings("iid"), 0, seed=0)


def test_the_global_random_state_is_left_alone() -> None:
    before = np.random.get_state()[1].tolist()
    partition_indices(LABELS, data_settings("dirichlet"), 4, seed=0)
    assert np.random.get_state()[1].tolist() == before


def test_partitioning_needs_no_network() -> None:
    program = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("a socket was opened")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
import numpy as np
from common.data import partition_indices
from tests.settings import make_settings
for name in ("iid", "dirichlet", "classes-per-client", "fedgen-official"):
    settings = make_settings(**{"data.source": "mnist", "data.partition": name, "data.alpha": 1.0})
    assert len(partition_indices(np.arange(10).repeat(60), settings.data, 4, 0)) == 4
print("partitioned")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "partitioned"
