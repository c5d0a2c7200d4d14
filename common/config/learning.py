"""What learns, and how: `[model]` and `[train]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.config.learning_rate import LearningRateSettings
from common.config.names import check_name
from common.config.settings_table import NonNegative, Table, Whole


class ModelSettings(Table):
    """``[model]``: the network that is trained."""

    name: Literal[
        "char-lstm",
        "cnn1d",
        "fedgen-cnn",
        "hf-encoder",
        "lstm",
        "mlp",
        "moon-cnn",
        "resnet18",
        "resnet50",
        "tab-transformer",
        "text-bag",
        "text-transformer",
    ] = Field(
        description="Name in the model registry (common/models/registry.py). Of texts: `text-bag`, "
        "`lstm`, `text-transformer`, `hf-encoder`, and `char-lstm` for the next character."
    )
    folder: str = Field(
        description="Of `hf-encoder`: the name of a folder with config.json and model.safetensors, "
        "in MOONFLOWER_MODELS_DIR (~/.moonflower/models) of every machine."
    )
    folder_sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = Field(
        description="Of that folder, compared by every machine: what `sha256sum config.json "
        "model.safetensors | sha256sum` says there."
    )
    freeze_layers: Annotated[Whole, Field(ge=0)] = Field(
        description="Of `hf-encoder`: embeddings and as many layers after them stay as they are. "
        "0: all is trained."
    )
    norm: Literal["batch", "group"] = Field(
        description="Normalisation of the ResNets, `fedgen-cnn` and `cnn1d`: batch, or group (8 "
        "channels a group, or all where there are fewer)."
    )
    projection_dim: Annotated[Whole, Field(ge=0, le=65536)] = Field(
        description="Size of MOON's projection head at the end of the encoder (the papers use "
        "256). 0: no head."
    )
    predictor_layers: Annotated[Whole, Field(ge=1, le=3)] = Field(
        description="Linear layers of the predictor: where encoder and predictor meet. 1: z is "
        "what the last layer reads (`latent_layer_idx` -1 in FedGen's code); 2: what the one "
        "before it reads (-2). MOON contrasts the same z. ResNets have only the last one, and "
        "those of a projection head."
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

    # Validators of fields: those of the table would not run while a field is wrong.
    @field_validator("folder")
    @classmethod
    def _a_folder_of_the_encoder(cls, value: str, info: ValidationInfo) -> str:
        name = info.data.get("name")
        if value and name not in ("hf-encoder", None):
            raise ValueError(f"model {name!r} is built from nothing: leave it empty")
        if name == "hf-encoder":
            # It names a folder on other people's machines.
            check_name(value, "model.folder")
        return value

    @field_validator("folder_sha256")
    @classmethod
    def _of_a_folder(cls, value: str, info: ValidationInfo) -> str:
        folder = info.data.get("folder")
        if folder is not None and bool(folder) != bool(value):
            raise ValueError("model.folder and model.folder-sha256 go together: give both, or none")
        return value

    @field_validator("freeze_layers")
    @classmethod
    def _layers_of_the_encoder(cls, value: int, info: ValidationInfo) -> int:
        name = info.data.get("name")
        if value and name not in ("hf-encoder", None):
            raise ValueError(f"only of 'hf-encoder' layers can be frozen, not of {name!r}")
        return value


class TrainSettings(LearningRateSettings):
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
