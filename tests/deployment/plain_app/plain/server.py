"""Flower's own FedAvg in Flower's own loop; prints the seconds of each round."""

from __future__ import annotations

import itertools
import json
import time

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from plain.model import make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    clients, rounds = int(context.run_config["min-clients"]), int(context.run_config["num-rounds"])
    moments: list[float] = []

    def stamp(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        moments.append(time.monotonic())
        return MetricRecord({"round": server_round})

    result = FedAvg(
        min_train_nodes=clients, min_evaluate_nodes=clients, min_available_nodes=clients
    ).start(grid, ArrayRecord(make_model().state_dict()), num_rounds=rounds, evaluate_fn=stamp)
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    training = [
        float(result.train_metrics_clientapp[number]["train-seconds"])
        for number in range(1, rounds + 1)
    ]
    print("ROUNDS " + json.dumps({"seconds": seconds, "training": training}), flush=True)
