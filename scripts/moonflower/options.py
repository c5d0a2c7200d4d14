"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

Preset = Annotated[
    str | None,
    typer.Option(help="A file in scripts/presets, without .toml; or a path to one."),
]

RunConfig = Annotated[
    list[str] | None,
    typer.Option(
        "--run-config",
        "-c",
        metavar="KEY=VALUE",
        help="Any setting of docs/settings.md, as moon.mu=5. May be repeated.",
    ),
]

Verbose = Annotated[bool, typer.Option("--verbose", help="Show the whole log.")]

NoReport = Annotated[
    bool, typer.Option("--no-report", help="Write no report.html when the run is over.")
]
