"""The outlook: when a change that is accepted now will reach OldHost.

The writer says how long what waits takes (`Outlook.of`); whoever answers an application adds what was accepted since
(`expected_ms`). It is for display only. An LWW change is expected as if no newer one of its key follows. What a burst
that has only begun will bring is not known: what it overtakes is expected too early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.forecast.forecast import Arrivals, Backlog, LaneWalk, Rates, last_emergency_ms
from oldhost_sync.policy.queue.operations import CELL_MS, Ages
from oldhost_sync.policy.tuning import OLDEST_TURN_EVERY, WriterPolicy

# Properties whose counts an outlook holds; the others count as the average of the rest.
PROPERTIES_MAX = 100
# The usual way from acceptance to the writer, of an EMERGENCY and of others, and from there to a worker.
RELAY_EMERGENCY_MS = 70
RELAY_MS = 550
DISPATCH_MS = 50
# Turns until one property had its own, of which only the others are in rotation.
_TURNS = OLDEST_TURN_EVERY / (OLDEST_TURN_EVERY - 1)


@dataclass(frozen=True, slots=True)
class LaneOutlook:
    """What waits in one lane: how many, for how many of the properties with the most, of how many properties.
    `work_ms`: until OldHost has had all of it.
    """

    work_ms: int = 0
    waiting: int = 0
    properties: int = 0
    largest: Mapping[str, int] | None = None

    @classmethod
    def of(cls, ages: Ages, work_ms: int) -> LaneOutlook:
        largest = sorted(ages.by_property.items(), key=lambda item: -item[1])[:PROPERTIES_MAX]
        return cls(work_ms, ages.total, len(ages.by_property), dict(largest))

    def ahead(self, property_id: str, more: Mapping[str, int]) -> tuple[float, int]:
        """How many go before a new change of that property, and how many wait. `more`: by property, how many have come
        since. Properties take turns, so it waits for as many of each other one as of its own.
        """
        counts = dict(self.largest or {})
        rest = max(0, self.properties - len(counts))
        average = (self.waiting - sum(counts.values())) / rest if rest else 0.0
        own = counts.get(property_id, average)
        for one, count in more.items():
            counts[one] = counts.get(one, 0) + count
        mine = own + more.get(property_id, 0) + 1
        waiting = self.waiting + sum(more.values())
        turns = rest * min(average, mine) + sum(min(count, mine) for count in counts.values())
        return min(waiting, _TURNS * turns), waiting


@dataclass(frozen=True, slots=True)
class Outlook:
    """`begin_ms`: until the lanes' turn comes, after a ban and the emergencies, of which the last is done in
    `emergency_ms`. `sent`: operations in flight; `ready`: those that wait for no debounce. `quiet_ms`: how long an LWW
    key waits for newer changes at least; `early_ms`: while OldHost is idle, or 0. `per_turn`: OldHost's time for one
    TXN operation, in its times.
    """

    service_ms: float
    begin_ms: int
    emergency_ms: int
    sent: int
    ready: int
    per_turn: float
    quiet_ms: int
    early_ms: int
    txn: LaneOutlook
    lww: LaneOutlook

    @classmethod
    def of(
        cls, backlog: Backlog, arrivals: Arrivals, policy: WriterPolicy, now_ms: int, sent: int, ready: int
    ) -> Outlook:
        """Of a writer that sends, or will when a ban is over."""
        rates = Rates.of(backlog, arrivals, 1000.0 / max(backlog.service_ms, 0.1))
        cells = [*backlog.lww.in_order()]
        newest_ms = now_ms - _lag_ms(cells, policy.debounce_ms, now_ms)
        before = iter([cell for cell in cells if cell[1] <= newest_ms])
        walk = LaneWalk(backlog.txn.in_order(), before, rates, now_ms, backlog.promises)
        walk.run()
        return cls(
            service_ms=backlog.service_ms,
            begin_ms=round(1000 * rates.begin_s),
            emergency_ms=last_emergency_ms(backlog),
            sent=sent,
            ready=ready,
            per_turn=1 + 1 / backlog.txn_per_lww if backlog.lww.total else 1.0,
            quiet_ms=policy.debounce_ms,
            early_ms=policy.early_send_ms,
            txn=LaneOutlook.of(backlog.txn, walk.txn.work_ms),
            lww=LaneOutlook.of(backlog.lww, walk.lww.work_ms),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Outlook:
        lanes = {name: LaneOutlook(**content[name]) for name in ("txn", "lww")}
        return cls(**{**content, **lanes})

    @property
    def is_calm(self) -> bool:
        """Nothing waits but for its debounce, so what comes later changes little."""
        return not (self.ready or self.sent or self.begin_ms)

    def expected_ms(
        self, cls: PriorityClass, property_id: str, age_ms: float, since: Mapping[PriorityClass, Mapping[str, int]]
    ) -> int:
        """How long a change takes that is accepted `age_ms` after this. `since`: by class and property, those that the
        writer had not got at that time.
        """
        sent_ms = self.sent * self.service_ms
        more = since.get(cls, {})
        if cls is PriorityClass.EMERGENCY:
            wait_ms = self.emergency_ms - age_ms + sum(more.values()) * self.service_ms
            wire_ms = self.service_ms / 2 if self.sent else 0.0
            return round(max(0.0, wait_ms) + wire_ms + RELAY_EMERGENCY_MS + DISPATCH_MS + self.service_ms)
        if cls is PriorityClass.TXN:
            wait_ms = self._turn_ms(self.txn, property_id, more) + sent_ms - age_ms
            return round(max(wait_ms, RELAY_MS + DISPATCH_MS) + self.service_ms)
        is_idle = self.early_ms and self.ready * self.service_ms + sent_ms < self.early_ms
        wait_ms = self._turn_ms(self.lww, property_id, {}) + sent_ms - age_ms
        return round(max(wait_ms, self.early_ms if is_idle else self.quiet_ms) + self.service_ms)

    def _turn_ms(self, lane: LaneOutlook, property_id: str, more: Mapping[str, int]) -> float:
        ahead, waiting = lane.ahead(property_id, more)
        work_ms = max(0, lane.work_ms - self.begin_ms) + sum(more.values()) * self.service_ms * self.per_turn
        return self.begin_ms + (work_ms * ahead / waiting if waiting else 0.0)


def _lag_ms(cells: list[tuple[int, int, int]], debounce_ms: int, now_ms: int) -> float:
    """How long ago the keys began to wait that changed lately, on average: that is a key's place in its lane."""
    lately = [
        (ready_ms - debounce_ms - first_ms, count)
        for ready_ms, first_ms, count in cells
        if ready_ms >= now_ms - CELL_MS
    ]
    keys = sum(count for _, count in lately)
    return sum(max(0, lag_ms) * count for lag_ms, count in lately) / keys if keys else 0.0
