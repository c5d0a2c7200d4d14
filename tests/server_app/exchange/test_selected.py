"""A Grid with a part of the nodes."""

from __future__ import annotations

from flwr.app import Message, RecordDict

from common import records
from server_app.exchange.selected import SelectedGrid
from tests.in_process.grid import FakeClock
from tests.server_app.toy import grid_of, named


def test_a_selected_grid_shows_only_the_chosen_nodes(fake: FakeClock) -> None:
    grid = grid_of(fake, named(*"abcd"))
    chosen = sorted(grid.get_node_ids())[:2]
    view = SelectedGrid(grid, chosen)
    assert view.get_node_ids() == chosen
    assert [node.node_id for node in view.get_nodes()] == chosen
    message = Message(RecordDict(), chosen[0], records.QUERY)
    (message_id,) = view.push_messages([message])
    (reply,) = view.pull_messages([message_id])
    assert reply.metadata.src_node_id == chosen[0]
