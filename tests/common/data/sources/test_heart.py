"""UCI heart disease: its four hospitals are four clients."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from common.data import DataError, load_client_data, named_by_its_share
from common.data.prepared import decode_split
from common.data.sources import heart
from common.node import Folders, Node
from tests.settings import make_settings

UCI = Path("/work/shared/data/heart")
needs_files = pytest.mark.skipif(
    not UCI.is_dir(), reason=f"needs UCI's own files in {UCI}, which are not in the repository"
)
CPU = torch.device("cpu")


def settings(**changes: Any) -> Any:
    return make_settings(**{"data.source": "heart", "data.validation-fraction": 0.34, **changes})


def folders(tmp_path: Path, data: Path | None = None) -> Folders:
    return Folders(data or tmp_path / "data", tmp_path / "state", tmp_path / "output")


def hospital(number: int | None, where: Folders, total: int = 4) -> Node:
    if number is None:
        return Node("basel", None, None, CPU, where)
    return Node(f"client-{number:04d}", number, total, CPU, where, is_named=False)


@needs_files
def test_each_hospital_is_a_client_under_its_name_and_trains_on_two_thirds(tmp_path: Path) -> None:
    where = folders(tmp_path, UCI.parent)
    found = {}
    for number in range(4):
        node = named_by_its_share(hospital(number, where), settings())
        data = load_client_data(settings(), node)
        found[node.name] = (len(data.train), len(data.evaluation), data.label_counts.sum().item())
    assert found == {
        # 303, 294, 123 and 200 patients, 34% of them rounded
        "cleveland": (200, 103, 200),
        "hungary": (194, 100, 194),
        "switzerland": (81, 42, 81),
        "long-beach": (132, 68, 132),
    }


@needs_files
def test_the_first_patient_of_cleveland_is_read_as_uci_wrote_it(tmp_path: Path) -> None:
    # 63.0,1.0,1.0,145.0,233.0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0
    arrays = decode_split(settings().data, folders(tmp_path, UCI.parent), "train")
    assert arrays is not None
    assert arrays.x[0, :6].tolist() == pytest.approx([63, 145, 233, 150, 2.3, 0])
    # sex 1 of (0, 1), cp 1 of (1, 2, 3, 4), fbs 1, restecg 2, exang 0, slope 3 of (1, 2, 3), thal 6
    assert arrays.x[0, 6:].tolist() == [1, 0, 1, 2, 0, 2, 1]
    assert arrays.y[0] == 0
    # Published: 509 of 920 have a disease. A cholesterol of 0 is none that was measured.
    assert (len(arrays.y), arrays.y.sum()) == (920, 509)
    assert not (arrays.x[:, 1:3] == 0).any()
    assert arrays.sites is not None
    assert np.isnan(arrays.x[arrays.sites.of == 2, 2]).all()


@needs_files
def test_a_hospital_needs_its_own_file_only(tmp_path: Path) -> None:
    own = tmp_path / "data/heart"
    own.mkdir(parents=True)
    shutil.copy(UCI / "processed.switzerland.data", own)
    where = folders(tmp_path)
    node = named_by_its_share(hospital(None, where), settings())
    assert node.name == "basel"
    data = load_client_data(settings(), node)
    assert len(data.train) + len(data.evaluation) == 123
    with pytest.raises(DataError, match=r"'cleveland' has no examples: none in .* is of its site"):
        load_client_data(settings(), named_by_its_share(hospital(0, where), settings()))


@needs_files
def test_another_number_of_clients_than_hospitals_is_refused(tmp_path: Path) -> None:
    where = folders(tmp_path, UCI.parent)
    with pytest.raises(DataError, match=r"4 sites.* there are 10 clients: simulate --clients 4"):
        load_client_data(settings(), hospital(0, where, total=10))


def test_missing_files_are_named_with_where_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"processed\.cleveland\.data.*data\.download=true"):
        decode_split(settings().data, folders(tmp_path), "train")
    assert decode_split(settings().data, folders(tmp_path), "test") is None


def test_a_file_that_is_not_ucis_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data/heart").mkdir(parents=True)
    (tmp_path / "data/heart/processed.va.data").write_text("1,2,3\n")
    with pytest.raises(DataError, match="is not UCI's file of long-beach: its SHA-256 is"):
        decode_split(settings().data, folders(tmp_path), "train")


def test_what_is_downloaded_is_checked_and_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    for name, _ in heart.HOSPITALS.values():
        (served / name).write_text("not UCI's")
    allowed = settings(**{"data.download": True}).data
    with (
        mock.patch.object(heart, "ADDRESS", served.as_uri()),
        pytest.raises(DataError, match="is not the file that was expected: its SHA-256"),
    ):
        decode_split(allowed, folders(tmp_path), "train")
    assert not (tmp_path / "data/heart").exists()
    with (
        mock.patch.object(heart, "ADDRESS", (tmp_path / "nowhere").as_uri()),
        pytest.raises(DataError, match="could not be downloaded"),
    ):
        decode_split(allowed, folders(tmp_path), "train")


@needs_files
def test_files_are_downloaded_where_none_is_there(tmp_path: Path) -> None:
    with mock.patch.object(heart, "ADDRESS", UCI.as_uri()):
        arrays = decode_split(settings(**{"data.download": True}).data, folders(tmp_path), "train")
    assert arrays is not None
    assert len(arrays.y) == 920
