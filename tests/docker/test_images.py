"""What the images are made of: the app, and no secret that lies next to it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docker.compose import FOLDER, dockerfile_copies, ignore_rules
from tests.settings import ROOT


def test_the_context_holds_exactly_what_the_dockerfile_copies() -> None:
    rules = ignore_rules(ROOT / ".dockerignore")
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    # constraints.txt lies in scripts, which is copied as a whole.
    assert allowed == set(dockerfile_copies()) - {"scripts/constraints.txt"}


def test_nothing_that_the_dockerfile_copies_is_a_folder_of_keys_data_or_results() -> None:
    copies = dockerfile_copies()
    assert {"common", "client_app", "server_app", "scripts"} <= set(copies)
    secret = re.compile(r"federation|\.git|\bdata\b|output|state|\.env|\.key|\.crt|^\.$|\*")
    assert [name for name in copies if secret.search(name)] == []


def test_images_run_as_a_user_with_a_health_check_and_are_built_without_a_compiler() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    for target in ("server", "node"):
        stage = re.search(rf"^FROM runtime AS {target}$.*?(?=^FROM|\Z)", text, re.M | re.S)
        assert stage
        assert f'CMD ["python", "docker/health.py", "{target}"]' in stage[0]
        assert 'ENTRYPOINT ["moonflower", "super' in stage[0]
        assert "USER" not in stage[0]
    runtime = text[text.index("AS runtime") : text.index("FROM runtime")]
    assert runtime.rstrip().endswith("USER ${MOONFLOWER_UID}:${MOONFLOWER_UID}")
    assert not re.search(r"gcc|build-essential|python3-dev", text)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("buildah"), reason="buildah is not installed")
@pytest.mark.skipif(os.geteuid() != 0, reason="buildah's chroot isolation needs root")
def test_keys_and_data_in_a_clone_do_not_reach_the_engine(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    secrets = [
        "federation/ca/ca.key", "server/server.key", "data/patient.npz", ".git/config",
        "docker/.env", "output/run/model", "state/x", ".venv/bin/python", "docker/extra/node.key",
    ]  # fmt: skip
    wanted = ["common/a.py", "scripts/moonflower/b.py", "docker/health.py", "pyproject.toml"]
    for name in [*secrets, *wanted, "common/__pycache__/a.pyc"]:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    shutil.copy(ROOT / ".dockerignore", clone)
    (tmp_path / "Dockerfile").write_text("FROM scratch\nCOPY . /\n")
    buildah = ["buildah", "--root", f"{tmp_path}/root", "--runroot", f"{tmp_path}/run"]
    buildah += ["--storage-driver", "vfs"]
    try:
        build = ["bud", "--isolation", "chroot", "--tag", "context"]
        build += ["--file", str(tmp_path / "Dockerfile"), str(clone)]
        subprocess.run([*buildah, *build], check=True, capture_output=True)
        subprocess.run([*buildah, "from", "--name", "c", "context"], check=True)
        mounted = subprocess.run(
            [*buildah, "mount", "--json", "c"], check=True, capture_output=True, text=True
        )
        folder = Path(json.loads(mounted.stdout)[0]["mountPoint"])
        files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    finally:
        subprocess.run([*buildah, "rm", "--all"], check=False)
    assert files == set(wanted)
