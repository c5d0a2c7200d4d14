"""What ``flwr ... --format json`` answers, with what it prints around it."""

from __future__ import annotations

import json
from typing import Any


def answer_in(text: str) -> dict[str, Any]:
    """Return the JSON object that ``text`` ends with, or an empty one."""
    try:
        found = json.loads(text[text.find("{") :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
