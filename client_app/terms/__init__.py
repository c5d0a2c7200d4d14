"""Local terms and their registry: an algorithm is a sum of them."""

from __future__ import annotations

from collections.abc import Callable

from client_app.terms.base import Instruction, Term
from client_app.terms.contrastive import Contrastive
from client_app.terms.feddecorr import FedDecorr
from client_app.terms.feddyn import FedDyn
from client_app.terms.fedlc import FedLC
from client_app.terms.fedntd import FedNTD
from client_app.terms.fedrs import FedRS
from client_app.terms.generative import Generative
from client_app.terms.proximal import Proximal
from client_app.terms.scaffold import Scaffold
from common.config import SERVER_ONLY, Settings
from common.tasks import Step

TERMS: dict[str, Callable[[Settings], Term]] = {
    "fedprox": lambda settings: Proximal(),
    "scaffold": lambda settings: Scaffold(),
    "feddyn": lambda settings: FedDyn(),
    "moon": lambda settings: Contrastive(settings.moon),
    "fedgen": lambda settings: Generative(),
    "fedlc": lambda settings: FedLC(),
    "fedrs": lambda settings: FedRS(),
    "fedntd": lambda settings: FedNTD(),
    "feddecorr": lambda settings: FedDecorr(),
}


def build_terms(settings: Settings) -> list[Term]:
    """Return the terms of ``settings.algorithm``, in its order."""
    return [TERMS[name](settings) for name in settings.algorithms if name not in SERVER_ONLY]


__all__ = ["TERMS", "Instruction", "Step", "Term", "build_terms"]
