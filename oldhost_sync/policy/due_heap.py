"""The due heap: which waiting key falls due next, in O(log n), with one live entry per change."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush


class DueHeap:
    """Due times (ms) by change id. Moving or removing one leaves a stale heap item behind that is skipped when met."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._due_at_ms: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._due_at_ms)

    def change_ids(self) -> Iterable[int]:
        return self._due_at_ms

    def put(self, change_id: int, due_at_ms: int) -> None:
        self._due_at_ms[change_id] = due_at_ms
        heappush(self._heap, (due_at_ms, change_id))

    def fill(self, due: list[tuple[int, int]]) -> None:
        """Take many at once, as (due time, change id), into a heap that is empty."""
        self._heap = due
        self._due_at_ms = {change_id: due_at_ms for due_at_ms, change_id in due}
        heapify(due)

    def remove(self, change_id: int) -> None:
        self._due_at_ms.pop(change_id, None)

    def next_due_at_ms(self) -> int | None:
        self._skip_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> int | None:
        """Take the change id that is due longest, or None when nothing is due at `now_ms`."""
        self._skip_stale()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, change_id = heappop(self._heap)
        del self._due_at_ms[change_id]
        return change_id

    def _skip_stale(self) -> None:
        while self._heap and self._due_at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
