"""When a node is offline for good: heartbeats, a server and a clock of the test's own."""

from __future__ import annotations

from scripts.moonflower.deployment.online import LOOK_SECONDS, Watch

MINUTE, DAY = 60.0, 86400.0


class Play:
    """A node and its server, looked at every ``LOOK_SECONDS``."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.beat: float | None = None
        self.answers = True
        self.asked = 0
        self.watch = Watch(lambda: self.beat, self._answers, clock=lambda: self.now)

    def _answers(self) -> bool:
        self.asked += 1
        return self.answers

    def seconds_until_offline(self, seconds: float, beats_every: float | None = None) -> float:
        """Let time go by; return after how many seconds the node was told offline, or -1."""
        began, last = self.now, self.now
        while self.now - began < seconds:
            self.now += LOOK_SECONDS
            if beats_every and self.now - last >= beats_every:
                # Heartbeats have a clock of their own, which may jump: only changes count.
                self.beat, last = -self.now, self.now
            if self.watch.offline():
                return self.now - began
        return -1.0


def test_a_node_whose_heartbeats_are_accepted_is_left_alone_and_its_server_not_asked() -> None:
    play = Play()
    assert play.seconds_until_offline(DAY, beats_every=25.0) == -1
    assert play.asked == 0


def test_a_node_that_is_silent_while_its_server_answers_is_offline_after_four_minutes() -> None:
    play = Play()
    play.seconds_until_offline(MINUTE, beats_every=20.0)
    # 180 s of silence from the last beat, and then 60 s of a server that answers.
    assert play.seconds_until_offline(DAY) == 4 * MINUTE


def test_a_node_that_was_never_online_is_offline_after_four_minutes() -> None:
    assert Play().seconds_until_offline(DAY) == 4 * MINUTE


def test_a_node_whose_server_is_away_for_a_day_is_left_alone_and_has_a_minute_when_it_is_back() -> (
    None
):
    play = Play()
    play.answers = False
    assert play.seconds_until_offline(DAY) == -1
    play.answers = True
    assert play.seconds_until_offline(MINUTE) == -1
    assert play.seconds_until_offline(MINUTE, beats_every=LOOK_SECONDS) == -1


def test_a_server_that_answers_now_and_then_is_not_one_that_answers() -> None:
    play = Play()
    for _ in range(100):
        play.answers = not play.answers
        assert play.seconds_until_offline(50.0) == -1


def test_a_machine_that_was_suspended_has_as_much_time_as_one_that_was_just_started() -> None:
    play = Play()
    play.seconds_until_offline(MINUTE, beats_every=20.0)
    play.now += DAY
    assert play.seconds_until_offline(4 * MINUTE - LOOK_SECONDS) == -1
    assert play.seconds_until_offline(DAY) == 2 * LOOK_SECONDS


def test_a_heartbeat_in_the_last_moment_counts() -> None:
    play = Play()
    assert play.seconds_until_offline(4 * MINUTE - LOOK_SECONDS) == -1
    play.beat = 1.0
    assert play.seconds_until_offline(DAY) == 4 * MINUTE + LOOK_SECONDS
