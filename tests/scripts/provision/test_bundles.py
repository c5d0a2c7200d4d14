"""What lies in the federation's folder, and what a second run leaves as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from scripts.moonflower.deployment.fence_keys import KNOWN_KEYS
from scripts.moonflower.deployment.supervision import GRACE
from tests.scripts.provision.conftest import Provision

NODE_FILES = [
    "ca.crt",
    "moonflower-supernode.service",
    "node.env",
    "node.key",
    "node.pub",
    "start",
    "versions.json",
]
SERVER_FILES = [
    "ca.crt",
    "moonflower-fence.service",
    "moonflower-superlink.service",
    "nginx.compose.conf",
    "nginx.conf",
    "nodes",
    "server.crt",
    "server.env",
    "server.key",
    "start",
    "versions.json",
]


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def _contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_each_party_gets_what_it_needs_and_no_more(made: Path) -> None:
    assert _names(made) == ["ca", "federation.toml", "nodes", "server"]
    assert _names(made / "ca") == ["ca.crt", "ca.key"]
    assert _names(made / "server") == SERVER_FILES
    assert _names(made / "server" / "nodes") == ["clinic-a.pub", "clinic-b.pub", KNOWN_KEYS]
    assert _names(made / "nodes") == ["clinic-a", "clinic-b"]
    assert _names(made / "nodes" / "clinic-a") == NODE_FILES


def test_nobody_else_can_read_anything(made: Path) -> None:
    for path in (made, *made.rglob("*")):
        runs = path.is_dir() or path.name == "start"
        assert path.stat().st_mode & 0o777 == (0o700 if runs else 0o600), path


@pytest.mark.parametrize(
    "unit",
    ["server/moonflower-superlink.service", "nodes/clinic-a/moonflower-supernode.service"],
)
def test_systemd_waits_until_the_start_script_has_ended_everything(made: Path, unit: str) -> None:
    found = re.search(r"^TimeoutStopSec=(\d+)$", (made / unit).read_text(), re.MULTILINE)
    assert found
    assert float(found[1]) > 2 * GRACE


def test_node_keys_are_p384_in_openssh_format_and_differ(made: Path) -> None:
    lines = set()
    for name in ("clinic-a", "clinic-b"):
        bundle = made / "nodes" / name
        key = serialization.load_ssh_private_key((bundle / "node.key").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        assert isinstance(key.curve, ec.SECP384R1)
        public = serialization.load_ssh_public_key((bundle / "node.pub").read_bytes())
        assert public == key.public_key()
        assert (made / "server" / "nodes" / f"{name}.pub").read_bytes() == (
            bundle / "node.pub"
        ).read_bytes()
        lines.add((bundle / "node.pub").read_bytes())
    assert len(lines) == 2


def test_settings_say_where_the_server_is(made: Path) -> None:
    server = (made / "server" / "server.env").read_text().splitlines()
    assert "MOONFLOWER_SERVER_NAME=fl.example.org" in server
    assert "MOONFLOWER_FENCE_PORT=9443" in server
    node = (made / "nodes" / "clinic-a" / "node.env").read_text().splitlines()
    assert "MOONFLOWER_SUPERLINK=fl.example.org:9443" in node
    assert "MOONFLOWER_CLIENT_NAME=clinic-a" in node


def test_an_ipv6_address_stands_in_brackets(folder: Path, provision: Provision) -> None:
    assert provision("--server", "2001:DB8::1", "--node", "a").exit_code == 0
    text = (folder / "nodes" / "a" / "node.env").read_text()
    assert "MOONFLOWER_SUPERLINK=[2001:db8::1]:9443\n" in text


def test_a_second_run_changes_nothing(made: Path, provision: Provision) -> None:
    before = _contents(made)
    assert "nothing was changed" in provision().output
    assert _contents(made) == before


def test_adding_a_node_leaves_all_others_as_they_are(made: Path, provision: Provision) -> None:
    before = _contents(made)
    result = provision("--node", "clinic-c")
    assert result.exit_code == 0
    after = _contents(made)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"federation.toml", f"server/nodes/{KNOWN_KEYS}"}
    added = {f"nodes/clinic-c/{name}" for name in NODE_FILES} | {"server/nodes/clinic-c.pub"}
    assert set(after) - set(before) == added
    assert "nodes/clinic-c, server" in result.output


def test_a_node_can_be_added_in_the_file(made: Path, provision: Provision) -> None:
    file = made / "federation.toml"
    file.write_text(file.read_text().replace('"clinic-b"]', '"clinic-b", "clinic-c"]'))
    assert provision().exit_code == 0
    assert (made / "server" / "nodes" / "clinic-c.pub").exists()


def test_what_a_person_changed_in_the_settings_stays(made: Path, provision: Provision) -> None:
    file = made / "nodes" / "clinic-a" / "node.env"
    text = file.read_text().replace("MOONFLOWER_DEVICE=", "MOONFLOWER_DEVICE=cuda:1")
    file.write_text(text + "MOONFLOWER_RESIDENT_MB=100\n")
    assert provision("--port", "443").exit_code == 0
    lines = file.read_text().splitlines()
    assert "MOONFLOWER_DEVICE=cuda:1" in lines
    assert "MOONFLOWER_RESIDENT_MB=100" in lines
    assert "MOONFLOWER_SUPERLINK=fl.example.org:443" in lines


def test_another_port_is_said_with_the_bundles_that_have_it(
    made: Path, provision: Provision
) -> None:
    said = provision("--port", "9777", "--superlink-port", "9778").output
    assert "nothing was changed" not in said
    assert "server.env (MOONFLOWER_FENCE_PORT=9777, MOONFLOWER_SUPERLINK_PORT=9778)" in said
    for name in ("clinic-a", "clinic-b"):
        setting = "MOONFLOWER_SUPERLINK=fl.example.org:9777"
        assert f"changed in nodes/{name}: node.env ({setting})\n" in said
    assert f"hand out, from {made}: nodes/clinic-a, nodes/clinic-b, server\n" in said
    assert "SuperLink and fence are started again" in said
    assert "nothing was changed" in provision().output


def test_another_address_of_the_fence_concerns_the_server_alone(
    made: Path, provision: Provision
) -> None:
    said = provision("--fence-address", "192.0.2.10").output
    assert "server.env (MOONFLOWER_FENCE_ADDRESS=192.0.2.10)" in said
    assert f"hand out, from {made}: server\n" in said


def test_a_bundle_that_is_not_here_any_more_has_to_be_changed_by_hand(
    made: Path, provision: Provision
) -> None:
    shutil.rmtree(made / "nodes" / "clinic-a")
    assert "not here any more" not in provision("--fence-address", "192.0.2.10").output
    said = provision("--port", "9777").output
    assert "the bundles of clinic-a are not here any more" in said
    assert "set MOONFLOWER_SUPERLINK=fl.example.org:9777 in node.env" in said


@pytest.mark.parametrize(
    ("arguments", "listens"),
    [
        (["--server", "::1"], "[::]:9443 ssl ipv6only=off"),
        (["--server", "192.0.2.1", "--server", "2001:db8::1"], "[::]:9443 ssl ipv6only=off"),
        (["--server", "fl.example.org"], "0.0.0.0:9443 ssl"),
        (["--server", "a.example", "--fence-address", "[::]"], "[::]:9443 ssl ipv6only=off"),
        (["--server", "a.example", "--fence-address", "[::1]"], "[::1]:9443 ssl"),
    ],
)
def test_the_fence_listens_where_the_servers_names_point(
    folder: Path, provision: Provision, arguments: list[str], listens: str
) -> None:
    result = provision(*arguments)
    assert result.exit_code == 0
    assert f"    listen {listens};\n" in (folder / "server" / "nginx.conf").read_text()
    address = listens.rpartition(":9443")[0].strip("[]")
    assert f"MOONFLOWER_FENCE_ADDRESS={address}\n" in (folder / "server" / "server.env").read_text()
    assert "warning" not in result.output


def test_a_server_that_the_fence_would_not_hear_is_warned_of(
    folder: Path, provision: Provision
) -> None:
    said = provision("--server", "2001:db8::1", "--fence-address", "0.0.0.0").output  # noqa: S104
    assert "the fence listens on 0.0.0.0, where nobody reaches it as 2001:db8::1" in said


def test_a_bundle_that_was_taken_away_is_not_made_again(made: Path, provision: Provision) -> None:
    shutil.rmtree(made / "nodes" / "clinic-a")
    before = (made / "server" / "nodes" / "clinic-a.pub").read_bytes()
    assert provision().exit_code == 0
    assert not (made / "nodes" / "clinic-a").exists()
    assert (made / "server" / "nodes" / "clinic-a.pub").read_bytes() == before


def test_rotating_a_node_replaces_its_key_and_keeps_the_old_one_aside(
    made: Path, provision: Provision
) -> None:
    before = _contents(made)
    result = provision("--rotate", "clinic-a")
    assert result.exit_code == 0
    after = _contents(made)
    assert after["nodes/clinic-a/node.key"] != before["nodes/clinic-a/node.key"]
    assert after["server/nodes/clinic-a.pub"] == after["nodes/clinic-a/node.pub"]
    assert after["server/revoked/clinic-a-1.pub"] == before["server/nodes/clinic-a.pub"]
    assert after["nodes/clinic-b/node.key"] == before["nodes/clinic-b/node.key"]
    assert "no SuperLink of this federation runs on this machine" in result.output


def test_a_rotation_that_was_cut_short_is_finished_by_the_next_run(
    made: Path, provision: Provision
) -> None:
    from scripts.moonflower.deployment.authority import new_node_key

    (made / "nodes" / "clinic-a" / "node.key").write_bytes(new_node_key())
    assert provision().exit_code == 0
    after = _contents(made)
    assert after["server/nodes/clinic-a.pub"] == after["nodes/clinic-a/node.pub"]
    assert "server/revoked/clinic-a-1.pub" in after


def test_a_revoked_node_is_gone_from_everywhere_but_the_revoked(
    made: Path, provision: Provision
) -> None:
    key = (made / "server" / "nodes" / "clinic-a.pub").read_bytes()
    assert provision("--revoke", "clinic-a").exit_code == 0
    assert not (made / "nodes" / "clinic-a").exists()
    assert _names(made / "server" / "nodes") == ["clinic-b.pub", KNOWN_KEYS]
    assert (made / "server" / "revoked" / "clinic-a-1.pub").read_bytes() == key
    assert "clinic-a" not in (made / "federation.toml").read_text()
    assert "nothing was changed" in provision().output


def test_a_name_that_was_revoked_can_be_given_again_with_another_key(
    made: Path, provision: Provision
) -> None:
    old = (made / "server" / "nodes" / "clinic-a.pub").read_bytes()
    for arguments in (("--revoke", "clinic-a"), ("--node", "clinic-a"), ("--revoke", "clinic-a")):
        assert provision(*arguments).exit_code == 0
    assert (made / "server" / "revoked" / "clinic-a-1.pub").read_bytes() == old
    assert (made / "server" / "revoked" / "clinic-a-2.pub").read_bytes() != old


def test_a_node_taken_out_of_the_file_is_named_and_can_still_be_revoked(
    made: Path, provision: Provision
) -> None:
    file = made / "federation.toml"
    file.write_text(file.read_text().replace('"clinic-a", ', ""))
    assert "clinic-a is not in federation.toml but may connect" in provision().output
    assert provision("--revoke", "clinic-a").exit_code == 0
    assert not (made / "server" / "nodes" / "clinic-a.pub").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no server was named"),
        (["--server", "https://a.example"], "neither an IP address nor a DNS name"),
        (["--server", "a.example:9443"], "neither an IP address nor a DNS name"),
        (["--server", "*.example.org"], "neither an IP address nor a DNS name"),
        (["--server", "300.1.1.1"], "neither an IP address nor a DNS name"),
        (["--server", "bücher.example"], "neither an IP address nor a DNS name"),
        (["--server", "a.example", "--server", "A.example"], "named twice"),
        (["--server", "a.example", "--node", "../x"], "can't be used as a folder name"),
        (["--server", "a.example", "--node", "a b"], "can't be used as a folder name"),
        (["--server", "a.example", "--node", ".hidden"], "must not begin with"),
        (["--server", "a.example", "--node=-x"], "must not begin with"),
        (["--server", "a.example", "--node", "server"], "can't be used"),
        (["--server", "a.example", "--node", "a", "--node", "a"], "named twice"),
        (["--server", "a.example", "--node", "a", "--node", "A"], "named twice"),
        (["--server", "a.example", "--port", "0"], "fence-port"),
        (["--server", "a.example", "--port", "70000"], "fence-port"),
        (["--server", "a.example", "--fence-address", "eth0"], "no IP address"),
        (["--server", "a.example", "--state", "relative"], "an absolute path"),
        (["--server", "a.example", "--state", "/a b"], "an absolute path"),
        (["--server", "a.example", "--rotate", "x"], "there is no node 'x'"),
        (["--server", "a.example", "--revoke", "server"], "there is no node 'server'"),
        (["--server", "a.example", "--ca-days", "0"], "ca-days"),
    ],
)
def test_what_can_not_be_set_up_is_refused_before_anything_is_written(
    folder: Path, provision: Provision, arguments: list[str], message: str
) -> None:
    result = provision(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not folder.exists()


def test_rotating_and_revoking_the_same_node_is_refused(made: Path, provision: Provision) -> None:
    before = _contents(made)
    result = provision("--rotate", "clinic-a", "--revoke", "clinic-a")
    assert result.exit_code == 2
    assert _contents(made) == before


def test_a_folder_with_other_things_is_left_alone(folder: Path, provision: Provision) -> None:
    folder.mkdir()
    (folder / "thesis.tex").write_text("x")
    result = provision("--server", "a.example")
    assert result.exit_code == 2
    assert "holds other things" in result.output
    assert _names(folder) == ["thesis.tex"]


def test_a_damaged_description_is_named(made: Path, provision: Provision) -> None:
    (made / "federation.toml").write_text("servers = [")
    result = provision()
    assert result.exit_code == 2
    assert "federation.toml can't be read" in result.output


def test_an_unknown_setting_in_the_description_is_named(made: Path, provision: Provision) -> None:
    file = made / "federation.toml"
    file.write_text(file.read_text() + "colour = 1\n")
    result = provision()
    assert result.exit_code == 2
    assert "colour" in result.output


def test_a_bundle_is_found_wherever_it_lies(made: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(made / "nodes" / "clinic-a", moved)
    text = (moved / "node.env").read_text()
    (moved / "node.env").write_text(text.replace("MOONFLOWER_APP=", "MOONFLOWER_APP=/nowhere"))
    done = subprocess.run([moved / "start"], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert str(moved) in done.stderr


def _unit(federation: Path, name: str) -> list[str]:
    folder = federation / ("nodes/clinic-a" if name == "supernode" else "server")
    return (folder / f"moonflower-{name}.service").read_text().splitlines()


@pytest.mark.parametrize("name", ["superlink", "supernode", "fence"])
def test_units_hide_homes_and_bound_memory(folder: Path, provision: Provision, name: str) -> None:
    server = ["--server", "a.example", "--node", "clinic-a"]
    assert provision(*server, "--app", "/opt/moonflower").exit_code == 0
    lines = _unit(folder, name)
    assert "ProtectHome=yes" in lines
    assert ("MemoryMax=1G" if name == "fence" else "MemoryMax=80%") in lines
    assert ("OOMPolicy=continue" in lines) is (name != "fence")


def test_what_a_unit_needs_below_a_home_is_all_that_it_sees_there(
    folder: Path, provision: Provision
) -> None:
    server = ["--server", "a.example", "--node", "clinic-a", "--app", "/home/ada/moonflower"]
    assert provision(*server, "--state", "/home/ada/state", "--bundles", "/rooted").exit_code == 0
    binds = [line for line in _unit(folder, "supernode") if line.startswith("Bind")]
    assert binds == ["BindReadOnlyPaths=/home/ada/moonflower", "BindPaths=/home/ada/state"]
    assert "ProtectHome=tmpfs" in _unit(folder, "supernode")


@pytest.mark.parametrize(
    ("server", "lines"),
    [
        ("192.0.2.10", ["IPAddressDeny=any", "IPAddressAllow=localhost 192.0.2.10"]),
        ("2001:db8::1", ["IPAddressDeny=any", "IPAddressAllow=localhost 2001:db8::1"]),
        ("a.example", []),
    ],
)
def test_a_node_calls_the_fence_alone_where_its_address_is_known(
    folder: Path, provision: Provision, server: str, lines: list[str]
) -> None:
    assert provision("--server", server, "--node", "clinic-a").exit_code == 0
    unit = _unit(folder, "supernode")
    assert [line for line in unit if line.startswith("IPAddress")] == lines
    assert [line for line in _unit(folder, "superlink") if line.startswith("IPAddress")] == [
        "IPAddressDeny=any",
        "IPAddressAllow=localhost",
    ]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
@pytest.mark.parametrize("home", ["/opt", "/home/ada"])
def test_the_systemd_units_are_valid(
    folder: Path, provision: Provision, tmp_path: Path, home: str
) -> None:
    places = ["--app", f"{home}/moonflower", "--state", f"{home}/state"]
    assert provision("--server", "192.0.2.10", "--node", "a", *places).exit_code == 0
    units = tmp_path / "units"
    units.mkdir()
    for unit in folder.rglob("*.service"):
        text = unit.read_text()
        for line in text.splitlines():
            if line.startswith("ExecStart="):
                # The bundles are not installed on this machine.
                text = text.replace(line, f"ExecStart={sys.executable}")
        (units / unit.name).write_text(text)
    files = sorted(units.iterdir())
    assert len(files) == 3
    done = subprocess.run(
        ["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "moonflower" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_nginx_accepts_the_fence(made: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["nginx", "-t", "-e", "stderr", "-p", f"{tmp_path}/", "-c", made / "server" / "nginx.conf"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
