"""What is learned from, and what learns: `[data]`, `[model]` and `[train]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.config.names import is_folder_name
from common.config.table import Decay, Fraction, NonNegative, Positive, Table, Whole

SITE_SOURCES = ("folder", "npz")
"""Sources whose examples are the user's own."""

_IMAGE_SHAPE = r"^([1-9][0-9]{0,3}x[1-9][0-9]{0,3}x[1-9][0-9]{0,3})?$"


class DataSettings(Table):
    """``[data]``: which examples, and how simulated clients share them."""

    source: Literal["digits", "mnist", "fashion-mnist", "cifar10", "cifar100", "folder", "npz"] = (
        Field(
            description="Data set. `digits` is built in; `folder` and `npz` are your own, in each "
            "node's data folder."
        )
    )
    partition: Literal["iid", "dirichlet", "classes-per-client", "fedgen-official"] = Field(
        description="How clients with a partition id (all of a simulation) share the training set, "
        "built in or your own: evenly; by Dirichlet(alpha) per label with self-balancing (MOON, "
        "section 4.1); a fixed number of labels per client; or as FedGen's published code does "
        "(cap per label, then Dirichlet). A node without a partition id keeps all of its own data; "
        "a run that sets this is refused there."
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
        description="Part of its examples that a client keeps for validation. With a site's own "
        "data each example stays on its side when others come, and the part holds on average."
    )
    client_test: Literal["validation", "global", "official"] = Field(
        description="Evaluation protocol of the clients: `validation`, each its own validation "
        "split; `global`, the whole test set (FedGen paper); `official`, each its own share of the "
        "test examples whose labels it holds, with its own BatchNorm statistics (FedGen's code)."
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
        """Whether the examples are the user's own; a node without a partition holds all of its."""
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
        if len(set(names)) != len(names) or not all(is_folder_name(name) for name in names):
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


class ModelSettings(Table):
    """``[model]``: the network that is trained."""

    name: Literal["fedgen-cnn", "mlp", "moon-cnn", "resnet18", "resnet50"] = Field(
        description="Name in the model registry (common/models/registry.py)."
    )
    norm: Literal["batch", "group"] = Field(
        description="Normalisation of the ResNets and `fedgen-cnn`: batch, or group (8 channels a "
        "group, or all where there are fewer)."
    )
    projection_dim: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Size of MOON's projection head at the end of the encoder (the papers use "
        "256). 0: no head."
    )
    sharing: Literal["all", "predictor", "nothing"] = Field(
        description="What of the model is trained together: all of it, or only the predictor "
        "(FedGen paper, Table 4). Then each client's encoder stays on its disk, and a node may "
        "choose another model of the same latent size (`model-name` in its node config). With "
        "`nothing` every client trains alone from round to round (SOLO in the MOON paper)."
    )
    batch_norm_buffers: Literal["averaged", "local"] = Field(
        description="Whether BatchNorm's running statistics are averaged like weights, or never "
        "leave the client (FedGen's code)."
    )


class TrainSettings(Table):
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
    precision: Literal["float32", "bfloat16", "float16"] = Field(
        description="Of the local forward and backward computation; weights, losses and what "
        "travels stay float32. `bfloat16` also works on a CPU, which may be slower by it; "
        "`float16` needs a GPU, and its loss is scaled. Other bits than `float32`."
    )
    channels_last: bool = Field(
        description="Keep images and convolutions as batch x height x width x channels in memory, "
        "which is what GPUs' half-precision convolutions want. Other bits."
    )
