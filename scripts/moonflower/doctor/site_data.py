"""A site's examples, looked at with the settings of the run that is to come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings, Settings
from common.data.prepared import decode_split
from common.data.sources import SOURCES
from common.data.spec import data_spec
from common.node import Folders
from scripts.moonflower.deployment.bundles import PERSONAL
from scripts.moonflower.doctor.findings import Finding, failed, ok, warning

FEW = 10
"""Examples of a label below which its count is warned of."""

_VARIABLE = "MOONFLOWER_DATA_DIR"


def check_folder_readable(folder: Path) -> Iterator[Finding]:
    """Look whether this user can list the folder."""
    if not folder.is_dir():
        yield failed("data folder", f"{folder} is no folder", f"make it, or change {_VARIABLE}")
    elif not os.access(folder, os.R_OK | os.X_OK):
        remedy = f"let the user who runs the node read it, or change {_VARIABLE}"
        yield failed("data folder", f"{folder} can't be read by this user", remedy)
    elif f"{folder}/".startswith(PERSONAL):
        found = f"{folder} can be read here, but the node's systemd unit hides what lies there"
        remedy = (
            "put the data elsewhere, or let the unit see them: systemctl edit "
            f"moonflower-supernode, [Service], ProtectHome=tmpfs, BindReadOnlyPaths={folder}"
        )
        yield warning("data folder", found, remedy)
    else:
        note = "writable; read-only is enough" if os.access(folder, os.W_OK) else "read-only"
        yield ok("data folder", f"{folder} ({note})")


def check_examples(settings: Settings | None, folders: Folders) -> Iterator[Finding]:
    """Decode both splits as the node will, and count their labels; nothing is written.

    Raises
    ------
    DataError
        What the query would answer: missing, damaged or unfit examples.
    """
    if settings is None:
        yield warning(
            "examples",
            "not looked at: it depends on the run what they must be",
            "add the run's settings: -c FILE.toml, or -c data.source=npz "
            "-c data.image-shape=1x28x28 -c data.num-classes=2",
        )
        return
    data = settings.data
    if not data.is_site_data:
        SOURCES[data.source].identity(
            data.model_copy(update={"download": False}), folders.data, "train"
        )
        yield ok("examples", f"{data.source} is there; it is shared among clients by partition id")
        return
    yield from _check_training(data, folders)
    test = decode_split(data, folders, "test")
    if test is not None:
        yield ok("test examples", f"{len(test.y)}: {_shown(_counts(test.y, data))}")
    elif data.client_test != "validation":
        found = f"there are none, and data.client-test is {data.client_test!r}"
        yield failed("test examples", found, "add a test set to the data folder: docs/data.md")


def _check_training(data: DataSettings, folders: Folders) -> Iterator[Finding]:
    train = decode_split(data, folders, "train")
    if train is None or not len(train.y):
        found = f"{folders.data} has no training examples"
        yield failed("training examples", found, "add some, or don't start this node")
        return
    counts = _counts(train.y, data)
    shape = "x".join(str(size) for size in data_spec(data).kind.shape)
    found = f"{len(train.y)} of {shape}, {_shown(counts)}"
    few = [str(label) for label, count in enumerate(counts) if 0 < count < FEW]
    if few:
        remedy = "check that these labels are meant; the server learns all counts"
        yield warning(
            "training examples", f"{found}; fewer than {FEW} of label {', '.join(few)}", remedy
        )
    else:
        yield ok("training examples", found)
    yield from _check_columns(data, train.x)


def _check_columns(data: DataSettings, x: NDArray[Any]) -> Iterator[Finding]:
    """Say which columns of a table have no value at all, as one that is called otherwise here."""
    names = [*data.numeric_columns, *(column.name for column in data.categorical_columns)]
    empty = [name for number, name in enumerate(names) if np.isnan(x[:, number]).all()]
    if empty:
        remedy = "look whether they are called so here; else they count as missing in every row"
        yield warning("columns", f"no value in {', '.join(empty)}", remedy)


def _counts(y: NDArray[Any], data: DataSettings) -> list[int]:
    targets = data_spec(data).targets
    return [int(n) for n in np.bincount(targets.groups_of(y), minlength=targets.groups)]


def _shown(counts: list[int]) -> str:
    if len(counts) == 1:  # no labels
        return "numbers to predict"
    held = [f"{label}: {count}" for label, count in enumerate(counts) if count]
    more = f", ... ({len(held)} labels)" if len(held) > 20 else ""
    return f"per label {', '.join(held[:20])}{more}; none of {counts.count(0)} labels"
