"""Temporal's limits, looked at in each activation: a real server ends a run, or refuses its task, where one is reached.

The limits are the server's defaults (temporal 1.2x: `limit.numPendingActivities`, `limit.historySize`,
`limit.historyCount`, `history.maxTotalUpdates` and its like). Ours lie far below: what we bound ourselves, we bound
whatever the shape of the backlog (I11).
"""

from __future__ import annotations

import time
from typing import Any

PENDING_ACTIVITIES_MAX, OUR_PENDING_ACTIVITIES_MAX = 2_000, 50
HISTORY_BYTES_MAX, OUR_HISTORY_BYTES_MAX = 50_000_000, 10_000_000
EVENTS_MAX = 51_200
SIGNALS_MAX = 10_000
UPDATES_IN_FLIGHT_MAX = 10
UPDATES_MAX = 2_000
CARRIED_BYTES_MAX, OUR_CARRIED_BYTES_MAX = 2_097_152, 1_000_000
# The SDK calls a workflow that thinks for two seconds deadlocked. CPU time, not the clock's: the machine may be busy.
ACTIVATION_CPU_SECONDS_MAX = 2.0
# An event beside its payload: ids, times, queue names, retry policies.
EVENT_BYTES = 160


class TemporalLimits:
    """One run's figures. `fail` is told a sentence when one of them is reached."""

    def __init__(self, fail: Any) -> None:
        self._fail = fail
        self.bytes = 0
        self.signals = 0
        self.updates = 0
        self.in_flight = 0
        self.slowest_s = 0.0
        self._told: dict[str, None] = {}

    def payload(self, data: bytes) -> None:
        self.bytes += len(data)

    def signal(self, data: bytes) -> None:
        self.signals += 1
        self.payload(data)
        self._bound("signals of a run", self.signals, SIGNALS_MAX)

    def update_began(self) -> bool:
        """False: the server refuses it, too many are in flight."""
        self.updates += 1
        self._bound("updates of a run", self.updates, UPDATES_MAX)
        if self.in_flight >= UPDATES_IN_FLIGHT_MAX:
            self._tell("updates in flight", f"{self.in_flight} are in flight: the next is refused")
            return False
        self.in_flight += 1
        return True

    def update_ended(self) -> None:
        self.in_flight -= 1

    def carried(self, data: bytes) -> None:
        """What crosses to the next run, compressed as on the wire."""
        self._bound("bytes carried over", len(data), CARRIED_BYTES_MAX, OUR_CARRIED_BYTES_MAX)

    def activation(self, events: int, pending: int, began_s: float) -> None:
        """At the end of a workflow task. `began_s`: `time.thread_time()` when it began."""
        spent = time.thread_time() - began_s
        self.slowest_s = max(self.slowest_s, spent)
        self._bound("activities pending", pending, PENDING_ACTIVITIES_MAX, OUR_PENDING_ACTIVITIES_MAX)
        self._bound("events of a run", events, EVENTS_MAX)
        self._bound("bytes of a run's history", self.size(events), HISTORY_BYTES_MAX, OUR_HISTORY_BYTES_MAX)
        if spent > ACTIVATION_CPU_SECONDS_MAX:
            self._tell("an activation", f"{spent:.1f} s of CPU")

    def size(self, events: int) -> int:
        return events * EVENT_BYTES + self.bytes

    def _bound(self, what: str, value: int, limit: int, ours: int | None = None) -> None:
        if value >= limit:
            self._tell(what, f"{value:,} reach Temporal's limit of {limit:,}")
        elif ours is not None and value > ours:
            self._tell(what, f"{value:,} are above our own bound of {ours:,}")

    def _tell(self, what: str, text: str) -> None:
        if what not in self._told:
            self._told[what] = None
            self._fail(f"I11: {what}: {text}")
