"""A tokeniser's file: its ids plus 1, the one that the run names, and no other."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from common.data import DataError
from common.data.kinds import Tokens
from common.data.texts import tokenizer
from common.data.texts.tokenizer import encoder

WORDS = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "what": 4, "is": 5, "moon": 6}


@pytest.fixture
def digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    made = Tokenizer(models.WordLevel(WORDS, unk_token="[UNK]"))  # noqa: S106 - no password
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.enable_padding(length=30, pad_id=3)
    made.save(str(tmp_path / "small.json"))
    monkeypatch.setattr(tokenizer, "FOLDER", tmp_path)
    return hashlib.sha256((tmp_path / "small.json").read_bytes()).hexdigest()


def test_ids_are_its_own_plus_one_cut_so_that_special_tokens_stay(digest: str) -> None:
    assert encoder(Tokens(9, 8, "small.json", digest))("what is sun") == [2, 5, 6, 1, 3]
    assert encoder(Tokens(4, 8, "small.json", digest))("what is the moon") == [2, 5, 6, 3]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (("other.json", 8), r"No such file .*Put the file into .* it travels with the app"),
        (("small.json", 7), "has 7 tokens, .* set data.vocabulary-size=8"),
        (("small.json", 8), "has SHA-256 .*, and data.tokenizer-sha256 is '0000"),
    ],
)
def test_what_is_not_the_runs_file_is_refused(
    digest: str, kind: tuple[str, int], reason: str
) -> None:
    name, vocabulary = kind
    wrong = "0" * 64 if "SHA" in reason else digest
    with pytest.raises(DataError, match=reason):
        encoder(Tokens(9, vocabulary, name, wrong))


def test_a_file_that_is_no_tokeniser_is_refused(digest: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text("{}")
    odd = hashlib.sha256(b"{}").hexdigest()
    with pytest.raises(DataError, match="is no file of the library tokenizers"):
        encoder(Tokens(9, 8, "odd.json", odd))


def test_more_special_tokens_than_there_is_room_are_refused(digest: str) -> None:
    with pytest.raises(DataError, match=r"adds 2 special tokens .* at least 3"):
        encoder(Tokens(2, 8, "small.json", digest))
