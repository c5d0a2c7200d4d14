"""``moonflower predict``: every file has its answers or its problem."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner, Result

from common.models import SplitModel
from scripts.moonflower.commands import app
from tests.scripts.models.made import IMAGES, ROWS, TABLE, TEXTS, save


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def pixels(count: int) -> Any:
    return np.random.default_rng(1).integers(0, 256, (count, 1, 9, 9), dtype=np.uint8)


def probabilities(model: SplitModel, images: Any) -> list[list[float]]:
    """Return what the model says of bytes, normalised by hand: mean and deviation are 0.5."""
    seen = (torch.from_numpy(images).float() / 255 - 0.5) / 0.5
    with torch.no_grad():
        found: list[list[float]] = model(seen).softmax(dim=1).tolist()
    return found


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Return a folder with two images at different depths, and what is none."""
    folder = tmp_path / "pictures"
    (folder / "deep").mkdir(parents=True)
    for name, image in zip(("a.png", "deep/b.png"), pixels(2), strict=True):
        Image.fromarray(image[0]).save(folder / name)
    (folder / "notes.txt").write_text("nothing")
    return folder


def test_images_and_archives_give_classes_and_probabilities(tmp_path: Path, pictures: Path) -> None:
    model = save(tmp_path / "best", IMAGES)
    np.savez(tmp_path / "more.npz", x=pixels(5))
    result = ask(tmp_path / "best", pictures, tmp_path / "more.npz", "--csv", "--batch-size", 2)
    assert result.exit_code == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    names = [(Path(row["file"]).name, row["row"]) for row in rows]
    assert names == [("a.png", ""), ("b.png", ""), *(("more.npz", str(n)) for n in range(5))]
    expected = probabilities(model, np.concatenate([pixels(2), pixels(5)]))
    for row, values in zip(rows, expected, strict=True):
        found = [float(row["p(cat)"]), float(row["p(dog)"])]
        assert found == pytest.approx(values, abs=1e-6)
        assert row["class"] == ("cat" if values[0] >= values[1] else "dog")
        assert float(row["probability"]) == max(found)
    assert "examples: 7, files: 3, with problems: 0" in result.stderr


def test_a_file_s_problem_is_named_and_the_others_go_on(tmp_path: Path, pictures: Path) -> None:
    save(tmp_path / "best", IMAGES)
    large, broken = pictures / "large.png", tmp_path / "broken.npz"
    Image.fromarray(np.zeros((8, 9), dtype=np.uint8)).save(large)
    broken.write_bytes(b"PK")
    gone, text = tmp_path / "gone.png", pictures / "notes.txt"
    result = ask(tmp_path / "best", pictures, broken, gone, text, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert [Path(each["file"]).name for each in found["predictions"]] == ["a.png", "b.png"]
    assert found["predictions"][0]["probabilities"].keys() == {"cat", "dog"}
    problems = found["problems"]
    assert problems.keys() == {str(large), str(broken), str(gone), str(text)}
    assert "expected 1x9x9" in problems[str(large)]
    assert "can't be read as a NumPy archive" in problems[str(broken)]
    assert "is not there" in problems[str(gone)]
    assert "allowed are image files, NumPy archives" in problems[str(text)]
    assert all(problem in result.stderr for problem in problems.values())


def test_a_regression_gives_numbers_and_no_classes(tmp_path: Path) -> None:
    model = save(tmp_path / "best", ROWS)
    x = np.random.default_rng(2).normal(size=(4, 3)).astype(np.float32)
    x[0, 1] = np.nan  # missing: 0, and said to be missing
    np.savez(tmp_path / "rows.npz", x=x)
    seen = np.concatenate([np.nan_to_num(x), np.isnan(x)], axis=1, dtype=np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(seen))[:, 0].tolist()
    result = ask(tmp_path / "best", tmp_path / "rows.npz", "--csv")
    rows = list(csv.reader(io.StringIO(result.stdout)))
    assert rows[0] == ["file", "row", "number"]
    assert [float(row[2]) for row in rows[1:]] == pytest.approx(expected, abs=1e-6)


def test_a_table_is_read_by_its_columns_names_and_needs_no_target(tmp_path: Path) -> None:
    save(tmp_path / "best", TABLE)
    path = tmp_path / "patients.csv"
    path.write_text("sex,id,age\nf,1,50\nm,2,\nf,3,50\n")
    result = ask(tmp_path / "best", path, "--json")
    found = json.loads(result.stdout)["predictions"]
    assert [each["row"] for each in found] == [0, 1, 2]
    assert found[0]["probabilities"] == found[2]["probabilities"] != found[1]["probabilities"]
    path.write_text("sex,age\nf,old\n")
    result = ask(tmp_path / "best", path)
    assert result.exit_code == 1
    assert "'old'" in result.stderr


def test_texts_are_read_from_files_of_one_and_of_many(tmp_path: Path) -> None:
    save(tmp_path / "best", TEXTS)
    site = tmp_path / "notes"
    site.mkdir()
    (site / "a.txt").write_text("Where is the Nile?\n")
    (site / "b.csv").write_text('text,asked\n"Where is the Nile?",x\n"Who, me?",y\n')
    (site / "c.jsonl").write_text('{"text": "Where is the Nile?"}\n{"text": " "}\n')
    result = ask(tmp_path / "best", site, "--json")
    found = json.loads(result.stdout)
    places = [(Path(each["file"]).name, each["row"]) for each in found["predictions"]]
    assert places == [("a.txt", None), ("b.csv", 0), ("b.csv", 1), ("c.jsonl", 0)]
    first, same, other, too = (each["probability"] for each in found["predictions"])
    assert first == pytest.approx(same)
    assert first == pytest.approx(too)
    assert first != pytest.approx(other)
    assert found["problems"] == {str(site / "c.jsonl"): ANY}
    assert "c.jsonl, line 2: its text is empty" in result.stderr


def test_an_archive_of_another_shape_and_numbers_that_are_none_are_named(tmp_path: Path) -> None:
    save(tmp_path / "best", ROWS)
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 4)))
    np.savez(tmp_path / "infinite.npz", x=np.array([[0, 0, 0], [0, np.inf, 0]]))
    result = ask(tmp_path / "best", tmp_path / "wide.npz", tmp_path / "infinite.npz")
    assert result.exit_code == 1
    assert "numbers of shape [n, 3] are needed" in result.stderr
    assert "infinite.npz: 1 numbers are infinite" in result.stderr


def test_the_table_shows_the_likeliest_class(tmp_path: Path, pictures: Path) -> None:
    save(tmp_path / "best", IMAGES)
    result = ask(tmp_path / "best", pictures)
    assert "probability" in result.stdout
    assert "p(cat)" not in result.stdout
    assert "a.png" in result.stdout


@pytest.mark.parametrize(
    ("files", "message"),
    [(["empty"], "no file for this model"), (["pictures", "--device", "tpu"], "'tpu' is unknown")],
)
def test_what_can_t_begin_ends_with_2(
    tmp_path: Path, pictures: Path, files: list[str], message: str
) -> None:
    save(tmp_path / "best", IMAGES)
    (tmp_path / "empty").mkdir()
    result = ask(tmp_path / "best", tmp_path / files[0], *files[1:])
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_folder_without_a_model_ends_with_2(tmp_path: Path) -> None:
    result = ask(tmp_path, tmp_path)
    assert result.exit_code == 2
    assert "there is no saved model in" in result.stderr
