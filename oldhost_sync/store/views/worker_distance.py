"""The worker that is farthest from MariaDB. Each operation waits for several round trips, so a distance that nobody
notices elsewhere costs OldHost's time, and a large one lets each mark become too old to send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oldhost_sync.policy.rules.alert_kinds import Severity
from oldhost_sync.store.views.processes import Process

# Beside MariaDB a round trip takes less than 1 ms. At 10 ms OldHost got 2.3 operations a second instead of 2.5, at 250
# ms none: an operation must be written within a second of the beginning of its mark.
FAR_MS, OUT_OF_REACH_MS = 8.0, 150.0
# A distance that was told counts until it is shorter than this.
NEAR_MS = 5.0


@dataclass(frozen=True, slots=True)
class FarWorker:
    severity: Severity
    message: str


def far_worker(workers: Sequence[Process], *, was_far: bool) -> FarWorker | None:
    """None if all workers at work are near. `was_far`: at the last look."""
    at_work = [each for each in workers if each.at_work and each.round_trip_ms is not None]
    farthest = max(at_work, key=lambda each: each.round_trip_ms or 0.0, default=None)
    if farthest is None or farthest.round_trip_ms is None:
        return None
    distance_ms = farthest.round_trip_ms
    if distance_ms < (NEAR_MS if was_far else FAR_MS):
        return None
    where = f"Worker {farthest.name} is {distance_ms:.0f} ms from MariaDB (one round trip)"
    if distance_ms >= OUT_OF_REACH_MS:
        return FarWorker("critical", f"{where}: too far to write an operation within a second of its mark.")
    return FarWorker("warning", f"{where}. An operation waits for several, so OldHost gets fewer than it could take.")
