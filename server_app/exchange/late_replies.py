"""Replies that come when their round is over."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from flwr.serverapp import Grid

from common.logs import NAME
from server_app.exchange.postbox import discard

log = logging.getLogger(NAME)

FORGOTTEN_AFTER = 10
"""Rounds. A client that hangs for days would otherwise leave a message to ask for each round."""


class LateReplies:
    """Knows what was not answered in time, and throws it away when it comes.

    Nothing late is ever taken for an answer of a later round, since replies are pulled by the
    ids of that round's messages. But until somebody pulls it, the SuperLink keeps a late model.
    """

    def __init__(self) -> None:
        self._unanswered: dict[str, tuple[int, str]] = {}

    def expect(self, unanswered: Mapping[str, str], server_round: int) -> None:
        """Remember messages of a round that is over.

        Parameters
        ----------
        unanswered : Mapping[str, str]
            Client names by message id.
        server_round : int
        """
        self._unanswered |= {key: (server_round, name) for key, name in unanswered.items()}

    def drop(self, grid: Grid, server_round: int) -> int:
        """Discard what has come since, log it, and return how many replies that were.

        Parameters
        ----------
        grid : Grid
        server_round : int
            The round that begins.
        """
        self._unanswered = {
            key: (asked, name)
            for key, (asked, name) in self._unanswered.items()
            if server_round - asked <= FORGOTTEN_AFTER
        }
        late = []
        for key, is_error in discard(grid, self._unanswered):
            asked, name = self._unanswered.pop(key, (0, ""))
            # An error is Flower's word that no reply will come.
            if name and not is_error:
                late.append(f"{name} (round {asked})")
        if late:
            log.info("dropped %d late replies: %s", len(late), ", ".join(sorted(late)))
        return len(late)
