"""The oracle: the best result with knowledge of the whole future. Lower bounds, not a policy.

Operations: every EMERGENCY and TXN change needs one of its own, and every LWW key at least one, for its last state (I2,
I3); nothing less is correct. Drain: those operations can't be sent before the change they carry has arrived (for a key:
its last one), they go one after the other, and none goes during a ban. Sending whatever has arrived at once is then the
quickest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oldhost_sync.planner.scenario import Arrival
from oldhost_sync.policy.changes import CoalescingKey, PriorityClass


@dataclass(frozen=True, slots=True)
class Bounds:
    """`operations`: the fewest that are correct · `drained_ms`: when the last of them can have ended, at best."""

    operations: int
    drained_ms: int


def bounds(changes: Iterable[Arrival], latency_ms: float, ban: tuple[float, float] | None = None) -> Bounds:
    """The bounds for these changes; `ban` is (start, end) in ms. The oracle's session is always open."""
    releases = release_times_ms(changes)
    at_ms = 0.0
    for release_ms in releases:
        start_ms = max(at_ms, release_ms)
        if ban is not None and ban[0] <= start_ms < ban[1]:
            start_ms = ban[1]
        at_ms = start_ms + latency_ms
    return Bounds(len(releases), round(at_ms))


def release_times_ms(changes: Iterable[Arrival]) -> list[int]:
    """When each necessary operation can go at the earliest, in order of time."""
    singles: list[int] = []
    last_of_key: dict[CoalescingKey, int] = {}
    for change in changes:
        if change.priority_class is PriorityClass.LWW:
            last_of_key[change.key] = max(change.at_ms, last_of_key.get(change.key, 0))
        else:
            singles.append(change.at_ms)
    return sorted([*singles, *last_of_key.values()])
