"""Log lines that can be told apart."""

from __future__ import annotations

import logging

import pytest

from common import logs


def test_every_line_of_a_message_begins_with_the_name(capsys: pytest.CaptureFixture[str]) -> None:
    logs.install().error("two problems:\n  one\n  two")
    assert capsys.readouterr().err.splitlines() == [
        "moonflower ERROR two problems:",
        "moonflower ERROR   one",
        "moonflower ERROR   two",
    ]


def test_installed_twice_a_line_is_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.install()
    logs.install()
    logging.getLogger(logs.NAME).info("round 1")
    assert capsys.readouterr().err == "moonflower INFO round 1\n"


def test_a_line_does_nothing_to_a_terminal_and_can_always_be_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.install().warning("can't read %s", "\x1b[2J\udcfc.png")
    assert capsys.readouterr().err == "moonflower WARNING can't read \\x1b[2J\\xfc.png\n"
