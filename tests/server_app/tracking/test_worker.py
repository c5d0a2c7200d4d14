"""A tracker is brought level whenever it can be, and what it raises goes no further."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from pathlib import Path

from server_app.tracking.growing_file import MetricsFile
from server_app.tracking.numbers import Line
from server_app.tracking.worker import FINISHED, ROUND, Follower, follow
from tests.server_app.tracking.rounds import line_of, write_rounds


class Kept:
    """A tracker in memory that fails as often as it is told."""

    where = "memory"

    def __init__(self) -> None:
        self.rounds: list[int] = []
        self.failures = 0
        self.ended: list[bool] = []

    def open(self, lines: Iterable[Line]) -> None:
        self._may_fail()
        self.rounds = [line["round"] for line in lines]

    def add(self, line: Line) -> None:
        self._may_fail()
        self.rounds.append(line["round"])

    def close(self, *, finished: bool) -> None:
        self.ended.append(finished)

    def _may_fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the server is gone")


def follower_of(folder: Path, kept: Kept) -> tuple[Follower, list[dict[str, object]]]:
    said: list[dict[str, object]] = []
    return Follower(MetricsFile(folder / "metrics.jsonl"), lambda: kept, said.append), said


def test_a_tracker_that_comes_back_has_what_it_missed_once(tmp_path: Path) -> None:
    kept = Kept()
    follower, said = follower_of(tmp_path, kept)
    write_rounds(tmp_path, [line_of(1)])
    follower.catch_up()
    kept.failures = 2
    for rounds in (2, 3, 4):
        write_rounds(tmp_path, [line_of(number) for number in range(1, rounds + 1)])
        follower.catch_up()
    assert kept.rounds == [1, 2, 3, 4]
    gone = {"failed": "ConnectionError: the server is gone"}
    assert said == [{"at": 1}, gone, gone, {"at": 4}]


def test_the_bell_is_followed_to_its_end_and_the_end_is_passed_on(tmp_path: Path) -> None:
    for last, finished in ((FINISHED, True), (ROUND, False)):
        kept = Kept()
        follower, said = follower_of(tmp_path, kept)
        write_rounds(tmp_path, [line_of(1)])
        out, bell = os.pipe()
        with os.fdopen(out, "rb") as reader, os.fdopen(bell, "wb", buffering=0) as writer:
            thread = threading.Thread(target=follow, args=(follower, reader))
            thread.start()
            write_rounds(tmp_path, [line_of(1), line_of(2)])
            writer.write(ROUND)
            writer.write(last)
            writer.close()
            thread.join()
        assert kept.rounds == [1, 2]
        assert kept.ended == [finished]
        assert said[-1] == {"at": 2}


def test_a_tracker_that_never_opened_is_not_closed(tmp_path: Path) -> None:
    kept = Kept()
    kept.failures = 5
    follower, said = follower_of(tmp_path, kept)
    follower.close(finished=True)
    assert kept.ended == []
    assert "failed" in said[-1]
