"""All settings of a run, parsed from Flower's run config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator

from common.config.algorithms import (
    ALGORITHMS,
    FedDecorrSettings,
    FedDynSettings,
    FedGenSettings,
    FedLCSettings,
    FedNTDSettings,
    FedProxSettings,
    FedRSSettings,
    MoonSettings,
    apart,
    refused_aggregation,
    refused_training,
)
from common.config.data import DataSettings
from common.config.learning import ModelSettings, TrainSettings
from common.config.names import RESERVED_NAME, SettingsError, check_name
from common.config.nesting import nested
from common.config.server import ServerSettings
from common.config.settings_table import Table, Whole
from common.config.task import GIVES, TaskSettings
from common.config.wire import WireSettings

CHANGEABLE = re.compile(
    r"(train|server)\.learning-rate(-(decay|schedule|rounds|warm-up))?|fedprox\.mu"
    r"|moon\.(mu|temperature)(-(start|rounds))?|moon\.schedule"
    r"|fedgen\.(alpha|beta|decay|generator-learning-rate(-decay)?)"
)
"""Settings that ``resume-changes`` may name: numbers that every round reads anew, and nothing that
an earlier round has left behind depends on."""

TRACKERS = ("tensorboard", "mlflow", "wandb")
"""What ``tracking`` may name; ``server_app.tracking`` writes them."""


class Settings(Table):
    """All of a run's settings."""

    algorithm: str = Field(
        description=f"{', '.join(f'`{name}`' for name in ALGORITHMS)}, or a sum such as "
        "`moon+fedgen`."
    )
    experiment: str = Field(
        description="Name of the folder that this run writes. Empty: made from the algorithm, the "
        "data set and the time. A name that exists is refused."
    )
    seed: Annotated[Whole, Field(ge=0, lt=2**31)] = Field(
        description="Seed of everything random in the run."
    )
    num_rounds: Annotated[Whole, Field(ge=1)] = Field(description="Rounds of training.")
    resume: bool = Field(
        description="Go on with `experiment` after its newest whole checkpoint. The other settings "
        "have to be those it was started with; `num-rounds` may grow, and deadlines, timeouts and "
        "the like may change, and what `resume-changes` names."
    )
    resume_changes: str = Field(
        description="Settings that `resume` may change in the middle, separated by commas, as "
        "`train.learning-rate,moon.mu`: learning rates and weights of terms only. They hold from "
        "the next round on."
    )
    tracking: str = Field(
        description="Trackers that are written while the run goes on, separated by commas: "
        f"{', '.join(f'`{name}`' for name in TRACKERS)}. Where they are, a machine decides: see "
        "tracking.md."
    )
    task: TaskSettings
    data: DataSettings
    model: ModelSettings
    train: TrainSettings
    server: ServerSettings
    wire: WireSettings
    fedprox: FedProxSettings
    feddyn: FedDynSettings
    moon: MoonSettings
    fedgen: FedGenSettings
    fedlc: FedLCSettings
    fedrs: FedRSSettings
    fedntd: FedNTDSettings
    feddecorr: FedDecorrSettings

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The parts of ``algorithm``; ``fedavg`` adds nothing to a sum."""
        return tuple(part for part in self.algorithm.split("+") if part != "fedavg")

    @field_validator("algorithm")
    @classmethod
    def _known_algorithms(cls, value: str) -> str:
        parts = value.split("+")
        unknown = [part for part in parts if part not in ALGORITHMS]
        if unknown or len(set(parts)) != len(parts):
            raise ValueError(
                f"allowed are {', '.join(ALGORITHMS)}, or different ones joined by '+', as "
                "'moon+fedgen'"
            )
        if reason := apart(parts):
            raise ValueError(reason)
        return value

    @field_validator("train")
    @classmethod
    def _trains_as_the_algorithm_needs(
        cls, value: TrainSettings, info: ValidationInfo
    ) -> TrainSettings:
        if reason := refused_training(info.data.get("algorithm", "").split("+"), value):
            raise ValueError(reason)
        return value

    @field_validator("server")
    @classmethod
    def _aggregates_as_the_algorithm_needs(
        cls, value: ServerSettings, info: ValidationInfo
    ) -> ServerSettings:
        if reason := refused_aggregation(info.data.get("algorithm", "").split("+"), value):
            raise ValueError(reason)
        return value

    @field_validator("task")
    @classmethod
    def _gives_what_algorithms_need(cls, value: TaskSettings, info: ValidationInfo) -> TaskSettings:
        given, wanting = GIVES[value.name], []
        for algorithm in info.data.get("algorithm", "").split("+"):
            table = (
                cls.model_fields[algorithm].annotation if algorithm in cls.model_fields else None
            )
            lacks = sorted(getattr(table, "needs", frozenset()) - given)
            wanting += [f"{algorithm!r} needs {' and '.join(lacks)}"] if lacks else []
        if wanting:
            raise ValueError(
                f"algorithm {', '.join(wanting)}, which task {value.name!r} doesn't give: it gives "
                f"{', '.join(sorted(given))}. Use another algorithm or task"
            )
        replaced = {"fedlc", "fedrs"} & set(info.data.get("algorithm", "").split("+"))
        if replaced and value.class_weights != "none":
            raise ValueError(
                f"algorithm {min(replaced)!r} replaces the loss that task.class-weights = "
                f"{value.class_weights!r} would weigh: set it to 'none', or use another algorithm"
            )
        return value

    @field_validator("model")
    @classmethod
    def _moon_shares_the_encoder(cls, value: ModelSettings, info: ValidationInfo) -> ModelSettings:
        if value.sharing == "predictor" and "moon" in info.data.get("algorithm", "").split("+"):
            raise ValueError(
                "sharing = 'predictor' can't go with algorithm 'moon': MOON contrasts with the "
                "global model's representation, and without a global encoder there is none. Use "
                "model.sharing='all', or fedavg, fedprox or fedgen"
            )
        return value

    @field_validator("server")
    @classmethod
    def _nothing_to_aggregate(cls, value: ServerSettings, info: ValidationInfo) -> ServerSettings:
        model = info.data.get("model")
        if model is None or model.sharing != "nothing":
            return value
        if info.data.get("algorithm") != "fedavg" or value.aggregator != "fedavg":
            raise ValueError(
                "model.sharing = 'nothing' trains every client alone: it needs algorithm 'fedavg', "
                "which adds no term of a global model, and server.aggregator 'fedavg'"
            )
        return value

    @field_validator("experiment")
    @classmethod
    def _folder_name(cls, value: str) -> str:
        if value == RESERVED_NAME:
            raise ValueError("the state folder keeps prepared data under this name: choose another")
        return check_name(value, "experiment") if value else value

    @property
    def trackers(self) -> tuple[str, ...]:
        """The names in ``tracking``."""
        return tuple(name.strip() for name in self.tracking.split(",") if name.strip())

    @field_validator("tracking")
    @classmethod
    def _known_trackers(cls, value: str) -> str:
        names = [name.strip() for name in value.split(",") if name.strip()]
        if set(names) - set(TRACKERS) or len(set(names)) != len(names):
            raise ValueError(
                f"allowed are {', '.join(TRACKERS)}, each once, separated by commas; empty: none"
            )
        return value

    @field_validator("resume")
    @classmethod
    def _resumed_by_name(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("experiment") == "":
            raise ValueError(
                "true needs the name of an experiment: experiment=NAME, a folder in the server's "
                "output folder"
            )
        return value

    @field_validator("resume_changes")
    @classmethod
    def _changed_when_resumed(cls, value: str, info: ValidationInfo) -> str:
        names = value.split(",") if value else []
        if names and info.data.get("resume") is False:
            raise ValueError("only a run that is resumed changes anything: set resume=true")
        if unknown := [name for name in names if not CHANGEABLE.fullmatch(name)]:
            raise ValueError(
                f"{', '.join(unknown)} can't change in the middle of an experiment; allowed are "
                "train.learning-rate, server.learning-rate and their -decay, -schedule, -rounds "
                "and -warm-up, fedprox.mu, moon.mu, moon.temperature and their -start and -rounds, "
                "moon.schedule, fedgen.alpha, fedgen.beta, fedgen.decay, "
                "fedgen.generator-learning-rate and its -decay, separated by commas, no spaces"
            )
        return value


def parse_settings(run_config: Mapping[str, Any]) -> Settings:
    """Check a whole run config.

    Parameters
    ----------
    run_config : Mapping[str, Any]
        Flat, as ``Context.run_config``, or nested, as in TOML.

    Raises
    ------
    SettingsError
        Names every setting that is wrong, what was given and what is allowed.
    """
    try:
        tree = nested(run_config)
        task = tree.get("task")
        # Which settings of [data] make sense depends on the task.
        context = {"task": task.get("name") if isinstance(task, dict) else None}
        return Settings.model_validate(tree, context=context)
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    lines = []
    for problem in error.errors(include_url=False):
        key = ".".join(str(part).replace("_", "-") for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = "unknown setting; docs/settings.md lists them all"
        elif problem["type"] == "missing":
            message = "missing; its default belongs in pyproject.toml"
        elif problem["type"] == "model_type":
            message = f"a table of settings, not a value; given was {problem['input']!r}"
        elif not isinstance(problem["input"], dict | BaseModel):
            message = f"{message}; given was {problem['input']!r}"
        lines.append(f"  {key}: {message}" if key else f"  {message}")
    count = f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
    return f"the settings have {count}:\n" + "\n".join(lines)
