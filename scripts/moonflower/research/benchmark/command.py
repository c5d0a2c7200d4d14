"""``moonflower benchmark``: choose parts and sizes, measure, write the result."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scripts.moonflower.options import RunConfig
from scripts.moonflower.repository import ROOT


class Part(StrEnum):
    """The parts, by their letters."""

    MOON = "a"
    FEDGEN = "b"
    GENERATOR = "c"
    AGGREGATION = "d"
    START = "e"
    SIMULATION = "f"


def benchmark(
    part: Annotated[
        list[Part] | None,
        typer.Option(
            help="a: MOON's client, b: FedGen's client, c: the generator's training, d: "
            "aggregation, e: start of a ClientApp, f: a whole simulation. May be repeated. "
            "Default: all."
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1, for parts a to c.")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of a client.")] = 1,
    repetitions: Annotated[
        int, typer.Option(min=1, help="Timed turns of everything that is compared.")
    ] = 5,
    examples: Annotated[int, typer.Option(min=64, help="Examples of one client.")] = 2000,
    epochs: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated. Default: 1 and 10 (a).")
    ] = None,
    steps: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated. Default: 20 and 200 (b).")
    ] = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(min=1, help="May be repeated. Default: 10, 100 and 1000 (c)."),
    ] = None,
    server_steps: Annotated[int, typer.Option(min=1, help="Of the generator (c).")] = 50,
    replies: Annotated[
        list[int] | None, typer.Option(min=1, help="May be repeated. Default: 10 and 100 (d).")
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Of the simulation (f).")] = 4,
    simulated_clients: Annotated[int, typer.Option(min=1, help="Of the simulation (f).")] = 10,
    simulated_epochs: Annotated[int, typer.Option(min=1, help="Of the simulation (f).")] = 10,
    run_config: RunConfig = None,
    output: Annotated[Path, typer.Option(help="Folder for benchmark.json and benchmark.md.")] = ROOT
    / "output"
    / "benchmark",
) -> None:
    """Measure the app's work next to a bare PyTorch loop, in turns, and print the ratios.

    -c changes settings of parts a, b, d and f, which otherwise are those of the papers; not the
    algorithm, which is the part's. A ratio "app / X" is the app's speed over the speed of X. What
    is measured is written after every part.
    """
    import torch

    from common.config import SettingsError
    from common.node import choose_device
    from scripts.moonflower.folders import writable
    from scripts.moonflower.research.benchmark import result
    from scripts.moonflower.research.benchmark.measuring import measure
    from scripts.moonflower.research.benchmark.sizes import Sizes

    try:
        sizes = Sizes(
            device=choose_device(device),
            threads=threads,
            repetitions=repetitions,
            examples=examples,
            epochs=tuple(epochs or (1, 10)),
            steps=tuple(steps or (20, 200)),
            clients=tuple(clients or (10, 100, 1000)),
            server_steps=server_steps,
            replies=tuple(replies or (10, 100)),
            simulated_clients=simulated_clients,
            rounds=rounds,
            simulated_epochs=simulated_epochs,
            settings=_overrides(run_config or []),
        )
        folder = writable(output)
        torch.set_num_threads(threads)
        facts = result.machine(sizes)
        for lines in measure(part or list(Part), sizes, typer.echo):
            text = result.write(folder, lines, facts)
    except SettingsError as error:
        typer.echo(f"moonflower: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"\n{text}\nwritten to {folder}")


def _overrides(texts: list[str]) -> dict[str, Any]:
    """Return the settings of ``-c``, checked whichever parts use them."""
    from common.config import SettingsError, parse_settings
    from scripts.moonflower.repository import default_run_config
    from scripts.moonflower.run_config import read_overrides

    overrides: dict[str, Any] = {}
    for text in texts:
        overrides |= read_overrides(text)
    if "algorithm" in overrides:
        raise SettingsError(
            f"algorithm={overrides['algorithm']}: each part has its own; choose one with --part"
        )
    parse_settings(default_run_config() | overrides)
    return overrides
