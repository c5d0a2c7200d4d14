"""docs/settings.md, made from the descriptions in common/config and pyproject's defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from common.config import Settings
from scripts.moonflower.repository import default_run_config

HEADER = """\
# Settings

Made from `common/config` and `pyproject.toml` by `moonflower docs`; do not edit.

Every setting is part of the run config: `flwr run . -c 'moon.mu=5 data.source="mnist"'`, or
`scripts/quickstart -c moon.mu=5 -c data.source=mnist`, or a TOML file such as those in
`scripts/presets`. Where data, state and results are, the name of a client and its device
belong to a machine and are no settings: see [running.md](running.md#machines).
"""


def render() -> str:
    """Return the whole page, Markdown."""
    defaults = default_run_config()
    top = {name: field for name, field in Settings.model_fields.items() if not _table_of(field)}
    parts = [HEADER, *_section("Run", Settings, "", top, defaults)]
    for name, field in Settings.model_fields.items():
        if model := _table_of(field):
            fields = model.model_fields
            parts += _section(f"`[{name}]`", model, f"{name}.", fields, defaults)
    return "\n".join(parts)


def _table_of(field: FieldInfo) -> type[BaseModel] | None:
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _section(
    title: str,
    model: type[BaseModel],
    prefix: str,
    fields: dict[str, FieldInfo],
    defaults: dict[str, Any],
) -> Iterator[str]:
    yield f"## {title}\n"
    if prefix and model.__doc__:
        yield model.__doc__.strip().splitlines()[0].replace("``", "`") + "\n"
    yield "| Setting | Default | Allowed | Meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        key = prefix + (field.alias or name)
        default = json.dumps(defaults[key]) if key in defaults else "none"
        # A bare "|", as in a norm, would begin another column.
        meaning = (field.description or "").replace("|", "\\|")
        yield f"| `{key}` | `{default}` | {allowed(key, field)} | {meaning} |"
    yield ""


def allowed(key: str, field: FieldInfo) -> str:
    """Say in words which values a setting may have."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(field.annotation))
    names: dict[Any, str] = {
        bool: "`true`, `false`",
        int: "whole number",
        float: "number",
        str: "text",
    }
    bounds = " and ".join(_bounds(field))
    return f"{names[field.annotation]} {bounds}".strip()


def _bounds(field: FieldInfo) -> Iterator[str]:
    for rule in field.metadata:
        if isinstance(rule, Ge):
            yield f"≥ {rule.ge}"
        elif isinstance(rule, Gt):
            yield f"> {rule.gt}"
        elif isinstance(rule, Le):
            yield f"≤ {rule.le}"
        elif isinstance(rule, Lt):
            yield f"< {rule.lt}"
