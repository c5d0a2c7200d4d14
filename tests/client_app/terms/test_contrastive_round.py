"""MOON's term over the rounds of one client."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from client_app.state import LOCAL_MODEL
from client_app.terms import Instruction
from client_app.terms.contrastive import Contrastive
from common.data import ClientData, ExampleSet
from common.data.arrays import Arrays
from common.data.examples import StoredExamples
from common.data.kinds import Image
from common.storage import write_tensors
from tests.client_app.terms.conftest import model_of, step_of

Make = Callable[..., Instruction]


def test_in_a_clients_first_round_the_term_and_its_gradient_are_zero(instruction: Make) -> None:
    model, now = model_of(1), instruction(1)
    term = Contrastive(now.settings.moon)
    term.begin(model, now)
    step = step_of(model, now.data, 0, 1, 2)
    penalty = term.penalty(step)
    assert penalty.item() == 0.0
    assert not penalty.requires_grad
    assert term.metrics()["sim-previous"].item() == 0.0


def test_with_a_previous_model_the_term_is_the_papers_and_has_a_gradient(
    instruction: Make,
) -> None:
    model, previous, now = model_of(1), model_of(2), instruction(2)
    term = Contrastive(now.settings.moon)
    now.state.keep(LOCAL_MODEL, 1, previous.state_dict())
    term.begin(model, now)
    with torch.no_grad():
        model.encoder[1].weight.add_(0.5)  # type: ignore[index,union-attr,operator]
    step = step_of(model, now.data, 3, 5)
    penalty = term.penalty(step)
    # By hand, example for example, from models frozen in eval mode.
    frozen_global, frozen_previous = model_of(1).eval(), previous.eval()
    losses = []
    for row, x in enumerate(step.x):
        similar = [
            F.cosine_similarity(step.z[row], frozen.encoder(x[None])[0], dim=0).item()
            for frozen in (frozen_global, frozen_previous)
        ]
        positive, negative = (math.exp(s / 0.5) for s in similar)
        losses.append(-math.log(positive / (positive + negative)))
    assert penalty.item() == pytest.approx(2.0 * sum(losses) / 2, rel=1e-5)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert step.z.grad is not None
    assert step.z.grad.abs().sum() > 0


def test_only_models_of_earlier_rounds_are_negatives(instruction: Make) -> None:
    model, now = model_of(1), instruction(3)
    for server_round in (1, 2, 3):
        now.state.keep(LOCAL_MODEL, server_round, model_of(server_round + 10).state_dict())
    term = Contrastive(now.settings.moon)
    term.begin(model, now)
    # Round 3 is on disk from an attempt that was broken off: round 2 is the newest earlier one.
    expected = model_of(12).eval().encoder(now.data.train.x)
    torch.testing.assert_close(term._frozen[1].encoder(now.data.train.x), expected)
    assert len(term._frozen) == 2


def test_the_buffer_gives_up_to_k_negatives_newest_first(instruction: Make) -> None:
    now = instruction(4, {"moon.buffer-size": 2})
    for server_round in (1, 2, 3):
        now.state.keep(LOCAL_MODEL, server_round, model_of(server_round + 10).state_dict())
    term = Contrastive(now.settings.moon)
    term.begin(model_of(1), now)
    negatives = [frozen.encoder(now.data.train.x) for frozen in term._frozen[1:]]
    for seed, negative in zip((13, 12), negatives, strict=True):
        torch.testing.assert_close(negative, model_of(seed).eval().encoder(now.data.train.x))


def test_representations_kept_for_the_round_are_those_of_every_batch(instruction: Make) -> None:
    penalties = []
    for augmentation in ("none", "crop-flip"):  # fixed inputs are looked up, others computed
        model, now = model_of(1), instruction(2, {"data.augmentation": augmentation})
        now.state.keep(LOCAL_MODEL, 1, model_of(2).state_dict())
        term = Contrastive(now.settings.moon)
        term.begin(model, now)
        penalties.append(term.penalty(step_of(model, now.data, 7, 0, 4)).item())
    assert penalties[0] == pytest.approx(penalties[1], rel=1e-6)
    assert penalties[0] > 0


def test_a_set_that_is_not_resident_is_seen_once_a_round_in_the_same_batches(
    instruction: Make,
) -> None:
    arrays = Arrays(
        np.random.default_rng(0).integers(0, 256, (700, 1, 2, 2), dtype=np.uint8),
        np.zeros(700, dtype=np.int64),
    )
    kind, rows = Image((1, 2, 2), (0.5,), (0.5,)), np.arange(700)
    stored = StoredExamples(arrays.x, rows, kind)
    y = torch.from_numpy(arrays.y)
    everything = kind.prepare(stored[torch.arange(700)])
    penalties, batches = [], []
    for examples in (ExampleSet(everything, y), ExampleSet(stored, y)):
        now = instruction(2)
        opened = lambda own=examples: own  # noqa: E731 (bound to this pass of the loop)
        data = ClientData(opened, opened, torch.tensor([700, 0, 0]))
        now.state.keep(LOCAL_MODEL, 1, model_of(2).state_dict())
        model, term, seen = model_of(1), Contrastive(now.settings.moon), list[int]()
        step = step_of(model, data, 699, 0, 600)
        # The frozen models are copies of the model, hooks included.
        model.encoder.register_forward_pre_hook(lambda _, x, seen=seen: seen.append(len(x[0])))
        term.begin(model, replace(now, data=data))
        penalties.append(term.penalty(step).item())
        batches.append(seen)
    # Two frozen models, 700 examples in batches of at most 512, and nothing in the step: what a
    # batch size does to the last bits, it does to both.
    assert batches == [[512, 512, 188, 188]] * 2
    assert penalties[0] == penalties[1] > 0


def test_the_frozen_models_learn_nothing_and_keep_their_statistics(instruction: Make) -> None:
    model, now = model_of(1), instruction(2, {"data.augmentation": "crop-flip"})
    now.state.keep(LOCAL_MODEL, 1, model_of(2).state_dict())
    term = Contrastive(now.settings.moon)
    term.begin(model, now)
    before = [{n: v.clone() for n, v in frozen.state_dict().items()} for frozen in term._frozen]
    term.penalty(step_of(model, now.data, 1, 2)).backward()  # type: ignore[no-untyped-call]
    for frozen, state in zip(term._frozen, before, strict=True):
        assert all(parameter.grad is None for parameter in frozen.parameters())
        assert all(torch.equal(value, state[name]) for name, value in frozen.state_dict().items())


@pytest.mark.parametrize("augmentation", ["none", "crop-flip"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_previous_model_that_has_diverged_does_not_spoil_training(
    instruction: Make, value: float, augmentation: str
) -> None:
    model, now = model_of(1), instruction(2, {"data.augmentation": augmentation})
    spoilt = {
        name: torch.full_like(t, value) if t.is_floating_point() else t
        for name, t in model_of(2).state_dict().items()
    }
    # As no client keeps it.
    write_tensors(now.state.folder / "round-000001.safetensors", spoilt, {"experiment-id": ""})
    term = Contrastive(now.settings.moon)
    term.begin(model, now)
    step = step_of(model, now.data, 0, 1, 2)
    penalty = term.penalty(step)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert penalty.isfinite()
    assert step.z.grad is not None
    assert step.z.grad.isfinite().all()


EMA = {"moon.previous": "ema", "moon.ema-decay": 0.75}


def play(instruction: Make, server_round: int, seed: int) -> Contrastive:
    """Let a client train in a round whose local model becomes the one of ``seed``."""
    now = instruction(server_round, EMA)
    term = Contrastive(now.settings.moon)
    term.begin(model_of(1), now)
    term.end(model_of(seed))
    return term


def test_the_average_of_all_local_models_is_the_one_negative(instruction: Make) -> None:
    for server_round in (1, 2, 3):
        play(instruction, server_round, seed=server_round + 10)
    now = instruction(4, EMA)
    term = Contrastive(now.settings.moon)
    term.begin(model_of(1), now)
    assert term.models_kept == 0
    # Each weighs 3/4 of the next one: 9, 12 and 16 parts of 37.
    states = [model_of(seed).state_dict() for seed in (11, 12, 13)]
    expected = {
        name: (9 * states[0][name] + 12 * states[1][name] + 16 * states[2][name]) / 37
        for name in states[0]
        if states[0][name].is_floating_point()
    }
    (negative,) = term._frozen[1:]
    for name, value in expected.items():
        torch.testing.assert_close(negative.state_dict()[name], value)
    # One file for each round that the server may go back by, and one for the newest.
    folder = now.state.folder
    assert len(list((folder / "moon").glob("round-*.safetensors"))) == 3
    assert not list(folder.glob("round-*.safetensors"))


def test_a_round_that_is_played_again_averages_the_same(instruction: Make) -> None:
    def kept() -> bytes:
        return (instruction(2).state.folder / "moon/round-000002.safetensors").read_bytes()

    play(instruction, 1, seed=11)
    play(instruction, 2, seed=12)
    once = kept()
    play(instruction, 2, seed=12)
    assert kept() == once
    play(instruction, 2, seed=13)
    assert kept() != once


def test_mu_and_temperature_are_those_of_the_round(instruction: Make) -> None:
    growing = {
        "moon.mu": 4.0,
        "moon.mu-start": 0.0,
        "moon.mu-rounds": 4,
        "moon.temperature-start": 1.0,
        "moon.temperature-rounds": 2,
    }
    penalties = []
    for settings in (growing, {"moon.mu": 1.0, "moon.temperature": 0.75}):
        now = instruction(2, settings)  # a quarter and half of the way
        now.state.keep(LOCAL_MODEL, 1, model_of(2).state_dict())
        term = Contrastive(now.settings.moon)
        term.begin(model_of(1), now)
        penalties.append(term.penalty(step_of(model_of(3), now.data, 0, 5)).item())
    assert penalties[0] == penalties[1] > 0
