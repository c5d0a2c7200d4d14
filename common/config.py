"""Run config -> frozen, validated settings.

No field has a default here: the defaults live in ``pyproject.toml`` under
``[tool.flwr.app.config]``, and Flower merges them with ``-c``. ``docs/settings.md`` is
made from the descriptions below.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What an experiment or a client may be called: it becomes the name of a folder."""

ALGORITHMS = ("fedavg", "fedprox", "moon", "fedgen")

SITE_SOURCES = ("folder", "npz")
"""Sources of which every node brings its own examples."""

RESERVED_NAME = "prepared"
"""An experiment can't be called so: prepared data have that place in the state folder."""

LARGEST = 2**31 - 1

_IMAGE_SHAPE = r"^([1-9][0-9]{0,3}x[1-9][0-9]{0,3}x[1-9][0-9]{0,3})?$"


def _representable(value: int) -> int:
    """Refuse numbers that Flower's run config or torch's sizes could not hold."""
    if value > LARGEST:
        raise ValueError(f"Input should be at most {LARGEST}")
    return value


Whole = Annotated[int, AfterValidator(_representable)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(gt=0, le=1)]


class SettingsError(ValueError):
    """The run config can't be used; the message lists every problem and what is allowed."""


def check_name(name: str, what: str) -> str:
    """Return ``name`` if it may become a folder, else raise :class:`SettingsError`."""
    if not NAME_PATTERN.fullmatch(name) or set(name) == {"."}:
        raise SettingsError(
            f"{what} {name!r} can't be used as a folder name: allowed are 1 to 64 of A-Z a-z 0-9 "
            f"'.', '_' and '-', and not dots alone. Choose another {what}."
        )
    return name


def _is_folder_name(name: str) -> bool:
    return bool(name) and name == name.strip() and "/" not in name and not name.startswith(".")


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=lambda name: name.replace("_", "-"),
        populate_by_name=True,
    )


class DataSettings(_Table):
    """``[data]``: which examples, and how simulated clients share them."""

    source: Literal["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "folder", "npz"] = (
        Field(
            description="Data set. `digits` is built in; `folder` and `npz` read each node's own "
            "data folder and need no partition."
        )
    )
    partition: Literal["iid", "dirichlet", "classes-per-client", "fedgen-official"] = Field(
        description="How a simulation splits the training set: evenly; by Dirichlet(alpha) per "
        "label with self-balancing (MOON, section 4.1); a fixed number of labels per client; or "
        "as FedGen's published code does (cap per label, then Dirichlet)."
    )
    alpha: Positive = Field(
        description="Dirichlet concentration: the smaller, the less alike the clients."
    )
    classes_per_client: Annotated[Whole, Field(ge=1)] = Field(
        description="Labels that one client holds when partition is `classes-per-client`."
    )
    min_partition_size: Annotated[Whole, Field(ge=1)] = Field(
        description="A Dirichlet split is drawn again until every client has this many examples."
    )
    fraction: Fraction = Field(
        description="Part of the training set to use, the same part of every label. For "
        "`fedgen-official` it is that code's sampling ratio."
    )
    validation_fraction: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="Part of its examples that a client keeps for validation."
    )
    client_test: Literal["validation", "whole-test-set", "held-labels"] = Field(
        description="What a client evaluates on: its validation split, the whole test set (FedGen "
        "paper), or a share of the test examples whose labels it holds (FedGen's code)."
    )
    augmentation: Literal["none", "crop-flip"] = Field(
        description="Training-time augmentation, on the device: reflection-padded random crop and "
        "horizontal flip."
    )
    image_shape: Annotated[str, Field(pattern=_IMAGE_SHAPE)] = Field(
        description="Channels x height x width of `folder` and `npz` images, as `1x28x28`. Empty: "
        "what the built-in source has."
    )
    num_classes: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Classes of `folder` and `npz` data. 0: what the built-in source has."
    )
    class_names: str = Field(
        description="Names of the class folders of `folder` data in the order of their class ids, "
        "as `cat,dog`. Sites with other folders are left out; a missing one is a class without "
        "images. Empty: each site's own folders, sorted, which then have to be the same everywhere."
    )
    download: bool = Field(description="Whether torchvision may download a missing data set.")

    @property
    def is_site_data(self) -> bool:
        """Whether every node brings its own examples, so that nothing is partitioned."""
        return self.source in SITE_SOURCES

    @property
    def classes(self) -> tuple[str, ...]:
        """The names in ``class_names``, in their order; empty where none are given."""
        return tuple(self.class_names.split(",")) if self.class_names else ()

    # Validators of fields, not of the table: those would not run while a field is wrong, and all
    # problems are to be said at once. A field that is wrong itself is not in info.data.
    @field_validator("client_test")
    @classmethod
    def _something_to_evaluate_on(cls, value: str, info: ValidationInfo) -> str:
        if value == "validation" and info.data.get("validation_fraction") == 0:
            raise ValueError(
                "'validation' needs data.validation-fraction above 0, or clients have nothing to "
                "evaluate on"
            )
        return value

    @field_validator("class_names")
    @classmethod
    def _one_name_for_each_class(cls, value: str, info: ValidationInfo) -> str:
        names = value.split(",") if value else []
        if names and info.data.get("source") not in ("folder", None):
            raise ValueError("only source 'folder' has class names: leave data.class-names empty")
        wanted = info.data.get("num_classes")
        if names and wanted is not None and len(names) != wanted:
            raise ValueError(f"{len(names)} names, but data.num-classes is {wanted}")
        if len(set(names)) != len(names) or not all(_is_folder_name(name) for name in names):
            raise ValueError(
                "names of folders separated by commas are needed, each once, without spaces around "
                "them, as 'cat,dog'"
            )
        return value

    @field_validator("image_shape", "num_classes")
    @classmethod
    def _said_for_site_data_only(cls, value: str | int, info: ValidationInfo) -> str | int:
        source = info.data.get("source")
        if source in SITE_SOURCES and value in ("", 0, 1):
            raise ValueError(
                f"source {source!r} needs data.image-shape (as '1x28x28') and data.num-classes "
                "(at least 2): the server builds the model without seeing data"
            )
        if source is not None and source not in SITE_SOURCES and value not in ("", 0):
            raise ValueError(
                f"source {source!r} has its own shape and classes: leave data.image-shape empty "
                "and data.num-classes 0"
            )
        return value


class ModelSettings(_Table):
    """``[model]``: the network that is trained."""

    name: str = Field(description="Name in the model registry (common/models).")
    norm: Literal["batch", "group"] = Field(
        description="Normalisation of the ResNets and `fedgen-cnn`: batch, or group (8 channels a "
        "group, or all where there are fewer)."
    )
    projection_dim: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Size of MOON's projection head at the end of the encoder (the papers use "
        "256). 0: no head."
    )
    batch_norm_buffers: Literal["averaged", "local"] = Field(
        description="Whether BatchNorm's running statistics are averaged like weights, or never "
        "leave the client (FedGen's code)."
    )

    @field_validator("name")
    @classmethod
    def _known_model(cls, value: str) -> str:
        # Late import: the registry needs ModelSettings.
        from common.models import MODELS

        if value not in MODELS:
            raise ValueError(f"unknown model; allowed are {', '.join(sorted(MODELS))}")
        return value


class TrainSettings(_Table):
    """``[train]``: a client's local training."""

    local_epochs: Annotated[Whole, Field(ge=1)] = Field(
        description="Passes over a client's data in one round."
    )
    local_steps: Annotated[Whole, Field(ge=0)] = Field(
        description="Optimiser steps in one round instead of epochs. 0: use `local-epochs`."
    )
    batch_size: Annotated[Whole, Field(ge=1)] = Field(description="Examples in one step.")
    drop_last: bool = Field(
        description="Drop the last, smaller batch of an epoch (unless it is the only one)."
    )
    optimizer: Literal["sgd", "adam"] = Field(description="Local optimiser.")
    learning_rate: Positive = Field(description="Learning rate of round 1.")
    learning_rate_decay: Decay = Field(description="Factor on the learning rate per round.")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(description="Momentum of SGD.")
    weight_decay: NonNegative = Field(description="L2 penalty of the optimiser.")
    cpu_threads: Annotated[Whole, Field(ge=1, le=256)] = Field(
        description="CPU threads of one client. Part of the experiment because sums over more "
        "threads round differently: the same number gives the same bits everywhere."
    )


class ServerSettings(_Table):
    """``[server]``: rounds, sampling and aggregation."""

    aggregator: Literal[
        "fedavg", "fedavgm", "fedadam", "fedyogi", "fedmedian", "fedtrimmedavg", "multikrum"
    ] = Field(description="Flower strategy that combines the clients' models.")
    weighting: Literal["examples", "uniform"] = Field(
        description="Weight of a client in averages: its number of examples, or one each."
    )
    fraction_train: Fraction = Field(description="Part of the clients that trains in a round.")
    fraction_evaluate: Annotated[float, Field(ge=0, le=1)] = Field(
        description="Part of the clients that evaluates in a round. 0: none."
    )
    evaluate_every: Annotated[Whole, Field(ge=1)] = Field(
        description="Evaluate in every n-th round, and in the last."
    )
    min_clients: Annotated[Whole, Field(ge=1)] = Field(
        description="Clients that must be connected before the run begins."
    )
    start_timeout: Positive = Field(description="Seconds to wait for `min-clients`.")
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
    replies_in_memory_mb: Annotated[Whole, Field(ge=0)] = Field(
        description="Megabytes of train replies that the server keeps in memory; what goes beyond "
        "waits in a nameless file in the experiment's folder."
    )
    patience: Annotated[Whole, Field(ge=0)] = Field(
        description="Evaluations without a better `stop-metric` after which the run ends early. "
        "0: never."
    )
    stop_metric: Literal[
        "global-accuracy", "global-loss", "clients-accuracy", "clients-worst", "clients-loss"
    ] = Field(
        description="What `patience` watches: accuracy or loss of the global model on the server's "
        "test set, or the clients' mean accuracy, that of the worst client, or their loss."
    )
    alarm_rounds: Annotated[Whole, Field(ge=0)] = Field(
        description="Rounds after which accuracy at the level of guessing raises an alarm. 0: "
        "never."
    )
    keep_checkpoints: Annotated[Whole, Field(ge=1)] = Field(
        description="Checkpoints that the server keeps. With 2, a run can be resumed even when the "
        "newest one is damaged. Clients keep their models of as many more rounds."
    )
    learning_rate: Positive = Field(
        description="Server learning rate of FedAvgM, FedAdam and FedYogi."
    )
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(description="Momentum of FedAvgM.")
    trim: Annotated[float, Field(ge=0, lt=0.5)] = Field(
        description="Part cut off at each end by FedTrimmedAvg."
    )
    malicious_clients: Annotated[Whole, Field(ge=0)] = Field(
        description="Malicious clients that MultiKrum expects."
    )


class FedProxSettings(_Table):
    """``[fedprox]`` (Li et al., MLSys 2020)."""

    mu: NonNegative = Field(description="Weight of mu/2 * ||w - w_global||^2.")


class MoonSettings(_Table):
    """``[moon]`` (Li, He, Song, CVPR 2021)."""

    mu: NonNegative = Field(description="Weight of the model-contrastive loss.")
    temperature: Positive = Field(description="Temperature tau of the contrastive loss.")
    buffer_size: Annotated[Whole, Field(ge=1, le=16)] = Field(
        description="Previous local models K that serve as negatives."
    )


class FedGenSettings(_Table):
    """``[fedgen]`` (Zhu, Hong, Zhou, ICML 2021)."""

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
    generator_learning_rate: Positive = Field(description="Learning rate of the generator's Adam.")
    generator_weight_decay: NonNegative = Field(description="Weight decay of the generator's Adam.")
    generator_learning_rate_decay: Decay = Field(
        description="Factor on the generator's learning rate per round."
    )
    server_steps: Annotated[Whole, Field(ge=1)] = Field(description="Generator steps per round.")
    server_batch_size: Annotated[Whole, Field(ge=2)] = Field(
        description="Batch of a generator step; at least 2, for its BatchNorm."
    )


class Settings(_Table):
    """All of a run's settings."""

    algorithm: str = Field(
        description="`fedavg`, `fedprox`, `moon`, `fedgen`, or a sum such as `moon+fedgen`."
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
        "the like may change."
    )
    data: DataSettings
    model: ModelSettings
    train: TrainSettings
    server: ServerSettings
    fedprox: FedProxSettings
    moon: MoonSettings
    fedgen: FedGenSettings

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
        return value

    @field_validator("experiment")
    @classmethod
    def _folder_name(cls, value: str) -> str:
        if value == RESERVED_NAME:
            raise ValueError("the state folder keeps prepared data under this name: choose another")
        return check_name(value, "experiment") if value else value

    @field_validator("resume")
    @classmethod
    def _resumed_by_name(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("experiment") == "":
            raise ValueError(
                "true needs the name of an experiment: experiment=NAME, a folder in the server's "
                "output folder"
            )
        return value


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn Flower's flat run config (``{"moon.mu": 1}``) into nested tables."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, leaf = key.split(".")
        node = tree
        for depth, table in enumerate(tables):
            below = node.setdefault(table, {})
            if not isinstance(below, dict):
                # "moon.mu.x" beside "moon.mu": kept whole, it is refused as an unknown setting.
                leaf = ".".join([*tables[depth:], leaf])
                break
            node = below
        node[leaf] = value
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested tables into dotted keys, the reverse of :func:`nested`."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value
    return leaves


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
        return Settings.model_validate(nested(run_config))
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
