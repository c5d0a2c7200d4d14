"""Only tasks speak of their measures, and only kinds of data of what an example is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.settings import ROOT

WORDS = re.compile(r"accurac|cross[ _-]?entropy|\bchannels?\b|\bpixels?\b", re.IGNORECASE)

HOMES = ("common/tasks/", "common/data/", "common/models/")
"""Where these words belong: a convolution has channels."""

ALLOWED = {
    "client_app/terms/contrastive.py": "MOON's loss is -log softmax, which PyTorch calls so",
    "client_app/terms/fedlc.py": "FedLC is a cross-entropy of other logits",
    "client_app/terms/fedrs.py": "so is FedRS",
    "client_app/terms/generative.py": "FedGen's terms are cross-entropies of labels it has drawn",
    "server_app/strategies/fedgen/teacher.py": "so is its teacher's loss (Eq. 4)",
    "server_app/replies/checks.py": "running statistics are one number per channel of BatchNorm",
    "common/records.py": "the names of FedGen's metrics",
    "common/config/algorithms.py": "FedGen's settings",
    "common/config/data.py": "the settings of the kinds of data",
    "common/config/task.py": "the settings of the tasks",
    "common/config/learning.py": "model.norm groups channels; PyTorch's layout is channels_last",
    "scripts/moonflower/house.py": "it draws",
    "scripts/moonflower/research/benchmark/bare.py": "the bare loop that the app is compared with",
}
"""File by file, why it may use them."""


def mentions(root: Path) -> Iterator[str]:
    """Yield ``file:line: text`` of every mention outside :data:`HOMES`."""
    for package in ("common", "client_app", "server_app", "scripts"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name.startswith(HOMES):
                continue
            for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
                if WORDS.search(text):
                    yield f"{name}:{number}: {text.strip()}"


def test_nothing_else_mentions_measures_labels_loss_channels_or_pixels() -> None:
    assert [each for each in mentions(ROOT) if each.partition(":")[0] not in ALLOWED] == []


def test_no_file_is_allowed_that_does_not_need_it() -> None:
    assert ALLOWED.keys() <= {each.partition(":")[0] for each in mentions(ROOT)}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("accuracy = 0.5", True),
        ('"the clients\' Accuracies"', True),
        ("F.cross_entropy(logits, y)", True),
        ("# cross-entropy", True),
        ("channels, height, width = shape", True),
        ("every pixel", True),
        ("channels_last = True", False),  # PyTorch's word for a memory layout
        ("score = 0.5", False),
    ],
)
def test_the_words_are_found(tmp_path: Path, text: str, *, found: bool) -> None:
    (tmp_path / "server_app").mkdir()
    (tmp_path / "server_app/a.py").write_text(text)
    assert bool(list(mentions(tmp_path))) is found
