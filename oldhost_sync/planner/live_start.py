"""A plan's arrivals from the live state: what waits now with its age, and what is scheduled for later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from oldhost_sync.planner.scenario import Arrival, Scenario
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.writer_policy import WriterPolicy


def live_arrivals(
    outstanding: Iterable[ChangeRef], later: Iterable[ChangeRef], now_ms: int, new: Iterable[Arrival] = ()
) -> list[Arrival]:
    """On a clock that is 0 now: what is outstanding came before it, what is scheduled (`later`) comes when it is due,
    or now if that is over, and `new` at its own times. Ids are those of the database where it has given them out.
    """
    waiting = [_arrival(ref, ref.accepted_at_ms - now_ms) for ref in outstanding]
    coming = [_arrival(ref, max(0, ref.accepted_at_ms - now_ms)) for ref in later]
    last_id = max((one.number for one in waiting), default=0)
    ordered = sorted([*coming, *new], key=lambda one: one.at_ms)
    return waiting + [replace(one, number=number) for number, one in enumerate(ordered, last_id + 1)]


def live_scenario(scenario: Scenario, policy: WriterPolicy, changes: Sequence[Arrival], ban_left_ms: int) -> Scenario:
    """`scenario` by the writer's settings, with the ban that runs now and no other, for as long as `changes` come."""
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
