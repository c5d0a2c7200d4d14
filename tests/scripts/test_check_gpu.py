"""scripts/check-gpu with a stand-in for Python: what it would run on a machine with a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.settings import ROOT

# "-" is the look at the GPU; "-c CODE COMMAND..." is the moonflower command.
PYTHON = """#!/bin/bash
case $1 in
    -) exit 0 ;;
    -c) shift 2; echo "$*" >>"$CALLS" ;;
esac
[[ $1 != "$SLOW" ]] || exec sleep 60
[[ $1 != "$FAILS" ]] || exit "${CODE:-3}"
[[ $1 != benchmark ]] || mkdir -p "${@: -1}"
"""


def check_gpu(
    folder: Path, *options: str, python: str | None = None, **variables: str
) -> tuple[int, str, list[str]]:
    """Run it; return exit code, messages and the commands that it ran."""
    stand_in, calls = folder / "python", folder / "calls"
    stand_in.write_text(PYTHON)
    stand_in.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "check-gpu", "--output", folder / "out", *options],
        env={
            "PATH": os.environ["PATH"],
            "CALLS": str(calls),
            "MOONFLOWER_PYTHON": python or str(stand_in),
            **variables,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr, calls.read_text().splitlines() if calls.exists() else []


def test_the_parts_and_one_seed_of_the_table_run_on_the_gpu(tmp_path: Path) -> None:
    code, _, calls = check_gpu(tmp_path, "--data-dir", "/data")
    assert code == 0
    parts, bfloat16, table = calls
    assert parts.startswith("benchmark --device cuda ")
    assert " --part a --part b --part c " in parts
    assert bfloat16.startswith("benchmark --device cuda ")
    assert "train.precision=bfloat16" in bfloat16
    assert table == (
        "reproduce moon-cifar10 --only fedavg --only moon --seeds 0 --gpus-per-client 0.1"
        f" --output {tmp_path}/out/reproduce --data-dir /data"
    )


def test_what_is_not_done_in_time_is_said_and_is_not_a_failure(tmp_path: Path) -> None:
    code, said, calls = check_gpu(tmp_path, "--seconds", "1", SLOW="reproduce")
    assert code == 75
    assert "reproduce moon-cifar10: not done when the 1 s were up" in said
    assert len(calls) <= 3


def test_the_same_command_goes_on_with_the_table(tmp_path: Path) -> None:
    for expected in (3, 4):  # the second time the table only
        code, _, calls = check_gpu(tmp_path)
        assert code == 0
        assert len(calls) == expected
    assert calls[-1].startswith("reproduce ")


@pytest.mark.parametrize("killed_with", ["137", "124"])
def test_killed_before_the_time_is_up_is_a_failure(tmp_path: Path, killed_with: str) -> None:
    code, said, _ = check_gpu(tmp_path, FAILS="reproduce", CODE=killed_with)
    assert code == 1
    assert f"reproduce moon-cifar10 failed with exit code {killed_with}" in said


def test_an_interruption_ends_it(tmp_path: Path) -> None:
    code, _, calls = check_gpu(tmp_path, FAILS="benchmark", CODE="130")
    assert code == 130
    assert len(calls) == 1


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    code, said, _ = check_gpu(tmp_path, python="/none/python")
    assert code == 2
    assert "MOONFLOWER_PYTHON: /none/python can't be run" in said


def test_a_failure_is_said_and_the_rest_still_runs(tmp_path: Path) -> None:
    code, said, calls = check_gpu(tmp_path, FAILS="benchmark")
    assert code == 1
    assert "benchmark in bfloat16 failed with exit code 3" in said
    assert calls[-1].startswith("reproduce ")


@pytest.mark.parametrize("options", [("--seconds", "0"), ("--seconds",), ("--seed", "1")])
def test_bad_options_run_nothing(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, said, calls = check_gpu(tmp_path, *options)
    assert code == 2
    assert options[0] in said
    assert not calls


def test_a_machine_without_a_gpu_is_told(tmp_path: Path) -> None:
    code, said, calls = check_gpu(tmp_path, python=sys.executable, CUDA_VISIBLE_DEVICES="")
    assert code == 2
    assert "sees no GPU" in said
    assert not calls
