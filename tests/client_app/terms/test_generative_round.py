"""FedGen's term over the rounds of one client."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from client_app.terms import Instruction
from client_app.terms.generative import Generative
from common import records
from common.generator import Generator, build_generator, generator_to_bytes
from tests.client_app.terms.conftest import model_of, step_of
from tests.settings import make_settings

Make = Callable[..., Instruction]
SMALL = {"fedgen.noise-dim": 2, "fedgen.hidden-dim": 5, "fedgen.batch-size": 16}


def sent_generator(value: float = 1.0) -> Generator:
    """Return a generator whose output is ``value`` everywhere."""
    generator = build_generator(make_settings(**SMALL).fedgen, 3, 6, seed=9)
    torch.nn.init.zeros_(generator.output.weight)
    torch.nn.init.constant_(generator.output.bias, value)
    return generator


def test_before_a_generator_comes_the_term_is_zero(instruction: Make) -> None:
    model, term, now = model_of(1), Generative(), instruction(1, SMALL)
    term.begin(model, now)
    assert term.penalty(step_of(model, now.data, 0, 5)).item() == 0.0
    assert set(term.metrics()) == {"generated-cross-entropy", "generated-kl"}


def test_alpha_weighs_cross_entropy_on_generated_z_with_labels_from_the_prior(
    instruction: Make,
) -> None:
    blob = generator_to_bytes(sent_generator())
    now = instruction(
        2, SMALL, **{records.FEDGEN_GENERATOR: blob, records.FEDGEN_PRIOR: [0.0, 1.0, 0.0]}
    )
    model, term = model_of(1), Generative()
    term.begin(model, now)
    penalty = term.penalty(step_of(model, now.data, 0, 5))
    # The prior allows label 1 alone, and G gives ones whatever its noise: one value for all 16.
    expected = F.cross_entropy(model.predictor(torch.ones(1, 6)), torch.tensor([1])).item()
    assert penalty.item() == pytest.approx(3.0 * expected, rel=1e-6)
    assert term.metrics()["generated-cross-entropy"].item() == pytest.approx(expected, rel=1e-6)


def test_alpha_decays_from_the_second_round_on(instruction: Make) -> None:
    blob = {records.FEDGEN_GENERATOR: generator_to_bytes(sent_generator())}
    penalties = []
    for decay in (1.0, 0.5):
        model, term = model_of(1), Generative()
        now = instruction(3, {**SMALL, "fedgen.decay": decay}, **blob)
        term.begin(model, now)
        penalties.append(term.penalty(step_of(model, now.data, 0, 5)).item())
    assert penalties[1] == pytest.approx(penalties[0] / 4)  # 0.5 ** (3 - 1)


def test_alpha_may_be_weighed_by_generated_over_real_examples(instruction: Make) -> None:
    blob = {records.FEDGEN_GENERATOR: generator_to_bytes(sent_generator())}
    penalties = []
    for weighed in (False, True):
        now = instruction(2, {**SMALL, "fedgen.gen-ratio": weighed, "train.batch-size": 64}, **blob)
        model, term = model_of(1), Generative()
        term.begin(model, now)
        penalties.append(term.penalty(step_of(model, now.data, 0, 5)).item())
    assert penalties[1] == pytest.approx(penalties[0] * 16 / 64)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        # Eight examples in batches of three: three a round, or two where the last is dropped.
        ({"fedgen.early-stop": 2, "train.batch-size": 3}, 6),
        ({"fedgen.early-stop": 2, "train.batch-size": 3, "train.drop-last": True}, 4),
        ({"fedgen.early-stop": 2, "train.local-steps": 9}, 2),
    ],
)
def test_after_so_many_epochs_the_generator_is_heard_no_more(
    instruction: Make, settings: dict[str, object], steps: int
) -> None:
    blob = {records.FEDGEN_GENERATOR: generator_to_bytes(sent_generator())}
    now = instruction(2, {**SMALL, **settings, "fedgen.label-counts": "drawn"}, **blob)
    model, term = model_of(1), Generative()
    term.begin(model, now)
    penalties = [term.penalty(step_of(model, now.data, 0, 5)).item() for _ in range(steps + 2)]
    assert [penalty > 0 for penalty in penalties] == [True] * steps + [False] * 2
    # What is counted goes on being counted: one of label 0, one of label 1 in each step.
    counts = term.end(model).config_records[records.LABEL_COUNTS]["counts"]
    assert counts == [1 + steps + 2, 1 + steps + 2, 1]


def test_beta_weighs_the_divergence_from_generated_to_real_outputs(instruction: Make) -> None:
    blob = generator_to_bytes(sent_generator())
    weights = {"fedgen.alpha": 0.0, "fedgen.beta": 10.0}
    now = instruction(2, SMALL | weights, **{records.FEDGEN_GENERATOR: blob})
    model, term = model_of(1), Generative()
    term.begin(model, now)
    step = step_of(model, now.data, 0, 5, 6)
    target = F.softmax(model.predictor(torch.ones(1, 6)), dim=1)
    real = F.softmax(step.output, dim=1)
    expected = (target * (target.log() - real.log())).sum(dim=1).mean().item()
    assert term.penalty(step).item() == pytest.approx(10.0 * expected, rel=1e-5)


def test_only_the_predictor_learns_from_the_generated_batch(instruction: Make) -> None:
    now = instruction(2, SMALL, **{records.FEDGEN_GENERATOR: generator_to_bytes(sent_generator())})
    model, term = model_of(1), Generative()
    term.begin(model, now)
    term.penalty(step_of(model, now.data, 0, 5)).backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.predictor.parameters())


def test_the_generator_keeps_the_buffers_it_came_with(instruction: Make) -> None:
    sent = sent_generator()
    sent.norm.running_mean.fill_(0.25)  # type: ignore[union-attr]
    now = instruction(2, SMALL, **{records.FEDGEN_GENERATOR: generator_to_bytes(sent)})
    model, term = model_of(1), Generative()
    term.begin(model, now)
    term.penalty(step_of(model, now.data, 0, 5))
    assert term._generator is not None
    assert term._generator.norm.running_mean.eq(0.25).all()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "expected"),
    # The client holds (5, 3, 0). Drawn: 1 each, and labels 0, 1, 1 twice.
    [("all", [5, 3, 0]), ("drawn", [1 + 2, 1 + 4, 1])],
)
def test_label_counts_are_of_all_examples_or_of_the_batches_drawn(
    instruction: Make, kind: str, expected: list[int]
) -> None:
    model, term = model_of(1), Generative()
    now = instruction(1, {**SMALL, "fedgen.label-counts": kind})
    term.begin(model, now)
    for _ in range(2):
        term.penalty(step_of(model, now.data, 0, 5, 6))
    reply = term.end(model)
    assert list(reply.config_records[records.LABEL_COUNTS]["counts"]) == expected  # type: ignore[arg-type]


def test_numbers_differ_between_rounds_and_clients_and_not_between_tries(
    instruction: Make,
) -> None:
    generator = build_generator(make_settings(**SMALL).fedgen, 3, 6, seed=9)
    blob = {records.FEDGEN_GENERATOR: generator_to_bytes(generator)}

    def penalty(server_round: int, client: str = "site-a") -> float:
        torch.rand(1)  # the global generator must not matter
        model, term = model_of(1), Generative()
        now = instruction(server_round, SMALL, client, **blob)
        term.begin(model, now)
        return term.penalty(step_of(model, now.data, 0, 5)).item()

    assert penalty(2) == penalty(2)
    assert penalty(2) != penalty(3)
    assert penalty(2) != penalty(2, "site-b")


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_the_noise_is_of_the_kind_that_is_set(instruction: Make, kind: str) -> None:
    # Hidden units are -eps and ReLU follows: z is above 0 only where eps is below.
    generator = sent_generator(0.0)
    torch.nn.init.ones_(generator.output.weight)
    torch.nn.init.zeros_(generator.hidden.weight)
    torch.nn.init.zeros_(generator.hidden.bias)
    with torch.no_grad():
        generator.hidden.weight[:, 0] = -1.0
    settings = {**SMALL, "fedgen.noise": kind}
    now = instruction(2, settings, **{records.FEDGEN_GENERATOR: generator_to_bytes(generator)})
    term = Generative()
    term.begin(model_of(1), now)
    z = term._generate(torch.zeros(100, dtype=torch.int64))
    assert bool((z > 0).any()) == (kind == "normal")
