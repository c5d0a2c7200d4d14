"""Times are taken in turns, and ratios are those of the same turn."""

from __future__ import annotations

import pytest

from scripts.moonflower.research.benchmark.measure import Comparison, Prepare, Work, compare


class Day:
    """A clock that only work moves, and a diary of who worked."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.diary: list[str] = []

    def now(self) -> float:
        return self.seconds

    def contender(self, name: str, *takes: float) -> Prepare:
        times = iter(takes)

        def prepare() -> Work:
            self.seconds += 1000.0  # never timed

            def work() -> None:
                self.diary.append(name)
                self.seconds += next(times)

            return work

        return prepare


def test_the_first_turn_and_the_preparation_are_not_timed() -> None:
    day = Day()
    found = compare({"app": day.contender("app", 50.0, 2.0, 3.0)}, 2, day.now)
    assert found.seconds == {"app": [2.0, 3.0]}


def test_another_contender_begins_in_every_repetition() -> None:
    day = Day()
    work = (1.0,) * 4
    compare({name: day.contender(name, *work) for name in "ab"}, 3, day.now)
    assert "".join(day.diary) == "ab" + "ab" + "ba" + "ab"


def test_a_speed_is_the_median_of_the_turns_ratios() -> None:
    # In the second turn the machine was ten times slower: its ratio is still 2. The ratio of the
    # medians would be 4 / 3.
    found = Comparison({"app": [1.0, 10.0, 3.0], "bare": [2.0, 20.0, 4.0]})
    assert found.speed("app", "bare") == 2.0
    assert found.median("app") == 3.0


@pytest.mark.parametrize(("contenders", "repetitions"), [({}, 1), ({"app": lambda: list}, 0)])
def test_nothing_to_measure_is_refused(contenders: dict[str, Prepare], repetitions: int) -> None:
    with pytest.raises(ValueError, match="one of each is needed"):
        compare(contenders, repetitions)
