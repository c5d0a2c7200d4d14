"""The transformer over columns, against its definition."""

from __future__ import annotations

import torch

from common.data import DataSpec
from common.data.kinds import Table
from common.data.targets import ClassLabels
from common.models import build_model
from common.models.tab_transformer import WIDTH, ColumnTokens
from tests.settings import make_settings


def test_a_column_is_its_number_times_a_vector_or_its_categorys_vector() -> None:
    torch.manual_seed(0)
    tokens = ColumnTokens(2, True, (2, 3))
    # Two numbers of which the second is missing, the second of 2 categories, and none of 3.
    x = torch.tensor([[1.5, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]])
    found = tokens(x)[0]
    expected = torch.stack(
        [
            tokens.first[0],
            1.5 * tokens.numbers[0] + tokens.bias[0],
            tokens.missing[1] + tokens.bias[1],
            tokens.categories[1] + tokens.bias[2],
            tokens.bias[3],
        ]
    )
    torch.testing.assert_close(found, expected)
    assert found.shape == (5, WIDTH)


def test_tables_of_numbers_alone_or_categories_alone_are_taken() -> None:
    settings = make_settings(**{"model.name": "tab-transformer"})
    for kind in (Table(3), Table(0, (2, 4), indicators=True), Table(1, indicators=True)):
        model = build_model(settings.model, DataSpec("made up", kind, ClassLabels(2)), seed=0)
        assert model(torch.randn(5, *kind.shape)).shape == (5, 2)


def test_the_answer_does_not_depend_on_who_else_is_in_the_batch_or_on_the_mode() -> None:
    kind = Table(3, (2,), indicators=True)
    settings = make_settings(**{"model.name": "tab-transformer"})
    model = build_model(settings.model, DataSpec("made up", kind, ClassLabels(2)), seed=0)
    x = torch.randn(6, *kind.shape)
    together = model(x)
    torch.testing.assert_close(model(x[2:3]), together[2:3])
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(x), together)
