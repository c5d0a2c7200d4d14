"""What a table is made of: ``scripts/tables/*.toml``, the papers' numbers and their sources."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from common.config import SettingsError
from scripts.moonflower.repository import ROOT

TABLES = ROOT / "scripts" / "tables"
PAPER_SCALE = "paper"
LARGEST_SEED = 2**31 - 1

_Name = Field(pattern=r"^[a-z0-9.-]{1,24}$")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Score(_Part):
    """Which number of a run counts.

    Attributes
    ----------
    protocol : str
        ``data.client-test`` of the runs that it is for: ``official`` or ``global``.
    number : str
        Where it stands in a line of ``metrics.jsonl``: ``clients.mean`` or ``clients.weighted``, of
        the task's headline score, or ``global.`` with the name of any score.
    unit : str
        ``%`` for a score in [0, 1] that is shown in percent; empty for one shown as it is.
    better : str
        ``more`` or ``less``.
    best : int
        The mean of so many best rounds; 0: the last round that was evaluated.
    over : str
        What the standard deviation is over. ``clients``: each client's score of each run counts as
        a value of its own.
    why : str
        Where that rule is from.
    """

    protocol: Literal["official", "global", "validation"]
    number: str = Field(pattern=r"^(clients\.(weighted|mean)|global\.[a-z0-9-]+)$")
    unit: Literal["%", ""] = "%"
    better: Literal["more", "less"] = "more"
    best: int = Field(ge=0)
    over: Literal["seeds", "clients"] = "seeds"
    why: str

    def shown(self, value: float) -> float:
        """Return the value in its unit."""
        return 100 * value if self.unit else value


class Column(_Part):
    """A column of the paper's table; ``settings`` are nested as in TOML."""

    name: str = _Name
    label: str
    settings: dict[str, Any]


class Row(_Part):
    """A row of the paper's table.

    Attributes
    ----------
    name : str
        For ``--only`` and names of experiments.
    label : str
    preset : str
        In ``scripts/presets``.
    settings : dict
        What differs from it, nested as in TOML.
    scales : dict
        What differs further at a scale, by its name.
    score : str
        A key of the table's scores.
    paper : dict[str, list[float]]
        The paper's mean and, if it gives one, standard deviation in the unit of its
        score, by column.
    """

    name: str = _Name
    label: str
    preset: str
    settings: dict[str, Any]
    scales: dict[str, dict[str, Any]] = {}
    score: str
    paper: dict[str, list[float]] = {}


class Table(_Part):
    """A table of a paper: its cells are rows times columns times seeds."""

    title: str
    source: str
    seeds: list[Annotated[int, Field(ge=0, le=LARGEST_SEED)]] = Field(min_length=1)
    notes: list[str]
    settings: dict[str, Any] = {}
    scales: dict[str, dict[str, Any]] = {}
    scores: dict[str, Score]
    columns: list[Column] = Field(min_length=1)
    rows: list[Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_fit(self) -> Table:
        columns = [column.name for column in self.columns]
        rows = [row.name for row in self.rows]
        seeds = [str(seed) for seed in self.seeds]
        for what, names in (("rows", rows), ("columns", columns), ("seeds", seeds)):
            twice = sorted({each for each in names if names.count(each) > 1})
            if twice:
                raise ValueError(f"{what}: {', '.join(twice)} is there more than once")
        if PAPER_SCALE in self.scales:
            raise ValueError(f"a scale can't be called {PAPER_SCALE}: that is the table as it is")
        for row in self.rows:
            unknown = {row.score} - self.scores.keys() | row.paper.keys() - set(columns)
            unknown |= row.scales.keys() - self.scales.keys()
            if unknown:
                raise ValueError(f"row {row.name!r} speaks of unknown {sorted(unknown)}")
            if not all(len(numbers) in (1, 2) for numbers in row.paper.values()):
                raise ValueError(f"row {row.name!r}: the paper's numbers are [mean] or [mean, std]")
            if not all(math.isfinite(each) for pair in row.paper.values() for each in pair):
                raise ValueError(f"row {row.name!r}: the paper's numbers must be finite")
        return self

    def settings_of(self, scale: str) -> Mapping[str, Any]:
        """Return what a scale changes in every row.

        Raises
        ------
        SettingsError
            The table has no such scale.
        """
        if scale == PAPER_SCALE:
            return {}
        if scale not in self.scales:
            known = ", ".join([PAPER_SCALE, *self.scales])
            raise SettingsError(f"--scale {scale!r}: this table has {known}")
        return self.scales[scale]


def table_names() -> list[str]:
    """Return the names of all tables, sorted."""
    return sorted(path.stem for path in TABLES.glob("*.toml"))


def read_table(name: str) -> Table:
    """Read a table: a name in ``scripts/tables``, or the path of a TOML file.

    Raises
    ------
    SettingsError
        There is none, or its file is wrong.
    """
    is_path = name.endswith(".toml")
    path = Path(name) if is_path else TABLES / f"{name}.toml"
    if not path.is_file() or not (is_path or name in table_names()):
        raise SettingsError(
            f"table {name!r}: there is no file {path}. Tables are {', '.join(table_names())}; a "
            "path to a file of your own that ends in .toml works too"
        )
    try:
        return Table.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise SettingsError(f"{path} is no table:\n{_problems(error)}") from None
    except (OSError, ValueError) as error:  # of TOML and of UTF-8
        raise SettingsError(f"{path} is no table: {error}") from None


def _problems(error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        where = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        lines.append(f"  {where}: {message}" if where else f"  {message}")
    return "\n".join(lines)
