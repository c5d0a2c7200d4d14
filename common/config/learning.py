"""What learns, and how: `[model]` and `[train]`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from common.config.learning_rate import LearningRateSettings
from common.config.settings_table import NonNegative, Table, Whole


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
