"""A supervisor with small programs in place of Flower's."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from scripts.moonflower.deployment import superlink, supernode, supervision
from scripts.moonflower.deployment.supervision import (
    Ending,
    Patience,
    Supervisor,
    Verdict,
)

QUICK = Patience(first=0.05, longest=0.2)
REFUSED = """\
ERROR :     Exit Code: 305
Failed to initialize the connection to the SuperLink.
[code: 2004] Failed to activate SuperNode.
The SuperNode could not establish a connection to the SuperLink.

For more information, visit: <https://flower.ai>
"""


@pytest.fixture(autouse=True)
def others_live(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a supervisor in this process leave alone what pytest started elsewhere."""
    monkeypatch.setattr(supervision, "adopt_orphans", lambda: None)
    monkeypatch.setattr(supervision, "end_descendants", lambda _: None)


def _supervisor(script: str, said: list[str], **more: object) -> Supervisor:
    values: dict[str, object] = {"judge": supernode.judge, "patience": QUICK, **more}
    return Supervisor(
        lambda: [sys.executable, "-S", "-c", script],
        os.environ,
        say=said.append,
        **values,  # type: ignore[arg-type]
    )


def test_a_killed_process_is_started_again(tmp_path: Path) -> None:
    starts, said = tmp_path / "starts", []  # type: ignore[var-annotated]
    script = (
        f"import os; f = open({str(starts)!r}, 'a'); f.write('x'); f.close()\n"
        f"if os.path.getsize({str(starts)!r}) < 3: os.kill(os.getpid(), 9)\n"
        "print('Exit Code: 302'); raise SystemExit(1)"
    )
    assert _supervisor(script, said).run() == 78
    assert starts.read_text() == "xxx"
    assert sum("killed by signal 9" in line for line in said) == 2


def test_a_refused_node_tries_again_says_why_and_at_last_stops() -> None:
    said: list[str] = []
    # A second for each start and each pause: the first refusal is in second 1, then 3, 5.
    clock = itertools.count().__next__
    script = f"print({REFUSED!r}); raise SystemExit(1)"
    patience = Patience(first=0.05, longest=0.2, refusals=3.0)
    assert _supervisor(script, said, patience=patience, clock=clock).run() == 77
    assert len(said) == 3
    assert "former self still counts as online" in said[0]
    assert "trying again" in said[0]
    assert said[-1].startswith("stopped: ")
    assert "not registered or was revoked" in said[-1]


def test_waiting_long_for_a_server_is_no_refusal() -> None:
    said: list[str] = []
    # The first process lived for 100 seconds before it was refused for the first time.
    clock = iter([0, 100, 101, 102, 103, 104, 105]).__next__
    script = f"print({REFUSED!r}); raise SystemExit(1)"
    patience = Patience(first=0.05, longest=0.2, refusals=3.0)
    assert _supervisor(script, said, patience=patience, clock=clock).run() == 77
    assert len(said) == 3


def test_a_server_that_is_not_there_is_waited_for_for_ever() -> None:
    said: list[str] = []
    looks = iter([Ending(Verdict.RESTART, "no server")] * 8)
    stop = Ending(Verdict.STOP, "enough")
    assert _supervisor("", said, before=lambda: next(looks, stop)).run() == 78
    assert len([line for line in said if line.startswith("no server")]) == 8


@pytest.mark.parametrize(
    ("printed", "code", "verdict", "words"),
    [
        (REFUSED, 1, Verdict.REFUSED, "another machine uses this key"),
        (REFUSED.replace("2004", "2001"), 1, Verdict.STOP, "refused this node"),
        ("Exit Code: 302\nbad key\n", 1, Verdict.STOP, "bad key"),
        ("Exit Code: 606\nold\n", 1, Verdict.STOP, "old"),
        ("Exit Code: 305\nClient error '400 Bad Request' for\n", 1, Verdict.STOP, "--insecure"),
        ("Exit Code: 305\nTimed out\n", 1, Verdict.RESTART, "Timed out"),
        ("", -9, Verdict.RESTART, "signal 9"),
        ("", 0, Verdict.RESTART, "clocks"),
        ("Traceback", 1, Verdict.RESTART, "exit code 1"),
    ],
)
def test_the_end_of_a_supernode_is_understood(
    printed: str, code: int, verdict: Verdict, words: str
) -> None:
    ending = supernode.judge(code, printed)
    assert ending.verdict is verdict
    assert words in ending.reason


@pytest.mark.parametrize(
    ("printed", "code", "verdict"),
    [
        ("Exit Code: 105\nschema\n", 1, Verdict.STOP),
        ("Exit Code: 605\ncertificate\n", 1, Verdict.STOP),
        ("Address already in use", 1, Verdict.RESTART),
        ("", -9, Verdict.RESTART),
        ("", 0, Verdict.RESTART),
    ],
)
def test_the_end_of_a_superlink_is_understood(printed: str, code: int, verdict: Verdict) -> None:
    ending = superlink.judge(code, printed)
    assert ending.verdict is verdict
    assert "flower-supernode" not in ending.reason


def test_what_runs_beside_can_end_the_process() -> None:
    said: list[str] = []

    def after(_: threading.Event) -> Ending:
        return Ending(Verdict.STOP, "not registered")

    assert _supervisor("import time; time.sleep(60)", said, after=after).run() == 78
    assert said == ["stopped: not registered"]


_PROGRAM = """
import os, sys
from scripts.moonflower.deployment import supernode
from scripts.moonflower.deployment.supervision import Supervisor
child = sys.argv[1]
run = Supervisor(lambda: [sys.executable, "-S", "-c", child], os.environ, supernode.judge, print)
raise SystemExit(run.run())
"""


def _start(child: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, child], stdout=subprocess.PIPE, text=True
    )


def test_sigterm_reaches_the_process_and_ends_the_supervisor_with_0() -> None:
    child = (
        "import os, signal, sys, time\n"
        # os.write, since the signal may come while the line below is still being printed.
        "signal.signal(15, lambda *_: (os.write(1, b'goodbye\\n'), sys.exit(0)))\n"
        "print('started', flush=True)\n"
        "time.sleep(600)"
    )
    with _start(child) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "goodbye\n" in process.stdout.read()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's word for it is Linux's")
def test_a_supervisor_that_is_killed_leaves_no_process_behind() -> None:
    with _start("import os, time; print(os.getpid(), flush=True); time.sleep(600)") as process:
        assert process.stdout is not None
        child = Path("/proc", process.stdout.readline().strip())
        process.kill()
        process.wait(60)
        deadline = time.monotonic() + 60
        while child.exists() and " Z " not in (child / "stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.1)
