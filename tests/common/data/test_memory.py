from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common.data import DataError, memory

CPU = torch.device("cpu")


def test_examples_may_take_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOONFLOWER_RESIDENT_MB", raising=False)
    monkeypatch.setattr(memory, "free_memory", lambda device: 1000)
    assert memory.fits(500, CPU)
    assert not memory.fits(501, CPU)


def test_the_environment_lowers_the_limit_but_never_raises_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: 10_000_000)
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "2")
    assert memory.fits(2_000_000, CPU)
    assert not memory.fits(2_000_001, CPU)
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", "99")
    assert not memory.fits(5_000_001, CPU)


@pytest.mark.parametrize("value", ["many", "-1", "nan"])
def test_a_limit_that_is_no_number_from_0_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MOONFLOWER_RESIDENT_MB", value)
    with pytest.raises(DataError, match=f"MOONFLOWER_RESIDENT_MB='{value}' is not a number"):
        memory.fits(1, CPU)


def test_a_containers_limit_counts_droppable_file_pages_as_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("700000\n")
    (tmp_path / "memory.stat").write_text("anon 300000\ninactive_file 250000\nactive_file 1\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_memory(CPU) == 550_000


@pytest.mark.parametrize("limit", ["max\n", None])
def test_without_a_containers_limit_the_available_ram_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: str | None
) -> None:
    if limit:
        (tmp_path / "memory.max").write_text(limit)
        (tmp_path / "memory.current").write_text("700000\n")
        (tmp_path / "memory.stat").write_text("inactive_file 250000\n")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    ram = SimpleNamespace(available=4000 * 1024)
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: ram)
    assert memory.free_memory(CPU) == 4000 * 1024
