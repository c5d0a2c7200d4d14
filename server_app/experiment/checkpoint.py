"""Checkpoints: all that a run needs to go on after a round as if nothing had happened.

``<experiment>/checkpoints/round-000012/`` holds ``model.safetensors`` (the arrays on the wire),
``strategy.safetensors`` (what wrappers and aggregator remember), ``history.jsonl`` (the lines of
``metrics.jsonl`` up to this round) and ``checkpoint.json`` with the checksums of all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from common.data import Statistics
from common.files import (
    DamagedFileError,
    json_bytes,
    read_json,
    remove,
    remove_unfinished,
    sha256,
    write_folder,
)
from common.round_files import RoundFiles
from common.storage import pack_tensors, unpack_tensors
from server_app.errors import ResumeError

FORMAT = 2
"""In format 1 tensor files carried a second SHA-256, which nobody looks at any more."""
DESCRIPTION = "checkpoint.json"
MODEL = "model.safetensors"
STRATEGY = "strategy.safetensors"
HISTORY = "history.jsonl"


@dataclass(frozen=True)
class Best:
    """The round whose model is in ``best/``.

    Attributes
    ----------
    server_round : int
    criterion : str
        What it was chosen by: of which models, and as the last word the name of the score.
    score : float
        Its headline score.
    """

    server_round: int
    criterion: str
    score: float

    @property
    def score_name(self) -> str:
        """What ``score`` is: the criterion's last word."""
        return self.criterion.rpartition(" ")[2]

    def facts(self) -> dict[str, Any]:
        """Return the JSON form; the score stands under its own name."""
        facts = {"round": self.server_round, "criterion": self.criterion}
        return {**facts, self.score_name: self.score}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Best:
        """Return what :meth:`facts` were made of.

        Raises
        ------
        KeyError
            One is missing.
        """
        criterion = str(facts["criterion"])
        return cls(facts["round"], criterion, facts[criterion.rpartition(" ")[2]])


@dataclass(frozen=True)
class Checkpoint:
    """A run at the end of a round.

    Attributes
    ----------
    server_round : int
        From 1.
    arrays : Mapping[str, Tensor]
        The global model as it travels, in the order of the model.
    strategy : Mapping[str, Tensor]
        :func:`server_app.strategies.strategy_state.strategy_state`.
    lines : Sequence[Mapping[str, Any]]
        ``RoundReport.record()`` of every round up to this one, ascending.
    best : Best or None
        None before the first evaluation.
    versions : Mapping[str, str]
        Of the libraries that computed it.
    statistics : Statistics
        What the data of all sites are standardised by; empty where nothing is, and in checkpoints
        of before there were any.
    """

    server_round: int
    arrays: Mapping[str, Tensor]
    strategy: Mapping[str, Tensor]
    lines: Sequence[Mapping[str, Any]]
    best: Best | None
    versions: Mapping[str, str]
    statistics: Statistics = field(default_factory=Statistics)


def json_lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Return ``lines`` as JSON Lines."""
    return "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines).encode()


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write ``checkpoint`` below ``folder``, whole or not at all.

    Raises
    ------
    OSError
        The disk is full, read-only or failing. Earlier checkpoints are intact.
    """
    blobs = {
        MODEL: pack_tensors(checkpoint.arrays, {}),
        STRATEGY: pack_tensors(checkpoint.strategy, {}),
        HISTORY: json_lines(checkpoint.lines),
    }
    blobs[DESCRIPTION] = json_bytes(_describe(checkpoint, blobs))
    target = RoundFiles(folder).path(checkpoint.server_round)
    remove(target)  # left of a continuation that was given up
    write_folder(target, blobs)


def newest_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint; None if there is no whole one.

    A damaged one is set aside with a warning, and the one before is used. What a killed process
    left unfinished is deleted: no other process may be writing here.

    Raises
    ------
    OSError
        A file can't be read for another reason than its content.
    ResumeError
        The newest was written by a newer version.
    """
    remove_unfinished(folder)
    whole = RoundFiles(folder).whole(_read)
    return next((checkpoint for _, checkpoint in whole), None)


def has_damaged(folder: Path) -> bool:
    """Return whether a damaged checkpoint was ever set aside here."""
    return RoundFiles(folder).has_damaged()


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest ``keep`` checkpoints; those set aside stay.

    Raises
    ------
    OSError
        One can't be deleted.
    """
    RoundFiles(folder).prune(keep)


def _describe(checkpoint: Checkpoint, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    facts = {
        "format": FORMAT,
        "round": checkpoint.server_round,
        "best": checkpoint.best and checkpoint.best.facts(),
        "versions": dict(checkpoint.versions),
        "statistics": asdict(checkpoint.statistics),
        "files": {name: sha256(blob) for name, blob in blobs.items()},
    }
    return {**facts, "sha256": _digest(facts)}


def _digest(facts: Mapping[str, Any]) -> str:
    return sha256(json.dumps(facts, sort_keys=True).encode())


def _read(path: Path) -> Checkpoint:
    try:
        facts = read_json(path / DESCRIPTION)
        if not isinstance(facts, dict) or facts.pop("sha256", None) != _digest(facts):
            raise DamagedFileError(f"{path / DESCRIPTION} is damaged: its checksum differs")
        if facts["format"] > FORMAT:
            raise ResumeError(
                f"{path} has format {facts['format']}, this version of Moonflower reads up to "
                f"{FORMAT}: install the version that wrote it"
            )
        if path != RoundFiles(path.parent).path(facts["round"]):
            raise DamagedFileError(f"{path} holds round {facts['round']}: it was renamed")
        blobs = {name: (path / name).read_bytes() for name in facts["files"]}
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DamagedFileError(f"{path} is damaged: a file is missing ({error})") from error
    for name, digest in facts["files"].items():
        if sha256(blobs[name]) != digest:
            raise DamagedFileError(f"{path / name} is damaged: its checksum differs")
    return Checkpoint(
        server_round=facts["round"],
        arrays=unpack_tensors(blobs[MODEL])[0],
        strategy=unpack_tensors(blobs[STRATEGY])[0],
        lines=[json.loads(line) for line in blobs[HISTORY].splitlines()],
        best=facts["best"] and Best.of(facts["best"]),
        versions=facts["versions"],
        statistics=Statistics(**{k: tuple(v) for k, v in facts.get("statistics", {}).items()}),
    )
