"""What a kind of data is: the form of one example, from the stored array to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor

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
    """

    name: ClassVar[str]
    stored: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one example."""

    def check(self, x: NDArray[Any], origin: str) -> None:
        """Refuse stored examples ``[n, *shape]`` that a model can't be trained on.

        ``origin`` says in the message where they come from.

        Raises
        ------
        DataError
        """

    def prepare(self, stored: Tensor) -> Tensor:
        """Return what the model sees, float32 ``[batch, *shape]``; ``stored`` may be changed."""

    def augmentation(self, name: str) -> Augment | None:
        """Return what ``data.augmentation`` asks for; None for ``none``.

        Raises
        ------
        DataError
            This kind has no such augmentation, or the examples are too small for it.
        """

    def facts(self) -> Mapping[str, object]:
        """Return all that makes it this kind, in JSON: for ``model.json`` and the cache's key."""
