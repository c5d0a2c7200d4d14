"""What each party gets: certificate or key, settings, start script, systemd units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from common.files import write_bytes, write_json
from scripts.moonflower.deployment.description import Description, is_address
from scripts.moonflower.deployment.environment_file import (
    NODE_FILE,
    SERVER_FILE,
    write_environment,
)
from scripts.moonflower.deployment.fence_keys import KNOWN_KEYS
from scripts.moonflower.deployment.release import VERSIONS_FILE, versions_here

PERSONAL = ("/home/", "/root/", "/run/user/")
"""What systemd's ``ProtectHome`` hides."""

TEMPLATES = Path(__file__).parent / "templates"

# In Flower's form, with its codes, which its SuperNode knows how to show.
_REGISTRATION_REFUSED = json.dumps(
    {
        "code": 2001,
        "detail": "This federation admits only nodes whose key was registered on the server.",
    }
)
_UNKNOWN_KEY = (
    "The fence does not know the key: the server bundle lacks it, or moonflower nodes sync was not "
    "run there since."
)
_STRANGER = json.dumps({"detail": _UNKNOWN_KEY})
_NOT_ACTIVATED = json.dumps({"code": 2004, "detail": _UNKNOWN_KEY})

LARGEST_PART = "16m"
"""Of a message, at the fence: three times what Flower cuts arrays into (5 MB)."""
_SERVER_HEAD = """\
# The server's settings. Names and ports come from federation.toml: change them there, run
# `moonflower provision` again and copy this folder. Folders may be changed here.
"""
_NODE_HEAD = """\
# This node's settings. MOONFLOWER_DATA_DIR holds its examples (read only), MOONFLOWER_STATE_DIR
# what it keeps between rounds. MOONFLOWER_DEVICE: cpu, cuda, cuda:1; empty: a GPU if there is one.
# MOONFLOWER_MODEL_NAME: the model whose encoder is trained here in a run that shares only the
# predictor (model.sharing="predictor"); empty: the run's.
"""


def write_server_settings(folder: Path, description: Description) -> None:
    """Write all files of the server's bundle but certificates and keys."""
    bundle = _below(description.bundles, "server")
    write_environment(
        folder / SERVER_FILE,
        _SERVER_HEAD,
        {
            "MOONFLOWER_SERVER_NAME": description.servers[0],
            "MOONFLOWER_FENCE_ADDRESS": description.listens_on,
            "MOONFLOWER_FENCE_PORT": str(description.fence_port),
            "MOONFLOWER_SUPERLINK_PORT": str(description.superlink_port),
        },
        {
            "MOONFLOWER_BUNDLE": bundle,
            "MOONFLOWER_DATABASE": _below(description.state, "superlink.sqlite"),
            "MOONFLOWER_OUTPUT_DIR": _below(description.state, "output"),
            "MOONFLOWER_DATA_DIR": _below(description.state, "data"),
            "MOONFLOWER_APP": description.app,
        },
    )
    _write_fence(
        folder / "nginx.conf",
        _listen(description.listens_on, description.fence_port),
        f"127.0.0.1:{description.superlink_port}",
    )
    # In containers, whose ports compose publishes: docker/compose.server.yml has these names.
    _write_fence(folder / "nginx.compose.conf", "9443 ssl", "superlink:8000")
    _write_start(folder, "start-server")
    places = _places(description, bundle)
    _write_unit(folder, "moonflower-superlink.service", places)
    low = description.fence_port < 1024
    _write_unit(folder, "moonflower-fence.service", places, binds_low_port=low)
    write_json(folder / VERSIONS_FILE, versions_here())


def write_node_settings(folder: Path, description: Description, name: str) -> None:
    """Write all files of a node's bundle but certificate and key."""
    bundle = _below(description.bundles, "nodes", name)
    state = _below(description.state, "nodes", name)
    write_environment(
        folder / NODE_FILE,
        _NODE_HEAD,
        {
            "MOONFLOWER_CLIENT_NAME": name,
            "MOONFLOWER_SUPERLINK": description.superlink,
        },
        {
            "MOONFLOWER_BUNDLE": bundle,
            "MOONFLOWER_DATA_DIR": _below(state, "data"),
            "MOONFLOWER_STATE_DIR": _below(state, "state"),
            "MOONFLOWER_DEVICE": "",
            "MOONFLOWER_MODEL_NAME": "",
            "MOONFLOWER_APP": description.app,
        },
    )
    _write_start(folder, "start-node")
    places = {**_places(description, bundle), "NAME": name, "EGRESS": _egress(description)}
    _write_unit(folder, "moonflower-supernode.service", places)
    write_json(folder / VERSIONS_FILE, versions_here())


def _below(folder: str, *names: str) -> str:
    return "/".join((folder.rstrip("/"), *names))


def _listen(address: str, port: int) -> str:
    """Return what follows nginx's ``listen``."""
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port} ssl" + (" ipv6only=off" if address == "::" else "")


def _write_fence(file: Path, listen: str, superlink: str) -> None:
    places = {
        "LISTEN": listen,
        "SUPERLINK": superlink,
        "KNOWN_KEYS": KNOWN_KEYS,
        "LARGEST_PART": LARGEST_PART,
        "STRANGER": _STRANGER,
        "NOT_ACTIVATED": _NOT_ACTIVATED,
        "REGISTRATION_REFUSED": _REGISTRATION_REFUSED,
    }
    write_bytes(file, _filled("nginx.conf", places).encode())


def _write_start(folder: Path, template: str) -> None:
    start = folder / "start"
    write_bytes(start, _filled(template, {}).encode())
    start.chmod(0o700)


def _places(description: Description, bundle: str) -> dict[str, str]:
    return {
        "BUNDLE": bundle,
        "STATE": description.state,
        "APP": description.app,
        "HOME": _home(bundle, description),
    }


def _home(bundle: str, description: Description) -> str:
    """Return what hides people's own files, but not what the unit needs of them."""
    read = [path for path in (description.app, bundle) if _is_personal(path)]
    write = [description.state] if _is_personal(description.state) else []
    if not read and not write:
        return "ProtectHome=yes\n"
    binds = [f"BindReadOnlyPaths={path}\n" for path in read]
    return "".join(["ProtectHome=tmpfs\n", *binds, *(f"BindPaths={path}\n" for path in write)])


def _is_personal(path: str) -> bool:
    return f"{path}/".startswith(PERSONAL)


def _egress(description: Description) -> str:
    """Return what lets the node's programs call the fence and nobody else."""
    host = description.servers[0]
    if is_address(host):
        return (
            "# The fence and nobody else: what a run's code reads, it can send nowhere else.\n"
            "# The address of a proxy would have to be added.\n"
            f"IPAddressDeny=any\nIPAddressAllow=localhost {host}\n"
        )
    return (
        f"# systemd knows addresses, not names, and {host} may get another one.\n"
        "# Where it is fixed, these two lines let the node call it and nobody else. The address\n"
        "# of a name server or proxy that is not on this machine has to be added.\n"
        "#IPAddressDeny=any\n#IPAddressAllow=localhost ADDRESS-OF-THE-FENCE\n"
    )


def _write_unit(
    folder: Path, unit: str, places: Mapping[str, str], *, binds_low_port: bool = False
) -> None:
    text = _filled(unit, places)
    if binds_low_port:
        text = text.replace(
            "CapabilityBoundingSet=\n",
            "CapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n",
        )
    write_bytes(folder / unit, text.encode())


def _filled(template: str, places: Mapping[str, str]) -> str:
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for place, value in places.items():
        text = text.replace(f"@{place}@", value)
    return text
