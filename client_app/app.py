"""The ClientApp: messages in, messages out; no maths."""

from __future__ import annotations

import json
import platform
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor

from client_app.computation import Computation, check_computation
from client_app.error_replies import always_answered
from client_app.local_model import build_local_model, local_model_settings
from client_app.optimizer import build_optimizer
from client_app.state import LOCAL_MODEL, ClientState
from client_app.terms import Instruction, Term, build_terms
from client_app.training import train
from client_app.uplink import arrays_to_send
from common import logs, records
from common.config import Settings, SettingsError, parse_settings
from common.data import (
    ClientData,
    DataError,
    ExampleSet,
    Statistics,
    TrainBatches,
    data_spec,
    load_client_data,
    named_by_its_share,
)
from common.models import SplitModel, check_model, private_names
from common.node import Node
from common.schedules import learning_rate
from common.seeding import seeded_globally, torch_generator
from common.tasks import Sums, Task, build_task, put_sums
from common.wire import decode_model

app = ClientApp(mods=[always_answered])
log = logs.install()

_LOCK_SECONDS = 60.0
"""A former process of this client may still be writing when a restarted one begins."""


@app.query()
def on_query(message: Message, context: Context) -> Message:
    """Say who this client is, or why it can't take part."""
    answer = ConfigRecord(
        {
            records.CLIENT_NAME: "",
            records.CLIENT_LABELS: [],
            records.CLIENT_PARTITION: "",
            records.CLIENT_DEVICE: "",
            records.CLIENT_VERSIONS: _versions(),
            records.CLIENT_ERROR: "",
        }
    )
    try:
        node = Node.from_config(context.node_config)
        answer[records.CLIENT_NAME] = node.name
        if node.has_partition:
            answer[records.CLIENT_PARTITION] = f"{node.partition_id} of {node.num_partitions}"
        settings = parse_settings(context.run_config)
        node = named_by_its_share(node, settings)
        answer[records.CLIENT_NAME] = node.name
        check_model(local_model_settings(settings, node))
        check_computation(settings.train, node.device)
        data = load_client_data(settings, node)
        answer[records.CLIENT_LABELS] = data.label_counts.tolist()
        if data.moments:
            answer.update(records.moments_to_config(data.moments))
        answer[records.CLIENT_DEVICE] = str(node.device)
    except (SettingsError, DataError) as error:
        answer[records.CLIENT_ERROR] = str(error)
    return Message(RecordDict({records.CLIENT: answer}), reply_to=message)


@app.train()
def on_train(message: Message, context: Context) -> Message:
    """Train the global model on this client's data for one round."""
    began = time.perf_counter()
    client = _Client.open(message, context)
    settings = client.settings
    terms = build_terms(settings)
    with client.state.locked(_LOCK_SECONDS):
        computation = Computation.of(settings.train, client.node.device)
        model, received = client.load_model(before=client.server_round)
        model = computation.arrange(model)
        with computation.precision():
            for term in terms:
                term.begin(model, client.instruction)
        rate = learning_rate(settings.train, client.server_round)
        with client.dropout():
            metrics = train(
                build_task(settings, client.statistics),
                model,
                client.batches(),
                terms,
                build_optimizer(model, settings.train, rate),
                computation,
            )
        client.keep(model, terms)
        arrays = arrays_to_send(model, received, settings, client.state, client.server_round)
        content = RecordDict({records.ARRAYS: arrays})
        for term in terms:
            content.update(term.end(model))
    content[records.METRICS] = MetricRecord(
        {
            records.NUM_EXAMPLES: len(client.data.train),
            **metrics,
            records.TRAIN_SECONDS: time.perf_counter() - began,
        }
    )
    return client.reply(content)


@app.evaluate()
def on_evaluate(message: Message, context: Context) -> Message:
    """Evaluate the global model, with this client's own parts, on its evaluation examples.

    With ``server.evaluate-personal``, its own model too.
    """
    client = _Client.open(message, context)
    model, _ = client.load_model(before=client.server_round + 1)
    task = build_task(client.settings)
    content = RecordDict()
    put_sums(content, task.measure(model, client.data.evaluation), task)
    if client.settings.server.evaluate_personal:
        put_sums(content, client.measure_own_model(task, model), task, records.PERSONAL)
    return client.reply(content)


@dataclass(frozen=True)
class _Client:
    """One message's view of this client: nothing in it outlives the message."""

    settings: Settings
    node: Node
    server_round: int
    data: ClientData
    state: ClientState
    message: Message

    @classmethod
    def open(cls, message: Message, context: Context) -> _Client:
        settings = parse_settings(context.run_config)
        torch.set_num_threads(settings.train.cpu_threads)
        node = named_by_its_share(Node.from_config(context.node_config), settings)
        config = message.content.config_records[records.CONFIG]
        return cls(
            settings=settings,
            node=node,
            server_round=int(cast(int, config[records.ROUND])),
            data=load_client_data(settings, node, records.statistics_of(config)),
            state=ClientState(
                node.folders.state,
                str(config[records.EXPERIMENT]),
                node.name,
                str(config[records.EXPERIMENT_ID]),
                settings.server.keep_checkpoints,
            ),
            message=message,
        )

    def reply(self, content: RecordDict) -> Message:
        """Return ``content`` as the answer to this message, with the round that it answers."""
        content[records.REPLY] = ConfigRecord({records.ROUND: self.server_round})
        return Message(content, reply_to=self.message)

    @property
    def statistics(self) -> Statistics:
        """What the training examples of all sites together are like."""
        return records.statistics_of(self.message.content.config_records[records.CONFIG])

    @property
    def instruction(self) -> Instruction:
        counted = self.message.content.config_records.get(records.COUNTED, ConfigRecord())
        return Instruction(
            server_round=self.server_round,
            settings=self.settings,
            config=self.message.content.config_records[records.CONFIG],
            node=self.node,
            data=self.data,
            state=self.state,
            counted=int(cast(int, counted.get(records.ROUND, 0))),
        )

    def load_model(self, before: int) -> tuple[SplitModel, dict[str, Tensor]]:
        """Return the global model, with what is private to this client from its own disk.

        And the arrays that came, on the CPU, where the reply is to be a difference to them.
        """
        model = build_local_model(self.settings, self.node)
        state = model.state_dict()
        if private := private_names(model, self.settings.model):
            for own in self.state.kept(LOCAL_MODEL, before, like=state):
                state |= {name: own[name] for name in private}
        received = decode_model(self.message.content.array_records[records.ARRAYS], state)
        model.load_state_dict(state | received)
        # Where nothing is subtracted, spare the copy of a model.
        return model.to(self.node.device), received if self.settings.wire.dtype != "float32" else {}

    def measure_own_model(self, task: Task, model: SplitModel) -> Sums:
        """Return the sums of this client's own model, which is put into ``model``.

        Its personalised model: what its last training has made of the global one. Sums of no
        example where it has none yet, or none whose sums are finite: what is wrong with it must
        not count against the global one.
        """
        examples = self.data.evaluation
        for own in self.state.kept(LOCAL_MODEL, self.server_round + 1, like=model.state_dict()):
            model.load_state_dict(own)
            sums = task.measure(model, examples)
            if _is_finite(sums):
                return sums
            log.warning("this client's own model has no finite loss and is not reported")
        return task.measure(model, ExampleSet(examples.take(torch.arange(0)), examples.y[:0]))

    def batches(self) -> TrainBatches:
        settings, data = self.settings.train, self.settings.data
        return TrainBatches(
            self.data.train,
            batch_size=settings.batch_size,
            drop_last=settings.drop_last,
            epochs=settings.local_epochs,
            steps=settings.local_steps,
            generator=torch_generator(
                self.settings.seed, "batches", self.node.name, self.server_round
            ),
            augment=data_spec(data).kind.augmentation(data.augmentation),
        )

    def dropout(self) -> AbstractContextManager[None]:
        """Return the context of local training: dropout draws from torch's global generators."""
        return seeded_globally(
            self.settings.seed, "dropout", self.node.name, self.server_round, self.node.device
        )

    def keep(self, model: SplitModel, terms: list[Term]) -> None:
        """Keep the local model on disk, if anybody will ask for it.

        A term, the next round for a private part of it, or an evaluation of personal models.
        """
        has_private = bool(private_names(model, self.settings.model))
        asked = int(has_private or self.settings.server.evaluate_personal)
        wanted = max([asked, *(term.models_kept for term in terms)])
        if wanted:
            self.state.keep(LOCAL_MODEL, self.server_round, model.state_dict(), wanted)


def _is_finite(sums: Sums) -> bool:
    return all(bool(np.isfinite(value).all()) for value in sums.values())


def _versions() -> str:
    import flwr

    return json.dumps(
        {"python": platform.python_version(), "flwr": flwr.__version__, "torch": torch.__version__}
    )
