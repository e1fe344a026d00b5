"""What goes next, for people: the coalescer's own code on copies of the changes that may be among the next ones."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.coalescer import Coalescer


def upcoming(coalescer: Coalescer, count: int, now_ms: int = 0) -> list[ChangeRef]:
    """The next operations if nothing new came in; `count` at most."""
    rehearsal = Coalescer(
        debounce_ms=0,
        max_wait_ms=0,
        txn_per_lww=coalescer.turns.robin.txn_per_lww,
        txn_run=coalescer.turns.robin.txn_run,
        rules=coalescer.rules,
    )
    rehearsal.restore(replace(coalescer.waiting[change_id]) for change_id in sorted(near(coalescer, count)))
    order: list[ChangeRef] = []
    while len(order) < count and (chain := rehearsal.take(now_ms)):
        order += [entry.ref for entry in chain]
    return order[:count]


def near(coalescer: Coalescer, count: int) -> set[int]:
    """Who may be among the next `count`: of each lane those in front, each with the older ones of its entity, which go
    first. In a lane that has `count` of these, what comes later does not matter.
    """
    near: set[int] = set()
    for lane in coalescer.lanes.values():
        of_lane: set[int] = set()
        for (_, change_id), entity in lane.first(count):
            ids = coalescer.ids_of(entity)
            here = bisect_left(ids, change_id)
            of_lane.update(ids[: min(here, count)], [change_id])
            if len(of_lane) >= count:
                break
        near |= of_lane
    return near
