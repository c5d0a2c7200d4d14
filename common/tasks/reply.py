"""What a client has measured, in the records of its reply."""

from __future__ import annotations

from typing import cast

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from common import records
from common.packed import pack, unpack
from common.tasks.base import Counts, Sum, Sums, Task

MOST = 2**40
"""Largest count: no data set has more examples."""


def put_sums(content: RecordDict, sums: Sums, task: Task, which: str = "") -> None:
    """Add what was measured to an evaluation reply: numbers and short lists, and packed counts.

    Parameters
    ----------
    content : RecordDict
    sums : Sums
    task : Task
    which : str
        Begins their names; :data:`common.records.PERSONAL` for those of the client's own model.
    """
    metrics = records.of_type(content, MetricRecord).get(records.METRICS, MetricRecord())
    for name in (records.NUM_EXAMPLES, *task.sums):
        metrics[f"{which}{name}"] = cast(float, sums[name])
    content[records.METRICS] = metrics
    if task.counts:
        packed = records.of_type(content, ConfigRecord).get(records.SUMS, ConfigRecord())
        for name in task.counts:
            packed[f"{which}{name}"] = pack(cast(Counts, sums[name]))
        content[records.SUMS] = packed


def sums_of(content: RecordDict, task: Task, which: str = "") -> Sums:
    """Return what a client has measured; the metrics have passed admission.

    Raises
    ------
    PackedError
        Its counts are not those of this task.
    """
    metrics = records.of_type(content, MetricRecord)[records.METRICS]
    short = (records.NUM_EXAMPLES, *task.sums)
    sums = {name: cast(Sum, metrics[f"{which}{name}"]) for name in short}
    packed = records.of_type(content, ConfigRecord).get(records.SUMS, ConfigRecord())
    return {
        **sums,
        **{
            name: unpack(packed.get(f"{which}{name}"), size, MOST)
            for name, size in task.counts.items()
        },
    }
