"""How fast changes get their fate, and how many of them share one operation, over the last minutes. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

# Measured over this time: short for the pace, so that it is current; long for the ratio, so that one burst hardly
# changes it.
PACE_SECONDS = 300.0
RATIO_SECONDS = 3600.0
# One entry for each measurement that found something, some seconds apart.
ENTRIES_MAX = 2_000


@dataclass
class Flow:
    """The flow of one host. Times are monotonic seconds."""

    since: float
    _ended: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX))

    def saw(self, now: float, changes: int, operations: int) -> None:
        """`changes` more changes got their fate, `operations` of them by an operation of their own."""
        if changes:
            self._ended.append((now, changes, operations))
        while self._ended and self._ended[0][0] < now - RATIO_SECONDS:
            self._ended.popleft()

    def drain_seconds(self, now: float, waiting: int) -> float:
        """How long the waiting changes take at the current pace, if no more arrive; infinite while none gets a fate."""
        if not waiting:
            return 0.0
        span = max(1.0, min(PACE_SECONDS, now - self.since))
        ended = sum(changes for at, changes, _ in self._ended if at >= now - span)
        return waiting * span / ended if ended else float("inf")

    def compression_ratio(self) -> float:
        """Changes with a fate per applied operation; 1 while there was none."""
        operations = sum(operations for _, _, operations in self._ended)
        return sum(changes for _, changes, _ in self._ended) / operations if operations else 1.0
