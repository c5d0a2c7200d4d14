"""A server's and a node's bundle that belong together."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.moonflower.doctor.bundle import Bundle
from tests.scripts.doctor.bundles import Authority, make_bundle, write_node_key


@pytest.fixture
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
def server(tmp_path: Path, authority: Authority) -> Bundle:
    """Return the bundle of a server that two nodes may connect to; nothing runs."""
    settings = {
        "MOONFLOWER_SERVER_NAME": "fence.example",
        "MOONFLOWER_FENCE_ADDRESS": "127.0.0.1",
        "MOONFLOWER_DATABASE": str(tmp_path / "server-state" / "superlink.sqlite"),
        "MOONFLOWER_OUTPUT_DIR": str(tmp_path / "server-state" / "output"),
    }
    bundle = make_bundle(tmp_path / "server", "server", settings)
    authority.write(bundle.folder)
    authority.issue(bundle.folder)
    bundle.file("nodes").mkdir()
    return bundle


@pytest.fixture
def node(tmp_path: Path, authority: Authority) -> Bundle:
    """Return the bundle of a node; no server runs."""
    settings = {
        "MOONFLOWER_SUPERLINK": "127.0.0.1:1",
        "MOONFLOWER_CLIENT_NAME": "clinic-a",
        "MOONFLOWER_DATA_DIR": str(tmp_path / "data"),
        "MOONFLOWER_STATE_DIR": str(tmp_path / "state"),
        "MOONFLOWER_DEVICE": "cpu",
    }
    bundle = make_bundle(tmp_path / "clinic-a", "node", settings)
    authority.write(bundle.folder)
    write_node_key(bundle.folder)
    return bundle
