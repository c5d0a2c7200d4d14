"""The compose files: valid, and no wider open than they have to be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docker.compose import CPU, FILES, FOLDER, NODE, SERVER, read, source, variables

FEDERATION = {
    "MOONFLOWER_BUNDLE": "/etc/moonflower/bundle",
    "MOONFLOWER_DATA_DIR": "/srv/data",
    "MOONFLOWER_SUPERLINK": "fl.example.org:9443",
    "MOONFLOWER_CLIENT_NAME": "clinic-a",
}


def validated(content: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """Check a compose file against the Compose specification's schema, which the checker brings."""
    file = folder / "compose.json"
    file.write_text(json.dumps(content))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)


def services() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{' '.join(names)}: {name}", service)
        for names in ((SERVER,), (NODE,), (NODE, CPU))
        for name, service in read(*names, values=FEDERATION)["services"].items()
    ]


@pytest.mark.parametrize("names", [(SERVER,), (NODE,), (NODE, CPU)])
def test_compose_files_follow_the_compose_specification(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    done = validated(read(*names, values=FEDERATION), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_check_against_the_specification_notices_a_misspelt_key(tmp_path: Path) -> None:
    content = read(NODE, values=FEDERATION)
    content["services"]["supernode"]["read_onyl"] = True
    done = validated(content, tmp_path)
    assert done.returncode == 1
    assert "read_onyl" in done.stdout


def test_the_example_of_settings_names_exactly_what_the_compose_files_use() -> None:
    used = set().union(*(variables((FOLDER / name).read_text()) for name in FILES))
    lines = (FOLDER / ".env.example").read_text().splitlines()
    named = [line.lstrip("#").partition("=")[0] for line in lines if re.match(r"#?[A-Z_]+=", line)]
    assert sorted(named) == sorted(used)


def test_the_example_of_settings_gives_the_defaults_of_the_compose_files() -> None:
    text = "".join((FOLDER / name).read_text() for name in (SERVER, NODE))
    example = dict(
        line.lstrip("#").split("=", 1)
        for line in (FOLDER / ".env.example").read_text().splitlines()
        if re.match(r"#?[A-Z_]+=", line)
    )
    defaults = dict(re.findall(r"\$\{([A-Z_]+):?-([^}]*)\}", text))
    assert defaults  # or this compares nothing
    del defaults["MOONFLOWER_SERVER_NAME"]  # a name that everybody has to replace
    assert {name: example[name] for name in defaults} == defaults


@pytest.mark.parametrize("name", [*FEDERATION])
def test_a_node_does_not_start_without_what_only_its_bundle_knows(name: str) -> None:
    assert re.search(
        rf"\$\{{{name}:\?[^}}]+--env-file|\$\{{{name}:\?[^}}]+node\.env",
        (FOLDER / NODE).read_text(),
    )


def test_no_port_but_the_fences_is_published_beyond_loopback() -> None:
    published = {name: service.get("ports", []) for name, service in services()}
    fence = published.pop(f"{SERVER}: fence")
    assert fence == [{"target": 9443, "published": "9443", "host_ip": "0.0.0.0"}]  # noqa: S104
    ports = [port for ports in published.values() for port in ports]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:8765:8765"]
    assert not any("network_mode" in service for _, service in services())


def test_only_the_fence_is_inside_with_the_superlink_and_the_dashboard_is_not() -> None:
    content = read(SERVER)
    superlink, fence = (
        set(content["services"][name]["networks"]) for name in ("superlink", "fence")
    )
    assert superlink & fence == {"inside"}
    assert content["networks"]["inside"]["internal"] is True
    assert set(content["services"]) == {"superlink", "fence", "dashboard"}
    # Whoever reaches the fence reaches no page: it is on the admin network only.
    assert content["services"]["dashboard"]["networks"] == ["admin"]
    assert content["services"]["dashboard"]["profiles"] == ["dashboard"]


@pytest.mark.parametrize(("name", "service"), services())
def test_containers_have_no_rights_that_they_do_not_need(
    name: str, service: dict[str, Any]
) -> None:
    assert service["read_only"] is True, name
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "10001:10001"
    assert re.fullmatch(r"\d+g", service["mem_limit"])
    assert "privileged" not in service
    assert "cap_add" not in service


@pytest.mark.parametrize(("name", "service"), services())
def test_containers_come_back_and_say_whether_they_are_well(
    name: str, service: dict[str, Any]
) -> None:
    assert service["restart"] == "unless-stopped", name
    # Ours have theirs from the image: see the Dockerfile's HEALTHCHECK.
    assert "healthcheck" in service or service["build"]["target"] in ("server", "node")


def test_bundles_and_data_are_read_only_and_the_rest_can_be_written() -> None:
    writable = {}
    for name, service in services():
        mounts = [source(mount) for mount in service["volumes"]]
        writable[name] = sorted(where for _, where, read_only in mounts if not read_only)
        # The live page needs no key, and has none.
        wanted = {"/output"} if name.endswith("dashboard") else {"/bundle"}
        assert wanted <= {where for _, where, _ in mounts}
    assert writable == {
        f"{SERVER}: superlink": ["/database", "/output"],
        f"{SERVER}: fence": [],
        f"{SERVER}: dashboard": [],
        f"{NODE}: supernode": ["/state"],
        f"{NODE} {CPU}: supernode": ["/state"],
    }


def test_a_folder_that_is_missing_is_not_made_by_docker_as_root() -> None:
    for _, service in services():
        for mount in service["volumes"]:
            if isinstance(mount, dict):
                assert mount["bind"]["create_host_path"] is False


def test_a_node_reserves_one_gpu_and_the_cpu_file_takes_that_back() -> None:
    values = {**FEDERATION, "MOONFLOWER_GPU": "1"}
    with_gpu = read(NODE, values=values)["services"]["supernode"]
    (device,) = with_gpu["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "device_ids": ["1"], "capabilities": ["gpu"]}
    assert with_gpu["environment"]["MOONFLOWER_DEVICE"] == "cuda"
    without = read(NODE, CPU, values=values)["services"]["supernode"]
    assert "deploy" not in without
    assert without["environment"]["MOONFLOWER_DEVICE"] == "cpu"
    assert without["build"]["args"]["TORCH_VARIANT"] == "cpu"
