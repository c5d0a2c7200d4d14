"""Settings are described once, have a default once, and the page about them is current."""

from __future__ import annotations

from common.config import Settings
from scripts.moonflower.settings_docs import render
from tests.settings import default_run_config


def keys_of_settings() -> dict[str, str | None]:
    """Return the dotted keys that Settings accepts, with their descriptions."""
    keys: dict[str, str | None] = {}
    for name, field in Settings.model_fields.items():
        inner = getattr(field.annotation, "model_fields", None)
        if inner is None:
            keys[str(field.alias)] = field.description
        else:
            keys |= {f"{name}.{each.alias}": each.description for each in inner.values()}
    return keys


def test_every_setting_has_a_default_in_pyproject_and_the_other_way_round() -> None:
    assert set(keys_of_settings()) == set(default_run_config())


def test_no_setting_has_a_default_in_the_code() -> None:
    tables = [Settings] + [
        field.annotation
        for field in Settings.model_fields.values()
        if hasattr(field.annotation, "model_fields")
    ]
    for table in tables:
        assert table is not None
        for name, field in table.model_fields.items():
            assert field.is_required(), f"{table.__name__}.{name}"


def test_every_setting_is_described() -> None:
    assert [key for key, description in keys_of_settings().items() if not description] == []


def test_every_row_of_the_page_has_four_columns() -> None:
    rows = [line for line in render().splitlines() if line.startswith("| `")]
    assert len(rows) == len(keys_of_settings())
    assert [row for row in rows if row.replace("\\|", "").count("|") != 5] == []


def test_the_page_says_default_and_limits_of_a_setting() -> None:
    assert "| `data.alpha` | `0.3` | number > 0 |" in render()
    assert "| `server.fraction-train` | `1.0` | number > 0 and ≤ 1 |" in render()
    assert '| `model.norm` | `"batch"` | `batch`, `group` |' in render()
