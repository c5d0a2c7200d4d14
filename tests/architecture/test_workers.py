"""Tests of one federation stay on one worker."""

from __future__ import annotations

from tests.settings import ROOT
from tests.workers import FILES, TOGETHER, group_of


def test_what_is_grouped_is_there() -> None:
    assert [path for path in (*TOGETHER, *FILES) if not (ROOT / path).exists()] == []


def test_a_group_is_a_federation_a_file_or_one_test() -> None:
    for name in ("test_fence.py::a", "test_refused.py::b[1]"):
        assert group_of(f"tests/deployment/{name}") == "deployment"
    namespaces = "tests/deployment/test_namespaces.py"
    assert group_of(f"{namespaces}::a") == namespaces
    assert group_of("tests/common/test_wire.py::a[x/y]") == "tests/common/test_wire.py::a[x/y]"
