"""Sites with data of their own: those that don't fit are left out, the others go on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict

from client_app.app import app
from common import records
from server_app.app import serve
from server_app.clients.gather import StartError
from tests.in_process.grid import FakeClock, InProcessGrid, run_in_process
from tests.in_process.sites import SETTINGS, digits, write_images, write_npz
from tests.settings import make_run_config


def run(
    sites: dict[str, Path],
    fake: FakeClock,
    client_app: Callable[[Message, Context], Message] = app,
    **overrides: Any,
) -> list[dict[str, Any]]:
    """Run both apps with a node for every site, and return the lines of ``metrics.jsonl``."""
    run_config = make_run_config(**{**SETTINGS, **overrides})
    configs = [{"client-name": name, "data-dir": str(folder)} for name, folder in sites.items()]
    grid = InProcessGrid(client_app, configs, run_config, (), fake.clock())
    folder = serve(grid, Context(7, 1, {}, RecordDict(), run_config), fake.clock())
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def good_sites(folder: Path) -> dict[str, Path]:
    return {
        "clinic-a": write_npz(folder / "a", range(5)),
        "clinic-b": write_npz(folder / "b", range(3, 10)),
    }


def labels_out_of_range(folder: Path) -> None:
    write_npz(folder, range(10))
    np.savez(folder / "train.npz", x=np.zeros((3, 8, 8), dtype=np.uint8), y=np.array([1, 10, 2]))


def other_shape(folder: Path) -> None:
    np.savez(folder / "train.npz", x=np.zeros((3, 9, 8), dtype=np.uint8), y=np.array([1, 0, 2]))


def truncated(folder: Path) -> None:
    archive = write_npz(folder, range(10)) / "train.npz"
    archive.write_bytes(archive.read_bytes()[:-300])


def flipped(folder: Path) -> None:
    archive = write_npz(folder, range(10)) / "train.npz"
    blob = bytearray(archive.read_bytes())
    blob[len(blob) // 2] ^= 0xFF
    archive.write_bytes(blob)


def no_examples(folder: Path) -> None:
    np.savez(folder / "train.npz", x=np.zeros((0, 8, 8), dtype=np.uint8), y=np.zeros(0, int))


def empty_folder(folder: Path) -> None:
    """Leave it so."""


def no_folder(folder: Path) -> None:
    folder.rmdir()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (labels_out_of_range, "1 labels lie outside 0 to 9, the first is 10 at row 1"),
        (other_shape, "data.image-shape is 1x8x8"),
        (truncated, "can't be read as a NumPy archive"),
        (flipped, "can't be read as a NumPy archive"),
        (no_examples, "has no examples"),
        (empty_folder, "no examples: looked in"),
        (no_folder, "no examples: looked in"),
    ],
)
def test_a_site_that_does_not_fit_is_left_out_and_the_others_train(
    tmp_path: Path,
    fake: FakeClock,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], None],
    reason: str,
) -> None:
    bad = tmp_path / "c"
    bad.mkdir()
    spoil(bad)
    lines = run({**good_sites(tmp_path), "clinic-c": bad}, fake)
    assert [line["participants"] for line in lines] == [["clinic-a", "clinic-b"]] * 2
    log = capsys.readouterr().err
    assert "1 of 3 clients can't take part" in log
    assert "clinic-c" in log
    assert reason in log


def test_a_folder_that_may_not_be_read_is_left_out(
    tmp_path: Path, fake: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    closed = write_npz(tmp_path / "c", range(10))
    closed.chmod(0)
    try:
        lines = run({**good_sites(tmp_path), "clinic-c": closed}, fake)
    finally:
        closed.chmod(0o700)
    assert lines[-1]["participants"] == ["clinic-a", "clinic-b"]
    assert "can't be read" in capsys.readouterr().err


def test_the_same_images_as_archive_and_as_files_give_the_same_losses(
    tmp_path: Path, fake: FakeClock
) -> None:
    # Sorted by label, since that is the order of the class folders.
    settings = {"data.validation-fraction": 0.0, "data.client-test": "global"}
    settings |= {"server.fraction-evaluate": 0.0, "algorithm": "fedavg", "train.batch-size": 4096}
    archives = good_sites(tmp_path)
    folders = {
        "clinic-a": write_images(tmp_path / "images-a", range(5)),
        "clinic-b": write_images(tmp_path / "images-b", range(3, 10)),
    }
    for folder in (*archives.values(), *folders.values()):
        if (folder / "train").is_dir():
            for label in range(10):
                (folder / "test" / f"digit-{label}").mkdir(parents=True)
        else:
            write_npz(folder, [0], 1, "test")
    first = run(archives, fake, **{**settings, "experiment": "npz"})
    second = run(folders, fake, **{**settings, "experiment": "files", "data.source": "folder"})
    for one, other in zip(first, second, strict=True):
        assert one["train"]["loss"] == pytest.approx(other["train"]["loss"], rel=1e-5)


def test_a_site_without_all_class_folders_is_left_out(
    tmp_path: Path, fake: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = {name: write_images(tmp_path / name, range(10)) for name in ("a", "b", "c")}
    (missing,) = (sites["c"] / "train").glob("digit-7")
    for image in missing.iterdir():
        image.unlink()
    missing.rmdir()
    lines = run(sites, fake, **{"data.source": "folder"})
    assert lines[-1]["participants"] == ["a", "b"]
    assert "every site needs one for every class" in capsys.readouterr().err


def test_with_class_names_missing_folders_are_fine_and_other_names_are_left_out(
    tmp_path: Path, fake: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = {name: write_images(tmp_path / name, [0, 1, 2]) for name in ("a", "b", "c")}
    for label in range(3, 10):
        (sites["a"] / "train" / f"digit-{label}").rmdir()
    (sites["c"] / "train" / "digit-9").rename(sites["c"] / "train" / "nine")
    names = ",".join(f"digit-{label}" for label in range(10))
    settings = {"data.source": "folder", "data.class-names": names}
    lines = run(sites, fake, **settings)
    assert lines[-1]["participants"] == ["a", "b"]
    assert "none of the classes: nine" in capsys.readouterr().err


def test_a_site_with_a_broken_file_whose_name_is_not_utf_8_is_left_out_and_its_name_shown(
    tmp_path: Path, fake: FakeClock, capsys: pytest.CaptureFixture[str]
) -> None:
    sites = {name: write_images(tmp_path / name, range(10)) for name in ("a", "b", "c")}
    (sites["c"] / "train" / "digit-7" / os.fsdecode(b"\xfc.png")).touch()
    lines = run(sites, fake, **{"data.source": "folder"})
    assert lines[-1]["participants"] == ["a", "b"]
    assert r"train/digit-7/\xfc.png can't be read as an image" in capsys.readouterr().err


def test_in_a_simulation_own_data_are_dealt_out_as_a_built_in_set_is(
    tmp_path: Path, fake: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOONFLOWER_DATA_DIR", str(write_npz(tmp_path / "data", range(10), 400)))
    settings = {**SETTINGS, "data.partition": "dirichlet", "data.alpha": 0.1, "experiment": "own"}
    folder = run_in_process(settings, 4, tmp_path, clock=fake.clock())
    clients = json.loads((folder / "settings.json").read_text())["clients"]
    counts = np.array([client["examples-per-label"] for client in clients])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # Each of the 400 images is trained on or validated on, by one client.
    assert counts.sum() + lines[-1]["clients"]["examples"] == 400
    assert (counts == 0).any(), "with alpha 0.1 some clients lack some labels"


def changing_before_round_2(change: Callable[[], object]) -> Callable[[Message, Context], Message]:
    """Return a ClientApp; ``change`` is called when a client is to train in round 2."""

    def run(message: Message, context: Context) -> Message:
        config = message.content.config_records.get(records.CONFIG, {})
        if message.metadata.message_type == records.TRAIN and config[records.ROUND] == 2:
            change()
        return app(message, context)

    return run


def grow(folder: Path) -> None:
    write_npz(folder, range(10), 150)


def shrink(folder: Path) -> None:
    write_npz(folder, range(10), 90)


def relabel(folder: Path) -> None:
    images, labels = digits(range(10), 120)
    np.savez(folder / "train.npz", x=images, y=(labels + (labels < 5)) % 10)


@pytest.mark.parametrize(
    ("change", "algorithm", "refused"),
    [
        (grow, "moon", True),
        (grow, "fedgen", True),
        (shrink, "moon", False),
        (shrink, "fedgen", False),
        (relabel, "moon", False),
        (relabel, "fedgen", True),  # which tells the server how many of each label
    ],
)
def test_a_site_whose_data_change_takes_part_with_them_from_the_next_round(
    tmp_path: Path, fake: FakeClock, change: Callable[[Path], None], algorithm: str, refused: bool
) -> None:
    sites = {name: write_npz(tmp_path / name, range(10)) for name in ("a", "b")}
    changing = changing_before_round_2(lambda: change(sites["b"]))
    settings = {"num-rounds": 3, "algorithm": algorithm, "data.validation-fraction": 0.25}
    lines = run(sites, fake, changing, **settings)
    both = ["a", "b"]
    taken = [line["participants"] for line in lines]
    assert taken == [both, ["a"] if refused else both, both]
    assert [list(line["refused"]) for line in lines] == [[], ["b"] if refused else [], []]
    # What is trained on and what is validated on in the end: all that a has, and all that b has.
    held = sum(len(np.load(folder / "train.npz")["y"]) for folder in sites.values())
    assert lines[2]["train"]["num-examples"] + lines[2]["clients"]["examples"] == held


def test_a_site_s_own_test_set_is_what_it_evaluates_on(tmp_path: Path, fake: FakeClock) -> None:
    sites = good_sites(tmp_path)
    for number, folder in enumerate(sites.values()):
        write_npz(folder, range(10), 40 + number, "test")
    lines = run(sites, fake, **{"data.client-test": "global"})
    assert lines[-1]["clients"]["examples"] == 40 + 41


def test_with_one_usable_site_of_two_wanted_the_reason_ends_the_run(
    tmp_path: Path, fake: FakeClock
) -> None:
    sites = {"clinic-a": good_sites(tmp_path)["clinic-a"], "clinic-c": tmp_path}
    with pytest.raises(StartError, match=r"(?s)clinic-c.*no examples.*1 can, and server.min-cl"):
        run(sites, fake)
