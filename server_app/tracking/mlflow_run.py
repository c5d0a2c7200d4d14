"""MLflow: a run of an MLflow experiment, on a server or in a database file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from server_app.tracking.destination import Moments, Source
from server_app.tracking.numbers import Line, Number, numbers_of

T = TypeVar("T")

EXPERIMENT = "moonflower"
DATABASE = "mlflow.db"
ID_TAG = "moonflower.id"

MARK = "seconds/total"
"""Written last of a round: where it is, the whole round is. No two playings take equally long."""

METRICS_A_CALL, PARAMETERS_A_CALL, PARAMETER_LENGTH = 1000, 100, 6000
"""What MLflow takes at a time."""


def tracking_uri(source: Source) -> str:
    """Return where to write: ``--out``, MLflow's own variable, or a file beside the experiments.

    A folder stands for a database file in it: MLflow's store of plain files is on its way out.
    """
    chosen = source.out or os.environ.get("MLFLOW_TRACKING_URI") or str(source.folder.parent)
    if "://" in chosen or chosen == "databricks":
        return chosen
    folder = Path(chosen).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / DATABASE}"


class MlflowRun:
    """One MLflow run per experiment, found again by the experiment's id."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._run = ""

    @property
    def where(self) -> str:
        """The server's or the database's URI."""
        return tracking_uri(self._source)

    def open(self, lines: Iterable[Line]) -> None:
        """Find the experiment's run or make it, and write the rounds that it lacks.

        A run that holds rounds which were taken back or played anew since is deleted (MLflow keeps
        it until ``mlflow gc``) and written again: MLflow can't take a number back.
        """
        self._client = MlflowClient(tracking_uri=tracking_uri(self._source))
        self._moments = Moments(self._source)
        wanted = list(lines)
        experiment = self._experiment()
        found = self._client.search_runs(
            [experiment], f"tags.`{ID_TAG}` = '{self._source.experiment_id}'"
        )
        known: dict[int, float] = {}
        for run in found:
            self._run = run.info.run_id
            written = self._written()
            if written is not None and written.items() <= _marks(wanted).items():
                self._client.update_run(self._run, status="RUNNING")
                known = written
                break
            self._client.delete_run(self._run)
        else:
            self._run = self._begin(experiment)
        for line in wanted:
            self._put(line, known=line["round"] in known)

    def add(self, line: Line) -> None:
        """Write a round."""
        self._put(line, known=False)

    def close(self, *, finished: bool) -> None:
        """Say how the run ended."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")

    def _experiment(self) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found else self._client.create_experiment(name))

    def _begin(self, experiment: str) -> str:
        tags = {ID_TAG: self._source.experiment_id, "mlflow.runName": self._source.name}
        started = int(self._source.begun() * 1000) or None
        run = str(self._client.create_run(experiment, started, tags).info.run_id)
        parameters = [
            Param(key, value[:PARAMETER_LENGTH]) for key, value in self._source.parameters().items()
        ]
        for part in _parts(parameters, PARAMETERS_A_CALL):
            self._client.log_batch(run, params=part)
        return run

    def _written(self) -> dict[int, float] | None:
        """Return the mark of every round that is there; None where a round is there twice."""
        history = self._client.get_metric_history(self._run, MARK)
        marks = {metric.step: metric.value for metric in history}
        return marks if len(marks) == len(history) else None

    def _put(self, line: Line, *, known: bool) -> None:
        # The same moment whenever it is tried: MLflow knows a number by it that was written before
        # its answer got lost.
        moment = int(self._moments.of(line) * 1000)
        if known:
            return
        numbers = sorted(numbers_of(line), key=lambda number: number.name == MARK)
        metrics = [Metric(*_named(number), moment, number.step) for number in numbers]
        for part in _parts(metrics, METRICS_A_CALL):
            self._client.log_batch(self._run, metrics=part)


def _named(number: Number) -> tuple[str, float]:
    return number.name, number.value


def _marks(lines: Sequence[Line]) -> dict[int, float]:
    return {line["round"]: float(line["seconds"]["total"]) for line in lines}


def _parts(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most so many."""
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part
