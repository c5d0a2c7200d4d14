"""Which nodes are registered and unregistered; a table stands in for the SuperLink."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scripts.moonflower.deployment.errors import (
    DeploymentError,
    SuperLinkError,
    UnregistersManyError,
)
from scripts.moonflower.deployment.node_registry import Registry

OURS, ANOTHER = "aa" * 32, "bb" * 32


@dataclass
class Table:
    """Registers as Flower's database does: a key is known for ever, a number is never reused."""

    rows: dict[str, tuple[str, str]] = field(default_factory=dict)
    fail_after: int = -1

    def flwr(self, *arguments: str) -> dict[str, Any]:
        match arguments[1]:
            case "list":
                return {
                    "nodes": [
                        {"node-id": number, "status": status}
                        for number, status in self.rows.values()
                    ]
                }
            case "register":
                key = Path(arguments[2]).read_text()
                if key in self.rows:
                    raise SuperLinkError(
                        "flwr supernode register failed: Public key already in use"
                    )
                self.rows[key] = (str(len(self.rows) + 1), "registered")
                return {"node-id": self.rows[key][0]}
            case _:
                key = next(k for k, (number, _) in self.rows.items() if number == arguments[2])
                self.rows[key] = (arguments[2], "unregistered")
                return {}

    @property
    def admitted(self) -> set[str]:
        return {key for key, (_, status) in self.rows.items() if status != "unregistered"}


@dataclass
class Server:
    folder: Path
    table: Table = field(default_factory=Table)
    said: list[str] = field(default_factory=list)

    def key(self, name: str, text: str = "") -> Path:
        file = self.folder / "nodes" / f"{name}.pub"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"ecdsa {text or name} {name}\n")
        return file

    @property
    def file(self) -> Path:
        return self.folder / "db.nodes.json"

    def synchronise(self, federation: str = OURS, *, unregister_many: bool = False) -> int:
        keys, revoked = self.folder / "nodes", self.folder / "revoked"
        say = self.said.append
        registry = Registry(
            keys, revoked, self.file, federation, self.table, say, unregister_many=unregister_many
        )
        return registry.synchronise()

    def revoke(self, name: str) -> None:
        folder = self.folder / "revoked"
        folder.mkdir(exist_ok=True)
        (self.folder / "nodes" / f"{name}.pub").rename(folder / f"{name}-1.pub")

    def admitted(self) -> list[str]:
        return sorted(key.split()[1] for key in self.table.admitted)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    made = Server(tmp_path)
    made.key("a")
    made.key("b")
    assert made.synchronise() == 2
    return made


def test_new_keys_are_registered_once(server: Server) -> None:
    assert server.admitted() == ["a", "b"]
    rows = dict(server.table.rows)
    assert server.synchronise() == 2
    assert server.table.rows == rows


def test_a_key_that_is_gone_is_unregistered_and_no_other(server: Server) -> None:
    server.key("a").unlink()
    assert server.synchronise() == 1
    assert server.admitted() == ["b"]


def test_a_key_that_was_replaced_is_unregistered_and_the_new_one_registered(server: Server) -> None:
    server.key("a", "a2")
    assert server.synchronise() == 2
    assert server.admitted() == ["a2", "b"]


def test_a_revoked_key_that_a_copy_left_among_the_others_is_unregistered(server: Server) -> None:
    left = server.key("a")
    (server.folder / "revoked").mkdir()
    (server.folder / "revoked" / "a-1.pub").write_bytes(left.read_bytes())
    assert server.synchronise() == 1
    assert server.admitted() == ["b"]
    assert server.said[-2:] == [
        f"{left} is not admitted: it was revoked, or another has its key. Delete it",
        "unregistered node 1",
    ]


def test_a_node_that_somebody_else_registered_is_unregistered(server: Server) -> None:
    server.table.rows["ecdsa x x\n"] = ("77", "online")
    server.synchronise()
    assert server.admitted() == ["a", "b"]
    assert any("node 77 was registered by somebody else" in line for line in server.said)


def test_a_registration_that_was_not_noted_any_more_is_found_again(server: Server) -> None:
    noted = server.file.read_bytes()
    server.key("c")
    server.synchronise()
    server.file.write_bytes(noted)  # as if killed between the registration and the note
    assert server.synchronise() == 3
    assert server.admitted() == ["a", "b", "c"]


def test_a_key_that_was_unregistered_before_is_named(server: Server) -> None:
    server.key("a").unlink()
    server.synchronise()
    server.key("a")
    assert server.synchronise() == 1
    assert server.admitted() == ["b"]
    assert any("needs a new one: moonflower provision --rotate a" in line for line in server.said)


def test_nobody_is_unregistered_when_the_notes_are_lost(server: Server) -> None:
    server.file.unlink()
    with pytest.raises(DeploymentError, match="put both back from the same backup"):
        server.synchronise()
    assert server.admitted() == ["a", "b"]


def test_a_new_database_gets_all_keys_whatever_the_notes_say(server: Server) -> None:
    server.table.rows.clear()
    assert server.synchronise() == 2
    assert server.admitted() == ["a", "b"]


def test_damaged_notes_are_named(server: Server) -> None:
    server.file.write_text("{")
    with pytest.raises(DeploymentError, match=r"db\.nodes\.json"):
        server.synchronise()


def test_a_file_of_version_0_1_is_taken_over(server: Server) -> None:
    noted = json.loads(server.file.read_text())
    del noted["federation"]
    server.file.write_text(json.dumps(noted))
    assert server.synchronise() == 2
    assert json.loads(server.file.read_text()) == {**noted, "federation": OURS}


def test_the_file_of_another_federation_spends_no_key_and_is_left_as_it_was(server: Server) -> None:
    foreign = json.dumps({"federation": ANOTHER, "cc": "17"})
    server.file.write_text(foreign)
    with pytest.raises(DeploymentError, match="belongs to another federation"):
        server.synchronise()
    assert server.admitted() == ["a", "b"]
    assert server.file.read_text() == foreign


@pytest.mark.parametrize("noted", [{}, {"cc": "17", "dd": "18"}])
def test_a_file_that_knows_none_of_the_nodes_spends_no_key(
    server: Server, noted: dict[str, str]
) -> None:
    server.file.write_text(json.dumps(noted))
    with pytest.raises(UnregistersManyError, match="2 of 2 registered nodes"):
        server.synchronise()
    assert server.admitted() == ["a", "b"]


def test_the_keys_of_another_federation_spend_no_key(server: Server) -> None:
    for name in ("a", "b"):
        server.key(name).unlink()
        server.key(f"other-{name}")
    with pytest.raises(UnregistersManyError, match="--unregister-many"):
        server.synchronise()
    assert server.admitted() == ["a", "b"]
    for name in ("a", "b"):
        server.key(f"other-{name}").unlink()
        server.key(name)
    assert server.synchronise() == 2


def test_the_only_node_is_not_unregistered_because_its_key_was_not_copied(tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.key("a")
    server.synchronise()
    server.key("a").unlink()
    with pytest.raises(UnregistersManyError):
        server.synchronise()
    assert server.admitted() == ["a"]


def test_many_go_when_that_is_asked_for(server: Server) -> None:
    for name in ("a", "b"):
        server.key(name).unlink()
    assert server.synchronise(unregister_many=True) == 0
    assert server.admitted() == []


def test_many_that_were_revoked_go_without_asking(server: Server) -> None:
    for name in ("a", "b"):
        server.revoke(name)
    assert server.synchronise() == 0
    assert server.admitted() == []


def test_revoked_nodes_go_also_when_others_are_refused_to(server: Server) -> None:
    for name in ("c", "d"):
        server.key(name)
    server.synchronise()
    server.revoke("a")
    for name in ("b", "c"):
        server.key(name).unlink()
    with pytest.raises(UnregistersManyError):
        server.synchronise()
    assert server.admitted() == ["b", "c", "d"]
