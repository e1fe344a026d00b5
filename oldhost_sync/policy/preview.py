"""The next operations, for display: the coalescer's own code, run on copies of the changes that may be among them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.coalescer import Coalescer


def upcoming(coalescer: Coalescer, count: int, now_ms: int = 0, service_ms: float = 0.0) -> list[ChangeRef]:
    """The next operations if nothing new arrives; `count` at most. `service_ms`: how long OldHost takes for one."""
    rehearsal = Coalescer(
        debounce_ms=0,
        max_wait_ms=0,
        txn_per_lww=coalescer.turns.robin.txn_per_lww,
        txn_run=coalescer.turns.robin.txn_run,
    )
    for cls, lane in rehearsal.lanes.items():
        lane.follow(coalescer.lanes[cls])
    rehearsal.restore(replace(coalescer.waiting[change_id]) for change_id in sorted(near(coalescer, count)))
    rehearsal.turns.elsewhere = coalescer.turns.waiting - rehearsal.turns.waiting
    order: list[ChangeRef] = []
    while len(order) < count and (chain := rehearsal.take(now_ms, service_ms)):
        order += [entry.ref for entry in chain]
    return order[:count]


def near(coalescer: Coalescer, count: int) -> set[int]:
    """The changes that may be among the next `count`: the first of each lane, each with the older ones of its entity,
    which are sent before it. Once a lane has `count` of these, the rest of it does not matter. Where properties take
    turns, a turn for the oldest change may take one that rotation would have reached, and rotation then reaches one
    further back: twice as many matter.
    """
    near: set[int] = set()
    for lane in coalescer.lanes.values():
        of_lane: set[int] = set()
        for (_, change_id, _), entity in lane.first(count):
            ids = coalescer.ids_of(entity)
            here = bisect_left(ids, change_id)
            of_lane.update(ids[: min(here, count)], [change_id])
            if len(of_lane) >= count:
                break
        near |= of_lane
        for (_, change_id, _), entity in lane.first_in_rotation(2 * count):
            ids = coalescer.ids_of(entity)
            near.update(ids[: min(bisect_left(ids, change_id), count)], [change_id])
    return near
