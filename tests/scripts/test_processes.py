"""Whatever was started is ended, in whatever session it hides."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts.moonflower.interruption import (
    InterruptedRunError,
    raising_on_signals,
    signals_held_back,
)
from scripts.moonflower.processes import descendants
from scripts.moonflower.scratch import LONGEST_PARENT, scratch_folder
from tests.settings import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# An orphan in a session of its own, and one that does not listen to SIGTERM.
STARTER = """
import subprocess, sys, time
from scripts.moonflower.processes import adopt_orphans, end_descendants
adopt_orphans()
subprocess.run(["bash", "-c", "setsid sleep 600 & echo $! > orphan"])
stubborn = "trap '' TERM; echo $$ > stubborn; while :; do sleep 1; done"
subprocess.Popen(["bash", "-c", stubborn], start_new_session=True)
while not __import__("os").path.exists("stubborn"):
    time.sleep(0.01)
end_descendants(grace=0.3)
"""


def send_to_self(number: signal.Signals) -> None:
    """Send a signal and wait for it to arrive: its handler raises."""
    os.kill(os.getpid(), number)
    time.sleep(5)


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_orphans_and_the_stubborn_are_ended(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", STARTER],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=60,
    )
    for name in ("orphan", "stubborn"):
        assert not is_alive(int((tmp_path / name).read_text()))


def test_descendants_are_found_over_generations() -> None:
    parent = subprocess.Popen(["bash", "-c", "sleep 600 & wait"], start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while len(descendants(parent.pid)) != 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        (child,) = descendants(parent.pid)
        assert {parent.pid, child} <= descendants(os.getpid())
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


def test_an_ended_process_that_nobody_waited_for_is_no_descendant() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process.pid not in descendants(os.getpid())
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_becomes_an_exception_with_the_shell_s_exit_code(number: signal.Signals) -> None:
    # Tests started in the background may have been told to ignore it.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(InterruptedRunError) as caught, raising_on_signals():
            send_to_self(number)
        assert caught.value.exit_code == 128 + number
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_second_signal_does_not_break_off_the_ending() -> None:
    ended = []

    def run() -> None:
        try:
            send_to_self(signal.SIGTERM)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            ended.append(True)

    with pytest.raises(InterruptedRunError, match="SIGTERM"), raising_on_signals():
        run()
    assert ended


def test_a_signal_while_ending_takes_effect_after_it() -> None:
    ended = []

    def end() -> None:
        with signals_held_back():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            ended.append(True)

    with pytest.raises(InterruptedRunError, match="SIGTERM"), raising_on_signals():
        end()
    assert ended


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with raising_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_scratch_folder_is_short_enough_for_ray_and_goes_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / "a-folder-that-is-far-too-deep-for-the-path-of-a-unix-socket"
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with scratch_folder() as folder:
        (folder / "file").touch()
        assert folder.is_dir()
        assert len(str(folder)) <= LONGEST_PARENT + 12
    assert not folder.exists()
