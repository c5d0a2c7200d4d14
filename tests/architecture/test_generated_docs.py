"""Pages and pictures that are made from the code are current, and the tour leads somewhere."""

from __future__ import annotations

import ast
import re

import pytest

from scripts.moonflower.generated_docs import pages
from scripts.moonflower.house import levels, without_detours
from scripts.moonflower.round_picture import Stop, stops
from tests.settings import ROOT

TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")


def test_what_is_made_from_the_code_is_current() -> None:
    stale = [path.name for path, text in pages() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run: moonflower docs"


@pytest.mark.parametrize("stop", stops(TOUR), ids=lambda stop: stop.name)
def test_every_stop_of_the_tour_is_a_function_or_class_of_its_file(stop: Stop) -> None:
    tree = ast.parse((ROOT / stop.file).read_text(encoding="utf-8"))
    assert stop.name in {getattr(node, "name", "") for node in tree.body}


def test_the_tour_has_ten_stops_and_names_only_files_that_are_there() -> None:
    assert [stop.number for stop in stops(TOUR)] == list(range(1, 11))
    named = re.findall(r"`((?:common|client_app|server_app)/[\w/]+\.py)`", TOUR)
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_a_room_stands_above_all_that_it_imports_and_circles_are_refused() -> None:
    assert levels({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": 2, "b": 1, "c": 0}
    with pytest.raises(ValueError, match="runs through a, b"):
        levels({"a": {"b"}, "b": {"a"}, "c": set()})


def test_what_is_reached_through_another_room_is_not_drawn_twice() -> None:
    assert without_detours({"a": {"b", "c"}, "b": {"c"}, "c": set()})["a"] == {"b"}
