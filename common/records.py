"""The name of every record and key that crosses the wire.

Beside them only what terms report: each under its own name and those of ``Term.metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar, cast

import numpy as np
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)

from common.config import SERVER_ONLY, ModelSettings
from common.data import Moments, Statistics
from common.models import SplitModel, private_names

Record = TypeVar("Record", ArrayRecord, MetricRecord, ConfigRecord)

QUERY = MessageType.QUERY
TRAIN = MessageType.TRAIN
EVALUATE = MessageType.EVALUATE

# Records of an instruction and of a reply
ARRAYS = "arrays"
CONFIG = "config"
METRICS = "metrics"
LABEL_COUNTS = "label-counts"
"""ConfigRecord that FedGen's term adds to a train reply: {"counts": list[int]}."""
REPLY = "reply"
"""ConfigRecord of every train and evaluate reply: {ROUND: int}, the round it answers."""
SUMS = "sums"
"""ConfigRecord of an evaluation reply: long lists of whole numbers (``Task.counts``), packed
(:mod:`common.packed`)."""
COUNTED = "counted"
"""ConfigRecord of an instruction: {ROUND: int}, the last round of this client's whose reply was
used; 0 before any. Only where an algorithm asks for it."""
CLIENT = "client"
"""ConfigRecord that answers a query, with the CLIENT_* keys below."""

# Beside the arrays of the model
SCALES = ":scales"
"""Array of an int8 reply: float32 ``[n]``, a scale for each int8 array in the order of the model.

A colon is in no name of PyTorch's. One array for all, since each has a header of 128 bytes.
"""

# Keys of CONFIG in every instruction (ROUND also of REPLY)
ROUND = "round"
EXPERIMENT = "experiment"
EXPERIMENT_ID = "experiment-id"
"""Made once per experiment: state of an earlier one of the same name is not taken for its own."""

STATISTICS_MEAN = "statistics.mean"
"""Over all sites, list[float] by column, where the kind of data is standardised; so the next
(:class:`common.data.Statistics`)."""
STATISTICS_STD = "statistics.std"
STATISTICS_LABELS = "statistics.label-counts"
"""Training examples of each class at all sites, list[int]; absent unless ``task.class-weights``
asks for them."""

# Keys of METRICS; a task adds its own (``Task.loss_name``, ``Task.sums``)
NUM_EXAMPLES = "num-examples"
STEPS = "steps"
"""Optimiser steps of a client in a round."""
LOSS = "loss"
TRAIN_SECONDS = "train-seconds"
LABEL_PRIOR = "label-prior"
"""Not in a reply, but in a round's train metrics: FedGen's p^(y), list[float]."""
TERM_METRICS = {
    "moon": ("sim-global", "sim-previous"),
    "fedgen": ("generated-cross-entropy", "generated-kl"),
}
"""What a term reports besides its penalty, which stands under the algorithm's name."""

PERSONAL = "personal-"
"""Begins the names of the sums that a client's own model gets beside the global one's
(``server.evaluate-personal``); zeros where it has none yet."""

# Keys of CLIENT
CLIENT_NAME = "name"
CLIENT_LABELS = "examples-per-label"
CLIENT_PRESENT = "present-per-column"
"""Where the kind of data is standardised: training examples that have a value in each column; so
the next two (:class:`common.data.Moments`)."""
CLIENT_SUMS = "sums-per-column"
CLIENT_SQUARES = "squares-per-column"
CLIENT_PARTITION = "partition"
"""Share of a partitioned data set, as "3 of 10"; empty for a site with data of its own."""
CLIENT_DEVICE = "device"
CLIENT_VERSIONS = "versions"
CLIENT_ERROR = "error"
"""Why this node can't take part; empty where it can."""

# Keys of CONFIG that an algorithm's wrapper adds
SCAFFOLD_C = "scaffold.c"
"""The server's control variate (:mod:`common.second_model`); absent while it is zero."""
FEDGEN_GENERATOR = "fedgen.generator"
"""Weights and buffers as safetensors bytes; absent before ``fedgen.start-round``."""
FEDGEN_PRIOR = "fedgen.prior"
"""Probability of each label in a generated batch, list[float] of length num_classes."""


def train_metrics(task_loss: str, algorithms: Iterable[str]) -> list[str]:
    """Return the metrics of every train reply besides ``num-examples``; each is one number.

    The server takes no others: Flower's aggregators end a run on replies whose metrics differ.
    ``task_loss`` is the name of the task's own loss.
    """
    terms = [
        name
        for each in algorithms
        if each not in SERVER_ONLY
        for name in (each, *TERM_METRICS.get(each, ()))
    ]
    return [LOSS, task_loss, *terms, STEPS, TRAIN_SECONDS]


def moments_to_config(moments: Moments) -> dict[str, list[int] | list[float]]:
    """Return what a client adds to its answer to a query."""
    return {
        CLIENT_PRESENT: list(moments.present),
        CLIENT_SUMS: list(moments.sums),
        CLIENT_SQUARES: list(moments.squares),
    }


def statistics_to_config(statistics: Statistics) -> dict[str, list[int] | list[float]]:
    """Return what the server adds to CONFIG; nothing of what is empty."""
    config: dict[str, list[int] | list[float]] = {}
    if statistics.mean:
        config[STATISTICS_MEAN], config[STATISTICS_STD] = (
            list(statistics.mean),
            list(statistics.std),
        )
    if statistics.label_counts:
        config[STATISTICS_LABELS] = list(statistics.label_counts)
    return config


def statistics_of(config: ConfigRecord) -> Statistics:
    """Return what :func:`statistics_to_config` was given."""
    mean, std = (
        tuple(cast(list[float], config.get(key, []))) for key in (STATISTICS_MEAN, STATISTICS_STD)
    )
    labels = tuple(cast(list[int], config.get(STATISTICS_LABELS, [])))
    return Statistics(mean, std, labels)


def to_arrays(state: Mapping[str, torch.Tensor]) -> ArrayRecord:
    """Pack named tensors; order, names, shapes and dtypes are kept."""
    return ArrayRecord(
        {name: Array(tensor.detach().cpu().numpy()) for name, tensor in state.items()}
    )


def to_tensors(arrays: ArrayRecord) -> dict[str, torch.Tensor]:
    """Unpack an ArrayRecord into CPU tensors that own their memory."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}


def shared_state(model: SplitModel, settings: ModelSettings) -> dict[str, torch.Tensor]:
    """Return the part of the state dict that travels: all but what is private to a client."""
    private = private_names(model, settings)
    return {name: tensor for name, tensor in model.state_dict().items() if name not in private}


def like(arrays: ArrayRecord, reference: ArrayRecord) -> ArrayRecord:
    """Return ``arrays`` with the dtypes of ``reference``.

    Flower's aggregators turn an integer such as BatchNorm's ``num_batches_tracked`` into
    float64; integers are rounded back to the nearest.
    """
    restored = {}
    for name, array in arrays.items():
        wanted = np.dtype(reference[name].dtype)
        values = array.numpy()
        if values.dtype != wanted:
            values = np.rint(values) if np.issubdtype(wanted, np.integer) else values
            values = values.astype(wanted)
        restored[name] = Array(np.asarray(values))
    return ArrayRecord(restored)


def size_in_bytes(messages: Iterable[Message]) -> int:
    """Return the bytes of all arrays and of all bytes values in the contents of ``messages``."""
    total = 0
    for message in messages:
        if not message.has_content():
            continue
        for arrays in of_type(message.content, ArrayRecord).values():
            total += sum(len(array.data) for array in arrays.values())
        for config in of_type(message.content, ConfigRecord).values():
            total += sum(len(value) for value in config.values() if isinstance(value, bytes))
    return total


def metrics_of(reply: Message) -> MetricRecord:
    """Return the metrics of an admitted reply."""
    return of_type(reply.content, MetricRecord)[METRICS]


def num_examples(reply: Message) -> int:
    """Return how many examples an admitted reply stands for."""
    return int(cast(int, metrics_of(reply)[NUM_EXAMPLES]))


def of_type(content: RecordDict, kind: type[Record]) -> dict[str, Record]:
    """Return the records of one type by name.

    ``RecordDict.array_records`` gives the same, but as a view that refers to itself: a whole
    model would stay in memory until the garbage collector runs.
    """
    return {name: record for name, record in content.items() if isinstance(record, kind)}
