"""What processes and folders take up (Linux)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def memory_mb(pids: Iterable[int]) -> float:
    """Return the largest resident memory of the processes, in megabytes (10^6 bytes)."""
    most = 0
    for pid in pids:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    most = max(most, int(line.split()[1]) * 1024)
    return round(most / 1e6, 1)


def open_files(pids: Iterable[int]) -> int:
    """Return the largest number of open files and sockets of one of the processes."""
    most = 0
    for pid in pids:
        with suppress(OSError):
            most = max(most, len(list(Path(f"/proc/{pid}/fd").iterdir())))
    return most


def disk_mb(paths: Iterable[Path]) -> float:
    """Return what files and folders take up together, in megabytes (10^6 bytes)."""
    total = 0
    for path in paths:
        for file in path.rglob("*") if path.is_dir() else [path]:
            with suppress(OSError):
                total += file.stat().st_size if file.is_file() else 0
    return round(total / 1e6, 2)
