"""Files appear whole or not at all, and damage never goes unseen."""

from __future__ import annotations

import errno
import math
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from common.files import (
    DamagedFileError,
    append_line,
    read_json,
    remove_unfinished,
    set_aside,
    write_bytes,
    write_json,
)
from common.storage import pack_tensors, read_facts, read_tensors, unpack_tensors, write_tensors

# No deadline: how long a call takes depends on what else the machine does.
timeless = settings(deadline=None, max_examples=60)

DTYPES = (
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.bool,
)


@st.composite
def any_tensor(draw: st.DrawFn) -> Tensor:
    """Return a tensor of random bits, NaN and subnormal numbers included."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    count = math.prod(shape)
    if dtype == torch.bool:
        return torch.tensor(draw(st.lists(st.booleans(), min_size=count, max_size=count))).reshape(
            shape
        )
    blob = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if not blob:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(blob), dtype=dtype).reshape(shape)


names = st.text(min_size=1, max_size=12).filter(lambda name: name != "__metadata__")
any_tensors = st.dictionaries(names, any_tensor(), max_size=4)
any_facts = st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3)


def bits(tensor: Tensor) -> tuple[torch.dtype, tuple[int, ...], bytes]:
    raw = tensor.contiguous().reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0)
    return tensor.dtype, tuple(tensor.shape), raw.numpy().tobytes()


@timeless
@given(tensors=any_tensors, facts=any_facts)
def test_any_tensors_come_back_with_bits_dtypes_shapes_and_order(
    tensors: dict[str, Tensor], facts: dict[str, str]
) -> None:
    restored, restored_facts = unpack_tensors(pack_tensors(tensors, facts))
    assert [(name, bits(value)) for name, value in restored.items()] == [
        (name, bits(value)) for name, value in tensors.items()
    ]
    assert restored_facts == facts


def written(path: Path, tensors: dict[str, Tensor], facts: dict[str, str]) -> bytes:
    write_tensors(path, tensors, facts)
    return path.read_bytes()


def assert_damaged(path: Path, blob: bytes) -> None:
    path.write_bytes(blob)
    with pytest.raises(DamagedFileError):
        read_tensors(path)


@timeless
@given(tensors=any_tensors, facts=any_facts, data=st.data())
def test_any_changed_byte_is_detected(
    tmp_path_factory: pytest.TempPathFactory,
    tensors: dict[str, Tensor],
    facts: dict[str, str],
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("changed") / "file"
    blob = bytearray(written(path, tensors, facts))
    position = data.draw(st.integers(0, len(blob) - 1))
    blob[position] ^= data.draw(st.integers(1, 255))
    assert_damaged(path, bytes(blob))


def test_each_single_bit_of_a_file_counts(tmp_path: Path) -> None:
    blob = written(tmp_path / "a", {"a": torch.tensor([1.0])}, {"round": "1"})
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << (bit % 8)
        assert_damaged(tmp_path / "a", bytes(damaged))


def test_each_truncation_and_any_extra_byte_is_detected(tmp_path: Path) -> None:
    blob = written(tmp_path / "a", {"a": torch.arange(3)}, {})
    for length in range(len(blob)):
        assert_damaged(tmp_path / "a", blob[:length])
    assert_damaged(tmp_path / "a", blob + b"\0")


def test_the_same_tensors_and_facts_give_the_same_bytes() -> None:
    tensors = {"b": torch.ones(2), "a": torch.zeros(3, dtype=torch.int64)}
    facts = {str(number): "x" for number in range(20)}
    assert len({pack_tensors(tensors, facts) for _ in range(5)}) == 1


def test_any_safetensors_reader_opens_the_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a.safetensors", {"a": torch.tensor([1.0, 2.0])}, {"round": "3"})
    assert safetensors.torch.load_file(tmp_path / "a.safetensors")["a"].tolist() == [1.0, 2.0]


def test_a_safetensors_file_of_another_program_is_refused(tmp_path: Path) -> None:
    safetensors.torch.save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(DamagedFileError, match=r"a\.safetensors is damaged: it does not begin"):
        read_tensors(tmp_path / "a.safetensors")


def test_views_and_tensors_that_share_memory_are_written_in_full(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    write_tensors(tmp_path / "a", {"base": base, "same": base, "turned": base.T}, {})
    restored, _ = read_tensors(tmp_path / "a")
    assert restored["turned"].tolist() == [[0, 3], [1, 4], [2, 5]]
    restored["base"].zero_()
    assert restored["same"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_name_that_safetensors_reserves_is_refused() -> None:
    with pytest.raises(ValueError, match="'__metadata__'"):
        pack_tensors({"__metadata__": torch.ones(1)}, {})


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(written(path, {"a": torch.ones(1)}, {})[:-1])
    with pytest.raises(DamagedFileError, match=r"a\.safetensors is damaged: its SHA-256"):
        read_tensors(path)


def test_a_missing_file_is_not_called_damaged(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_tensors(tmp_path / "none")


def test_writing_creates_folders_and_leaves_one_file(tmp_path: Path) -> None:
    write_bytes(tmp_path / "new" / "deep" / "a", b"one")
    write_bytes(tmp_path / "new" / "deep" / "a", b"two")
    assert {path.name: path.read_bytes() for path in (tmp_path / "new/deep").iterdir()} == {
        "a": b"two"
    }


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    write_bytes(tmp_path / "a", b"old")

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "a", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


def test_content_and_then_the_folder_are_forced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = []
    fsync, replace = os.fsync, os.replace

    def recorded_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        events.append("folder" if path.is_dir() else "content")
        fsync(descriptor)

    def recorded_replace(source: Path, target: Path) -> None:
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "replace", recorded_replace)
    write_bytes(tmp_path / "a", b"x")
    assert events == ["content", "rename", "folder"]


def test_what_a_killed_process_left_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bytes(tmp_path / "a", b"x")
    left = tmp_path / "left"

    def killed(source: Path, target: Path) -> None:
        left.write_bytes(Path(source).name.encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a", b"y")
    unfinished = tmp_path / left.read_text()
    unfinished.touch()
    remove_unfinished(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "left"]


def test_damaged_files_are_set_aside_under_free_names(tmp_path: Path) -> None:
    for content, expected in ((b"1", "a.damaged-1"), (b"2", "a.damaged-2")):
        (tmp_path / "a").write_bytes(content)
        aside = set_aside(tmp_path / "a")
        assert (aside.name, aside.read_bytes()) == (expected, content)
    assert not (tmp_path / "a").exists()


def test_json_comes_back_also_with_numbers_that_are_not_finite(tmp_path: Path) -> None:
    value = {"round": 3, "accuracy": 0.1 + 0.2, "loss": math.inf, "name": "Gänse", "none": None}
    write_json(tmp_path / "a.json", value)
    assert read_json(tmp_path / "a.json") == value


@pytest.mark.parametrize("blob", [b"", b'{"a": 1', b"\xff\xfe"])
def test_damaged_json_is_named(tmp_path: Path, blob: bytes) -> None:
    (tmp_path / "a.json").write_bytes(blob)
    with pytest.raises(DamagedFileError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")


@settings(timeless, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(lines=st.lists(st.text(st.characters(exclude_characters="\n\r", codec="utf-8")), max_size=5))
def test_appended_lines_come_back_in_order(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "metrics.jsonl"
    path.unlink(missing_ok=True)
    for line in lines:
        append_line(path, line)
    content = path.read_bytes().decode() if lines else ""
    assert content == "".join(f"{line}\n" for line in lines)


def test_a_line_that_was_cut_short_does_not_swallow_the_next(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"round": 1}\n{"rou')
    append_line(tmp_path / "a", '{"round": 2}')
    assert (tmp_path / "a").read_text() == '{"round": 1}\n{"rou\n{"round": 2}\n'


def test_a_line_with_a_line_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line end"):
        append_line(tmp_path / "a", "one\ntwo")
    assert not (tmp_path / "a").exists()


@timeless
@given(any_tensors, any_facts)
def test_facts_can_be_read_without_the_tensors(
    tmp_path_factory: pytest.TempPathFactory, tensors: dict[str, Tensor], facts: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("facts") / "file"
    write_tensors(path, tensors, facts)
    assert read_facts(path) == facts


@pytest.mark.parametrize("blob", [b"", b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}", b"x" * 500])
def test_facts_of_something_else_are_damage(tmp_path: Path, blob: bytes) -> None:
    (tmp_path / "file").write_bytes(blob)
    with pytest.raises(DamagedFileError, match="file is damaged"):
        read_facts(tmp_path / "file")
