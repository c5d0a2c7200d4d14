"""Numbers that change from round to round."""

import pytest

from common.schedules import scheduled


def test_the_first_round_has_the_setting_itself_and_every_later_one_a_factor_more() -> None:
    # 0.1, 0.1/2, 0.1/4: powers of two, so exactly.
    assert [scheduled(0.1, 0.5, server_round) for server_round in (1, 2, 3)] == [0.1, 0.05, 0.025]
    assert scheduled(10.0, 0.98, 3) == pytest.approx(10 * 0.98 * 0.98)


def test_without_decay_every_round_has_the_same_number_to_the_bit() -> None:
    assert scheduled(0.3, 1.0, 1000) == 0.3
