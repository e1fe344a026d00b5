"""The sweep: a periodic search for strays, changes that MariaDB knows to be relayed and the machine does not hold.

A page is read while the writer works on: what gets its fate between the reading and its result is no stray.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, PriorityClass
from oldhost_sync.policy.writer_policy import FIRST_SWEEP_MS


@dataclass
class Sweeping:
    """`at_ms`: when the next page is due; it begins after change `after_id` (0: a new sweep). `under_way`: it is being read."""

    every_ms: int
    at_ms: int = 0
    after_id: int = 0
    under_way: bool = False
    _settled: dict[int, None] = field(default_factory=dict)
    _newest: dict[CoalescingKey, int] = field(default_factory=dict)

    def begin(self) -> int:
        """A page is asked for; returns after which change."""
        self.under_way = True
        self._settled.clear()
        self._newest.clear()
        return self.after_id

    def saw_settled(self, ref: ChangeRef) -> None:
        """A change has its fate, and with an LWW change all older ones of its key."""
        if not self.under_way:
            return
        self._settled[ref.change_id] = None
        if ref.priority_class is PriorityClass.LWW:
            self._newest[ref.key] = max(ref.change_id, self._newest.get(ref.key, 0))

    def unsettled(self, refs: Iterable[ChangeRef]) -> list[ChangeRef]:
        """Those of a page that still have no fate."""
        return [
            ref
            for ref in refs
            if ref.change_id not in self._settled
            and not (ref.priority_class is PriorityClass.LWW and ref.change_id < self._newest.get(ref.key, 0))
        ]

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
        self.at_ms = now_ms + (min(FIRST_SWEEP_MS, self.every_ms) if soon else self.every_ms)
