"""Real programs whose output can't show every letter."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

TEXT = "0.893 ± 0.040 → é 日 \udcfc"


def shown(program: str, **env: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **env}, capture_output=True, check=False
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("ascii", b"0.893 +- 0.040 -> \\xe9 \\u65e5 \\udcfc"),
        ("iso-8859-1", b"0.893 \xb1 0.040 -> \xe9 \\u65e5 \\udcfc"),
        ("utf-8", "0.893 ± 0.040 → é 日 \\udcfc".encode()),
    ],
)
def test_a_command_prints_what_its_terminal_can_show(encoding: str, expected: bytes) -> None:
    program = (
        "from unittest import mock\n"
        "from scripts import moonflower\n"
        "from scripts.moonflower import commands\n"
        f"with mock.patch.object(commands, 'app', lambda: print({TEXT!r})):\n"
        "    moonflower.main()\n"
    )
    code, out, err = shown(program, LC_ALL="C", PYTHONIOENCODING=encoding)
    assert (code, out) == (0, expected), err


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_a_log_line_of_the_app_is_written_whatever_standard_error_can_show(encoding: str) -> None:
    program = f"from common import logs; logs.install().info({TEXT!r})"
    code, _, err = shown(program, LC_ALL="C", PYTHONIOENCODING=encoding)
    assert code == 0
    assert err.startswith(b"moonflower INFO 0.893 ")
    assert b"-> " in err
    assert b"Logging error" not in err
