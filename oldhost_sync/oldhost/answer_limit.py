"""After how many answers OldHost closes a connection, learnt from the last one that it closed.

Some hosts and proxies end each connection after so many requests. A request that is written while the close is on its
way can't be told from one that was read, so it waits for the whole settle time. Where the last connection ended after N
answers, the next one is given a moment after its N-th, to see the close before the next request is written.
"""

from __future__ import annotations

# Far longer than a close takes behind the answer it follows, and lost once for each N answers at most.
CLOSE_SECONDS = 0.25


class AnswerLimit:
    """Of one host; kept from connection to connection."""

    def __init__(self) -> None:
        self._answers = 0  # 0: none known

    def closed_after(self, answers: int) -> None:
        """OldHost closed a connection that had given so many whole answers."""
        self._answers = answers

    def outlived(self) -> None:
        """A connection was not closed when it was expected: nothing is known any more."""
        self._answers = 0

    def is_reached(self, answers: int) -> bool:
        """Whether the connection is likely to be closed now."""
        return 0 < self._answers == answers
