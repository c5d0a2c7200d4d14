"""Versions, ports, folders, device: what the machine itself has."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from common.config import SettingsError
from scripts.moonflower.deployment.release import versions_here
from scripts.moonflower.doctor import ports
from scripts.moonflower.doctor.bundle import Bundle, check_bundle, check_client_name
from scripts.moonflower.doctor.connection import check_name_unique
from scripts.moonflower.doctor.device import check_device
from scripts.moonflower.doctor.disk import check_folder
from scripts.moonflower.doctor.findings import Finding
from scripts.moonflower.doctor.ports import check_ports, listeners
from scripts.moonflower.doctor.site_data import check_folder_readable
from scripts.moonflower.doctor.versions import check_versions, wanted_versions
from tests.scripts.doctor.bundles import Authority, make_bundle

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc: Linux only")


def with_settings(bundle: Bundle, **settings: str) -> Bundle:
    return replace(bundle, settings={**bundle.settings, **settings})


def on_ports(bundle: Bundle, fence: int, superlink: int) -> dict[str, Finding]:
    ports = {"MOONFLOWER_FENCE_PORT": str(fence), "MOONFLOWER_SUPERLINK_PORT": str(superlink)}
    return {each.check: each for each in check_ports(with_settings(bundle, **ports))}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


# versions


def test_the_pinned_flower_is_what_is_wanted_and_there() -> None:
    wanted, own = wanted_versions(), versions_here()
    assert wanted["flwr"].contains("1.42.0")
    assert not wanted["flwr"].contains("1.43.0")
    assert all(allowed.contains(own[name]) for name, allowed in wanted.items())


def test_another_flower_and_a_missing_torch_fail(server: Bundle) -> None:
    own = {**versions_here(), "flwr": "1.43.0", "torch": ""}
    found = {each.check: each for each in check_versions(server, own, wanted_versions())}
    assert (found["flwr"].status, found["torch"].status) == ("failed", "failed")
    assert "1.43.0, the app needs flwr ==1.42.0" in found["flwr"].found
    assert "not installed" in found["torch"].found
    assert found["python"].status == "ok"


def test_other_versions_than_those_noted_in_the_bundle_are_warned_of(node: Bundle) -> None:
    own = versions_here()
    node.file("versions.json").write_text(json.dumps(own))
    same = list(check_versions(node, own, {}))
    assert [each.status for each in same] == ["ok"]
    node.file("versions.json").write_text(json.dumps({**own, "torch": "2.0.0"}))
    (differs,) = check_versions(node, own, {})
    assert differs.status == "warning"
    assert "instead of 2.0.0" in differs.found


def test_a_python_patch_and_a_build_for_another_device_are_the_same_release(node: Bundle) -> None:
    own = {"python": "3.11.7", "torch": "2.14.1+cu130"}
    node.file("versions.json").write_text('{"python": "3.11.2", "torch": "2.14.1+cpu"}')
    assert [each.status for each in check_versions(node, own, {})] == ["ok"]
    node.file("versions.json").write_text('{"python": "3.12.7", "torch": "2.14.1"}')
    (differs,) = check_versions(node, own, {})
    assert "python 3.11.7 instead of 3.12.7" in differs.found


# the bundle


def test_missing_files_and_open_secrets_are_said(server: Bundle) -> None:
    assert [each.status for each in check_bundle(server)] == ["ok", "ok"]
    server.file("server.key").chmod(0o644)
    server.folder.chmod(0o755)
    server.file("ca.crt").unlink()
    server.file("ca.key").write_text("secret")
    found = [f"{each.status}: {each.found}" for each in check_bundle(server)]
    assert len(found) == 4
    assert found[0].endswith("lacks ca.crt")
    assert found[1].startswith("warning: the CA's private key is here")
    assert "mode 0644" in found[2]
    assert "mode 0755" in found[3]


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no node's bundle: it has no node\.env"):
        Bundle.open(tmp_path, "node")
    (tmp_path / "node.env").write_text("# fine\n\nA=1\nno equals sign\n")
    with pytest.raises(SettingsError, match=r"line 4: 'no equals sign' is not KEY=value"):
        Bundle.open(tmp_path, "node")


def test_settings_are_those_that_the_start_script_would_take(
    node: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cuda:7")
    monkeypatch.setenv("MOONFLOWER_STATE_DIR", "")  # as compose passes what nobody gave
    settings = Bundle.open(node.folder, "node").settings
    assert settings["MOONFLOWER_DEVICE"] == "cuda:7"
    assert settings["MOONFLOWER_STATE_DIR"] == node.settings["MOONFLOWER_STATE_DIR"]


@pytest.mark.parametrize("name", ["", "../x", "a b"])
def test_a_name_that_can_t_be_a_client_s_is_said(node: Bundle, name: str) -> None:
    (found,) = check_client_name(with_settings(node, MOONFLOWER_CLIENT_NAME=name))
    assert found.status == "failed"
    assert "MOONFLOWER_CLIENT_NAME" in found.remedy


# nginx and ports


def test_a_server_without_nginx_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "find_nginx", lambda: None)
    (found,) = ports.check_nginx()
    assert (found.status, "not installed" in found.found) == ("warning", True)
    assert "apt-get install nginx-light" in found.remedy
    monkeypatch.setattr(ports, "find_nginx", lambda: "/usr/sbin/nginx")
    (found,) = ports.check_nginx()
    assert (found.status, found.found) == ("ok", "/usr/sbin/nginx")


def test_free_ports_are_free(server: Bundle) -> None:
    found = on_ports(server, free_port(), free_port())
    assert {each.status for each in found.values()} == {"ok"}
    assert all(each.found.endswith("is free") for each in found.values())


@linux
def test_a_port_that_another_program_uses_fails_with_its_name(server: Bundle) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = on_ports(server, port, free_port())["port of the fence"]
    assert found.status == "failed"
    assert f"({os.getpid()})" in found.found


@linux
def test_a_superlink_that_other_machines_reach_fails(server: Bundle) -> None:
    with socket.create_server(("", 0)) as opened:
        port = opened.getsockname()[1]
        found = on_ports(server, free_port(), port)["Control interface"]
    assert found.status == "failed"
    assert "without a login" in found.found


PROGRAM = """\
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[4])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    line, _ = server.accept()
    try:
        context.wrap_socket(line, server_side=True).close()
    except OSError:
        pass
"""


@contextmanager
def superlink_of(folder: Path, tmp_path: Path) -> Iterator[int]:
    """Run what looks like the SuperLink of the bundle in a folder; yield its port."""
    program = tmp_path / "flower-superlink"
    program.write_text(PROGRAM)
    files = ["--ssl-certfile", str(folder / "server.crt")]
    files += ["--ssl-keyfile", str(folder / "server.key")]
    process = subprocess.Popen(
        [sys.executable, str(program), *files], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


@linux
def test_a_superlink_of_the_same_federation_may_run(server: Bundle, tmp_path: Path) -> None:
    with superlink_of(server.folder, tmp_path) as port:
        found = on_ports(server, free_port(), port)["port of the SuperLink"]
    assert found.status == "ok"
    assert "in use by flower-superlink" in found.found


@linux
def test_another_federations_superlink_on_the_port_fails_and_is_named(
    server: Bundle, tmp_path: Path
) -> None:
    other = make_bundle(tmp_path / "other" / "server", "server", {})
    Authority.make().issue(other.folder)
    with superlink_of(other.folder, tmp_path) as port:
        found = on_ports(server, free_port(), port)["port of the SuperLink"]
    assert found.status == "failed"
    assert "another federation's SuperLink: flower-superlink (" in found.found
    assert found.found.endswith(f"started with the bundle {other.folder}")
    assert "--superlink-port" in found.remedy


def test_a_fence_that_does_not_listen_where_the_servers_name_points_fails(server: Bundle) -> None:
    settings = {"MOONFLOWER_SERVER_NAME": "::1", "MOONFLOWER_FENCE_ADDRESS": "127.0.0.1"}
    found = {each.check: each for each in check_ports(with_settings(server, **settings))}
    assert found["address of the fence"].status == "failed"
    assert "--fence-address ::" in found["address of the fence"].remedy
    assert "address of the fence" not in {each.check for each in check_ports(server)}


@linux
def test_listeners_are_found_on_both_families() -> None:
    for host, expected in (("127.0.0.1", "127.0.0.1"), ("::1", "::1")):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            opened = socket.create_server((host, 0), family=family)
        except OSError:
            continue  # a machine without IPv6
        with opened:
            (found,) = listeners(opened.getsockname()[1])
        assert found.address == expected
        assert found.loopback_only


@pytest.mark.parametrize("port", ["0", "65536", "https"])
def test_a_port_that_is_none_is_refused(server: Bundle, port: str) -> None:
    with pytest.raises(SettingsError, match="a port from 1 to 65535"):
        list(check_ports(with_settings(server, MOONFLOWER_FENCE_PORT=port)))


# folders


def test_a_folder_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    (found,) = check_folder("state folder", tmp_path, "X")
    assert "GB free" in found.found
    assert list(tmp_path.iterdir()) == []
    (missing,) = check_folder("state folder", tmp_path / "a" / "b", "X")
    assert f"will be made below {tmp_path}" in missing.found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["/proc", "/dev/null", "/dev/null/x"])
def test_a_folder_that_can_t_be_written_fails(folder: str) -> None:
    (found,) = check_folder("state folder", Path(folder), "MOONFLOWER_STATE_DIR")
    assert found.status == "failed"
    assert "MOONFLOWER_STATE_DIR" in found.remedy


def test_data_that_a_unit_would_not_see_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = check_folder_readable(tmp_path)
    assert found.status == "ok"
    monkeypatch.setattr("scripts.moonflower.doctor.site_data.PERSONAL", (f"{tmp_path}/",))
    (found,) = check_folder_readable(tmp_path)
    assert found.status == "warning"
    assert f"BindReadOnlyPaths={tmp_path}" in found.remedy


@pytest.mark.parametrize(("free", "status"), [(1e8, "failed"), (1e9, "warning"), (1e10, "ok")])
def test_little_space_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: float, status: str
) -> None:
    usage = type("Usage", (), {"free": free})
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    (found,) = check_folder("state folder", tmp_path, "X")
    assert found.status == status


# device


def test_a_cpu_is_named_with_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cpu")
    (found,) = check_device(tmp_path / "no-driver")
    assert found.found.startswith("CPU, ")


def test_a_driver_without_a_torch_that_sees_it_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "nvidiactl").touch()
    (found,) = check_device(tmp_path / "nvidiactl")
    assert found.status == "warning"
    assert "torch sees none" in found.found


def test_a_device_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("MOONFLOWER_DEVICE", "cuda:1")
    with pytest.raises(SettingsError, match="no CUDA device on this machine"):
        list(check_device())


# one node of a name


@linux
def test_two_supernodes_of_one_name_are_found(node: Bundle, tmp_path: Path) -> None:
    # Nodes of other tests, or of other people, may run here as well.
    name = f"clinic-{secrets.token_hex(4)}"
    node.settings["MOONFLOWER_CLIENT_NAME"] = name
    assert "none runs on this machine" in next(check_name_unique(node)).found
    program = tmp_path / "flower-supernode"
    program.write_text("import sys\nprint('up', flush=True)\nsys.stdin.read()\n")
    running: list[subprocess.Popen[str]] = []
    said = []
    try:
        for each in (name, f"{name}-b", name):
            process = subprocess.Popen(
                [sys.executable, str(program)],
                env={**os.environ, "MOONFLOWER_CLIENT_NAME": each},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.append(process)
            assert process.stdout is not None
            process.stdout.readline()
            said.append(next(check_name_unique(node)))
    finally:
        for process in running:
            process.communicate()
    assert [each.status for each in said] == ["ok", "ok", "failed"]
    assert f"it runs already, process {running[0].pid}" in said[0].found
    assert f"2 SuperNodes named {name}" in said[2].found
