from __future__ import annotations

import logging
import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from common.data import DataError
from common.data.prepared import load_split
from common.data.sources.base import Split
from common.node import Folders
from tests.common.data.sources.loading import load, site


def write_images(root: Path, class_names: str, *, per_class: int = 2, mode: str = "L") -> None:
    for number, name in enumerate(class_names.split()):
        (root / name).mkdir(parents=True)
        for image in range(per_class):
            colour = 50 * number + image
            pixels = Image.new(mode, (5, 6), colour if mode == "L" else (colour, 1, 2))
            pixels.save(root / name / f"{image}.png")


@pytest.mark.parametrize("layout", ["train", ""])
def test_class_ids_follow_the_sorted_names_of_the_folders(folders: Folders, layout: str) -> None:
    write_images(folders.data / layout, "cat ape")
    arrays = load(site("folder"), folders)
    assert arrays.y.tolist() == [0, 0, 1, 1]
    # ape was written second, with colours 50 and 51.
    assert arrays.x[:, 0, 0, 0].tolist() == [50, 51, 0, 1]


def test_colour_images_come_channels_first(folders: Folders) -> None:
    write_images(folders.data / "train", "ape cat", mode="RGB")
    arrays = load(site("folder", "3x6x5"), folders)
    assert arrays.x.shape == (4, 3, 6, 5)
    assert arrays.x[3, :, 2, 2].tolist() == [51, 1, 2]


def test_the_test_folder_is_no_class(folders: Folders) -> None:
    write_images(folders.data, "ape cat")
    write_images(folders.data / "test", "ape cat", per_class=1)
    assert len(load(site("folder"), folders, "train").y) == 4
    assert len(load(site("folder"), folders, "test").y) == 2


def test_an_empty_class_folder_keeps_the_ids_of_the_others(folders: Folders) -> None:
    write_images(folders.data / "train", "cat", per_class=3)
    (folders.data / "train" / "ape").mkdir()
    assert load(site("folder"), folders).y.tolist() == [1, 1, 1]


def test_a_missing_class_folder_is_refused_since_ids_would_shift(folders: Folders) -> None:
    write_images(folders.data / "train", "cat")
    with pytest.raises(DataError, match=r"1 class folders \(cat\).*make empty folders") as caught:
        load(site("folder"), folders)
    assert str(caught.value).startswith("set data.class-names")


def test_class_ids_follow_the_names_in_the_settings_whatever_is_missing(folders: Folders) -> None:
    settings = site("folder", classes=3).model_copy(update={"class_names": "dog,cat,ape"})
    write_images(folders.data / "train", "ape dog", per_class=1)
    write_images(folders.data / "test", "cat", per_class=1)
    assert load(settings, folders).y.tolist() == [0, 2]
    assert load(settings, folders).x[:, 0, 0, 0].tolist() == [50, 0]
    assert load(settings, folders, "test").y.tolist() == [1]


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_folder_that_is_none_of_the_named_classes_is_refused(
    folders: Folders, split: Split
) -> None:
    settings = site("folder").model_copy(update={"class_names": "ape,cat"})
    write_images(folders.data / "train", "ape")
    write_images(folders.data / split, "wolf")
    with pytest.raises(DataError, match=r"none of the classes: wolf\. The run.s .* ape, cat"):
        load(settings, folders, split)


def test_other_class_folders_in_the_test_set_are_refused(folders: Folders) -> None:
    write_images(folders.data / "train", "ape cat")
    write_images(folders.data / "test", "ape dog")
    with pytest.raises(DataError, match="lacks: dog"):
        load(site("folder"), folders, "test")


def test_other_class_folders_in_the_test_set_of_a_flat_layout_are_refused(
    folders: Folders,
) -> None:
    write_images(folders.data, "ape cat")
    write_images(folders.data / "test", "ape dog")
    with pytest.raises(DataError, match="lacks: dog"):
        load(site("folder"), folders, "test")


@pytest.mark.parametrize(
    ("size", "mode", "found"), [((6, 5), "L", "1x5x6"), ((5, 6), "RGB", "3x6x5")]
)
def test_an_image_of_another_shape_is_named(
    folders: Folders, size: tuple[int, int], mode: str, found: str
) -> None:
    write_images(folders.data / "train", "ape cat")
    odd = folders.data / "train" / "cat" / "odd.png"
    Image.new(mode, size).save(odd)
    with pytest.raises(DataError, match=f"expected 1x6x5.*found {found}") as caught:
        load(site("folder"), folders)
    assert str(odd) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("broken.png", b"no image"),
        ("broken.ppm", b"P5 5M 6 255 "),  # Pillow raises a ValueError
    ],
)
def test_a_file_that_is_no_image_is_named(folders: Folders, name: str, content: bytes) -> None:
    write_images(folders.data / "train", "ape cat")
    (folders.data / "train" / "cat" / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} can't be read as an image"):
        load(site("folder"), folders)


def test_an_image_that_would_unpack_to_gigabytes_is_named(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(folders.data / "train", "ape cat")
    # Pillow refuses an image of more than twice this many pixels: these have 30.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(DataError, match=r"can't be read as an image: .*decompression bomb"):
        load(site("folder"), folders)


def test_16_bit_images_are_refused(folders: Folders) -> None:
    write_images(folders.data / "train", "ape cat")
    Image.new("I;16", (5, 6)).save(folders.data / "train" / "cat" / "deep.png")
    with pytest.raises(DataError, match=r"deep\.png: mode 'I;16' is not supported"):
        load(site("folder"), folders)


def test_a_folder_without_classes_is_refused(folders: Folders) -> None:
    with pytest.raises(DataError, match="no examples: looked in"):
        load(site("folder"), folders)


def test_a_site_without_a_test_folder_has_no_test_set(folders: Folders) -> None:
    assert load_split(site("folder"), folders, "test") is None


CLASS = "chien d'été"


def test_class_folders_are_compared_with_class_names_after_nfc(folders: Folders) -> None:
    decomposed = unicodedata.normalize("NFD", CLASS)
    assert decomposed != CLASS
    settings = site("folder").model_copy(update={"class_names": f"ape,{CLASS}"})
    (folders.data / "train").mkdir()
    save(folders.data / "train" / decomposed / "0.png", 70)
    assert load(settings, folders).y.tolist() == [1]
    other = site("folder").model_copy(update={"class_names": f"ape,{decomposed}"})
    assert load(other, folders).y.tolist() == [1]


def test_composed_and_decomposed_names_give_the_same_class_ids(folders: Folders) -> None:
    # "e" + accent sorts before "f", the composed letter after it.
    for form in ("NFC", "NFD"):
        data = folders.data / form
        save(data / unicodedata.normalize(form, "été") / "0.png", 70)
        save(data / "fox" / "0.png", 80)
        there = Folders(data, folders.state, folders.output)
        assert load(site("folder"), there).x[:, 0, 0, 0].tolist() == [80, 70]


def test_one_class_written_in_both_ways_is_refused(folders: Folders) -> None:
    for form in ("NFC", "NFD"):
        save(folders.data / unicodedata.normalize(form, CLASS) / "0.png", 70)
    with pytest.raises(DataError, match=r"two class folders.*chien d'été.*merge them"):
        load(site("folder"), folders)


def save(path: Path, colour: int = 50, **options: Any) -> None:
    """Write a grey image of the usual shape."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (5, 6), colour).save(path, **options)


def test_what_systems_leave_is_no_class_and_no_image_and_said_once(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    train = folders.data / "train"
    write_images(train, "ape cat")
    for name in ("__MACOSX", "@eaDir", "lost+found", ".Trash-1000", ".ipynb_checkpoints"):
        (train / name).mkdir()
    (train / "lost+found").chmod(0)
    for name in ("._0.png", ".DS_Store", "Thumbs.db", "@eaDir/0.png", ".ipynb_checkpoints/0.png"):
        left = train / "cat" / name
        left.parent.mkdir(exist_ok=True)
        left.write_bytes(b"no image")
    with caplog.at_level(logging.WARNING, logger="moonflower"):
        for _ in range(2):
            assert load(site("folder"), folders).y.tolist() == [0, 0, 1, 1]
    assert caplog.text.count("ignored 10 files and folders that a system has left") == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [("scan", "PNG"), ("scan.jfif", "JPEG"), ("scan.IMA", "TIFF")],
)
def test_an_image_of_another_name_is_known_by_its_content(
    folders: Folders, name: str, kind: str
) -> None:
    save(folders.data / "train" / "ape" / name, 60, format=kind)
    (folders.data / "train" / "cat").mkdir()
    arrays = load(site("folder"), folders)
    assert arrays.y.tolist() == [0]
    assert arrays.x.min() == arrays.x.max() == 60


def test_a_class_in_which_no_file_is_an_image_is_refused_with_their_suffixes(
    folders: Folders,
) -> None:
    write_images(folders.data / "train", "ape cat")
    for number in range(3):
        (folders.data / "train" / "cat" / f"{number}.png").unlink(missing_ok=True)
        (folders.data / "train" / "cat" / f"{number}.dcm").write_bytes(b"\0" * 128 + b"DICM")
    (folders.data / "train" / "cat" / "IM0").write_bytes(b"P1 no image, only text")
    with pytest.raises(DataError, match=r"cat has no image among 4 files \(\.dcm 3, no suffix 1\)"):
        load(site("folder"), folders)


def test_files_that_are_no_images_beside_some_that_are_are_counted_in_the_log(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    write_images(folders.data / "train", "ape cat")
    (folders.data / "train" / "cat" / "labels.csv").write_text("a,b")
    with caplog.at_level(logging.WARNING, logger="moonflower"):
        assert load(site("folder"), folders).y.tolist() == [0, 0, 1, 1]
    assert "passed over 1 file (.csv 1) that are no images" in caplog.text


@pytest.mark.parametrize(("name", "kind"), [("scan.tif", "TIFF"), ("scan", "GIF")])
def test_an_image_of_several_frames_is_refused_by_name(
    folders: Folders, name: str, kind: str
) -> None:
    write_images(folders.data / "train", "ape cat")
    more = [Image.new("L", (5, 6), colour) for colour in (90, 120)]
    save(folders.data / "train" / "cat" / name, 60, format=kind, save_all=True, append_images=more)
    with pytest.raises(DataError, match=rf"{name}: it has 3 frames \({kind}\)"):
        load(site("folder"), folders)


def test_names_that_are_not_utf_8_are_read_like_others(folders: Folders) -> None:
    # As on an old share in Latin-1, both for a class and for an image.
    save(folders.data / os.fsdecode(b"caf\xe9") / os.fsdecode(b"\xfc.png"), 60)
    save(folders.data / "ape" / "0.png", 70)
    assert load(site("folder"), folders).x[:, 0, 0, 0].tolist() == [70, 60]


def test_a_class_folder_that_can_t_be_listed_is_no_empty_class(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_images(folders.data / "train", "ape cat")
    real = os.scandir

    def closed(path: Any) -> Any:
        if str(path).endswith("cat"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(DataError, match=r"can't be read: .*Permission denied.*cat"):
        load(site("folder"), folders)
