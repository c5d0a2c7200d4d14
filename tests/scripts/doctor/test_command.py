"""`moonflower doctor`: what is shown, and the exit status."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from click.testing import Result
from typer.testing import CliRunner

from scripts.moonflower.commands import app
from scripts.moonflower.deployment.fence_keys import renew_known_keys
from scripts.moonflower.doctor.bundle import Bundle
from tests.scripts.doctor.bundles import make_bundle, new_key, public_line, tls_server

SITE = ["-c", "data.source=npz data.image-shape=1x6x5 data.num-classes=3"]


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """Take back the variables that the command sets."""
    with mock.patch.dict(os.environ):
        yield


def doctor(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *arguments])


def findings(result: Result) -> dict[str, dict[str, Any]]:
    return {each["check"]: each for each in json.loads(result.stdout)["findings"]}


def write_examples(node: Bundle, labels: list[int], shape: tuple[int, ...] = (1, 6, 5)) -> None:
    folder = Path(node.settings["MOONFLOWER_DATA_DIR"])
    folder.mkdir(exist_ok=True)
    images = np.zeros((len(labels), *shape), dtype=np.uint8)
    np.savez(folder / "train.npz", x=images, y=np.array(labels, dtype=np.int64))


def examine_node(node: Bundle, *arguments: str) -> dict[str, dict[str, Any]]:
    return findings(doctor("node", "--bundle", str(node.folder), "--json", *arguments))


def test_a_server_in_order_passes(server: Bundle) -> None:
    (server.file("nodes") / "clinic-a.pub").write_bytes(public_line(new_key()))
    renew_known_keys(server.file("nodes"), server.file("revoked"), print)
    ports = {"MOONFLOWER_FENCE_PORT": "39443", "MOONFLOWER_SUPERLINK_PORT": "39444"}
    text = "".join(f"{key}={value}\n" for key, value in {**server.settings, **ports}.items())
    server.file("server.env").write_text(text)
    result = doctor("server", "--bundle", str(server.folder), "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["ok"] is True
    found = findings(result)
    assert "to be registered" in found["key of clinic-a"]["found"]
    assert found["certificate for fence.example"]["status"] == "ok"


def test_a_server_with_a_failure_ends_with_1_and_shows_the_remedy(server: Bundle) -> None:
    server.file("server.key").chmod(0o644)
    result = doctor("server", "--bundle", str(server.folder))
    assert result.exit_code == 1
    assert "chmod 600" in " ".join(result.stdout.split())


def test_a_node_in_order_passes_with_counts_per_class(server: Bundle, node: Bundle) -> None:
    write_examples(node, [0] * 12 + [2] * 10)
    with tls_server(server.folder) as port:
        # SuperNodes of other tests may run on this machine.
        own = {"MOONFLOWER_CLIENT_NAME": f"clinic-{secrets.token_hex(4)}"}
        settings = {**node.settings, **own, "MOONFLOWER_SUPERLINK": f"localhost:{port}"}
        bundle = make_bundle(node.folder.parent / "own" / "clinic-a", "node", settings)
        for name in ("ca.crt", "node.key", "node.pub"):
            bundle.file(name).write_bytes(node.file(name).read_bytes())
        bundle.file("node.key").chmod(0o600)
        result = doctor("node", "--bundle", str(bundle.folder), "--json", *SITE)
    assert result.exit_code == 0, result.output
    found = findings(result)
    counts = found["training examples"]
    assert counts["found"] == "22 of 1x6x5, per label 0: 12, 2: 10; none of 1 labels"
    assert found["model"]["found"].startswith("mlp (the run's)")
    assert found["first message"]["status"] == "ok"


@pytest.mark.parametrize(
    ("labels", "shape", "said"),
    [
        ([0, 1, 3], (1, 6, 5), "1 labels lie outside 0 to 2"),
        ([0, 1, 2], (1, 7, 5), "data.image-shape is 1x6x5"),
        ([], (1, 6, 5), "no training examples"),
        (None, (), "no examples: looked in"),
    ],
)
def test_data_that_do_not_fit_the_run_fail(
    node: Bundle, labels: list[int] | None, shape: tuple[int, ...], said: str
) -> None:
    if labels is None:
        Path(node.settings["MOONFLOWER_DATA_DIR"]).mkdir()
    else:
        write_examples(node, labels, shape)
    found = examine_node(node, *SITE)
    failed = [each for each in found.values() if each["status"] == "failed"]
    assert any(said in each["found"] for each in failed)
    assert not Path(node.settings["MOONFLOWER_STATE_DIR"]).exists(), "nothing is written"


def test_a_damaged_archive_and_a_missing_folder_fail(node: Bundle) -> None:
    assert "is no folder" in examine_node(node)["data folder"]["found"]
    write_examples(node, [0, 1, 2])
    archive = Path(node.settings["MOONFLOWER_DATA_DIR"]) / "train.npz"
    archive.write_bytes(archive.read_bytes()[:200])
    assert "can't be read as a NumPy archive" in examine_node(node, *SITE)["examples"]["found"]


def test_few_examples_and_a_missing_test_set_are_said(node: Bundle) -> None:
    write_examples(node, [0] * 12 + [1])
    found = examine_node(node, *SITE, "-c", "data.client-test=global")
    assert found["training examples"]["status"] == "warning"
    assert "fewer than 10 of label 1" in found["training examples"]["found"]
    assert found["test examples"]["status"] == "failed"


def test_without_the_run_s_settings_examples_are_not_judged(node: Bundle) -> None:
    write_examples(node, [0, 1, 2])
    assert examine_node(node)["examples"]["status"] == "warning"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-c", "data.source=npz"], "data.image-shape"),
        (["--preset", "missing"], "preset 'missing'"),
    ],
)
def test_settings_that_are_wrong_end_with_2(node: Bundle, arguments: list[str], said: str) -> None:
    result = doctor("node", "--bundle", str(node.folder), *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_folder_that_is_no_bundle_ends_with_2(tmp_path: Path, node: Bundle) -> None:
    result = doctor("node", "--bundle", str(tmp_path / "nothing"))
    assert result.exit_code == 2
    assert "no node's bundle" in result.stderr
    assert doctor("server", "--bundle", str(node.folder)).exit_code == 2


def test_a_check_that_can_t_look_does_not_hide_the_others(node: Bundle) -> None:
    write_examples(node, [0, 1, 2])
    node.file("ca.crt").unlink()
    found = examine_node(replace(node), *SITE)
    assert found["CA certificate"]["status"] == "failed"
    assert found["node key"]["status"] == "ok"
    assert "training examples" in found
