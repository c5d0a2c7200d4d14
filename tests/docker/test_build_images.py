"""scripts/build-images: what it asks of an engine, and what it refuses before it starts one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.settings import ROOT

SCRIPT = ROOT / "scripts" / "build-images"

# A Docker that writes down what it is asked for.
DOCKER = """#!/bin/bash
printf '%s\\n' "$*" >>"$CALLS"
"""


@pytest.fixture
def binaries(tmp_path: Path) -> Path:
    """Return the one folder of a PATH, with a stand-in for Docker."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("bash", "dirname", "cat", "realpath"):
        (folder / tool).symlink_to(str(shutil.which(tool)))
    (folder / "docker").write_text(DOCKER)
    (folder / "docker").chmod(0o755)
    return folder


def run(binaries: Path, *options: str) -> tuple[int, str, list[str]]:
    calls = binaries.parent / "calls"
    calls.touch()
    done = subprocess.run(
        [SCRIPT, *options],
        env={"PATH": str(binaries), "CALLS": str(calls), "HOME": str(binaries.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr, calls.read_text().splitlines()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "both"], "--target both: server or node"),
        (["--engine", "podman"], "--engine podman: docker or buildah"),
        (["--wheels", "/nowhere"], "--wheels /nowhere: no such folder"),
        (["--pip-conf", "/nowhere"], "--pip-conf /nowhere: can't be read"),
        (["--uid", "0"], "--uid 0: a number from 1"),
        (["--torch"], "--torch needs a value"),
        (["--gpu", "1"], "--gpu is no option"),
        (["--local-base", "--engine", "docker"], "--local-base goes with --engine buildah"),
        (["--engine", "buildah"], "sudo apt-get install buildah"),
    ],
)
def test_what_can_not_be_used_is_refused_before_anything_is_built(
    binaries: Path, options: list[str], message: str
) -> None:
    code, said, calls = run(binaries, *options)
    assert code == 2
    assert message in said
    assert calls == []


def test_docker_is_given_the_base_image_torch_and_secrets_but_keeps_none(
    binaries: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "pip.conf"
    conf.write_text("[global]\nindex-url = https://name:password@pypi.example.org\n")
    options = ["--base", "nvidia/cuda:12.8.1-base-ubuntu24.04", "--torch", "cu126", "--uid", "1000"]
    code, said, calls = run(
        binaries, *options, "--target", "node", "--pip-conf", str(conf), "--no-proof"
    )
    assert code == 0, said
    (build,) = [call for call in calls if call.startswith("build ")]
    assert f"--file {ROOT}/docker/Dockerfile --target node" in build
    assert "--build-arg BASE_IMAGE=nvidia/cuda:12.8.1-base-ubuntu24.04" in build
    assert "--build-arg TORCH_VARIANT=cu126" in build
    assert "--build-arg MOONFLOWER_UID=1000" in build
    assert f"--secret id=pip-conf,src={conf}" in build
    assert build.endswith(str(ROOT))
    assert "password" not in build
