"""Where examples come from. A new data set is a module here and a line in ``SOURCES``.

It also needs its constants in ``common/data/spec.py`` and its name in ``DataSettings.source``.
"""

from common.data.sources import (
    digits,
    folder,
    heart,
    npz,
    shakespeare,
    table_files,
    text_files,
    vision,
)
from common.data.sources.base import Source, Split

SOURCES: dict[str, Source] = {
    "digits": Source(digits.identity, digits.decode),
    "mnist": Source(vision.identity, vision.decode),
    "fashion-mnist": Source(vision.identity, vision.decode),
    "cifar10": Source(vision.identity, vision.decode),
    "cifar100": Source(vision.identity, vision.decode),
    "heart": Source(heart.identity, heart.decode),
    "shakespeare": Source(shakespeare.identity, shakespeare.decode),
    "folder": Source(folder.identity, folder.decode),
    "npz": Source(npz.identity, npz.decode),
    "table": Source(table_files.identity, table_files.decode),
    "text": Source(text_files.identity, text_files.decode),
}

__all__ = ["SOURCES", "Source", "Split"]
