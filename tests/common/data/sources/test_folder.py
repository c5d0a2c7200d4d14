from __future__ import annotations

from pathlib import Path

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
    write_images(folders.data / "train", "cat")
    (folders.data / "train" / "ape").mkdir()
    assert load(site("folder"), folders).y.tolist() == [1, 1]


def test_a_missing_class_folder_is_refused_since_ids_would_shift(folders: Folders) -> None:
    write_images(folders.data / "train", "cat")
    with pytest.raises(DataError, match=r"1 class folders \(cat\).*make empty folders"):
        load(site("folder"), folders)


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
