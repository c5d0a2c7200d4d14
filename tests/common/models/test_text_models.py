"""Models of texts: padding says nothing, the parts are what is promised, dropout is seeded."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from common.data import DataSpec
from common.data.kinds import Tokens
from common.data.targets import ClassLabels
from common.models import SplitModel, build_model, count_parameters
from common.models.token_layers import masked_maximum, masked_mean
from common.seeding import seeded_globally
from tests.settings import make_settings

MODELS = ["char-lstm", "lstm", "text-bag", "text-transformer"]


def build(name: str, length: int = 12) -> SplitModel:
    settings = make_settings(**{"model.name": name}).model
    return build_model(settings, DataSpec("text", Tokens(length, 30), ClassLabels(3)), 0)


def texts() -> Tensor:
    """Return texts of 1, 4 and 9 tokens, padded to 12."""
    drawn = torch.randint(1, 30, (3, 12), generator=torch.Generator().manual_seed(0))
    position = torch.arange(12)
    return torch.where(position < torch.tensor([[1], [4], [9]]), drawn, 0).int()


@pytest.mark.parametrize("name", MODELS)
def test_padding_changes_nothing(name: str) -> None:
    model, ids = build(name).eval(), texts()
    with torch.no_grad():
        together = model(ids)
        for row, count in enumerate((1, 4, 9)):
            alone = model(ids[row : row + 1, :count])
            torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-6)
        changed = ids.clone()
        changed[1, 3] = 1 + ids[1, 3] % 29
        assert not torch.allclose(model(changed)[1], together[1]), "the last token counts"


@pytest.mark.parametrize("name", MODELS)
def test_a_text_without_a_token_gives_numbers(name: str) -> None:
    assert build(name).eval()(torch.zeros(2, 12, dtype=torch.int32)).isfinite().all()


@pytest.mark.parametrize("name", ["char-lstm", "lstm", "text-transformer"])
def test_the_order_of_words_counts(name: str) -> None:
    model = build(name).eval()
    forth, back = torch.tensor([[1, 2, 3]]).int(), torch.tensor([[3, 2, 1]]).int()
    assert not torch.allclose(model(forth), model(back))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 30*128, 128*128+128, 128*64+64, 64*3+3
        ("text-bag", 3840 + 16512 + 8256 + 195),
        # 30*128, twice 4*128*(128+128) + 8*128, 256*3+3
        ("lstm", 3840 + 2 * (131_072 + 1024) + 771),
        # 30*32, 4*128*(32+128) + 8*128, 128*3+3
        ("char-lstm", 960 + 81_920 + 1024 + 387),
        # 30*128, positions 12*128, two layers of 4*128*128+4*128, 2*128*256+256+128 and 4*128,
        # LayerNorm 2*128, 128*3+3
        ("text-transformer", 3840 + 1536 + 2 * (66_048 + 65_920 + 512) + 256 + 387),
    ],
)
def test_models_have_the_parts_that_they_promise(name: str, expected: int) -> None:
    assert count_parameters(build(name)) == expected


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_learns_but_the_paddings(name: str) -> None:
    model = build(name)
    F.cross_entropy(model(texts()), torch.arange(3)).backward()
    assert [key for key, value in model.named_parameters() if value.grad is None] == []
    (embedding,) = (part for part in model.modules() if isinstance(part, torch.nn.Embedding))
    assert not embedding.weight[0].any()
    assert embedding.weight.grad is not None
    assert not embedding.weight.grad[0].any()


def test_the_lstm_is_pytorchs_on_packed_sequences() -> None:
    features = build("lstm").eval().encoder.features
    both = torch.nn.LSTM(128, 128, batch_first=True, bidirectional=True)
    ahead, behind = features.forwards.state_dict(), features.backwards.state_dict()
    both.load_state_dict(ahead | {f"{name}_reverse": value for name, value in behind.items()})
    ids = texts()
    packed = torch.nn.utils.rnn.pack_padded_sequence(
        features.embedding(ids), torch.tensor([1, 4, 9]), batch_first=True, enforce_sorted=False
    )
    found, _ = torch.nn.utils.rnn.pad_packed_sequence(
        both(packed)[0], batch_first=True, padding_value=-2.0
    )
    torch.testing.assert_close(features(ids), found.amax(dim=1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["lstm", "text-transformer"])
def test_dropout_draws_the_same_from_the_same_seed_only(name: str) -> None:
    model, ids = build(name).train(), texts()
    outputs = []
    for server_round in (1, 1, 2):
        torch.rand(server_round)  # whatever ran before in this process
        with seeded_globally(0, "dropout", "site-a", server_round, torch.device("cpu")):
            outputs.append(model(ids))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_mean_and_maximum_are_over_tokens_alone() -> None:
    x = torch.tensor([[[1.0], [3.0], [9.0]], [[5.0], [7.0], [9.0]]])
    mask = torch.tensor([[True, True, False], [False, False, False]])
    assert masked_mean(x, mask).tolist() == [[2.0], [0.0]]
    assert masked_maximum(-x, mask).tolist() == [[-1.0], [0.0]]
