"""After how many answers OldHost closes a connection, learnt from the last one that it closed.

Some hosts and proxies close each connection after a fixed number of requests. If a request is written while the close
is still arriving, we can't tell whether it was read, so it is in doubt for the whole settle time. So if the last
connection ended after N answers, we wait a moment after the N-th on the next one, to see the close before we write
again.
"""

from __future__ import annotations

# How long that wait is: far longer than a close takes to follow its answer, and needed only once for every N answers.
CLOSE_SECONDS = 0.25


class AnswerLimit:
    """For one host; kept from connection to connection."""

    def __init__(self) -> None:
        self._answers = 0  # 0: no limit known

    def closed_after(self, answers: int) -> None:
        """OldHost closed a connection after this many complete answers."""
        self._answers = answers

    def outlived(self) -> None:
        """A connection was not closed when expected, so no limit is known any more."""
        self._answers = 0

    def is_reached(self, answers: int) -> bool:
        """Whether the connection is likely to be closed now."""
        return 0 < self._answers == answers
