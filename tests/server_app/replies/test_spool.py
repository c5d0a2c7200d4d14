"""Replies wait in memory or on disk, and nobody can tell which by their numbers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, MultiKrum, Strategy

from common import records
from server_app.replies.spool import Spool
from tests.server_app.toy import reply_content
from tests.settings import ROOT


def arrays_of(seed: int) -> ArrayRecord:
    """Return arrays of several shapes and dtypes: none of one number, one of none."""
    random = np.random.default_rng(seed)
    return ArrayRecord(
        {
            "weight": Array(random.standard_normal((3, 4), np.float32)),
            "fortran": Array(np.asfortranarray(random.standard_normal((2, 5)))),
            "scalar": Array(np.array(seed, np.int64)),
            "empty": Array(np.zeros((0, 2), np.float32)),
        }
    )


def size_of(arrays: ArrayRecord) -> int:
    """Return the bytes of all arrays."""
    return sum(len(array.data) for array in arrays.values())


def open_files() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_arrays_on_disk_are_those_that_were_kept(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 0)
    kept = [spool.keep(arrays_of(seed)) for seed in range(3)]
    # Last first: each is found where it was put.
    for seed in (2, 0, 1):
        expected = arrays_of(seed)
        assert list(kept[seed]) == list(expected)
        for name, array in kept[seed].items():
            assert array.data == expected[name].data
            assert (array.dtype, tuple(array.shape)) == (
                expected[name].dtype,
                tuple(expected[name].shape),
            )
            np.testing.assert_array_equal(array.numpy(), expected[name].numpy())


def test_replies_stay_in_memory_up_to_the_limit_and_no_further(tmp_path: Path) -> None:
    first, second, third = (arrays_of(seed) for seed in range(3))
    spool = Spool(tmp_path, size_of(first) + size_of(third))
    before = open_files()
    assert spool.keep(first) is first
    assert open_files() == before, "no file before one is needed"
    # Twice as much as is left: it goes to disk, and the next one still fits.
    large = ArrayRecord({"weight": Array(np.zeros(size_of(second)))})
    kept = spool.keep(large)
    assert kept is not large
    assert type(kept["weight"]) is not Array
    assert spool.keep(third) is third


def test_the_file_has_no_name_and_is_freed_with_the_last_reply(tmp_path: Path) -> None:
    before = open_files()
    kept = Spool(tmp_path, 0).keep(arrays_of(0))
    assert list(tmp_path.iterdir()) == []
    assert open_files() == before + 1
    assert kept["weight"].numpy().shape == (3, 4), "a reply needs no Spool to be read"
    del kept
    assert open_files() == before


def test_a_killed_server_leaves_no_file_behind(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from server_app.replies.spool import Spool\n"
        "from tests.server_app.replies.test_spool import arrays_of\n"
        "kept = Spool(Path(sys.argv[1]), 0).keep(arrays_of(0))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert list(tmp_path.iterdir()) == []


def test_on_a_full_disk_a_reply_stays_in_memory_and_the_next_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, calls = os.pwrite, 0

    def full_once(file: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:  # in the middle of the first reply
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data, offset)

    monkeypatch.setattr(os, "pwrite", full_once)
    spool = Spool(tmp_path, 0)
    first, second = arrays_of(1), arrays_of(2)
    assert spool.keep(first) is first
    assert "No space left" in caplog.text
    assert "server.replies-in-memory-mb" in caplog.text
    kept = spool.keep(second)
    assert kept is not second
    for name in second:
        assert kept[name].data == second[name].data


def test_a_folder_that_can_t_be_written_is_no_reason_to_lose_a_reply(tmp_path: Path) -> None:
    arrays = arrays_of(0)
    assert Spool(tmp_path / "missing", 0).keep(arrays) is arrays


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: write(file, data[:7], at))
    monkeypatch.setattr(os, "pread", lambda file, size, at: read(file, min(size, 11), at))
    kept = Spool(tmp_path, 0).keep(arrays_of(4))
    for name, array in arrays_of(4).items():
        assert kept[name].data == array.data


def replies(spool: Spool, order: list[int]) -> list[Message]:
    """Return train replies in the order of their names, kept in another order."""
    kept = {}
    for number in order:
        arrays = ArrayRecord({n: a for n, a in arrays_of(number).items() if n != "empty"})
        metrics = MetricRecord({records.NUM_EXAMPLES: 3 + number, records.LOSS: 0.1 * number})
        content = reply_content(arrays, metrics)
        content[records.ARRAYS] = spool.keep(arrays)
        kept[number] = Message(content, reply_to=Message(RecordDict(), number, records.TRAIN))
    return [kept[number] for number in sorted(kept)]


@pytest.mark.parametrize(
    "strategy", [FedAvg(), FedMedian(), FedTrimmedAvg(), MultiKrum(num_nodes_to_select=3)]
)
def test_where_replies_waited_and_when_they_came_changes_no_bit(
    strategy: Strategy, tmp_path: Path
) -> None:
    in_order, shuffled = list(range(1, 8)), [5, 1, 7, 3, 2, 6, 4]
    one = size_of(arrays_of(1))
    expected, _ = strategy.aggregate_train(1, replies(Spool(tmp_path, 100 * one), in_order))
    assert expected is not None
    for order, memory in [(shuffled, 0), (shuffled, 3 * one), (in_order, 0)]:
        found, _ = strategy.aggregate_train(1, replies(Spool(tmp_path, memory), order))
        assert found is not None
        assert {n: a.data for n, a in found.items()} == {n: a.data for n, a in expected.items()}


def peak(replies: int, **options: object) -> float:
    """Return by how many MB a process grows that aggregates ``replies`` models of 8 MB."""
    command = [
        sys.executable,
        "-m",
        "tests.server_app.replies.aggregation_memory",
        "--megabytes",
        "8",
    ]
    for name, value in {"replies": replies, **options}.items():
        command += [f"--{name.replace('_', '-')}", str(value)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["peak MB"])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_clients(tmp_path: Path) -> None:
    few, many = (peak(count, in_memory_mb=16, folder=tmp_path) for count in (4, 16))
    # Twelve replies more are 96 MB, and that is what Flower's own way needs.
    assert many - few < 16
    assert peak(16, way="flower") - many > 70
