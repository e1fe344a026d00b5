"""A plan's arrivals from the live state: what waits now with its age, and what is scheduled for later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from oldhost_sync.planner.scenario import Arrival
from oldhost_sync.policy.changes import ChangeRef


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


def _arrival(ref: ChangeRef, at_ms: int) -> Arrival:
    return Arrival(ref.change_id, at_ms, ref.priority_class, *ref.key, property_id=ref.property_id)
