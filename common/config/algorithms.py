"""The algorithms: their names, their numbers, and what they can't go with."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.config.learning import TrainSettings
from common.config.server import STEPPING, ServerSettings
from common.config.settings_table import Decay, NonNegative, Positive, Table, Whole

ALGORITHMS = (
    "fedavg",
    "fedprox",
    "scaffold",
    "feddyn",
    "moon",
    "fedgen",
    "fednova",
    "fedlc",
    "fedrs",
    "fedntd",
    "feddecorr",
)
SERVER_ONLY = ("fednova",)
"""Algorithms without a term: clients train as for ``fedavg``, and report nothing more."""


class FedProxSettings(Table):
    """``[fedprox]`` (Li et al., MLSys 2020)."""

    mu: NonNegative = Field(description="Weight of mu/2 * ||w - w_global||^2.")


class FedDynSettings(Table):
    """``[feddyn]`` (Acar et al., ICLR 2021)."""

    alpha: Positive = Field(
        description="Weight of the dynamic regulariser; the server moves the model by the clients' "
        "mean gradient over alpha, so a small one takes large steps."
    )


class MoonSettings(Table):
    """``[moon]`` (Li, He, Song, CVPR 2021)."""

    needs: ClassVar[frozenset[str]] = frozenset({"z"})

    mu: NonNegative = Field(
        description="Weight of the model-contrastive loss; where it changes, the one it ends with."
    )
    mu_start: NonNegative = Field(
        description="mu of round 1, if `mu-rounds` is not 0: below `mu` it grows, above it falls."
    )
    mu_rounds: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds in which mu goes from `mu-start` to `mu`. 0: it is `mu` from the start."
    )
    temperature: Positive = Field(
        description="Temperature tau of the contrastive loss; where it changes, the one it ends "
        "with."
    )
    temperature_start: NonNegative = Field(
        description="tau of round 1, if `temperature-rounds` is not 0. 0: none is given."
    )
    temperature_rounds: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds in which tau goes from `temperature-start` to `temperature`. 0: it is "
        "`temperature` from the start."
    )
    schedule: Literal["linear", "cosine"] = Field(
        description="How mu and tau go from their start to their end: along a line or half a "
        "cosine."
    )
    previous: Literal["models", "ema"] = Field(
        description="The negatives: the client's last `buffer-size` local models (paper), or one "
        "exponential moving average of them all, which is one file and one frozen pass."
    )
    buffer_size: Annotated[Whole, Field(ge=1, le=16)] = Field(
        description="Previous local models K that serve as negatives, with `previous` `models`."
    )
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="Factor on the weight of a local model in `previous` `ema` for every later "
        "round that the client took part in. 0: the newest one alone."
    )

    # Validators of fields: those of the table would not run while a field is wrong.
    @field_validator("mu_rounds")
    @classmethod
    def _mu_has_somewhere_to_go(cls, value: int, info: ValidationInfo) -> int:
        if value == 0 and info.data.get("mu_start"):
            raise ValueError("moon.mu-start needs it: in how many rounds mu goes to moon.mu")
        return value

    @field_validator("temperature_rounds")
    @classmethod
    def _temperature_has_somewhere_to_go(cls, value: int, info: ValidationInfo) -> int:
        start = info.data.get("temperature_start")
        if start is not None and bool(start) != bool(value):
            raise ValueError(
                "moon.temperature-start and moon.temperature-rounds go together: give both above "
                "0, or leave both 0"
            )
        return value


class FedGenSettings(Table):
    """``[fedgen]`` (Zhu, Hong, Zhou, ICML 2021)."""

    needs: ClassVar[frozenset[str]] = frozenset({"z", "class labels"})

    noise: Literal["normal", "uniform"] = Field(
        description="Noise of the generator: N(0, I) (paper) or uniform on [0, 1) (code)."
    )
    noise_dim: Annotated[Whole, Field(ge=1, le=8192)] = Field(
        description="Size of the noise vector."
    )
    hidden_dim: Annotated[Whole, Field(ge=1, le=8192)] = Field(
        description="Hidden units of the generator."
    )
    label_input: Literal["one-hot", "embedding"] = Field(
        description="How the generator sees the label."
    )
    teacher: Literal["averaged-logits", "label-weighted"] = Field(
        description="Teacher loss: cross-entropy of the averaged logits (paper, Eq. 4) or the sum "
        "over clients of their label-weighted cross-entropies (code)."
    )
    teacher_weight: NonNegative = Field(
        description="Weight of the teacher loss (1 in paper and code, there `ensemble_alpha`)."
    )
    diversity_weight: NonNegative = Field(description="Weight eta of the diversity loss.")
    student_weight: NonNegative = Field(
        description="Weight beta_student of the adversarial student loss."
    )
    labels: Literal["prior", "uniform"] = Field(
        description="Labels of generated batches: from p^(y) (paper) or uniform over the labels "
        "seen (code)."
    )
    label_counts: Literal["all", "drawn"] = Field(
        description="What a client counts for p^(y): all its examples, or the batches it drew "
        "this round plus one (code)."
    )
    start_round: Annotated[Whole, Field(ge=2)] = Field(
        description="First round in which clients use the generator. It is first trained at the "
        "end of round 1."
    )
    alpha: NonNegative = Field(
        description="Weight of the cross-entropy on the generated batch (paper: 1, code: 10)."
    )
    beta: NonNegative = Field(
        description="Weight of KL between the output on real x and on G(y) (paper: 0, code: 10)."
    )
    decay: Decay = Field(description="Factor on alpha and beta per round (code: 0.98).")
    batch_size: Annotated[Whole, Field(ge=1)] = Field(description="Generated examples per step.")
    gen_ratio: bool = Field(
        description="Multiply alpha by generated over real examples of a step, `batch-size` over "
        "`train.batch-size` (code: true; paper: false)."
    )
    early_stop: Annotated[Whole, Field(ge=0)] = Field(
        description="Local epochs of a round, or steps where `train.local-steps` counts them, "
        "after which alpha and beta are 0 (code: 20 of its 20 steps). 0: never."
    )
    generator_learning_rate: Positive = Field(description="Learning rate of the generator's Adam.")
    generator_weight_decay: NonNegative = Field(description="Weight decay of the generator's Adam.")
    generator_learning_rate_decay: Decay = Field(
        description="Factor on the generator's learning rate per round."
    )
    server_steps: Annotated[Whole, Field(ge=1)] = Field(description="Generator steps per round.")
    server_batch_size: Annotated[Whole, Field(ge=2)] = Field(
        description="Batch of a generator step; at least 2, for its BatchNorm."
    )


class FedLCSettings(Table):
    """``[fedlc]`` (Zhang et al., ICML 2022)."""

    needs: ClassVar[frozenset[str]] = frozenset({"class labels"})

    tau: NonNegative = Field(
        description="Margin of a class with one example; one with n examples has tau * n^(-1/4)."
    )


class FedRSSettings(Table):
    """``[fedrs]`` (Li and Zhan, KDD 2021)."""

    needs: ClassVar[frozenset[str]] = frozenset({"class labels"})

    alpha: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Factor on the logits of classes that a client lacks. 1: FedAvg."
    )


class FedNTDSettings(Table):
    """``[fedntd]`` (Lee et al., NeurIPS 2022)."""

    needs: ClassVar[frozenset[str]] = frozenset({"class labels"})

    beta: NonNegative = Field(description="Weight of the not-true distillation loss.")
    temperature: Positive = Field(description="Temperature tau of its two softmaxes.")


class FedDecorrSettings(Table):
    """``[feddecorr]`` (Shi et al., ICLR 2023)."""

    needs: ClassVar[frozenset[str]] = frozenset({"z"})

    beta: NonNegative = Field(description="Weight of the squared correlations of z, over d^2.")


def apart(algorithms: Collection[str]) -> str:
    """Return why these algorithms can't be added up, or ""."""
    if {"scaffold", "feddyn"} <= set(algorithms):
        return "scaffold and feddyn both take the clients' drift out of the gradient: choose one"
    if {"fedprox", "feddyn"} <= set(algorithms):
        return "feddyn has fedprox's term in it, with feddyn.alpha for mu: leave fedprox out"
    if {"fedlc", "fedrs"} <= set(algorithms):
        return "fedlc and fedrs both replace the logits of the base loss: choose one"
    if "fednova" in algorithms and {"fedprox", "feddyn"} & set(algorithms):
        return (
            "fednova knows how far the steps of SGD lead, and those with the quadratic term of "
            "fedprox or feddyn lead elsewhere: choose one"
        )
    return ""


def refused_training(algorithms: Collection[str], train: TrainSettings) -> str:
    """Return why these algorithms can't train so, or ""."""
    if "scaffold" in algorithms and (train.optimizer != "sgd" or train.momentum != 0):
        return (
            "scaffold reads the mean gradient off a client's way, which only plain SGD allows: "
            "set train.optimizer='sgd' and train.momentum=0 (weight decay may stay)"
        )
    if "fednova" in algorithms and train.optimizer != "sgd":
        return (
            "fednova normalises by how far the steps of SGD lead (train.momentum may be anything): "
            "set train.optimizer='sgd'"
        )
    return ""


def refused_aggregation(algorithms: Collection[str], server: ServerSettings) -> str:
    """Return why the server can't aggregate so with these algorithms, or ""."""
    if server.learning_rate_changes and not server.uses_learning_rate:
        return (
            f"server.aggregator {server.aggregator!r} has no learning rate that could change: set "
            "server.learning-rate-decay to 1 and server.learning-rate-warm-up to 0, or use "
            f"{', '.join(STEPPING)}"
        )
    if "fednova" in algorithms and server.aggregator != "fedavg":
        return (
            "fednova is a mean of its own: server.aggregator has to be 'fedavg', and was "
            f"{server.aggregator!r}"
        )
    name = next((each for each in ("scaffold", "feddyn") if each in algorithms), "")
    allowed = {
        "scaffold": ("fedavg", *STEPPING),
        "feddyn": ("fedavg",),
    }
    if name and server.aggregator not in allowed[name]:
        return (
            f"{name} adds up all clients' corrections, which server.aggregator "
            f"{server.aggregator!r} neither knows nor protects: allowed are "
            f"{', '.join(allowed[name])}"
        )
    if name and server.client_weights:
        return (
            f"server.client-weights can't go with {name}, whose sum over all clients has the "
            "weights of server.weighting: leave it empty"
        )
    if name and server.max_update_norm and server.norm_policy == "clip":
        return (
            f"server.norm-policy 'clip' changes replies that {name} reads the clients' own "
            "corrections off, and the clients would not know: set it to 'reject', or "
            "server.max-update-norm to 0"
        )
    return ""
