"""A small one of every kind of data, for tests of what holds for all."""

from __future__ import annotations

from common.data.kinds import Image, Kind, Signal, Table, Tokens

EXAMPLES: dict[str, Kind] = {
    "image": Image((3, 16, 16), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    "table": Table(2, (3, 2), indicators=True, standardise=True, mean=(5.0, -1.0), std=(2.0, 0.0)),
    "signal": Signal((2, 9), standardise=True, mean=(5.0, -1.0), std=(2.0, 0.0)),
    "tokens": Tokens(6, 300),
}
