"""The replay: changes that were recorded in a time that is over, rehearsed under other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from oldhost_sync.planner.question import live_scenario
from oldhost_sync.planner.scenario import Arrival, Scenario
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.tuning import WriterPolicy

# Memory: some 0.6 KB each. Time: some 50 µs each on a quick core.
REPLAYED_CHANGES_MAX = 2_000_000


def replayed_arrivals(changes: Sequence[ChangeRef], begin_ms: int) -> list[Arrival]:
    """The changes on a clock that is 0 at `begin_ms` (since 1970), in the order of their times."""
    made = [
        Arrival(ref.change_id, ref.accepted_at_ms - begin_ms, ref.priority_class, *ref.key, property_id=ref.property_id)
        for ref in changes
    ]
    made.sort(key=lambda arrival: arrival.at_ms)
    return made


def replayed_scenario(
    policy: WriterPolicy, latency_ms: float, changes: Sequence[Arrival], other: Mapping[str, Any]
) -> Scenario:
    """The host's own settings, but for the `other` ones (by a scenario's names)."""
    usual = live_scenario(Scenario(latency_ms=latency_ms), policy, changes, ban_left_ms=0)
    return replace(usual, **other)
