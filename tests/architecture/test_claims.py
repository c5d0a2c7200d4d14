"""The list of which test holds which promise names tests that are there."""

from __future__ import annotations

import ast
import re

from tests.settings import ROOT


def test_every_test_that_the_list_of_promises_names_is_there() -> None:
    text = (ROOT / "docs" / "tests.md").read_text(encoding="utf-8")
    claims = set(re.findall(r"`([\w/]+\.py)::(\w+)`", text))
    assert len(claims) > 50
    found = set()
    for file in {file for file, _ in claims}:
        tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
        found |= {(file, node.name) for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert claims - found == set()
