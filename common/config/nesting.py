"""Flower's flat run config and TOML's nested tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn Flower's flat run config (``{"moon.mu": 1}``) into nested tables."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, leaf = key.split(".")
        node = tree
        for depth, table in enumerate(tables):
            below = node.setdefault(table, {})
            if not isinstance(below, dict):
                # "moon.mu.x" beside "moon.mu": kept whole, it is refused as an unknown setting.
                leaf = ".".join([*tables[depth:], leaf])
                break
            node = below
        node[leaf] = value
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn nested tables into dotted keys, the reverse of :func:`nested`."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value
    return leaves
