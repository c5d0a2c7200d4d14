"""The parts of the benchmark, by their letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from scripts.moonflower.research.benchmark.aggregation import aggregation
from scripts.moonflower.research.benchmark.generator_training import generator_training
from scripts.moonflower.research.benchmark.lines import Line
from scripts.moonflower.research.benchmark.local_training import fedgen_steps, moon_steps
from scripts.moonflower.research.benchmark.sizes import Sizes
from scripts.moonflower.research.benchmark.start import start_up
from scripts.moonflower.research.benchmark.whole import whole_simulation

PARTS: dict[str, Callable[[Sizes], list[Line]]] = {
    "a": moon_steps,
    "b": fedgen_steps,
    "c": generator_training,
    "d": aggregation,
    "e": start_up,
    "f": whole_simulation,
}


def measure(
    parts: Iterable[str], sizes: Sizes, show: Callable[[str], object]
) -> Iterator[list[Line]]:
    """Yield the lines of all ``parts`` so far, after each, and show those that are new."""
    lines: list[Line] = []
    for part in parts:
        found = PARTS[str(part)](sizes)
        lines += found
        for line in found:
            show(f"{line.part}  {line.ratio:6.2f}  {line.what}")
        yield lines
