"""Shakespeare by speaker: windows of one speaker's text, the last fifth for testing."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from common.data import DataError
from common.data.sources import shakespeare
from common.data.sources.shakespeare import ALPHABET, WINDOW, by_speaker
from common.files import sha256
from common.node import Folders
from tests.common.data.sources.loading import load, source

REAL = Path("/work/shared/data/shakespeare")

ANNA, BERT = "abcdefghij" * 60, "Who? " * 100
PLAY = "\n\n".join(
    f"{name}:\n{line}"
    for number in range(10)
    for name, line in (
        ("First Witch", ANNA[number * 60 : (number + 1) * 60 - 1]),
        ("BERT", BERT[number * 50 : (number + 1) * 50 - 1]),
        ("Boy", "No."),
    )
)
"""600 characters of one speaker, 500 of another and 40 of a third, line breaks counted."""


@pytest.fixture(autouse=True)
def made_up_play() -> Iterator[None]:
    with mock.patch.object(shakespeare, "SHA256", sha256(PLAY.encode())):
        yield


def write(folders: Folders, name: str = "tinyshakespeare.txt.gz") -> Path:
    path = folders.data / "shakespeare" / name
    path.parent.mkdir()
    path.write_bytes(gzip.compress(PLAY.encode()) if name.endswith("gz") else PLAY.encode())
    return path


def settings(**overrides: Any) -> Any:
    return source("shakespeare", speakers=2, **overrides)


@pytest.mark.parametrize("name", ["tinyshakespeare.txt", "tinyshakespeare.txt.gz"])
def test_an_example_is_80_characters_of_one_speaker_and_the_next(
    folders: Folders, name: str
) -> None:
    write(folders, name)
    whole = "".join(ANNA[n * 60 : n * 60 + 59] + "\n" for n in range(10))
    assert by_speaker(PLAY)["First Witch"] == whole
    train, test = load(settings(), folders), load(settings(), folders, "test")
    assert train.sites is not None
    assert train.sites.names == ("BERT", "First-Witch")
    # Four fifths of 600 and of 500 less the first 80; the last fifths likewise.
    assert [int((train.sites.of == site).sum()) for site in (0, 1)] == [320, 400]
    assert len(test.y) == 20 + 40
    first = int((train.sites.of == 1).argmax())
    said = "".join(ALPHABET[character - 1] for character in train.x[first])
    assert (said, ALPHABET[train.y[first]]) == (whole[:WINDOW], whole[WINDOW])


def test_more_speakers_than_say_enough_are_refused(folders: Folders) -> None:
    write(folders)
    with pytest.raises(DataError, match=r"data.speakers=3: 2 speakers say enough"):
        load(source("shakespeare", speakers=3), folders)


def test_another_text_is_refused_and_a_missing_one_is_asked_for(folders: Folders) -> None:
    with pytest.raises(DataError, match=r"put tinyshakespeare.txt .*or set data.download=true"):
        load(settings(), folders)
    write(folders, "tinyshakespeare.txt").write_text(PLAY + "!")
    with pytest.raises(DataError, match="is not the text that was expected: its SHA-256"):
        load(settings(), folders)


def test_a_download_is_checked_before_it_is_kept(folders: Folders, tmp_path: Path) -> None:
    served = tmp_path / "input.txt"
    kept = folders.data / "shakespeare/tinyshakespeare.txt"
    with mock.patch.object(shakespeare, "ADDRESS", served.as_uri()):
        with pytest.raises(DataError, match=r"could not be downloaded .*Check the network"):
            load(settings(download=True), folders)
        served.write_text("something else")
        with pytest.raises(DataError, match="is not the text that was expected"):
            load(settings(download=True), folders)
        assert not kept.exists()
        served.write_text(PLAY)
        assert len(load(settings(download=True), folders).y) == 720
    assert kept.read_text() == PLAY


@pytest.mark.skipif(not REAL.is_dir(), reason=f"needs the text in {REAL}")
def test_the_real_text_has_the_alphabet_and_193_speakers_who_say_enough(tmp_path: Path) -> None:
    text = gzip.decompress((REAL / "tinyshakespeare.txt.gz").read_bytes())
    assert sha256(text) == "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"
    assert sorted(set(text.decode())) == list(ALPHABET)
    spoken = by_speaker(text.decode())
    assert sum(len(said) * 0.2 > WINDOW for said in spoken.values()) == 193
    assert len(spoken["GLOUCESTER"]) == 37_616
