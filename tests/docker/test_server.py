"""The server of compose.server.yml without containers: real nginx, real SuperLink, own network."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.deployment.fence_keys import KNOWN_KEYS
from tests.docker.compose import SERVER, read
from tests.settings import ROOT

pytestmark = pytest.mark.slow

# In a network and a mount namespace, where the name `superlink` and the ports mean what they do in
# compose. All that it starts ends with it.
STACK = r"""
set -euo pipefail
ip link set lo up
mount --bind "$WORK/hosts" /etc/hosts
moonflower superlink >"$WORK/superlink.log" 2>&1 &
"$@" >"$WORK/fence.log" 2>&1 &
for _ in {1..300}; do
    if python "$HEALTH" server >/dev/null; then break; fi
    sleep 1
done
ask() {
    curl --silent --output /dev/null --write-out '%{http_code}\n' --path-as-is \
        --cacert "$MOONFLOWER_BUNDLE/ca.crt" "$@" || true
}
ask https://localhost:9443/health
ask https://localhost:9443/v1/control/list-runs
ask --request POST https://localhost:9443/v1/control/list-runs
ask --request POST https://localhost:9443/v1/fleet/../control/list-runs
ask --request POST https://localhost:9443//v1/control/list-runs
ask --request POST https://localhost:9443/v1/fleet/pull-messages
ask --request POST --header "flwr-public-key: $KEY" https://localhost:9443/v1/fleet/pull-messages
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Return the bundle of a server."""
    arguments = [
        "provision",
        "--output",
        str(tmp_path / "federation"),
        "--server",
        "localhost",
        "--node",
        "a",
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return tmp_path / "federation" / "server"


def test_the_fence_of_compose_reaches_the_superlink_and_publishes_nothing_but_fleet(
    bundle: Path, tmp_path: Path
) -> None:
    namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*namespaces, "true"], capture_output=True, check=False).returncode:
        pytest.skip("namespaces need root and unshare")
    if not all(map(shutil.which, ("nginx", "curl", "ip"))):
        pytest.skip("nginx, curl or ip is not installed")
    services = read(SERVER)["services"]
    (tmp_path / "hosts").write_text("127.0.0.1 localhost superlink\n")
    (tmp_path / "fence").mkdir()
    (key,) = re.findall('^"([^"]+)" "a";$', (bundle / "nodes" / KNOWN_KEYS).read_text(), re.M)
    places = {"/bundle/": f"{bundle}/", "/tmp/fence": str(tmp_path / "fence")}  # noqa: S108
    entrypoint = list(services["fence"]["entrypoint"])
    for inside, here in places.items():
        entrypoint = [word.replace(inside, here) for word in entrypoint]
    done = subprocess.run(
        [*namespaces, "bash", "-c", STACK, "bash", *entrypoint],
        env={
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "WORK": str(tmp_path),
            "KEY": key,
            "HEALTH": str(ROOT / "docker" / "health.py"),
            "MOONFLOWER_BUNDLE": str(bundle),
            "MOONFLOWER_DATABASE": str(tmp_path / "database" / "superlink.sqlite"),
            **services["superlink"]["environment"],
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    # The last two: no key, and a node's. That one the fence let through: it is the SuperLink's own
    # answer to a message without a type.
    logs = "".join((tmp_path / f"{name}.log").read_text() for name in ("superlink", "fence"))
    expected = ["200", "403", "403", "403", "403", "401", "415"]
    assert done.stdout.split() == expected, done.stderr + logs
    assert "it listens on 0.0.0.0" in logs
