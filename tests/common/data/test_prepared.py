from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.config import DataSettings
from common.data import DataError, data_spec, load_client_data
from common.data import prepared as prepared_module
from common.data.kinds import Image
from common.data.partition_cache import load_partitions
from common.data.prepared import PreparedSplit, load_split
from common.data.sources import npz
from common.node import Folders
from tests.common.data.conftest import MakeNode
from tests.settings import ROOT, make_settings

SETTINGS = make_settings(
    **{"data.source": "npz", "data.image-shape": "1x6x5", "data.num-classes": 3}
).data


def write_npz(folders: Folders, value: int = 7) -> None:
    images = np.full((12, 6, 5), value, dtype=np.uint8)
    np.savez(folders.data / "train.npz", x=images, y=np.arange(12) % 3)


def load(folders: Folders) -> PreparedSplit:
    prepared = load_split(SETTINGS, folders, "train")
    assert prepared is not None
    return prepared


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often the archive is decoded."""
    calls: list[str] = []

    def counting(settings: DataSettings, folder: Path, split: Any) -> Any:
        calls.append(split)
        return npz.decode(settings, folder, split)

    source = prepared_module.SOURCES["npz"]
    monkeypatch.setitem(prepared_module.SOURCES, "npz", type(source)(source.identity, counting))
    return calls


def cache_folder(folders: Folders) -> Path:
    (found,) = (path for path in folders.prepared.glob("npz-train-*") if path.is_dir())
    return found


def test_the_second_load_maps_what_the_first_decoded(
    folders: Folders, decodings: list[str]
) -> None:
    write_npz(folders)
    first, second = load(folders), load(folders)
    assert decodings == ["train"]
    assert isinstance(second.arrays.x, np.memmap)
    assert not second.arrays.x.flags.writeable
    assert (first.arrays.x == second.arrays.x).all()
    assert first.fingerprint == second.fingerprint


def test_changed_data_are_decoded_anew(folders: Folders, decodings: list[str]) -> None:
    write_npz(folders, value=7)
    load(folders)
    write_npz(folders, value=9)
    # Same size; a coarse file system clock might give the same time too.
    os.utime(folders.data / "train.npz", ns=(1, 1))
    assert load(folders).arrays.x.max() == 9
    assert len(decodings) == 2


def test_other_settings_of_shape_or_classes_are_checked_anew(folders: Folders) -> None:
    write_npz(folders)
    load(folders)
    fewer = make_settings(
        **{"data.source": "npz", "data.image-shape": "1x6x5", "data.num-classes": 2}
    ).data
    with pytest.raises(DataError, match="labels lie outside 0 to 1"):
        load_split(fewer, folders, "train")


def test_every_fact_of_the_kind_is_part_of_the_key(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(folders)
    spec = data_spec(SETTINGS)
    kind = spec.kind
    assert isinstance(kind, Image)
    changed = {"mean": (0.1,), "std": (0.2,), "white": 99.0}
    kinds = [kind, *(replace(kind, **{name: value}) for name, value in changed.items())]
    keys = set()
    for each in kinds:
        monkeypatch.setattr(
            "common.data.prepared.data_spec", lambda settings, each=each: replace(spec, kind=each)
        )
        keys.add(load(folders).fingerprint)
    # Shape and number of classes have tests of their own; nothing else makes up an image.
    assert {field.name for field in fields(kind)} == {"shape", *changed}
    assert len(keys) == len(kinds)


def truncate(folder: Path) -> None:
    path = folder / "x.npy"
    path.write_bytes(path.read_bytes()[:-1])


def drop_labels(folder: Path) -> None:
    (folder / "y.npy").unlink()


def garble_json(folder: Path) -> None:
    (folder / "arrays.json").write_text("{")


def claim_other_shape(folder: Path) -> None:
    expected = json.loads((folder / "arrays.json").read_text())
    expected["x"]["shape"] = [6, 2, 6, 5]
    (folder / "arrays.json").write_text(json.dumps(expected))


def swap_header(folder: Path) -> None:
    path = folder / "y.npy"
    path.write_bytes(path.read_bytes().replace(b"<i8", b"<f8"))


def flip_a_bit_of(name: str) -> Any:
    """Return a damage that no size shows, with the time of change as it was."""

    def flip(folder: Path) -> None:
        path = folder / f"{name}.npy"
        before = path.stat()
        blob = bytearray(path.read_bytes())
        # Bit 32 of the last label makes 2 of it 4294967298.
        blob[-4] ^= 1
        path.write_bytes(blob)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        # As in a new process: this one has read the file before.
        prepared_module._CHECKED.clear()

    return flip


@pytest.mark.parametrize(
    "damage",
    [
        truncate,
        drop_labels,
        garble_json,
        claim_other_shape,
        swap_header,
        *(pytest.param(flip_a_bit_of(name), id=f"a bit of {name}") for name in ("x", "y", "keys")),
    ],
)
def test_a_damaged_cache_is_made_anew_with_a_warning(
    folders: Folders, decodings: list[str], damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    write_npz(folders)
    load(folders)
    damage(cache_folder(folders))
    with caplog.at_level(logging.WARNING, logger="moonflower"):
        again = load(folders)
    assert (again.arrays.x == 7).all()
    assert again.arrays.y.tolist() == [0, 1, 2] * 4
    assert len(decodings) == 2
    assert "are damaged" in caplog.text
    load(folders)
    assert len(decodings) == 2


def test_a_crash_between_the_files_leaves_no_cache_that_counts(
    folders: Folders, decodings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(folders)
    real_write = prepared_module.write_file

    def crash_at_labels(path: Path, write: Any) -> None:
        if path.name == "y.npy":
            raise KeyboardInterrupt
        real_write(path, write)

    with monkeypatch.context() as patch:
        patch.setattr(prepared_module, "write_file", crash_at_labels)
        with pytest.raises(KeyboardInterrupt):
            load(folders)
    assert not (cache_folder(folders) / "arrays.json").exists()
    assert load(folders).arrays.y.tolist() == [0, 1, 2] * 4
    assert len(decodings) == 2


def test_a_full_disk_is_reported_with_the_folder_and_leaves_no_part(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_npz(folders)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left on device.*MOONFLOWER_STATE_DIR") as caught:
        load(folders)
    assert str(folders.prepared) in str(caught.value)
    assert list(cache_folder(folders).iterdir()) == []


def test_a_file_where_the_state_folder_should_be_is_reported(folders: Folders) -> None:
    write_npz(folders)
    folders.state.write_text("not a folder")
    with pytest.raises(DataError, match=r"can't be kept in .*MOONFLOWER_STATE_DIR"):
        load(folders)


def test_a_data_folder_that_can_not_be_read_is_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_args: object) -> None:
        raise PermissionError(13, "Permission denied")

    source = prepared_module.SOURCES["npz"]
    monkeypatch.setitem(prepared_module.SOURCES, "npz", type(source)(forbidden, source.decode))
    with pytest.raises(DataError, match=r"can't be read: .*Permission denied") as caught:
        load(folders)
    assert str(folders.data) in str(caught.value)


def test_a_process_that_waits_too_long_for_another_says_so(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    import filelock

    write_npz(folders)
    load(folders)
    folder = cache_folder(folders)
    (folder / "arrays.json").unlink()
    monkeypatch.setattr("common.data.stored_files.LOCK_TIMEOUT", 0.05)
    with (
        filelock.FileLock(folder.with_name(f"{folder.name}.lock")),
        pytest.raises(DataError, match="waited 0 s for another process"),
    ):
        load(folders)


# partitions

MNIST = make_settings(**{"data.source": "mnist", "data.partition": "iid"}).data


def partitions(folders: Folders, settings: DataSettings = MNIST, seed: int = 0) -> list[list[int]]:
    train = load_split(settings, folders, "train")
    assert train is not None
    return [share.tolist() for share in load_partitions(train, settings, 4, seed, folders)]


def test_partitions_are_made_once(
    synthetic_mnist: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = partitions(synthetic_mnist)
    assert [len(share) for share in first] == [25] * 4

    def fail(*args: Any) -> None:
        raise AssertionError("made a second time")

    monkeypatch.setattr("common.data.partition_cache.partition_indices", fail)
    assert partitions(synthetic_mnist) == first


@pytest.mark.parametrize(
    ("overrides", "seed"),
    [
        ({}, 1),
        ({"data.fraction": 0.5}, 0),
        ({"data.partition": "dirichlet"}, 0),
        ({"data.partition": "dirichlet", "data.alpha": 5.0}, 0),
        ({"data.partition": "classes-per-client"}, 0),
        ({"data.partition": "classes-per-client", "data.classes-per-client": 3}, 0),
    ],
)
def test_partitions_of_other_settings_are_others(
    synthetic_mnist: Folders, overrides: dict[str, Any], seed: int
) -> None:
    base = partitions(synthetic_mnist)
    run_config = {"data.source": "mnist", "data.partition": "iid"} | overrides
    assert partitions(synthetic_mnist, make_settings(**run_config).data, seed) != base


@pytest.mark.parametrize("position", [-200, 200])
def test_damaged_partitions_are_made_anew_with_a_warning(
    synthetic_mnist: Folders, caplog: pytest.LogCaptureFixture, position: int
) -> None:
    first = partitions(synthetic_mnist)
    (path,) = synthetic_mnist.prepared.glob("*-partition-*.npz")
    blob = bytearray(path.read_bytes())
    blob[position] ^= 0xFF
    path.write_bytes(bytes(blob))
    with caplog.at_level(logging.WARNING, logger="moonflower"):
        assert partitions(synthetic_mnist) == first
    assert "are damaged" in caplog.text


def test_partitions_of_another_set_are_not_believed(synthetic_mnist: Folders) -> None:
    first = partitions(synthetic_mnist)
    (path,) = synthetic_mnist.prepared.glob("*-partition-*.npz")
    np.savez(path, rows=np.arange(1000), sizes=np.array([250] * 4))
    assert partitions(synthetic_mnist) == first


# new processes

PROGRAM = """
import json
import sys
import torch
from pathlib import Path
from common.data import load_client_data
from common.node import Folders, Node
from tests.settings import make_settings

data, state, overrides = sys.argv[1:]
folders = Folders(Path(data), Path(state), Path(state))
node = Node("client-0001", 1, 4, torch.device("cpu"), folders)
load_client_data(make_settings(**json.loads(overrides)), node)
heavy = ("torchvision", "sklearn", "flwr_datasets", "datasets", "matplotlib", "PIL")
print(",".join(name for name in heavy if name in sys.modules))
"""


def start(folders: Folders, overrides: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, folders.data, folders.state, json.dumps(overrides)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("source", ["mnist", "digits"])
def test_a_new_process_imports_nothing_heavy_when_the_cache_is_warm(
    synthetic_mnist: Folders, make_node: MakeNode, source: str
) -> None:
    overrides = {"data.source": source, "data.client-test": "official"}
    overrides |= {"data.partition": "iid"}
    load_client_data(make_settings(**overrides), make_node(1, 4))
    process = start(synthetic_mnist, overrides)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert output.strip() == ""


@pytest.mark.slow
def test_processes_that_start_together_all_get_the_data(folders: Folders) -> None:
    write_npz(folders)
    overrides = {"data.source": "npz", "data.image-shape": "1x6x5", "data.num-classes": 3}
    overrides["data.partition"] = "iid"  # a Dirichlet split of twelve examples is refused
    processes = [start(folders, overrides) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0, 0]
    left = sorted(path.name for path in cache_folder(folders).iterdir())
    assert left == ["arrays.json", "keys.npy", "x.npy", "y.npy"]
