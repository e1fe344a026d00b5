"""The sweep: a periodic search for strays, changes that are marked as relayed in MariaDB but missing in the machine.

The writer continues while a page is read: a change that gets its fate between the read and its result is no stray.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from oldhost_sync.policy.recent_fates import RecentFates
from oldhost_sync.policy.writer_policy import FIRST_SWEEP_MS


@dataclass
class SweepState:
    """`at_ms`: when the next page is due, from after change `after_id` (0: a new sweep). `under_way`: being read."""

    every_ms: int
    at_ms: int = 0
    after_id: int = 0
    under_way: bool = False
    fates: RecentFates = field(default_factory=RecentFates)

    def begin(self) -> int:
        """A page is requested. Returns the change id to read after."""
        self.under_way = True
        self.fates.begin()
        return self.after_id

    def end(self, last_id: int, now_ms: int, *, more: bool) -> None:
        """The page is taken over. The next one follows soon if there is more, otherwise at the next regular sweep."""
        self.after_id = last_id if more else 0
        self._rest(now_ms, soon=more)

    def fail(self, now_ms: int) -> None:
        """The database did not answer: read the same page again soon."""
        self._rest(now_ms, soon=True)

    def begin_soon(self, now_ms: int) -> None:
        """After a rebuild, the first sweep is soon."""
        self._rest(now_ms, soon=True)

    def _rest(self, now_ms: int, *, soon: bool) -> None:
        self.under_way = False
        self.fates.end()
        self.at_ms = now_ms + (min(FIRST_SWEEP_MS, self.every_ms) if soon else self.every_ms)
