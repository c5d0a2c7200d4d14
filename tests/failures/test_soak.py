"""The soak's verdict; the soak itself is not part of CI."""

from __future__ import annotations

from dataclasses import replace

from tests.failures.soak import Row, growth, verdict

FLAT = Row(1, 1.0, "", 100.0, 20, 600.0, 20, 90.0, 15, 3.0, 0.5, 2.0, 1.0)


def rows(**changes: list[float]) -> list[Row]:
    """Return eight rounds, of which some columns change."""
    return [
        replace(
            FLAT, round=number + 1, **{name: values[number] for name, values in changes.items()}
        )
        for number in range(8)
    ]


def test_growth_compares_the_second_quarter_with_the_last() -> None:
    # Quarters of two rounds: the second is 3, 4 and the last is 7, 8.
    assert growth(rows(node_mb=[1, 2, 3, 4, 5, 6, 7, 8]), "node_mb") == (3.5, 7.5)


def test_growth_in_the_first_quarter_is_flat() -> None:
    assert verdict(rows(superlink_mb=[10, 60, 100, 100, 100, 100, 100, 100])) == []


def test_one_high_reading_is_flat() -> None:
    assert verdict(rows(superlink_files=[20, 20, 20, 20, 20, 20, 20, 50])) != []
    long = rows(superlink_files=[20] * 8) * 3
    long[-1] = replace(FLAT, superlink_files=50)
    assert verdict(long) == []


def test_steady_growth_is_named() -> None:
    problems = verdict(rows(database_mb=[10, 20, 30, 40, 50, 60, 70, 80]))
    assert problems == ["database_mb grew from 35 to 75"]
