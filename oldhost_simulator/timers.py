"""Callbacks by due time; those with the same time run in the order in which they were added."""

import heapq
import itertools
from collections.abc import Callable


class Timers:
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, due: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due, next(self._order), callback))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Callable[[], None] | None:
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None
