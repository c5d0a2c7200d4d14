"""What FedGen's wrapper sends, takes out and learns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from flwr.app import ConfigRecord, Message
from torch import nn

from common import records
from common.generator import build_generator, generator_from_bytes
from common.models import SplitModel
from server_app.strategies.fedgen.fedgen import FedGen
from tests.server_app.strategies.conftest import Recorder
from tests.settings import make_settings

SMALL = {"fedgen.noise-dim": 4, "fedgen.hidden-dim": 8, "fedgen.server-steps": 2}
CPU = torch.device("cpu")


class Clients:
    """Two clients: nodes 11 and 12."""

    def name_of(self, node_id: int) -> str:
        return {11: "a", 12: "b"}[node_id]

    def label_counts(self) -> dict[str, list[int]]:
        return {"a": [6, 0, 0], "b": [2, 2, 0]}


def make_model() -> SplitModel:
    torch.manual_seed(0)
    return SplitModel(nn.Linear(2, 5), nn.Linear(5, 3), 5, 3)


def make_fedgen(inner: Recorder, **overrides: object) -> FedGen:
    settings = make_settings(**SMALL, **overrides)
    return FedGen(inner, settings.fedgen, make_model(), Clients(), settings.seed, CPU)


def configured(fedgen: FedGen, inner: Recorder, server_round: int) -> ConfigRecord:
    arrays = records.to_arrays(make_model().state_dict())
    list(fedgen.configure_train(server_round, arrays, ConfigRecord(), None))  # type: ignore[arg-type]
    return inner.config


def test_the_prior_is_each_labels_share_of_all_examples(inner: Recorder) -> None:
    config = configured(make_fedgen(inner), inner, 1)
    assert config[records.FEDGEN_PRIOR] == pytest.approx([0.8, 0.2, 0.0])


def test_the_uniform_prior_covers_the_labels_that_somebody_holds(inner: Recorder) -> None:
    config = configured(make_fedgen(inner, **{"fedgen.labels": "uniform"}), inner, 1)
    assert config[records.FEDGEN_PRIOR] == pytest.approx([0.5, 0.5, 0.0])


@pytest.mark.parametrize(
    ("labels", "counted", "expected"),
    [
        # The paper: p^(y) of all clients, here a's (6, 0, 0) and b's (2, 2, 0).
        ("prior", "all", [0.8, 0.2, 0.0]),
        # The published code: uniform over the labels that this round's clients have seen.
        ("uniform", "all", [0.5, 0.0, 0.5]),
        # Drawn counts start at 1, so 1 means that a label was not seen.
        ("uniform", "drawn", [1.0, 0.0, 0.0]),
    ],
)
def test_the_generator_learns_labels_of_the_prior_or_those_seen_this_round(
    inner: Recorder, labels: str, counted: str, expected: list[float]
) -> None:
    settings = {"fedgen.labels": labels, "fedgen.label-counts": counted}
    fedgen = make_fedgen(inner, **settings)
    counts = torch.tensor([[5, 0, 1], [3, 0, 0]])
    assert fedgen._teachable_labels(counts).tolist() == pytest.approx(expected)


def test_the_generator_is_trained_after_a_round_and_sent_in_the_next(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    fedgen = make_fedgen(inner)
    assert records.FEDGEN_GENERATOR not in configured(fedgen, inner, 1)
    state = make_model().state_dict()
    _, metrics = fedgen.aggregate_train(1, [reply(11, state, 6, [6, 0, 0])])
    assert metrics is not None
    assert metrics["generator-teacher"] > 0
    blob = configured(fedgen, inner, 2)[records.FEDGEN_GENERATOR]
    assert isinstance(blob, bytes)
    fresh = build_generator(make_settings(**SMALL).fedgen, 3, 5, seed=0)
    before = {name: value.clone() for name, value in fresh.state_dict().items()}
    received = generator_from_bytes(fresh, blob).state_dict()
    assert int(received["norm.num_batches_tracked"]) == 2  # buffers travel too
    assert not torch.equal(received["output.weight"], before["output.weight"])


def test_a_later_start_round_holds_the_generator_back(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    fedgen = make_fedgen(inner, **{"fedgen.start-round": 3})
    configured(fedgen, inner, 1)
    fedgen.aggregate_train(1, [reply(11, make_model().state_dict(), 6, [6, 0, 0])])
    assert records.FEDGEN_GENERATOR not in configured(fedgen, inner, 2)
    assert records.FEDGEN_GENERATOR in configured(fedgen, inner, 3)


def test_label_counts_are_taken_out_and_update_the_prior(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    fedgen = make_fedgen(inner)
    configured(fedgen, inner, 1)
    message = reply(11, make_model().state_dict(), 6, [0, 0, 4])
    fedgen.aggregate_train(1, [message])
    assert records.LABEL_COUNTS not in message.content
    # Client a now counts (0, 0, 4); b, not heard of yet, still (2, 2, 0).
    assert configured(fedgen, inner, 2)[records.FEDGEN_PRIOR] == pytest.approx([0.25, 0.25, 0.5])


@pytest.mark.parametrize("counts", [None, [1, 2], [1, 2, -1], [1, 2, 2**41]])
def test_a_reply_with_unusable_label_counts_is_left_out_and_the_others_count(
    inner: Recorder, reply: Callable[..., Message], counts: list[int] | None
) -> None:
    fedgen = make_fedgen(inner)
    configured(fedgen, inner, 1)
    good = make_model().state_dict()
    bad = {name: value + 1 for name, value in good.items()}
    arrays, _ = fedgen.aggregate_train(
        1, [reply(11, bad, 9, counts), reply(12, good, 1, [1, 1, 1])]
    )
    assert arrays is not None
    for name, value in records.to_tensors(arrays).items():
        torch.testing.assert_close(value, good[name])


def test_the_same_seed_trains_the_same_generator(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    blobs = []
    for _ in range(2):
        torch.rand(3)  # the global generator must not matter
        fedgen = make_fedgen(inner)
        configured(fedgen, inner, 1)
        fedgen.aggregate_train(1, [reply(11, make_model().state_dict(), 6, [6, 1, 1])])
        blobs.append(configured(fedgen, inner, 2)[records.FEDGEN_GENERATOR])
    assert blobs[0] == blobs[1]


def test_heads_that_would_spoil_the_generator_leave_it_as_it_was(
    inner: Recorder, reply: Callable[..., Message], caplog: pytest.LogCaptureFixture
) -> None:
    good = make_model().state_dict()
    # Finite, so admitted; but its logits overflow.
    huge = {name: value.sign() * 3e38 for name, value in good.items()}
    blobs = []
    for states in ((good, good), (good, huge, good)):
        fedgen = make_fedgen(inner)
        for server_round, state in enumerate(states, start=1):
            configured(fedgen, inner, server_round)
            fedgen.aggregate_train(server_round, [reply(11, state, 6, [6, 1, 1])])
        blobs.append(fedgen.state_dict())
    assert all(tensor.isfinite().all() for tensor in blobs[1].values())
    assert int(blobs[1]["generator.norm.num_batches_tracked"]) == 4, "two rounds of two steps"
    assert blobs[0].keys() == blobs[1].keys()


def test_a_generator_spoilt_in_its_first_round_is_not_sent(
    inner: Recorder, reply: Callable[..., Message]
) -> None:
    fedgen = make_fedgen(inner)
    configured(fedgen, inner, 1)
    huge = {name: value.sign() * 3e38 for name, value in make_model().state_dict().items()}
    fedgen.aggregate_train(1, [reply(11, huge, 6, [6, 1, 1])])
    assert records.FEDGEN_GENERATOR not in configured(fedgen, inner, 2)
