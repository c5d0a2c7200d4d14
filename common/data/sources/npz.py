"""A site's own examples as NumPy archives with arrays ``x`` and ``y``.

``train.npz`` (or else ``data.npz``) holds the training examples, ``test.npz`` an optional test set.
For a table (``data.kind``), ``x`` is numbers, ``[n, features]``; for signals numbers,
``[n, channels, length]``; for tokens whole numbers, ``[n, length]``, ids from 1 and then zeros; for
images:
``x`` is uint8 (0 to 255) or float in [0, 1], of shape ``[n, channels, height, width]``,
``[n, height, width, channels]`` or, with one channel, ``[n, height, width]``; the sizes must be
those of ``data.image-shape``. ``y`` is ``[n]`` or ``[n, 1]``: whole numbers from 0, or, where the
task learns numbers, any. Of a multi-label task ``y`` is ``[n, labels]`` of 0 and 1. An array that
``data.client-column`` names, ``[n]``, says which site each example comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.config import DataSettings
from common.data.arrays import Arrays
from common.data.errors import DataError
from common.data.kinds import Image, Tokens
from common.data.sites import Sites
from common.data.sources.base import Identity, Split, identity_of
from common.data.spec import DataSpec, data_spec
from common.data.targets import LabelSets, Numbers

_NAMES: dict[Split, tuple[str, ...]] = {"train": ("train.npz", "data.npz"), "test": ("test.npz",)}


def identity(settings: DataSettings, folder: Path, split: Split) -> Identity | None:
    """Return the identity of the archive; ``None`` for a test set that isn't there.

    Raises
    ------
    DataError
        Names the folder without training examples.
    """
    path = _find(folder, split)
    if path is not None:
        found = identity_of([path])
        if settings.client_column:
            found.append(["client-column", settings.client_column])
        return found
    if split == "test":
        return None
    raise DataError(
        f"no examples: looked in {folder} for train.npz or data.npz. Put one there, or point "
        "data-dir of the node config (or MOONFLOWER_DATA_DIR) at the folder that holds it"
    )


def decode(settings: DataSettings, folder: Path, split: Split) -> Arrays:
    """Read one archive; arrays that would need pickle are refused.

    Raises
    ------
    DataError
        Not an archive, no ``x`` or ``y``, or an unusable dtype or shape.
    """
    path = _find(folder, split)
    if path is None:
        raise DataError(f"{folder / _NAMES[split][0]} has disappeared; put it back and try again")
    column = settings.client_column
    x, y, *named = _read(path, "x", "y", *([column] if column else []))
    spec = data_spec(settings)
    return Arrays(
        _examples(x, spec, path),
        _targets(y, spec, path),
        _sites(named[0], len(x), column, path) if named else None,
    )


def read_examples(path: Path, spec: DataSpec) -> NDArray[Any]:
    """Return the examples ``[n, *shape]`` of an archive that need not have targets.

    Raises
    ------
    DataError
        As :func:`decode` raises it.
    """
    (x,) = _read(path, "x")
    return _examples(x, spec, path)


def _find(folder: Path, split: Split) -> Path | None:
    return next((folder / name for name in _NAMES[split] if (folder / name).is_file()), None)


def _read(path: Path, *names: str) -> list[NDArray[Any]]:
    try:
        # Opened here, since NumPy leaves the file open where it can't read the archive.
        with path.open("rb") as file:
            return _arrays(np.load(file, allow_pickle=False), names, path)
    except DataError:
        raise
    except Exception as error:  # zipfile, zlib and NumPy's parser each raise their own
        raise DataError(
            f"{path} can't be read as a NumPy archive: {error or type(error).__name__}. Write it "
            "anew with np.savez(path, x=examples, y=labels)"
        ) from error


def _arrays(archive: Any, names: Sequence[str], path: Path) -> list[NDArray[Any]]:
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(
            f"{path} holds a single array: write it with np.savez(path, x=examples, y=labels)"
        )
    if not set(names) <= set(archive.files):
        needed = (
            f"arrays {' and '.join(map(repr, names))} are" if len(names) > 1 else "an array 'x' is"
        )
        raise DataError(f"{path}: {needed} needed, found {sorted(archive.files)}")
    # A member that is no array comes as bytes; as an array its type is refused.
    return [np.asarray(archive[name]) for name in names]


def _examples(x: NDArray[Any], spec: DataSpec, path: Path) -> NDArray[Any]:
    if isinstance(spec.kind, Image):
        return _images(x, spec.kind.stored_shape, path)
    if isinstance(spec.kind, Tokens):
        return _ids(x, spec.kind, path)
    return _rows(x, spec.kind.stored_shape, path)


def _sites(values: NDArray[Any], count: int, column: str, path: Path) -> Sites:
    if values.dtype.kind not in "iuU" or values.shape != (count,):
        raise DataError(
            f"{path}: {column!r} (data.client-column) must be whole numbers or text of shape "
            f"[{count}], one for each example; found {values.dtype} {list(values.shape)}"
        )
    return Sites.named_by([str(value) for value in values.tolist()], column, str(path))


def _images(images: NDArray[Any], shape: tuple[int, int, int], path: Path) -> NDArray[Any]:
    if images.dtype.kind == "f":
        images = images.astype(np.float32, copy=False)
    elif images.dtype != np.uint8:
        raise DataError(
            f"{path}: 'x' is {images.dtype}; allowed are uint8 (0 to 255) and floats in [0, 1]"
        )
    channels, height, width = shape
    if images.shape[1:] == shape:
        return images
    if images.shape[1:] == (height, width, channels):
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if channels == 1 and images.shape[1:] == (height, width):
        return images[:, None]
    raise DataError(
        f"{path}: 'x' has shape {list(images.shape)}, but data.image-shape is "
        f"{channels}x{height}x{width}: allowed are [n, {channels}, {height}, {width}], "
        f"[n, {height}, {width}, {channels}] and, with one channel, [n, {height}, {width}]"
    )


def _ids(ids: NDArray[Any], kind: Tokens, path: Path) -> NDArray[np.int32]:
    if ids.dtype.kind not in "iu" or ids.shape[1:] != kind.shape:
        raise DataError(
            f"{path}: 'x' is {ids.dtype} {list(ids.shape)}, but data.max-length is {kind.length}: "
            f"whole numbers of shape [n, {kind.length}] are needed"
        )
    kind.check(ids, str(path))  # before an id that is too large for 32 bits becomes another one
    return ids.astype(np.int32)


def _rows(rows: NDArray[Any], shape: tuple[int, ...], path: Path) -> NDArray[np.float32]:
    if rows.dtype.kind not in "fiu" or rows.shape[1:] != shape:
        form = "data.features is" if len(shape) == 1 else "data.signal-shape is"
        size, wanted = "x".join(map(str, shape)), ", ".join(map(str, shape))
        raise DataError(
            f"{path}: 'x' is {rows.dtype} {list(rows.shape)}, but {form} {size}: numbers of shape "
            f"[n, {wanted}] are needed"
        )
    return rows.astype(np.float32)


def _targets(y: NDArray[Any], spec: DataSpec, path: Path) -> NDArray[Any]:
    if isinstance(spec.targets, Numbers):
        return _numbers(y, path)
    return _label_sets(y, path) if isinstance(spec.targets, LabelSets) else _labels(y, path)


def _label_sets(labels: NDArray[Any], path: Path) -> NDArray[np.float32]:
    if labels.dtype.kind not in "biuf" or labels.ndim != 2:
        raise DataError(
            f"{path}: 'y' must be 0 and 1 of shape [n, labels], found {labels.dtype} "
            f"{list(labels.shape)}"
        )
    return labels.astype(np.float32)


def _numbers(numbers: NDArray[Any], path: Path) -> NDArray[np.float32]:
    return _column(numbers, "fiu", "numbers", path).astype(np.float32)


def _labels(labels: NDArray[Any], path: Path) -> NDArray[np.int64]:
    return _column(labels, "iu", "whole numbers", path).astype(np.int64)


def _column(values: NDArray[Any], kinds: str, what: str, path: Path) -> NDArray[Any]:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.dtype.kind not in kinds or values.ndim != 1:
        raise DataError(
            f"{path}: 'y' must be {what} of shape [n] or [n, 1], found {values.dtype} "
            f"{list(values.shape)}"
        )
    return values
