"""The oracle: the best result with knowledge of the whole future. Lower bounds, not a policy.

Operations: every EMERGENCY and TXN change needs one of its own, and every LWW key at least one, for its last state (I2,
I3); fewer would be incorrect. Drain: each of these operations can't be sent before its change has arrived (for a key:
the last one), they are sent one after the other, and none during a ban. Under these conditions, sending each at once
when it has arrived is the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from oldhost_sync.planner.scenario import Arrival
from oldhost_sync.policy.changes import CoalescingKey, PriorityClass


@dataclass(frozen=True, slots=True)
class Bounds:
    """`operations`: the fewest that are correct · `drained_ms`: the earliest time at which the last of them can end."""

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
    """The earliest time at which each necessary operation can be sent, sorted."""
    singles: list[int] = []
    last_of_key: dict[CoalescingKey, int] = {}
    for change in changes:
        if change.priority_class is PriorityClass.LWW:
            last_of_key[change.key] = max(change.at_ms, last_of_key.get(change.key, 0))
        else:
            singles.append(change.at_ms)
    return sorted([*singles, *last_of_key.values()])
