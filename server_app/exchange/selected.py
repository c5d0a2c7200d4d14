"""A Grid with a part of the nodes."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.serverapp import Grid

from server_app.exchange.grid_view import GridView


class SelectedGrid(GridView):
    """A view of a Grid that shows only the chosen nodes.

    Flower's strategies sample from "all" nodes of the Grid they are given; here, "all" are those
    that Moonflower has chosen by name.
    """

    def __init__(self, grid: Grid, node_ids: Iterable[int]) -> None:
        super().__init__(grid)
        self._node_ids = tuple(node_ids)

    def get_node_ids(self) -> Iterable[int]:
        """Return the chosen nodes."""
        return list(self._node_ids)
