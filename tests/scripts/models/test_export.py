"""``moonflower export-model``: where the file goes, and what it was compared on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from scripts.moonflower.commands import app
from tests.scripts.models.made import IMAGES, ROWS, save


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export-model", *map(str, arguments)])


def test_without_data_random_examples_are_compared(tmp_path: Path) -> None:
    save(tmp_path / "best", ROWS)
    result = export(tmp_path / "best", "--to", "onnx")
    assert result.exit_code == 0, result.stderr
    assert (tmp_path / "best" / "model.onnx").is_file()
    assert "takes x, float32 [any, 3]; gives numbers, output, z" in result.stdout
    assert "on 64 random examples (no data of it here)" in result.stdout
    assert "opset 20" in result.stdout


def test_real_examples_are_compared_where_they_are(tmp_path: Path) -> None:
    save(tmp_path / "best", ROWS)
    (tmp_path / "site").mkdir()
    np.savez(tmp_path / "site" / "train.npz", x=np.ones((5, 3)), y=np.ones(5))
    out = tmp_path / "new" / "m.onnx"
    result = export(tmp_path / "best", "--data-dir", tmp_path / "site", "--out", out)
    assert "on 5 examples of npz: largest difference" in result.stdout
    assert out.is_file()
    assert not (tmp_path / "best" / "model.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data-dir", "nothing"], "no examples: looked in"),
        (["--input-dtype", "int8"], "images are stored as uint8 or float32"),
        (["--to", "pickle"], "onnx"),
    ],
)
def test_what_can_t_be_exported_ends_with_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    save(tmp_path / "best", IMAGES)
    result = export(tmp_path / "best", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.rglob("*.onnx"))
