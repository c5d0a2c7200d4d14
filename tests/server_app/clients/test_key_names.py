"""Where the server knows the nodes' keys, a node is called what its key is called."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from flwr.app import ConfigRecord, Message

from common import records
from common.node_keys import KEYS_VARIABLE, NUMBERS_VARIABLE, key_digest, names_by_number
from server_app.clients.gather import StartError, gather
from tests.in_process.grid import FakeClock, Fault, InProcessGrid
from tests.server_app.toy import grid_of, named, node_of, settings_for

Register = Callable[[Mapping[str, int]], None]


@pytest.fixture
def register(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Register:
    """Return what notes the nodes' numbers by their keys' names, as the registry does."""
    keys, numbers = tmp_path / "nodes", tmp_path / "superlink.sqlite.nodes.json"
    keys.mkdir()
    monkeypatch.setenv(KEYS_VARIABLE, str(keys))
    monkeypatch.setenv(NUMBERS_VARIABLE, str(numbers))

    def note(nodes: Mapping[str, int]) -> None:
        noted = {"federation": "an id"}
        for name, number in nodes.items():
            file = keys / f"{name}.pub"
            file.write_text(f"ecdsa-sha2-nistp384 {name}key== somebody@{name}\n")
            noted[key_digest(file)] = str(number)
        numbers.write_text(json.dumps(noted))

    return note


def claims(name: str, **further: str) -> Callable[[Message], Message]:
    """Return a fault: the node calls itself so in its answer to the query."""

    def change(reply: Message) -> Message:
        record = reply.content.config_records[records.CLIENT]
        reply.content[records.CLIENT] = ConfigRecord(
            {**record, records.CLIENT_NAME: name, **further}
        )
        return reply

    return change


def federation(fake: FakeClock, *faults: Fault) -> tuple[InProcessGrid, dict[str, int]]:
    """Return a grid of a, b and c, and their node numbers."""
    grid = grid_of(fake, named("a", "b", "c"), *faults)
    return grid, {name: node_of(grid, name) for name in "abc"}


def lies(name: str, **further: str) -> Fault:
    """Return the fault of node c."""
    return Fault(2, claims(name, **further), message_type=records.QUERY)


def test_a_node_that_is_called_as_its_key_takes_part(fake: FakeClock, register: Register) -> None:
    grid, numbers = federation(fake)
    register(numbers)
    assert gather(grid, settings_for(3), fake.clock()).names == ("a", "b", "c")


def test_only_the_one_that_claims_anothers_name_is_left_out_with_its_number_and_its_keys_name(
    fake: FakeClock, register: Register, warnings: pytest.LogCaptureFixture
) -> None:
    grid, numbers = federation(fake, lies("a"))
    register(numbers)
    roster = gather(grid, settings_for(2), fake.clock())
    assert roster.names == ("a", "b")
    assert roster.node_ids(["a"]) == [numbers["a"]]
    said = f"node {numbers['c']}: it calls itself 'a', but its key is that of 'c'"
    assert said in warnings.text


def test_it_can_t_speak_in_anothers_name_with_an_error_either(
    fake: FakeClock, register: Register, warnings: pytest.LogCaptureFixture
) -> None:
    # An error of a client whose data are shared out would end the start.
    grid, numbers = federation(fake, lies("a", error="no data"))
    register(numbers)
    assert gather(grid, settings_for(2), fake.clock()).names == ("a", "b")
    assert "no data" not in warnings.text


def test_a_node_without_a_key_in_the_bundle_is_left_out(
    fake: FakeClock, register: Register, warnings: pytest.LogCaptureFixture
) -> None:
    grid, numbers = federation(fake)
    del numbers["c"]
    register(numbers)
    assert gather(grid, settings_for(2), fake.clock()).names == ("a", "b")
    assert "calls itself 'c', but no key in the server's bundle is its" in warnings.text


def test_without_keys_a_node_is_called_what_it_says(fake: FakeClock) -> None:
    grid, _ = federation(fake, lies("d"))
    assert gather(grid, settings_for(3), fake.clock()).names == ("a", "b", "d")


@pytest.mark.parametrize("damage", ["no file", "half a file", "no keys", "no number", "one name"])
def test_what_can_t_be_read_does_not_switch_the_rule_off(
    fake: FakeClock,
    register: Register,
    tmp_path: Path,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid, numbers = federation(fake, lies("a"))
    register(numbers)
    file = tmp_path / "superlink.sqlite.nodes.json"
    if damage == "no file":
        file.unlink()
    elif damage == "half a file":
        file.write_text(file.read_text()[:20])
    elif damage == "no keys":
        (tmp_path / "nodes").rename(tmp_path / "elsewhere")
    elif damage == "no number":
        file.write_text(file.read_text().replace(str(numbers["a"]), "seven"))
    else:
        monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises(StartError, match="whose key it has can't be told"):
        gather(grid, settings_for(2), fake.clock())


def test_keys_are_read_anew_for_every_query(
    fake: FakeClock, register: Register, warnings: pytest.LogCaptureFixture
) -> None:
    grid, numbers = federation(fake)
    register(numbers)
    settings = settings_for(3)
    roster = gather(grid, settings, fake.clock())
    d, e = grid.connect({"name": "d"}), grid.connect({"name": "e"})
    register(numbers | {"d": d})
    roster.refresh(grid, settings, fake.clock())
    assert roster.names == ("a", "b", "c", "d")
    assert f"node {e}: it calls itself 'e', but no key" in warnings.text


def test_names_are_those_of_keys_that_are_in_the_folder_and_have_a_number(
    register: Register, tmp_path: Path
) -> None:
    register({"a": 2**64 - 1, "b": 5})
    (tmp_path / "nodes" / "b.pub").unlink()
    (tmp_path / "nodes" / "new.pub").write_text("ecdsa-sha2-nistp384 newkey== x\n")
    found = names_by_number(tmp_path / "nodes", tmp_path / "superlink.sqlite.nodes.json")
    assert found == {2**64 - 1: "a"}
