"""Examples with their targets that lie on this machine, to look at a saved model with."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from common.data import DataError, ExampleSet
from common.data.arrays import Arrays
from common.data.client import lasting_validation
from common.data.examples import open_examples
from common.data.prepared import decode_split
from common.data.sources import Split
from common.data.splits import Rows, content_keys
from common.node import Folders
from scripts.moonflower.models.opened import OpenedModel

SPLITS = ("test", "validation", "all")


def stored_split(opened: OpenedModel, data: Path | None, split: Split) -> Arrays | None:
    """Return a split of ``data.source`` as it is stored; nothing is written or downloaded.

    Parameters
    ----------
    opened : OpenedModel
    data : Path or None
        Folder of the data. None: this machine's.
    split : {"train", "test"}

    Returns
    -------
    Arrays or None
        None where there is no such split.

    Raises
    ------
    DataError
        The examples are missing or unusable.
    """
    here = Folders.find({"data-dir": str(data)} if data else {})
    settings = opened.settings.data.model_copy(update={"download": False})
    return decode_split(settings, here, split)


def find_examples(
    opened: OpenedModel, data: Path | None, split: str | None, device: torch.device
) -> tuple[str, list[ExampleSet]]:
    """Return the split that was chosen, and its examples.

    Parameters
    ----------
    split : {"test", "validation", "all"} or None
        ``test``: the site's test set. ``validation``: what it keeps from training, in a run with
        these settings. ``all``: training and test set together. None: the first of them that has
        examples.

    Raises
    ------
    DataError
        There are none, or they are unusable.
    """
    test = stored_split(opened, data, "test") if split != "validation" else None
    if split == "test" and test is None:
        raise DataError("there is no test set here: choose --split validation or all")
    if test is not None and split != "all":
        return "test", [_all_of(test, opened, device)]
    train = stored_split(opened, data, "train")
    if train is None:
        raise DataError("there are no examples here: choose another --data-dir")
    if split == "all":
        sets = [_all_of(each, opened, device) for each in (train, test) if each is not None]
    else:
        sets = [open_examples(train, _validation_rows(opened, train), opened.spec, device)]
    if not sum(map(len, sets)):
        raise DataError(
            f"the {split or 'validation'} split is empty here: data.validation-fraction is "
            f"{opened.settings.data.validation_fraction:g}. Choose another --split"
        )
    return split or "validation", sets


def _validation_rows(opened: OpenedModel, train: Arrays) -> Rows:
    settings = opened.settings
    if not settings.data.is_site_data:
        raise DataError(
            f"the clients of source {settings.data.source!r} each validate on a part of their "
            "share, which is no site's own: choose --split test or all"
        )
    return lasting_validation(np.arange(len(train.y)), content_keys(train.x), settings)[1]


def _all_of(arrays: Arrays, opened: OpenedModel, device: torch.device) -> ExampleSet:
    return open_examples(arrays, np.arange(len(arrays.y)), opened.spec, device)
