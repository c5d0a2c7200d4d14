"""Trains and evaluates with a bare loop."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from plain.model import make_model

app = ClientApp()


def _examples() -> tuple[Tensor, Tensor]:
    with np.load(Path(os.environ["MOONFLOWER_DATA_DIR"]) / "train.npz") as file:
        return torch.from_numpy(file["x"]).float(), torch.from_numpy(file["y"]).long()


def _received(message: Message) -> nn.Module:
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train for some epochs."""
    began = time.perf_counter()
    torch.set_num_threads(1)
    model, (images, labels) = _received(message), _examples()
    config = context.run_config
    optimizer = torch.optim.SGD(model.parameters(), lr=float(config["learning-rate"]))
    for _ in range(int(config["local-epochs"])):
        for rows in torch.randperm(len(images)).split(int(config["batch-size"])):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
    metrics = {"num-examples": len(images), "train-seconds": time.perf_counter() - began}
    content = RecordDict(
        {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)}
    )
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Count what is right."""
    torch.set_num_threads(1)
    model, (images, labels) = _received(message), _examples()
    with torch.inference_mode():
        accuracy = float((model(images).argmax(1) == labels).float().mean())
    metrics = MetricRecord({"num-examples": len(images), "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
