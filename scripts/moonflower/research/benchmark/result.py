"""The benchmark's result as JSON and as a Markdown table, with the machine it was measured on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from common.files import write_bytes
from scripts.moonflower.research.benchmark.lines import Line
from scripts.moonflower.research.benchmark.sizes import Sizes

JSON_FILE, MARKDOWN_FILE = "benchmark.json", "benchmark.md"
_CPUINFO = Path("/proc/cpuinfo")


def machine(sizes: Sizes) -> dict[str, str]:
    """Return what the numbers depend on."""
    import flwr

    device = str(sizes.device)
    if sizes.device.type == "cuda":
        device += f" ({torch.cuda.get_device_name(sizes.device)})"
    return {
        "CPU": _cpu(),
        "cores": str(os.cpu_count()),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "threads": str(sizes.threads),
        "device": device,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "flwr": flwr.__version__,
        "repetitions": str(sizes.repetitions),
        "examples": str(sizes.examples),
        "settings": " ".join(f"{key}={value}" for key, value in sizes.settings.items())
        or "the papers'",
    }


def write(folder: Path, lines: Sequence[Line], facts: dict[str, str]) -> str:
    """Write both files into ``folder`` and return the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {"machine": facts, "lines": [_plain(line) for line in lines]}
    write_bytes(folder / JSON_FILE, (json.dumps(content, indent=2) + "\n").encode())
    text = markdown(lines, facts)
    write_bytes(folder / MARKDOWN_FILE, text.encode())
    return text


def markdown(lines: Sequence[Line], facts: dict[str, str]) -> str:
    """Return a list of facts and a table of the ratios."""
    rows = [
        f"| {line.part} | {line.what} | {_number(line.ratio)} | {line.target or ''} | "
        f"{_verdict(line)} | {_numbers(line)} |"
        for line in lines
    ]
    head = ["| part | ratio | measured | target | met | behind it |", "|---|---|---|---|---|---|"]
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    return "\n".join([f"{listed}.", "", *head, *rows, ""])


def _plain(line: Line) -> dict[str, Any]:
    target = None if line.target is None else asdict(line.target)
    return {**asdict(line), "target": target, "met": line.met, "numbers": dict(line.numbers)}


def _verdict(line: Line) -> str:
    return {None: "", True: "yes", False: "**no**"}[line.met]


def _numbers(line: Line) -> str:
    return ", ".join(f"{name}: {_number(value)}" for name, value in line.numbers.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _cpu() -> str:
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
