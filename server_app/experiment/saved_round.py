"""The models that a run leaves, ``best/`` and ``final/``: each with what is known of its round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common.config import Settings
from common.data import DataSpec
from common.models import (
    SavedModelError,
    SplitModel,
    load_facts,
    load_model,
    private_names,
    save_model,
)
from common.tasks import build_task
from server_app.experiment.checkpoint import Best
from server_app.report.model_card import Subject, model_card
from server_app.report.round_report import score_of


def best_in(folder: Path) -> Best | None:
    """Return of which round the model in ``folder`` is; None if there is no whole one."""
    try:
        # Loaded, not only looked at: its weights may be damaged.
        load_model(folder, allow_private_parts=True)
        return Best.of(load_facts(folder))
    except (SavedModelError, KeyError):
        return None


@dataclass(frozen=True)
class SavedRound:
    """Writes a model as it is after a round.

    Attributes
    ----------
    experiment : str
    settings : Settings
    spec : DataSpec
        With the federation's statistics.
    """

    experiment: str
    settings: Settings
    spec: DataSpec

    def write(
        self,
        folder: Path,
        model: SplitModel,
        lines: Sequence[Mapping[str, Any]],
        examples: Mapping[str, int],
    ) -> None:
        """Write it, whole or not at all, with its facts and its card.

        Parameters
        ----------
        folder : Path
        model : SplitModel
            Holds the global weights after the last round of ``lines``.
        lines : Sequence[Mapping[str, Any]]
            ``metrics.jsonl`` up to this round.
        examples : Mapping[str, int]
            How many a site had, as far as known.

        Raises
        ------
        OSError
            The disk is full, read-only or failing.
        """
        card = partial(model_card, self._subject(model, lines, examples))
        settings = self.settings.model
        save_model(folder, model, settings, self.spec, self._facts(lines[-1]), card)

    def _facts(self, line: Mapping[str, Any]) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "experiment": self.experiment,
            "algorithm": self.settings.algorithm,
            "seed": self.settings.seed,
            # What the model is for can be told from them, wherever its folder goes.
            "settings": self.settings.model_dump(by_alias=True, exclude={"resume"}),
            **{key: line[key] for key in ("round", "global", "clients")},
        }
        headline = build_task(self.settings).headline
        score = score_of(headline, line["global"], line["clients"])
        return facts | Best(line["round"], *score).facts() if score else facts

    def _subject(
        self, model: SplitModel, lines: Sequence[Mapping[str, Any]], examples: Mapping[str, int]
    ) -> Subject:
        sites = {name for line in lines for name in line["participants"]}
        return Subject(
            experiment=self.experiment,
            settings=self.settings,
            spec=self.spec,
            task=build_task(self.settings),
            line=lines[-1],
            sites=len(sites),
            # Of one that joined later it is not known here.
            examples=sum(examples.get(name, 0) for name in sites),
            whole=not private_names(model, self.settings.model),
        )
