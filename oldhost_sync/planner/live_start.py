"""The arrivals of a plan that starts from the live state: waiting changes with their age, and scheduled changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oldhost_sync.planner.scenario import Arrival, Scenario
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.tuning import WriterPolicy


def live_arrivals(
    outstanding: Iterable[ChangeRef], later: Iterable[ChangeRef], now_ms: int, new: Iterable[Arrival] = ()
) -> list[Arrival]:
    """All arrivals, on a clock that is 0 now. `outstanding` changes arrived before; scheduled ones (`later`) arrive
    when due, or now if that has passed; `new` ones at their own times. Outstanding changes keep their database ids.
    """
    waiting = [_arrival(ref, ref.accepted_at_ms - now_ms) for ref in outstanding]
    coming = [_arrival(ref, max(0, ref.accepted_at_ms - now_ms)) for ref in later]
    last_id = max((one.number for one in waiting), default=0)
    ordered = sorted([*coming, *new], key=lambda one: one.at_ms)
    return waiting + [replace(one, number=number) for number, one in enumerate(ordered, last_id + 1)]


def live_scenario(scenario: Scenario, policy: WriterPolicy, changes: Sequence[Arrival], ban_left_ms: int) -> Scenario:
    """`scenario` with the writer's settings and only the ban that runs now, for as long as `changes` arrive."""
    return replace(
        scenario,
        bursts=0,
        duration_s=max(scenario.duration_s, changes[-1].at_ms / 1000),
        debounce_s=policy.debounce_ms / 1000,
        max_wait_s=policy.max_wait_ms / 1000,
        txn_per_lww=policy.txn_per_lww,
        early_send_s=policy.early_send_ms / 1000,
        **({"ban_at_s": 0.0, "ban_s": ban_left_ms / 1000} if ban_left_ms else {"ban_at_s": None}),
    )


def _arrival(ref: ChangeRef, at_ms: int) -> Arrival:
    return Arrival(ref.change_id, at_ms, ref.priority_class, *ref.key, property_id=ref.property_id)
