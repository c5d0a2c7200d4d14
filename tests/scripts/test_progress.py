"""Of a mixed log, a person sees Moonflower's lines."""

from __future__ import annotations

import pytest

from scripts.moonflower.progress import Progress


def shown(*lines: str, verbose: bool = False) -> tuple[list[str], Progress]:
    """Feed lines to a Progress and return what it printed."""
    written: list[str] = []
    progress = Progress(written.append, verbose=verbose)
    for line in lines:
        progress(line)
    return written, progress


def test_own_lines_are_shown_without_their_prefix_and_others_are_not() -> None:
    written, progress = shown(
        "INFO :      Starting Flower Simulation",
        "moonflower INFO round 1/2  loss 1.234",
        "\x1b[36m(ClientAppActor pid=12)\x1b[0m moonflower WARNING file set aside",
        "not from moonflower INFO at all",
    )
    assert written == ["round 1/2  loss 1.234", "warning: file set aside"]
    assert not progress.said_why
    assert progress.errors == []


def test_own_errors_are_shown_and_remembered() -> None:
    written, progress = shown("moonflower ERROR too few clients")
    assert written == ["error: too few clients"]
    assert progress.said_why


@pytest.mark.parametrize(
    "line",
    [
        "\x1b[91mERROR \x1b[0m:     Simulation raised an exception",
        "Traceback (most recent call last):",
        "server_app.clients.roster.StartError: nobody came",
        "ModuleNotFoundError: No module named 'x'",
    ],
)
def test_errors_of_others_are_kept_for_the_end(line: str) -> None:
    written, progress = shown(line)
    assert written == []
    assert len(progress.errors) == 1


def test_only_the_last_errors_are_kept() -> None:
    _, progress = shown(*(f"ERROR {number}" for number in range(100)))
    assert progress.errors[0] == "ERROR 85"
    assert progress.errors[-1] == "ERROR 99"


def test_verbose_shows_every_line_as_it_is() -> None:
    lines = ["INFO : from Flower", "moonflower INFO ours"]
    written, _ = shown(*lines, verbose=True)
    assert written == lines


def test_what_is_left_is_said_once_a_minute_from_the_recent_rounds() -> None:
    shown: list[str] = []
    moments = iter([0.0, 10.0, 61.0, 62.0, 200.0])
    progress = Progress(shown.append, now=lambda: next(moments))
    for server_round, seconds in ((1, "40.0"), (2, "20.0"), (3, "30.0"), (10, "30.0")):
        progress(f"moonflower INFO round {server_round:>2}/10  loss 0.1  10 replies  {seconds} s")
    # Eight rounds of (40 + 20) / 2 s, when 61 s had gone by; at the end there is nothing to say.
    assert [line for line in shown if "left" in line] == ["about 4 min left"]
