"""When a node is given up: heartbeats, a server and a clock of the test's own."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest

from scripts.moonflower.deployment import online
from scripts.moonflower.deployment.online import LOOK_SECONDS, Watch
from scripts.moonflower.deployment.supervision import Ending

MINUTE, DAY = 60.0, 86400.0


class Play:
    """A node and its server, looked at every ``LOOK_SECONDS``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.beat: float | None = None
        self.answers = True
        self.asked = 0
        self.watch = Watch(lambda: self.beat, self._answers, 180.0, clock=lambda: self.now)

    def _answers(self) -> bool:
        self.asked += 1
        return self.answers

    def seconds_until_given_up(self, seconds: float, beats_every: float | None = None) -> float:
        """Let time go by; return after how many seconds the node was given up, or -1."""
        began, last = self.now, self.now
        while self.now - began < seconds:
            self.now += LOOK_SECONDS
            if beats_every and self.now - last >= beats_every:
                # Heartbeats have a clock of their own, which may jump: only changes count.
                self.beat, last = -self.now, self.now
            if self.watch.given_up():
                return self.now - began
        return -1.0


def test_a_node_whose_heartbeats_are_accepted_is_left_alone_and_its_server_not_asked() -> None:
    play = Play()
    assert play.seconds_until_given_up(DAY, beats_every=25.0) == -1
    assert play.asked == 0


def test_a_node_that_is_silent_while_its_server_answers_is_offline_after_four_minutes() -> None:
    play = Play()
    play.seconds_until_given_up(MINUTE, beats_every=20.0)
    # 180 s of silence from the last beat, and then 60 s of a server that answers.
    assert play.seconds_until_given_up(DAY) == 4 * MINUTE


def test_a_node_that_was_never_online_is_offline_after_four_minutes() -> None:
    assert Play().seconds_until_given_up(DAY) == 4 * MINUTE


def test_a_node_whose_server_is_away_for_a_day_is_left_alone_and_has_a_minute_when_it_is_back() -> (
    None
):
    play = Play()
    play.answers = False
    assert play.seconds_until_given_up(DAY) == -1
    play.answers = True
    assert play.seconds_until_given_up(MINUTE) == -1
    assert play.seconds_until_given_up(MINUTE, beats_every=LOOK_SECONDS) == -1


def test_a_server_that_answers_now_and_then_is_not_one_that_answers() -> None:
    play = Play()
    for _ in range(100):
        play.answers = not play.answers
        assert play.seconds_until_given_up(50.0) == -1


def test_a_machine_that_was_suspended_has_as_much_time_as_one_that_was_just_started() -> None:
    play = Play()
    play.seconds_until_given_up(MINUTE, beats_every=20.0)
    play.now += DAY
    assert play.seconds_until_given_up(4 * MINUTE - LOOK_SECONDS) == -1
    assert play.seconds_until_given_up(DAY) == 2 * LOOK_SECONDS


def test_a_heartbeat_in_the_last_moment_counts() -> None:
    play = Play()
    assert play.seconds_until_given_up(4 * MINUTE - LOOK_SECONDS) == -1
    play.beat = 1.0
    assert play.seconds_until_given_up(DAY) == 4 * MINUTE + LOOK_SECONDS


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and be impatient."""
    monkeypatch.setattr(online, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(online, "OFFLINE", 0.05)
    monkeypatch.setattr(online, "STUCK", 0.05)
    monkeypatch.setattr(online, "Watch", partial(Watch, waiting=0.05))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("alive", "client_app", "said"),
    [
        ("request", False, "no heartbeat of this node"),
        ("heartbeat", False, "asked for nothing"),
        ("heartbeat", True, ""),
    ],
)
def test_a_process_without_one_of_its_signs_is_ended_unless_it_trains(
    alive: str, client_app: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = itertools.count()
    monkeypatch.setattr(
        online, "_modified", lambda file: next(times) if file.name == alive else None
    )
    monkeypatch.setattr(online, "probe", lambda *_: None)
    monkeypatch.setattr(online, "descendants", lambda _: {process.pid})
    ended, found = threading.Event(), threading.Event()
    name = "flwr-clientapp" if client_app else "flower-supernode"
    endings: list[Ending | None] = []

    def look() -> None:
        endings.append(online.watch(tmp_path, "localhost:1", None, ended))
        found.set()

    with subprocess.Popen([sys.executable, "-c", "input()", name], stdin=PIPE) as process:
        thread = threading.Thread(target=look)
        thread.start()
        # Nothing is found where nothing is wrong: then this waits in vain.
        assert found.wait(60 if said else 1) == bool(said)
        ended.set()
        thread.join()
        process.communicate(b"\n")
    (ending,) = endings
    assert (said in ending.reason) if ending else not said
