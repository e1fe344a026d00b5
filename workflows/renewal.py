"""Renewal: when a run has become long enough to be followed by a new one, which takes over what waits (design §6)."""

from __future__ import annotations

# The pages of a large rebuild alone can bring Temporal's suggestion of a new run (4 MiB; 150,000 changes with UUIDs as ids). What
# could not be carried there would be rebuilt again, and nothing ever sent. So such a run works on for so many events first, far
# below Temporal's limits (51,200 events, 50 MiB).
EVENTS_AFTER_REBUILD = 4_000


class Renewal:
    """`asked`: new settings came, and hold from the next run on."""

    def __init__(self) -> None:
        self.asked = False
        self._not_before_event = 0

    def rebuilt(self, events: int, *, suggested: bool) -> None:
        """What waits was read from MariaDB, which took `events` of history so far."""
        if suggested:
            self._not_before_event = events + EVENTS_AFTER_REBUILD

    def is_due(self, events: int, *, suggested: bool) -> bool:
        return self.asked or (suggested and events >= self._not_before_event)
