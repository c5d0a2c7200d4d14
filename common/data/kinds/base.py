"""What a kind of data is: the form of one example, from the stored array to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.data.statistics import Moments, Statistics

Augment = Callable[[Tensor, torch.Generator], Tensor]
"""Changes a batch that the model would see; random numbers come from the generator, on the CPU."""


class Kind(Protocol):
    """The form of one example.

    Attributes
    ----------
    name : str
        In ``KINDS`` and in ``model.json``.
    stored : str
        What ``data.source`` has to store, for messages.
    dtypes : tuple of str
        Of stored arrays, the usual one first; :meth:`prepare` takes each. An exported model takes
        one of them.
    """

    name: ClassVar[str]
    stored: ClassVar[str]
    dtypes: ClassVar[tuple[str, ...]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one example, as the model sees it."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Return the shape of one example, as it is stored."""

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse stored examples ``[n, *stored_shape]`` that a model can't be trained on.

        ``origin`` says in the message where they come from.

        Raises
        ------
        DataError
        """

    def drawn(self, count: int, dtype: str, generator: np.random.Generator) -> NDArray[Any]:
        """Return random stored examples ``[count, *stored_shape]`` that :meth:`check` takes.

        For looking at a model where there are no data.
        """

    def prepare(self, stored: Tensor) -> Tensor:
        """Return what the model sees, float32 ``[batch, *shape]``; ``stored`` may be changed.

        ``stored`` is ``[batch, *stored_shape]``. It becomes part of an exported model: operations
        of torch alone, none that depend on values.
        """

    def augmentation(self, name: str) -> Augment | None:
        """Return what ``data.augmentation`` asks for; None for ``none``.

        Raises
        ------
        DataError
            This kind has no such augmentation, or the examples are too small for it.
        """

    def facts(self) -> Mapping[str, object]:
        """Return all that makes it this kind, in JSON: for ``model.json`` and the cache's key."""


@runtime_checkable
class Standardised(Kind, Protocol):
    """A kind that is standardised by statistics of all sites (:mod:`common.data.statistics`).

    Unfitted, as settings give it, it shows the model its values unscaled.
    """

    @property
    def measured(self) -> int:
        """Return of how many columns a site sends moments; 0: nothing is standardised."""

    def moments(self, x: NDArray[Any]) -> Moments:
        """Return the moments of stored examples, each of them counted at most once per column."""

    def fitted(self, statistics: Statistics) -> Kind:
        """Return the kind that standardises by ``statistics``, of :attr:`measured` columns."""
