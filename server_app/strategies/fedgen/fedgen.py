"""FedGen on the server (Zhu, Hong, Zhou, ICML 2021, Algorithm 1)."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Mapping

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from common import records
from common.config import FedGenSettings, WireDtype
from common.generator import build_generator, generator_to_bytes
from common.logs import NAME
from common.models import SplitModel
from common.schedules import scheduled
from common.seeding import torch_generator
from server_app.replies.checks import malformed_label_counts, wrong_label_counts
from server_app.strategies.fedgen.teacher import build_teacher, train_generator
from server_app.strategies.wrapper import Clients, Wrapper

_HEAD = "predictor."
# Beginnings of names in the saved state.
_GENERATOR, _ADAM, _COUNTS, _TRAINED = "generator.", "adam.", "counts.", "trained"
_log = logging.getLogger(NAME)


class FedGen(Wrapper):
    """Train a generator on the clients' heads each round and ship it with the next instruction.

    Parameters
    ----------
    strategy : Strategy
        Aggregates the models.
    settings : FedGenSettings
    model : SplitModel
        For its shape: the predictor that heads are loaded into.
    clients : Clients
        Names, and label counts before a client's first reply.
    seed : int
    device : torch.device
    most_drawn : callable, optional
        With ``label-counts`` ``drawn``: how many examples a client with so many may draw in a
        round. None: clients count all their examples.
    wire_dtype : {"float32", "float16", "int8"}
        How the generator travels.
    """

    def __init__(
        self,
        strategy: Strategy,
        settings: FedGenSettings,
        model: SplitModel,
        clients: Clients,
        seed: int,
        device: torch.device,
        most_drawn: Callable[[int], int] | None = None,
        wire_dtype: WireDtype = "float32",
    ) -> None:
        super().__init__(strategy)
        self._most_drawn, self._wire_dtype = most_drawn, wire_dtype
        self._settings, self._clients = settings, clients
        self._seed, self._device = seed, device
        self._student = copy.deepcopy(model.predictor).to(device)
        self._num_classes = model.outputs
        self._generator = build_generator(settings, model.outputs, model.latent_dim, seed).to(
            device
        )
        self._optimizer = torch.optim.Adam(
            self._generator.parameters(),
            lr=settings.generator_learning_rate,
            weight_decay=settings.generator_weight_decay,
        )
        self._counts: dict[str, Tensor] = {}
        self._trained = False

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Add the generator and the prior to the config."""
        config[records.FEDGEN_PRIOR] = self._label_prior().tolist()
        if self._trained and server_round >= self._settings.start_round:
            config[records.FEDGEN_GENERATOR] = generator_to_bytes(self._generator, self._wire_dtype)
        self._student.load_state_dict(self._head(arrays))
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take the label counts out, aggregate inside, and train the generator on the heads."""
        usable, heads, counts = [], [], []
        for reply in replies:
            taken = self._take_counts(reply)
            if taken is not None:
                usable.append(reply)
                counts.append(taken)
                heads.append(
                    self._head(records.of_type(reply.content, ArrayRecord)[records.ARRAYS])
                )
        arrays, metrics = super().aggregate_train(server_round, usable)
        if arrays is not None and metrics is not None:
            for name, value in self._train(server_round, heads, torch.stack(counts)).items():
                metrics[name] = value
            metrics[records.LABEL_PRIOR] = self._label_prior().tolist()
        return arrays, metrics

    def why_not(self, client: str, reply: Message) -> str:
        """Return why the reply's label counts can't be those of ``client``, or ""."""
        held = self._clients.label_counts()[client]
        num_examples = records.num_examples(reply)
        most_drawn = self._most_drawn(num_examples) if self._most_drawn else None
        return wrong_label_counts(_counts_in(reply), held, num_examples, most_drawn)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the generator, Adam's moments, and every client's newest label counts."""
        state = {f"{_GENERATOR}{name}": t for name, t in self._generator.state_dict().items()}
        for index, moments in self._optimizer.state_dict()["state"].items():
            state |= {f"{_ADAM}{index}.{name}": tensor for name, tensor in moments.items()}
        state |= {f"{_COUNTS}{name}": counts for name, counts in self._counts.items()}
        return {**state, _TRAINED: torch.tensor(self._trained)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put :meth:`state_dict` back; learning rates follow from the round."""
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in _below(_ADAM, state).items():
            index, _, name = key.partition(".")
            moments.setdefault(int(index), {})[name] = tensor
        self._generator.load_state_dict(_below(_GENERATOR, state))
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        counts = _below(_COUNTS, state)
        self._counts = {name: tensor.to(self._device) for name, tensor in counts.items()}
        self._trained = bool(state[_TRAINED])

    def _train(
        self, server_round: int, heads: list[dict[str, Tensor]], counts: Tensor
    ) -> dict[str, float]:
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = scheduled(
                settings.generator_learning_rate,
                settings.generator_learning_rate_decay,
                server_round,
            )
        before = {name: tensor.clone() for name, tensor in self.state_dict().items()}
        self._trained = True
        losses = train_generator(
            self._generator,
            self._optimizer,
            build_teacher(settings, self._student, heads, counts),
            self._student,
            self._teachable_labels(counts),
            settings,
            torch_generator(self._seed, "generator", "", server_round, self._device),
        )
        if not all(tensor.isfinite().all() for tensor in self._generator.state_dict().values()):
            _log.warning(
                "round %d: training the generator on this round's heads led to NaN or infinity; it "
                "stays as it was before. If this goes on, lower fedgen.generator-learning-rate, or "
                "bound what a client may send with server.max-update-norm",
                server_round,
            )
            self.load_state_dict(before)
        return losses

    def _head(self, arrays: ArrayRecord) -> dict[str, Tensor]:
        return {
            name.removeprefix(_HEAD): torch.from_numpy(array.numpy().copy()).to(self._device)
            for name, array in arrays.items()
            if name.startswith(_HEAD)
        }

    def _take_counts(self, reply: Message) -> Tensor | None:
        """Take the label counts out of a reply; None, with a warning, if they are unusable."""
        name = self._clients.name_of(reply.metadata.src_node_id)
        counts = _counts_in(reply)
        reply.content.pop(records.LABEL_COUNTS, None)
        problem = malformed_label_counts(counts, self._num_classes)
        if problem:
            _log.warning("%s: left out, %s", name, problem)
            return None
        self._counts[name] = torch.tensor(counts, device=self._device)
        return self._counts[name]

    def _label_prior(self) -> Tensor:
        """Return p^(y) for the clients' generated batches, float ``[classes]``."""
        at_start = self._clients.label_counts()
        held = sum(
            (torch.tensor(counts, device=self._device) for counts in at_start.values()),
            start=torch.zeros(self._num_classes, device=self._device),
        )
        if self._settings.labels == "uniform":
            seen = (held > 0).float()
            return seen / seen.sum()
        known = sum(
            (
                self._counts.get(name, torch.tensor(counts, device=self._device))
                for name, counts in at_start.items()
            ),
            start=torch.zeros(self._num_classes, device=self._device),
        )
        return known / known.sum()

    def _teachable_labels(self, counts: Tensor) -> Tensor:
        """Return from where the generator's own training draws labels, float ``[classes]``.

        The paper: p^(y). The published code: uniform over the labels that a client of this
        round has drawn (its counts start at 1, so more than 1).
        """
        if self._settings.labels == "prior":
            return self._label_prior()
        floor = 1 if self._settings.label_counts == "drawn" else 0
        seen = (counts.max(dim=0).values > floor).float()
        return seen / seen.sum()


def _counts_in(reply: Message) -> object:
    record = reply.content.get(records.LABEL_COUNTS)
    return record.get("counts") if isinstance(record, ConfigRecord) else None


def _below(prefix: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name[len(prefix) :]: t for name, t in state.items() if name.startswith(prefix)}
