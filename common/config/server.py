"""Rounds, aggregation and what is kept of them: `[server]`."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.config.learning_rate import LearningRateSettings
from common.config.names import NAME_PATTERN
from common.config.settings_table import Fraction, NonNegative, Positive, Whole

STEPPING = ("fedavgm", "fedadam", "fedyogi", "fedadagrad")
"""Aggregators that take a step of ``server.learning-rate`` along the mean update."""

NOT_WEIGHING = ("fedmedian", "fedtrimmedavg")
"""Aggregators that count every client alike, whatever it weighs."""


class ServerSettings(LearningRateSettings):
    """``[server]``: rounds, sampling and aggregation."""

    aggregator: Literal[
        "fedavg",
        "fedavgm",
        "fedadam",
        "fedyogi",
        "fedadagrad",
        "fedmedian",
        "fedtrimmedavg",
        "multikrum",
    ] = Field(description="Flower strategy that combines the clients' models.")
    weighting: Literal["examples", "uniform"] = Field(
        description="Weight of a client in averages: its number of examples, or one each."
    )
    client_weights: str = Field(
        description="Factors on the weights of single clients, as `site-a=2,site-b=0.5`; of those "
        "that are not named it is 1. Empty: none. For aggregators that weigh clients."
    )
    fraction_train: Fraction = Field(description="Part of the clients that trains in a round.")
    fraction_evaluate: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Part of the clients that evaluates in a round. 0: none."
    )
    evaluate_every: Annotated[Whole, Field(ge=1)] = Field(
        description="Evaluate in every n-th round, and in the last."
    )
    evaluate_personal: bool = Field(
        description="Clients that evaluate also score their own model, as it was at the end of the "
        "last round that they trained in, on the same examples: `personal` in metrics.jsonl."
    )
    min_clients: Annotated[Whole, Field(ge=1)] = Field(
        description="Clients that must be connected before the run begins."
    )
    start_timeout: Positive = Field(
        description="Seconds to wait for `min-clients`, and after the last answer for nodes that "
        "have not yet said who they are."
    )
    round_deadline: Positive = Field(description="Seconds after which a round ends regardless.")
    min_replies: Annotated[Whole, Field(ge=1)] = Field(
        description="Usable replies without which a round fails and the run stops."
    )
    straggler_grace: NonNegative = Field(
        description="Seconds that a round still waits once half of the replies (and at least "
        "`min-replies`) are in. It never ends a round in which everybody answers."
    )
    failure_policy: Literal["continue", "stop"] = Field(
        description="What a client without a usable reply does to the run: it goes on with the "
        "others, or it ends at the first such client, with the reason. The same holds at the start "
        "for a site whose own data (`folder`, `npz`) can't be used."
    )
    exclude_rounds: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds that a client is left out of after it gave no usable reply to a train "
        "instruction. 0: it is tried again in the next."
    )
    max_update_norm: NonNegative = Field(
        description="Largest L2 norm of a client's change of the model's parameters (BatchNorm's "
        "running statistics are not counted). 0: no limit."
    )
    norm_policy: Literal["reject", "clip"] = Field(
        description="What happens above `max-update-norm`: the reply is refused, or its change is "
        "scaled down to that norm."
    )
    norm_multiple: NonNegative = Field(
        description="Largest L2 norm of a client's change, in multiples of the median of the "
        "round's replies: a reply beyond it is refused. Only with four replies or more. 0: no "
        "limit."
    )
    statistics_multiple: NonNegative = Field(
        description="The same for BatchNorm's running statistics: largest scale of a layer (the "
        "root of the sum of mean squared and variance), in multiples of the median. Only with "
        "three replies or more."
    )
    cosines: bool = Field(
        description="Write into metrics.jsonl how far each client went the way of all: the cosine "
        "between its update and the mean update. It reads each reply twice more."
    )
    replies_in_memory_mb: Annotated[Whole, Field(ge=0)] = Field(
        description="Megabytes of train replies that the server keeps in memory; what goes beyond "
        "waits in a nameless file in the experiment's folder."
    )
    patience: Annotated[Whole, Field(ge=0)] = Field(
        description="Evaluations without a better `stop-metric` after which the run ends early. "
        "0: never."
    )
    stop_metric: Literal[
        "global-score", "global-loss", "clients-score", "clients-worst", "clients-loss"
    ] = Field(
        description="What `patience` watches: the task's headline score (`task.name`) or the loss "
        "of the global model on the server's test set, or the clients' mean score, that of the "
        "worst client, or their loss."
    )
    alarm_rounds: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds after which a score at the level of guessing raises an alarm. 0: never."
    )
    keep_checkpoints: Annotated[Whole, Field(ge=1)] = Field(
        description="Checkpoints that the server keeps. With 2, a run can be resumed even when the "
        "newest one is damaged. Clients keep their models of as many more rounds."
    )
    learning_rate: Positive = Field(
        description="Learning rate of the server, before it falls: of FedAvgM, FedAdam, FedYogi "
        "and FedAdagrad."
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(description="Momentum of FedAvgM.")
    trim: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        description="Part cut off at each end by FedTrimmedAvg."
    )
    malicious_clients: Annotated[Whole, Field(ge=0)] = Field(
        description="Malicious clients that MultiKrum expects."
    )

    @property
    def uses_learning_rate(self) -> bool:
        """Whether the aggregator takes steps of ``learning_rate``."""
        return self.aggregator in STEPPING

    @property
    def factors(self) -> dict[str, float]:
        """By client, what ``client_weights`` says."""
        pairs = (pair.partition("=") for pair in self.client_weights.split(",") if pair)
        return {name: float(factor) for name, _, factor in pairs}

    @field_validator("client_weights")
    @classmethod
    def _names_and_factors(cls, value: str, info: ValidationInfo) -> str:
        pairs = [pair.partition("=") for pair in value.split(",")] if value else []
        wrong = [
            "".join(pair)
            for pair in pairs
            if not NAME_PATTERN.fullmatch(pair[0]) or not _is_positive(pair[2])
        ]
        names = [name for name, _, _ in pairs]
        if wrong or len(set(names)) != len(names):
            raise ValueError(
                "names of clients with a number above 0 are needed, each name once, separated by "
                f"commas without spaces, as 'site-a=2,site-b=0.5'; wrong is {wrong or names}"
            )
        if value and info.data.get("aggregator") in NOT_WEIGHING:
            raise ValueError(
                f"server.aggregator {info.data['aggregator']!r} counts all clients alike: leave it "
                "empty, or use an aggregator that is a mean"
            )
        return value


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
