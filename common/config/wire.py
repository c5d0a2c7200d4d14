"""How large the model is on the wire: `[wire]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from common.config.settings_table import Table

WireDtype = Literal["float32", "float16", "int8"]


class WireSettings(Table):
    """``[wire]``: the type in which the model's parameters travel."""

    dtype: WireDtype = Field(
        description="`float32`: as they are. `float16`: the model to the clients, and their "
        "updates back, in half the bytes. `int8`: updates in a quarter, what rounding leaves over "
        "is kept on the client's disk and added to its next update; the model to the clients in "
        "float16. BatchNorm's statistics and integers always travel as they are."
    )
