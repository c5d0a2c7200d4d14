"""One client with made-up images, and a round of it by the app and by a bare loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from flwr.app import ConfigRecord
from torch import Tensor

from client_app.computation import Computation
from client_app.optimizer import build_optimizer
from client_app.state import LOCAL_MODEL, ClientState
from client_app.terms import Instruction, build_terms
from client_app.training import train
from common import records
from common.config import Settings, SettingsError, parse_settings
from common.data import ClientData, ExampleSet, TrainBatches, data_spec
from common.generator import Generator, build_generator, generator_to_bytes
from common.models import SplitModel, build_model
from common.node import Folders, Node
from common.schedules import scheduled
from common.seeding import torch_generator
from common.tasks import build_task
from scripts.moonflower.repository import default_run_config
from scripts.moonflower.research.benchmark import bare
from scripts.moonflower.research.benchmark.sizes import Sizes
from scripts.moonflower.run_config import read_preset

_ROUND = 2
_CLIENT = "client-0000"


@dataclass(frozen=True)
class Client:
    """One client with made-up images: how long a step takes doesn't depend on their values.

    Attributes
    ----------
    settings : Settings
    node : Node
    x, y : Tensor
        Its examples, on the node's device.
    model, previous : SplitModel
        The global model, and this client's of the round before.
    generator : Generator
        In eval mode, without gradients.
    state : ClientState
        Holds ``previous``.
    """

    settings: Settings
    node: Node
    x: Tensor
    y: Tensor
    model: SplitModel
    previous: SplitModel
    generator: Generator
    state: ClientState

    @property
    def prior(self) -> Tensor:
        """All labels alike, float ``[classes]``."""
        return torch.full((self.model.outputs,), 1 / self.model.outputs, device=self.x.device)

    def numbers(self) -> ConfigRecord:
        """Return what FedGen's wrapper would send."""
        return ConfigRecord(
            {
                records.FEDGEN_PRIOR: self.prior.tolist(),
                records.FEDGEN_GENERATOR: generator_to_bytes(self.generator),
            }
        )

    def random(self, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
        """Return the app's generator for ``purpose`` in this round."""
        return torch_generator(self.settings.seed, purpose, _CLIENT, _ROUND, device)


@contextmanager
def open_client(settings: Settings, examples: int, device: torch.device) -> Iterator[Client]:
    """Make a client for the block, with a folder for its state.

    Raises
    ------
    SettingsError
        A batch has more examples than the client: the bare loops know whole batches only.
    """
    if settings.train.batch_size > examples:
        raise SettingsError(
            f"train.batch-size={settings.train.batch_size} is more than the client's {examples} "
            "examples: raise --examples, or make batches smaller"
        )
    spec = data_spec(settings.data)
    random = torch.Generator().manual_seed(0)
    x = torch.randn(examples, *spec.kind.shape, generator=random).to(device)
    y = torch.randint(spec.targets.outputs, (examples,), generator=random).to(device)
    model, previous = (
        build_model(settings.model, spec, settings.seed + number).to(device) for number in (0, 1)
    )
    generator = build_generator(settings.fedgen, model.outputs, model.latent_dim, settings.seed).to(
        device
    )
    with TemporaryDirectory() as folder:
        state = ClientState(Path(folder), "benchmark", _CLIENT)
        state.keep(LOCAL_MODEL, _ROUND - 1, previous.state_dict())
        node = Node(_CLIENT, 0, 1, device, Folders(Path(folder), Path(folder), Path(folder)))
        generator.eval().requires_grad_(requires_grad=False)
        yield Client(settings, node, x, y, model, previous, generator, state)


def app_round(
    client: Client, model: SplitModel, *, begun_with: Settings | None = None
) -> dict[str, float]:
    """Train ``model`` in place as the ClientApp does, from the instruction to the metrics.

    Parameters
    ----------
    client : Client
    model : SplitModel
        A copy of the global one.
    begun_with : Settings, optional
        Settings that the terms see instead of the client's.
    """
    settings = client.settings
    examples = ExampleSet(client.x, client.y)
    counts = torch.bincount(client.y, minlength=model.outputs).cpu()
    data = ClientData(lambda: examples, lambda: examples, counts)
    instruction = Instruction(
        _ROUND, begun_with or settings, client.numbers(), client.node, data, client.state
    )
    terms = build_terms(settings)
    computation = Computation.of(settings.train, client.node.device)
    computation.arrange(model)
    with computation.precision():
        for term in terms:
            term.begin(model, instruction)
    return train(
        build_task(settings),
        model,
        app_batches(client, examples),
        terms,
        build_optimizer(model, settings.train, settings.train.learning_rate),
        computation,
    )


def app_batches(client: Client, examples: ExampleSet) -> TrainBatches:
    """Return the app's batches of this round."""
    settings, data = client.settings.train, client.settings.data
    return TrainBatches(
        examples,
        batch_size=settings.batch_size,
        drop_last=settings.drop_last,
        epochs=settings.local_epochs,
        steps=settings.local_steps,
        generator=client.random("batches"),
        augment=data_spec(data).kind.augmentation(data.augmentation),
    )


def plan_of(client: Client) -> bare.Plan:
    """Return the same round for a bare loop."""
    settings = client.settings.train
    steps = len(app_batches(client, ExampleSet(client.x, client.y)))
    return bare.Plan(
        steps=steps,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        augmented=client.settings.data.augmentation != "none",
    )


def bare_moon(client: Client, model: SplitModel, *, once: bool) -> float:
    """Train ``model`` in place by MOON's bare loop; return the mean loss."""
    return bare.moon(
        model,
        client.previous,
        client.x,
        client.y,
        plan_of(client),
        client.random("batches"),
        mu=client.settings.moon.mu,
        temperature=client.settings.moon.temperature,
        once=once,
    )


def bare_fedgen(client: Client, model: SplitModel) -> float:
    """Train ``model`` in place by FedGen's bare loop; return the mean loss."""
    fedgen = client.settings.fedgen
    return bare.fedgen(
        model,
        client.generator,
        client.x,
        client.y,
        plan_of(client),
        client.random("batches"),
        client.random("fedgen", client.x.device),
        prior=client.prior,
        generated=fedgen.batch_size,
        alpha=scheduled(fedgen.alpha, fedgen.decay, _ROUND),
        beta=scheduled(fedgen.beta, fedgen.decay, _ROUND),
    )


def settings_of(preset: str, sizes: Sizes, overrides: Mapping[str, Any]) -> Settings:
    """Return a paper's settings with the benchmark's on top."""
    return parse_settings(
        default_run_config()
        | read_preset(preset)
        | {"train.cpu-threads": sizes.threads}
        | dict(overrides)
        | sizes.settings
    )
