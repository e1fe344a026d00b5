"""The due heap: which waiting key is due next, in O(log n), with one live entry per change.

Where keys may be sent early, a second heap is ordered by how long they have been quiet (without a newer change).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush


class DueHeap:
    """Due times (ms) by change id. Moving or removing one leaves a stale heap item, which is skipped when found."""

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
        """Add many at once, as (due time, change id), to an empty heap."""
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


class DebouncedKeys:
    """Keys that wait for the end of their debounce. `early_ms`: after this quiet time one may be sent early; 0: no."""

    def __init__(self, early_ms: int) -> None:
        self._early_ms = early_ms
        self._due, self._quiet = DueHeap(), DueHeap()

    def __len__(self) -> int:
        return len(self._due)

    def change_ids(self) -> Iterable[int]:
        return self._due.change_ids()

    def put(self, change_id: int, due_at_ms: int, changed_at_ms: int) -> None:
        """`changed_at_ms`: when its quiet time began."""
        self._due.put(change_id, due_at_ms)
        if self._early_ms:
            self._quiet.put(change_id, changed_at_ms + self._early_ms)

    def fill(self, due: list[tuple[int, int]], changed_at_ms: Callable[[int], int]) -> None:
        """Add many at once, as (due time, change id), when there are none yet."""
        if self._early_ms:
            self._quiet.fill([(changed_at_ms(change_id) + self._early_ms, change_id) for _, change_id in due])
        self._due.fill(due)

    def remove(self, change_id: int) -> None:
        self._due.remove(change_id)
        self._quiet.remove(change_id)

    def next_due_at_ms(self) -> int | None:
        return self._due.next_due_at_ms()

    def next_quiet_at_ms(self) -> int | None:
        return self._quiet.next_due_at_ms()

    def pop_due(self, now_ms: int) -> int | None:
        """Take the change id that is due longest, or None when nothing is due at `now_ms`."""
        change_id = self._due.pop_due(now_ms)
        if change_id is not None:
            self._quiet.remove(change_id)
        return change_id

    def quiet(self, now_ms: int, at_most: int) -> list[int]:
        """Those that were quiet for long enough, the quietest first. Each is returned once, and still waits."""
        found: list[int] = []
        while len(found) < at_most and (change_id := self._quiet.pop_due(now_ms)) is not None:
            found.append(change_id)
        return found
