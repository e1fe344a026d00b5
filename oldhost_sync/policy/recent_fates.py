"""Recent fates: changes that ended while a page was being read, and that the page still shows as outstanding."""

from __future__ import annotations

from collections.abc import Iterable

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, PriorityClass


class RecentFates:
    """Remembers fates only between `begin` and `end`: a page is read in a fraction of a second."""

    def __init__(self) -> None:
        self._reading = False
        self._ended: dict[int, None] = {}
        self._newest: dict[CoalescingKey, int] = {}

    def begin(self) -> None:
        self._reading = True
        self._ended.clear()
        self._newest.clear()

    def end(self) -> None:
        self._reading = False

    def saw(self, ref: ChangeRef) -> None:
        """A change has its fate. With an LWW change, all older ones of its key have theirs."""
        if not self._reading:
            return
        self._ended[ref.change_id] = None
        if ref.priority_class is PriorityClass.LWW:
            self._newest[ref.key] = max(ref.change_id, self._newest.get(ref.key, 0))

    def __contains__(self, change_id: int) -> bool:
        return change_id in self._ended

    def outstanding(self, refs: Iterable[ChangeRef]) -> list[ChangeRef]:
        """Those of a page that still have no fate."""
        return [
            ref
            for ref in refs
            if ref.change_id not in self._ended
            and not (ref.priority_class is PriorityClass.LWW and ref.change_id < self._newest.get(ref.key, 0))
        ]
