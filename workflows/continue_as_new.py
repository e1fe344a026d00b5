"""Renewal: when a run has become long enough to be followed by a new one, which takes over what waits."""

from __future__ import annotations

# The pages of a large rebuild alone can bring Temporal's suggestion of a new run (4 MiB; 150,000 changes with UUIDs as
# ids). What could not be carried there would be rebuilt again, and nothing ever sent. So such a run works on for so
# many events first, far below Temporal's limits (51,200 events, 50 MiB).
EVENTS_AFTER_REBUILD = 4_000
# Nor is a new run begun while the rebuild goes on, unless it has got nowhere for hours.
EVENTS_OF_REBUILD_MAX = 20_000
# Temporal ends a run at 50 MiB, with all signals that it has not read. Submitted changes are the one thing that can
# bring a run there: each is in its history twice, as the signal and as the input of the activity that records it.
HISTORY_BYTES_MAX = 8 * 1024 * 1024
# Temporal refuses a run's signal 10,001, the relay's too.
SIGNALS_MAX = 5_000


# Before a new run what speaks to OldHost ends; book-keeping that takes longer than this is left to the next run, which
# does it again: somebody may hold a row or a table for as long as he likes.
DRAIN_MS = 2_000


class Renewal:
    """`asked`: new settings came, which the next run will use. `leaving`: nothing waits for book-keeping any more."""

    def __init__(self) -> None:
        self.asked = False
        self.leaving = False
        self.leave_at_ms: int | None = None
        self._not_before_event = 0
        self._bytes_of_rebuild = 0

    def rebuilt(self, events: int, *, suggested: bool, history_bytes: int = 0) -> None:
        """What waits was read from MariaDB, which took `events` of history so far."""
        self._bytes_of_rebuild = history_bytes
        if suggested:
            self._not_before_event = events + EVENTS_AFTER_REBUILD

    def is_due(self, events: int, *, suggested: bool, history_bytes: int = 0, signals: int = 0) -> bool:
        """`history_bytes` and `signals` of the run; 0 in one begun before 0.2, which did not look at them."""
        too_large = history_bytes >= self._bytes_of_rebuild + HISTORY_BYTES_MAX or signals >= SIGNALS_MAX
        return self.asked or too_large or (suggested and events >= self._not_before_event)

    def drain(self, *, due: bool, now_ms: int, at_once: bool = False) -> bool:
        """Whether to end this run, and from when on that has been so. `at_once`: book-keeping gets no time."""
        if not due:
            self.leave_at_ms = None
        elif self.leave_at_ms is None:
            self.leave_at_ms = now_ms + (0 if at_once else DRAIN_MS)
        return due

    def leave(self, now_ms: int) -> bool:
        """Whether book-keeping has had its time."""
        self.leaving = self.leave_at_ms is not None and now_ms >= self.leave_at_ms
        return self.leaving
