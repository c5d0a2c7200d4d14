"""What the files and folders of an experiment are called: ``OUTPUT_DIR/<experiment>/``.

Free of torch and Flower: whoever only looks at results reads this.
"""

from __future__ import annotations

SETTINGS_FILE = "settings.json"
METRICS_FILE = "metrics.jsonl"
BEST = "best"
FINAL = "final"
CHECKPOINTS = "checkpoints"
LOCK_FILE = ".lock"
"""Held by the server that writes here, released by the operating system when it dies."""
ACTIVITY_FILE = "activity.json"
"""What the server is doing now; gone when it has finished (``activity.py``)."""
