"""Numbers that change from round to round."""

from __future__ import annotations

import pytest

from common.schedules import (
    interpolated,
    learning_rate,
    moon_mu,
    moon_temperature,
    numbers_of_round,
    scheduled,
)
from tests.settings import make_settings


def test_the_first_round_has_the_setting_itself_and_every_later_one_a_factor_more() -> None:
    # 0.1, 0.1/2, 0.1/4: powers of two, so exactly.
    assert [scheduled(0.1, 0.5, server_round) for server_round in (1, 2, 3)] == [0.1, 0.05, 0.025]
    assert scheduled(10.0, 0.98, 3) == pytest.approx(10 * 0.98 * 0.98)


def test_without_decay_every_round_has_the_same_number_to_the_bit() -> None:
    for schedule in ("step", "linear", "cosine"):
        assert scheduled(0.3, 1.0, 1000, schedule, rounds=7) == 0.3  # type: ignore[arg-type]


def test_steps_fall_after_every_so_many_rounds() -> None:
    found = [scheduled(8.0, 0.5, server_round, "step", rounds=3) for server_round in range(1, 9)]
    assert found == [8.0, 8.0, 8.0, 4.0, 4.0, 4.0, 2.0, 2.0]


def test_a_line_falls_by_equal_parts_and_then_stays() -> None:
    # From 8 to a quarter of it in four rounds: 6 / 4 less each.
    found = [scheduled(8.0, 0.25, server_round, "linear", rounds=4) for server_round in range(1, 8)]
    assert found == [8.0, 6.5, 5.0, 3.5, 2.0, 2.0, 2.0]


def test_half_a_cosine_is_slow_at_both_ends() -> None:
    # (1 - cos(pi w)) / 2 at w = 0, 1/3, 1/2, 2/3: 0, 1/4, 1/2, 3/4, of the way from 8 to 4.
    found = [scheduled(8.0, 0.5, server_round, "cosine", rounds=6) for server_round in (1, 3, 4, 5)]
    assert found == pytest.approx([8.0, 7.0, 6.0, 5.0])
    assert scheduled(8.0, 0.5, 7, "cosine", rounds=6) == 4.0


def test_a_warm_up_rises_linearly_and_the_schedule_begins_after_it() -> None:
    found = [scheduled(8.0, 0.5, server_round, warm_up=3) for server_round in range(1, 7)]
    assert found == [2.0, 4.0, 6.0, 8.0, 4.0, 2.0]


@pytest.mark.parametrize("curve", ["linear", "cosine"])
def test_a_number_may_grow_as_well_as_fall_and_ends_exactly(curve: str) -> None:
    ways = [0.0, 0.25, 0.5, 0.75, 1.0, 9.0]
    growing = [interpolated(0.0, 5.0, way, curve) for way in ways]  # type: ignore[arg-type]
    falling = [interpolated(5.0, 0.0, way, curve) for way in ways]  # type: ignore[arg-type]
    assert growing == sorted(growing)
    assert growing[0] == 0.0
    assert growing[2] == pytest.approx(2.5)
    assert growing[-2:] == [5.0, 5.0]
    assert falling == pytest.approx([5.0 - number for number in growing])


def test_mu_and_temperature_go_from_their_start_to_the_setting() -> None:
    moon = make_settings(
        **{
            "moon.mu": 5.0,
            "moon.mu-start": 1.0,
            "moon.mu-rounds": 4,
            "moon.temperature": 0.25,
            "moon.temperature-start": 0.75,
            "moon.temperature-rounds": 2,
        }
    ).moon
    assert [moon_mu(moon, server_round) for server_round in range(1, 7)] == [1, 2, 3, 4, 5, 5]
    assert [moon_temperature(moon, r) for r in (1, 2, 3, 99)] == [0.75, 0.5, 0.25, 0.25]


def test_without_rounds_mu_and_temperature_are_the_settings() -> None:
    moon = make_settings(**{"moon.mu": 5.0}).moon
    assert (moon_mu(moon, 1), moon_temperature(moon, 1)) == (5.0, 0.5)


def test_clients_and_server_follow_the_same_schedules() -> None:
    shape = {"decay": 0.5, "schedule": "linear", "rounds": 2, "warm-up": 1}
    tables = {f"{t}.learning-rate-{k}": v for t in ("train", "server") for k, v in shape.items()}
    settings = make_settings(
        **tables,
        **{"server.aggregator": "fedadam", "train.learning-rate": 0.4, "server.learning-rate": 0.8},
    )
    rates = [learning_rate(settings.train, server_round) for server_round in range(1, 6)]
    assert rates == pytest.approx([0.2, 0.4, 0.3, 0.2, 0.2])
    assert [learning_rate(settings.server, r) for r in range(1, 6)] == pytest.approx(
        [2 * rate for rate in rates]
    )


def test_a_rounds_numbers_are_those_of_what_the_run_uses() -> None:
    plain = make_settings(algorithm="fedavg")
    assert numbers_of_round(plain, 3) == {"train.learning-rate": plain.train.learning_rate}
    everything = make_settings(
        **{"algorithm": "moon+fedgen", "server.aggregator": "fedavgm", "fedgen.decay": 0.5}
    )
    assert numbers_of_round(everything, 3) == {
        "train.learning-rate": 0.05,
        "server.learning-rate": 1.0,
        "moon.mu": 1.0,
        "moon.temperature": 0.5,
        "fedgen.alpha": 0.25,
        "fedgen.beta": 0.0,
    }
