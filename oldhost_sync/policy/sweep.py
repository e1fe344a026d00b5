"""The sweep: a periodic search for strays, changes that MariaDB knows to be relayed and the machine does not hold.

A page is read while the writer works on: what gets its fate between the reading and its result is no stray.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oldhost_sync.policy.recent_fates import RecentFates
from oldhost_sync.policy.writer_policy import FIRST_SWEEP_MS


@dataclass
class Sweeping:
    """`at_ms`: when the next page is due; after change `after_id` (0: a new sweep). `under_way`: being read."""

    every_ms: int
    at_ms: int = 0
    after_id: int = 0
    under_way: bool = False
    fates: RecentFates = field(default_factory=RecentFates)

    def begin(self) -> int:
        """A page is asked for; returns after which change."""
        self.under_way = True
        self.fates.begin()
        return self.after_id

    def end(self, last_id: int, now_ms: int, *, more: bool) -> None:
        """The page is taken over; the next one soon when there is more, a new sweep when its time comes."""
        self.after_id = last_id if more else 0
        self._rest(now_ms, soon=more)

    def fail(self, now_ms: int) -> None:
        """The database did not answer: the same page again, before long."""
        self._rest(now_ms, soon=True)

    def begin_soon(self, now_ms: int) -> None:
        """After a rebuild the first sweep is not far."""
        self._rest(now_ms, soon=True)

    def _rest(self, now_ms: int, *, soon: bool) -> None:
        self.under_way = False
        self.fates.end()
        self.at_ms = now_ms + (min(FIRST_SWEEP_MS, self.every_ms) if soon else self.every_ms)
