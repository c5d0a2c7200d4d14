"""FedGen's server losses against values derived by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from common.generator import build_generator
from server_app.strategies.fedgen.teacher import (
    averaged_logits,
    build_teacher,
    label_weighted_loss,
    shares_by_label,
    stacked_heads,
    student_divergence,
    train_generator,
)
from tests.settings import make_settings


def linear_heads(count: int, latent: int = 5, classes: int = 3) -> list[dict[str, torch.Tensor]]:
    random = torch.Generator().manual_seed(7)
    return [
        {
            "weight": torch.randn(classes, latent, generator=random, dtype=torch.float64),
            "bias": torch.randn(classes, generator=random, dtype=torch.float64),
        }
        for _ in range(count)
    ]


def test_eq_4_is_cross_entropy_of_the_averaged_logits() -> None:
    # Two clients, one example z = 1: the mean logits are (log 3, 0), so p = (3/4, 1/4).
    weights = ([[2 * math.log(3.0)], [1.0]], [[0.0], [-1.0]])
    heads = [{"weight": torch.tensor(weight), "bias": torch.zeros(2)} for weight in weights]
    teacher = build_teacher(make_settings().fedgen, nn.Linear(1, 2), heads, torch.ones(2, 2))
    loss, logits = teacher(torch.ones(1, 1), torch.tensor([1]))
    assert loss.item() == pytest.approx(math.log(4))
    torch.testing.assert_close(logits, torch.tensor([[math.log(3.0), 0.0]]))


def test_averaged_logits_are_the_logits_of_the_averaged_linear_head() -> None:
    heads, predictor = linear_heads(4), nn.Linear(5, 3, dtype=torch.float64)
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    each = torch.stack([z @ head["weight"].T + head["bias"] for head in heads])
    torch.testing.assert_close(averaged_logits(predictor, heads)(z), each.mean(dim=0))
    torch.testing.assert_close(stacked_heads(predictor, heads)(z), each)


def test_eq_4_is_the_same_with_the_averaged_and_with_single_heads() -> None:
    heads, predictor = linear_heads(4), nn.Linear(5, 3, dtype=torch.float64)
    z = torch.randn(6, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 0, 1, 2])
    single = F.cross_entropy(stacked_heads(predictor, heads)(z).mean(dim=0), y)
    teacher = build_teacher(make_settings().fedgen, predictor, heads, torch.ones(4, 3))
    torch.testing.assert_close(teacher(z, y)[0], single)


@pytest.mark.parametrize("bias", [True, False])
def test_linear_heads_in_one_product_give_the_bits_of_the_general_way(bias: bool) -> None:
    torch.manual_seed(0)
    clients = [nn.Linear(32, 10, bias=bias) for _ in range(10)]
    z, y = torch.randn(32, 32, requires_grad=True), torch.arange(32) % 10
    found = []
    for each in (clients, [nn.Sequential(client) for client in clients]):
        logits = stacked_heads(each[0], [client.state_dict() for client in each])(z)
        loss = label_weighted_loss(logits, y, torch.ones(10, 32))
        found.append((logits, *torch.autograd.grad(loss, z)))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


@pytest.mark.parametrize("teacher_kind", ["averaged-logits", "label-weighted"])
def test_a_predictor_that_is_more_than_linear_is_not_taken_for_linear(teacher_kind: str) -> None:
    class Squared(nn.Linear):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return super().forward(z) ** 2

    heads, settings = linear_heads(2), make_settings(**{"fedgen.teacher": teacher_kind}).fedgen
    teacher = build_teacher(
        settings, Squared(5, 3, dtype=torch.float64), heads, torch.ones(2, 3, dtype=torch.float64)
    )
    z, y = torch.ones(1, 5, dtype=torch.float64), torch.tensor([0])
    each = torch.stack([(z @ head["weight"].T + head["bias"]) ** 2 for head in heads])
    torch.testing.assert_close(teacher(z, y)[1], each.mean(dim=0))  # equal shares


def test_stacked_heads_work_for_a_predictor_that_is_not_linear() -> None:
    predictor = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    clients = [nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(3)]
    z = torch.ones(2, 5)
    expected = torch.stack([client(z) for client in clients])
    heads = [client.state_dict() for client in clients]
    torch.testing.assert_close(stacked_heads(predictor, heads)(z), expected)


def test_heads_teach_without_dropout() -> None:
    predictor = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3))
    heads = [nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3)).state_dict() for _ in range(2)]
    z = torch.ones(4, 5)
    expected = torch.stack([z @ head["1.weight"].T + head["1.bias"] for head in heads])
    torch.testing.assert_close(stacked_heads(predictor, heads)(z), expected)
    assert predictor.training, "the model that was given stays as it was"


def test_the_published_teacher_weighs_heads_by_their_share_of_the_label() -> None:
    # Two heads of one input and two classes: logits (2z, 0) and (0, 0).
    heads = [
        {"weight": torch.tensor([[2.0], [0.0]]), "bias": torch.zeros(2)},
        {"weight": torch.zeros(2, 1), "bias": torch.zeros(2)},
    ]
    counts = torch.tensor([[3, 1], [1, 0]])  # [client, label]
    settings = make_settings(**{"fedgen.teacher": "label-weighted"}).fedgen
    loss, logits = build_teacher(settings, nn.Linear(1, 2), heads, counts)(
        torch.tensor([[0.5], [0.5]]), torch.tensor([0, 1])
    )
    # Label 0: shares 3/4 and 1/4, label 1: 1 and 0. CE of logits (1, 0) and (0, 0).
    first = 0.75 * math.log1p(math.exp(-1)) + 0.25 * math.log(2)
    second = math.log1p(math.exp(1))
    assert loss.item() == pytest.approx((first + second) / 2, rel=1e-6)
    torch.testing.assert_close(logits, torch.tensor([[0.75, 0.0], [1.0, 0.0]]))


def test_label_weighted_teacher_is_the_weighted_sum_over_clients_and_mean_over_the_batch() -> None:
    # p(y) of client 1 is (1/2, 1/2) everywhere; of client 2, (3/4, 1/4).
    logits = torch.tensor([[[0.0, 0.0]] * 2, [[math.log(3.0), 0.0]] * 2])
    weights = torch.tensor([[0.25, 1.0], [0.75, 0.0]])  # [client, example]
    y = torch.tensor([0, 1])
    first = 0.25 * math.log(2) + 0.75 * math.log(4 / 3)
    second = 1.0 * math.log(2)
    loss = label_weighted_loss(logits, y, weights)
    assert loss.item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_shares_sum_to_one_per_label_and_are_zero_where_nobody_holds_it() -> None:
    counts = torch.tensor([[3, 0, 0], [1, 2, 0]])  # [client, label]
    torch.testing.assert_close(
        shares_by_label(counts), torch.tensor([[0.75, 0.25], [0.0, 1.0], [0.0, 0.0]])
    )


def test_student_loss_is_kl_of_the_student_to_the_teacher() -> None:
    student = torch.tensor([[0.0, 0.0]])
    teacher = torch.tensor([[math.log(3.0), 0.0]])
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert student_divergence(student, teacher).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("teacher_kind", ["averaged-logits", "label-weighted"])
def test_training_lowers_the_teacher_loss(teacher_kind: str) -> None:
    settings = make_settings(
        **{
            "fedgen.teacher": teacher_kind,
            "fedgen.generator-learning-rate": 0.01,
            "fedgen.noise-dim": 4,
            "fedgen.hidden-dim": 16,
        }
    ).fedgen
    heads = [{name: t.float() for name, t in head.items()} for head in linear_heads(3)]
    predictor = nn.Linear(5, 3)
    generator = build_generator(settings, 3, 5, seed=0)
    optimizer = torch.optim.Adam(generator.parameters(), lr=0.01)
    teacher = build_teacher(settings, predictor, heads, torch.ones(3, 3))
    prior, random = torch.ones(3) / 3, torch.Generator().manual_seed(0)
    losses = [
        train_generator(generator, optimizer, teacher, predictor, prior, settings, random)
        for _ in range(4)
    ]
    assert losses[-1]["generator-teacher"] < 0.5 * losses[0]["generator-teacher"]
    assert losses[0]["generator-student"] == 0.0


@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_the_generator_learns_from_noise_of_the_kind_that_is_set(kind: str) -> None:
    settings = make_settings(**{"fedgen.noise": kind, "fedgen.server-steps": 1}).fedgen
    generator, seen = build_generator(settings, 3, 5, seed=0), list[torch.Tensor]()
    generator.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    heads = [{name: t.float() for name, t in head.items()} for head in linear_heads(2)]
    predictor = nn.Linear(5, 3)
    train_generator(
        generator,
        torch.optim.SGD(generator.parameters(), lr=0.0),
        build_teacher(settings, predictor, heads, torch.ones(2, 3)),
        predictor,
        torch.ones(3) / 3,
        settings,
        torch.Generator().manual_seed(0),
    )
    # 32 x 32 numbers: of N(0, 1) about half lie below 0, of the uniform ones none.
    assert bool((seen[0] < 0).any()) == (kind == "normal")


def one_step(student: nn.Module, **weights: float) -> dict[str, float]:
    """Return the losses of a generator's first step, for these weights of ``[fedgen]``."""
    base = {"fedgen.server-steps": 1, "fedgen.noise-dim": 4, "fedgen.hidden-dim": 8}
    heads = [{name: t.float() for name, t in head.items()} for head in linear_heads(2)]
    settings = make_settings(**base, **{f"fedgen.{n}": value for n, value in weights.items()})
    generator = build_generator(settings.fedgen, 3, 5, seed=0)
    return train_generator(
        generator,
        torch.optim.SGD(generator.parameters(), lr=0.0),
        build_teacher(settings.fedgen, student, heads, torch.ones(2, 3)),
        student,
        torch.ones(3) / 3,
        settings.fedgen,
        torch.Generator().manual_seed(0),
    )


def test_the_student_term_is_subtracted_with_its_weight() -> None:
    torch.manual_seed(0)
    student = nn.Linear(5, 3)
    without, found = (one_step(student, **{"student-weight": weight}) for weight in (0.0, 2.0))
    assert found["generator-student"] > 0
    expected = without["generator-loss"] - 2.0 * found["generator-student"]
    assert found["generator-loss"] == pytest.approx(expected, rel=1e-5)


def test_teacher_and_diversity_are_added_with_their_weights() -> None:
    found = one_step(nn.Linear(5, 3), **{"teacher-weight": 3.0, "diversity-weight": 0.5})
    expected = 3.0 * found["generator-teacher"] + 0.5 * found["generator-diversity"]
    assert found["generator-loss"] == pytest.approx(expected, rel=1e-6)
