"""What a data set looks like to a model: the kind of its examples, and what is to be predicted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from common.config import DataSettings
from common.data.errors import DataError
from common.data.kinds import KINDS, Image, Kind, Signal, Standardised, Table, Tokens
from common.data.statistics import Moments, Statistics
from common.data.targets import ClassLabels, LabelSets, Numbers, Targets


@dataclass(frozen=True)
class DataSpec:
    """A data set as a model sees it.

    Attributes
    ----------
    name : str
        The source, as in ``data.source``.
    kind : Kind
    targets : Targets
    """

    name: str
    kind: Kind
    targets: Targets

    @property
    def measured(self) -> int:
        """Of how many columns a site sends moments; 0 where nothing is standardised."""
        return self.kind.measured if isinstance(self.kind, Standardised) else 0

    def moments(self, x: NDArray[Any]) -> Moments | None:
        """Return the moments of stored examples ``[n, *stored_shape]``, if any are measured."""
        if isinstance(self.kind, Standardised) and self.kind.measured:
            return self.kind.moments(x)
        return None

    def fitted(self, statistics: Statistics) -> DataSpec:
        """Return the spec whose kind standardises by ``statistics``; empty ones change nothing.

        Raises
        ------
        DataError
            They are of another number of columns.
        """
        if not isinstance(self.kind, Standardised) or not statistics.mean:
            return self
        if {len(statistics.mean), len(statistics.std)} != {self.kind.measured}:
            raise DataError(
                f"the statistics are of {len(statistics.mean)} columns, and {self.name!r} has "
                f"{self.kind.measured} that are standardised: does this node run the same version "
                "of this app as the server?"
            )
        return replace(self, kind=self.kind.fitted(statistics))

    def facts(self) -> dict[str, object]:
        """Return all of it in JSON: for ``model.json``, and for the key of the cache."""
        classes = self.targets.count if isinstance(self.targets, ClassLabels) else 0
        # Only where there are any: the others keep their facts, and so their caches.
        sets = isinstance(self.targets, LabelSets)
        labels = {"num-labels": self.targets.outputs} if sets else {}
        return {"name": self.name, **self.kind.facts(), "num-classes": classes, **labels}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> DataSpec:
        """Return what :meth:`facts` were made of; of Moonflower 0.1 they are of images.

        Raises
        ------
        KeyError, TypeError, ValueError
            They are none.
        """
        kind = KINDS[facts.get("kind", Image.name)](facts)
        return cls(
            str(facts["name"]),
            kind,
            _targets(int(facts["num-classes"]), int(facts.get("num-labels", 0))),
        )


# Constants from where the comparisons come from: FedGen's published code for the MNISTs, MOON's
# for CIFAR-10; for CIFAR-100 the statistics of its training set, as in MOON's code.
_BUILT_IN = {
    spec.name: spec
    for spec in (
        # Mean and standard deviation of all 1,797 images.
        DataSpec("digits", Image((1, 8, 8), (0.305,), (0.376,), white=16.0), ClassLabels(10)),
        DataSpec("mnist", Image((1, 28, 28), (0.5,), (0.5,)), ClassLabels(10)),
        DataSpec("fashion-mnist", Image((1, 28, 28), (0.5,), (0.5,)), ClassLabels(10)),
        DataSpec(
            "cifar10",
            Image(
                (3, 32, 32),
                (125.3 / 255, 123.0 / 255, 113.9 / 255),
                (63.0 / 255, 62.1 / 255, 66.7 / 255),
            ),
            ClassLabels(10),
        ),
        # 80 characters of 65; 0 is padding.
        DataSpec("shakespeare", Tokens(80, 66, "characters"), ClassLabels(65)),
        DataSpec(
            "cifar100",
            Image(
                (3, 32, 32),
                (0.5070751592371323, 0.48654887331495095, 0.4409178433670343),
                (0.2673342858792401, 0.2564384629170883, 0.27615047132568404),
            ),
            ClassLabels(100),
        ),
    )
}


HEART = Table(6, (2, 4, 2, 3, 2, 3, 3))
"""The columns of UCI heart disease: :mod:`common.data.sources.heart`."""


def data_spec(settings: DataSettings) -> DataSpec:
    """Return the spec of ``data.source``; no data are read.

    The user's own data (``folder``, ``npz``, ``text``) are what the settings say; their images have
    mean and standard deviation 0.5. What all sites together have is not known yet:
    :meth:`DataSpec.fitted`.
    """
    if settings.source == "heart":
        return DataSpec("heart", _table(settings, HEART.numeric, HEART.categories), ClassLabels(2))
    if not settings.is_site_data:
        return _BUILT_IN[settings.source]
    targets = _targets(settings.num_classes, settings.num_labels)
    return DataSpec(settings.source, _own_kind(settings), targets)


def _own_kind(settings: DataSettings) -> Kind:
    if settings.source == "table":
        categories = tuple(column.count for column in settings.categorical_columns)
        return _table(settings, len(settings.numeric_columns), categories)
    if settings.source == "text" or settings.kind == Tokens.name:
        return _tokens(settings)
    if settings.kind == Table.name:
        return _table(settings, settings.features)
    if settings.kind == Signal.name:
        number, length = (int(size) for size in settings.signal_shape.split("x"))
        return Signal((number, length), standardise=settings.standardise)
    channels, height, width = (int(size) for size in settings.image_shape.split("x"))
    half = (0.5,) * channels
    return Image((channels, height, width), half, half)


def _table(settings: DataSettings, numeric: int, categories: tuple[int, ...] = ()) -> Table:
    indicators = settings.missing == "indicate"
    return Table(numeric, categories, indicators, settings.standardise)


def _tokens(settings: DataSettings) -> Tokens:
    sizes = settings.max_length, settings.vocabulary_size
    if settings.source != "text":
        return Tokens(*sizes)
    return Tokens(*sizes, settings.tokenizer or "words", settings.tokenizer_sha256)


def _targets(num_classes: int, num_labels: int) -> Targets:
    if num_labels:
        return LabelSets(num_labels)
    return ClassLabels(num_classes) if num_classes else Numbers()
