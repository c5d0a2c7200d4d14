"""scripts/environment with a stand-in for Python and pip: no network, no waiting."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.settings import ROOT

# Makes a "virtual environment" that holds itself, and writes down what pip is asked for.
PYTHON = """#!/bin/bash
case "$*" in
    "-c import sys; sys.exit(sys.version_info < (3, 11))") exit ${TOO_OLD:-0} ;;
    "-c import ensurepip, venv") exit ${NO_VENV:-0} ;;
    -c*version_info*) echo python3.11-venv ;;
    -c*platform*) echo 3.9.1 ;;
    "-m venv "*)
        echo venv >>"$CALLS"
        mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; echo "version = 3.11.7" >"$3/pyvenv.cfg" ;;
    "-m pip install"*)
        echo "pip $*" >>"$CALLS"
        while [[ -n ${PIP_WAITS_FOR:-} && ! -e $PIP_WAITS_FOR ]]; do sleep 0.05; done
        exit ${PIP_FAILS:-0} ;;
esac
"""


class Place:
    """A repository with scripts/environment, and a PATH with the stand-in."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a clone"
        self.venv = self.root / ".venv"
        self.calls_file = folder / "calls"
        self.calls_file.touch()
        (self.root / "scripts").mkdir(parents=True)
        for name in ("scripts/environment", "scripts/constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.root / name)
        self.binaries = folder / "bin"
        self.binaries.mkdir()
        tools = ("bash", "awk", "cat", "cksum", "grep", "find", "rm", "mv", "cp", "mkdir", "ls")
        for tool in (*tools, "dirname", "flock", "sleep"):
            if path := shutil.which(tool):
                (self.binaries / tool).symlink_to(path)
        python = self.binaries / "python3.11"
        python.write_text(PYTHON)
        python.chmod(0o755)

    def start(self, **variables: str) -> subprocess.Popen[str]:
        """Start scripts/environment."""
        return subprocess.Popen(
            [self.root / "scripts" / "environment"],
            env={"PATH": str(self.binaries), "CALLS": str(self.calls_file), **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, **variables: str) -> tuple[int, str, str]:
        """Run it; return exit code, output and messages."""
        process = self.start(**variables)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.strip(), err

    @property
    def calls(self) -> list[str]:
        """What was done so far: "venv" and "pip"."""
        return [line.split()[0] for line in self.calls_file.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return a fresh place."""
    return Place(tmp_path)


def test_it_installs_once_and_prints_where(place: Place) -> None:
    assert place.run()[:2] == (0, str(place.venv))
    assert place.run()[:2] == (0, str(place.venv))
    assert place.calls == ["venv", "pip"]
    assert "--constraint scripts/constraints.txt" in place.calls_file.read_text()


def test_a_changed_default_of_a_setting_installs_nothing(place: Place) -> None:
    place.run()
    project = place.root / "pyproject.toml"
    project.write_text(project.read_text().replace("num-rounds = 20", "num-rounds = 30"))
    assert "num-rounds = 30" in project.read_text()
    place.run()
    assert place.calls == ["venv", "pip"]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("pyproject.toml", '"typer>=0.19"', '"typer>=0.20"'),
        ("scripts/constraints.txt", "typer==", "# typer=="),
    ],
)
def test_a_changed_dependency_is_installed_into_what_is_there(
    place: Place, name: str, before: str, after: str
) -> None:
    place.run()
    file = place.root / name
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    place.run()
    place.run()
    assert place.calls == ["venv", "pip", "pip"]


def test_a_clone_that_was_moved_is_set_up_again(place: Place) -> None:
    place.run()
    place.root = place.root.rename(place.root.with_name("moved"))
    assert place.run()[:2] == (0, str(place.root / ".venv"))
    assert place.calls == ["venv", "pip", "pip"]


def test_one_that_was_killed_begins_anew(place: Place) -> None:
    process = place.start(PIP_WAITS_FOR="/nowhere")
    while "pip" not in place.calls:
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (place.venv / "half-installed").touch()
    assert place.run()[0] == 0
    assert place.calls == ["venv", "pip", "venv", "pip"]
    assert not (place.venv / "half-installed").exists()


def test_after_a_failed_download_it_tries_again(place: Place) -> None:
    code, out, err = place.run(PIP_FAILS="1")
    assert (code, out) == (1, "")
    assert "pip could not install" in err
    assert place.run()[0] == 0
    assert place.calls == ["venv", "pip", "pip"]


@pytest.mark.skipif(not shutil.which("flock"), reason="without flock there is no lock")
def test_two_at_once_install_once(place: Place, tmp_path: Path) -> None:
    downloaded = tmp_path / "downloaded"
    first = place.start(PIP_WAITS_FOR=str(downloaded))
    while "pip" not in place.calls:
        assert first.poll() is None
    second = place.start()
    assert second.stderr is not None
    assert "Waiting for another process" in second.stderr.readline()
    downloaded.touch()
    for process in (first, second):
        process.communicate(timeout=60)
    assert [first.returncode, second.returncode] == [0, 0]
    assert place.calls == ["venv", "pip"]


def test_without_a_new_enough_python_it_says_what_is_needed(place: Place) -> None:
    code, _, err = place.run(TOO_OLD="1")
    assert code == 1
    assert "needs Python 3.11 or newer" in err
    assert "Too old: python3.11 (3.9.1)" in err
    assert not (place.venv / "pyvenv.cfg").exists()


def test_without_the_module_venv_it_says_what_to_install(place: Place) -> None:
    code, _, err = place.run(NO_VENV="1")
    assert code == 1
    assert "sudo apt-get install python3.11-venv" in err


def test_a_folder_that_is_no_environment_is_left_alone(place: Place) -> None:
    place.venv.mkdir()
    (place.venv / "thesis.tex").touch()
    code, _, err = place.run()
    assert code == 1
    assert "left alone" in err
    assert (place.venv / "thesis.tex").exists()


def test_an_environment_made_by_hand_is_kept_and_completed(place: Place) -> None:
    (place.venv / "bin").mkdir(parents=True)
    shutil.copy(place.binaries / "python3.11", place.venv / "bin" / "python")
    (place.venv / "pyvenv.cfg").write_text("version = 3.11.7\n")
    (place.venv / "mine").touch()
    assert place.run()[0] == 0
    assert place.calls == ["pip"]
    assert (place.venv / "mine").exists()


def test_another_place_can_be_named(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    assert place.run(MOONFLOWER_VENV=str(other))[:2] == (0, str(other))
    assert (other / "bin" / "python").exists()
    assert not place.venv.exists()


def test_bash_finds_no_fault_in_the_scripts() -> None:
    for name in ("scripts/environment", "scripts/quickstart", "scripts/test", "scripts/check"):
        subprocess.run(["bash", "-n", ROOT / name], check=True)
        assert os.access(ROOT / name, os.X_OK), name
