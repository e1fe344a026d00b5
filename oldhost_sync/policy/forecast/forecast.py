"""The forecast: when will the waiting changes reach OldHost, how old will they be then, and does that break a promise?

Each lane is walked in its order, with its share of the turns, and changes too old for turns before younger ones. Only
future emergencies and TXN changes overtake an LWW change, and LWW always keeps its share. So a burst or a rising rate
alone raises no alert, and a change that will get old in a ban or behind 50,000 others is reported as soon as that can
be predicted. Scheduled changes are not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.queue.operations import Ages
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises

# This share is left for the other classes, however high the measured rate of emergencies: it is an average over
# minutes, and a burst may already be over.
SHARE_LEFT_MIN = 0.1
# After a ban a session is opened, which asks OldHost until two answers in a row agree.
OPENING_READS = 2
# Less than this of an operation, or of a second, is nothing.
_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class Forecast:
    """`drain_ms` None: never, at this rate. `oldest_age_ms`: the oldest age that a change will have when it is sent.

    For display only, nothing is decided by it: `late_emergencies`, how many of the waiting `emergencies`, in flight or
    not, will be older than promised when OldHost has them.
    """

    drain_ms: int | None
    oldest_age_ms: int | None
    emergency_ms: int
    breaks_consistency: bool
    breaks_emergency: bool
    emergencies: int = 0
    late_emergencies: int = 0


@dataclass(frozen=True, slots=True)
class Arrivals:
    """New operations per second, by class."""

    emergency: float = 0.0
    txn: float = 0.0
    lww: float = 0.0

    @property
    def total(self) -> float:
        return self.emergency + self.txn + self.lww


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits. `urgent`: the first emergencies in order; when each began to wait, and how many operations are sent
    up to and with it (`emergencies` is the number of all). `blocked_ms`: how long nothing can be sent. `sent_since_ms`:
    when the oldest change in flight began to wait. `sent_urgent_ms`: when each emergency in flight began to wait.
    """

    txn: Ages
    lww: Ages
    urgent: list[tuple[int, int]]
    emergencies: int
    blocked_ms: int
    service_ms: float
    txn_per_lww: int
    sent_since_ms: int | None = None
    sent_urgent_ms: Sequence[int] = ()
    promises: Promises = USUAL_PROMISES


def make_forecast(backlog: Backlog, arrivals: Arrivals, now_ms: int) -> Forecast:
    """Predict from the backlog and the rates; times in ms."""
    per_s = 1000.0 / max(backlog.service_ms, 0.1)
    rates = Rates.of(backlog, arrivals, per_s)
    emergency_ms, oldest_emergency_ms = _emergencies(backlog, now_ms)
    walk = LaneWalk(backlog.txn.in_order(), backlog.lww.in_order(), rates, now_ms, backlog.promises)
    walk.run()
    lanes_ms, lanes_age_ms = max(walk.txn.last_ms, walk.lww.last_ms), max(walk.txn.oldest_ms, walk.lww.oldest_ms)
    sent_age_ms = 0 if backlog.sent_since_ms is None else now_ms - backlog.sent_since_ms + backlog.blocked_ms
    oldest_ms = max(lanes_age_ms, oldest_emergency_ms, sent_age_ms)
    drain_ms = max(lanes_ms, emergency_ms if backlog.emergencies else 0)
    operations = backlog.txn.total + backlog.lww.total + rates.urgent
    if operations and arrivals.total < per_s:  # until nothing waits any more, including future arrivals
        blocked_s = backlog.blocked_ms / 1000
        until_empty = blocked_s + (operations + arrivals.total * blocked_s) / (per_s - arrivals.total)
        drain_ms = max(drain_ms, round(1000 * until_empty))
    return Forecast(
        drain_ms=drain_ms,
        oldest_age_ms=oldest_ms,
        emergency_ms=emergency_ms,
        breaks_consistency=oldest_ms > backlog.promises.consistency_ms,
        breaks_emergency=oldest_emergency_ms > backlog.promises.emergency_ms,
        emergencies=backlog.emergencies + len(backlog.sent_urgent_ms),
        late_emergencies=_late_emergencies(backlog, now_ms),
    )


def _emergencies(backlog: Backlog, now_ms: int) -> tuple[int, int]:
    """When the last emergency is done, and the greatest age of an emergency when it is done."""
    last_ms, oldest_ms = backlog.blocked_ms, 0
    for first_ms, position in backlog.urgent:
        last_ms = backlog.blocked_ms + round(position * backlog.service_ms)
        oldest_ms = max(oldest_ms, now_ms - first_ms + last_ms)
    if backlog.emergencies > len(backlog.urgent) > 0:  # the rest are estimated from the sample
        first_ms, position = backlog.urgent[-1]
        whole = position * backlog.emergencies / len(backlog.urgent)
        last_ms = backlog.blocked_ms + round(whole * backlog.service_ms)
        oldest_ms = max(oldest_ms, last_ms)
    return last_ms, oldest_ms


def last_emergency_ms(backlog: Backlog) -> int:
    """When the last emergency that waits is done."""
    return _emergencies(backlog, 0)[0]


def _late_emergencies(backlog: Backlog, now_ms: int) -> int:
    """How many will be late: those in flight are sent first, then the others in order."""
    opening_ms = OPENING_READS * backlog.service_ms if backlog.blocked_ms else 0
    begin_ms = now_ms + backlog.blocked_ms + opening_ms
    sent = len(backlog.sent_urgent_ms)
    turns = [*zip(sorted(backlog.sent_urgent_ms), range(1, sent + 1), strict=True)]
    turns += [(first_ms, sent + position) for first_ms, position in backlog.urgent]
    promised_ms = backlog.promises.emergency_ms
    late = [begin_ms + position * backlog.service_ms - first_ms > promised_ms for first_ms, position in turns]
    unseen = backlog.emergencies - len(backlog.urgent)
    return sum(late) + (unseen if unseen and late[-1] else 0)  # the rest are like the last one of the sample


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations per second: `free`, all that emergencies leave over; `txn` and `lww`, while these take turns.
    `begin_s`: in how many seconds the lanes' turn comes, after `urgent` operations. `arrivals`: new TXN changes per
    second; `come`: how many of them arrive before the walk begins.
    """

    free: float
    txn: float
    lww: float
    begin_s: float
    urgent: float
    arrivals: float
    come: float

    @classmethod
    def of(cls, backlog: Backlog, arrivals: Arrivals, per_s: float) -> Rates:
        blocked_s = backlog.blocked_ms / 1000
        sampled = backlog.urgent[-1][1] if backlog.urgent else 0
        urgent = sampled * max(1.0, backlog.emergencies / max(len(backlog.urgent), 1))
        free = max(per_s - arrivals.emergency, per_s * SHARE_LEFT_MIN)
        share = backlog.txn_per_lww / (backlog.txn_per_lww + 1)
        return cls(
            free=free,
            txn=free * share,
            lww=free * (1 - share),
            begin_s=blocked_s + (urgent + arrivals.emergency * blocked_s) / per_s,
            urgent=urgent,
            arrivals=arrivals.txn,
            come=arrivals.txn * blocked_s,
        )


class _LaneFront:
    """One lane's current cell."""

    def __init__(self, cells: Iterator[tuple[int, int, int]], now_ms: int) -> None:
        self._cells = cells
        self._now_ms = now_ms
        self.first_ms = self._ready_ms = 0
        self.left = 0.0
        self.last_ms = self.oldest_ms = self.work_ms = 0
        self._next()

    def _next(self) -> None:
        self._ready_ms, self.first_ms, self.left = next(self._cells, (0, 0, 0))

    def serve(self, count: float, at_s: float) -> None:
        """`count` more of the cell are done at `at_s`."""
        if count <= 0 or not self.left:
            return
        self.left -= count
        if self.left <= _NOTHING:
            self.work_ms = round(1000 * at_s)
            done_ms = max(self.work_ms, self._ready_ms - self._now_ms)
            self.last_ms = max(self.last_ms, done_ms)
            self.oldest_ms = max(self.oldest_ms, self._now_ms - self.first_ms + done_ms)
            self._next()


class LaneWalk:
    """A walk over both lanes: by turns, but the older head first once one is too old to wait for its turn.

    Within a lane the walk is in order of age, although properties take turns. The last change is done at the same time
    in both cases, and properties take no turns that would make a change too old, so the result for the promise is
    the same. Only the oldest change of a property with many changes may get older than predicted, up to that age.

    The walk is over cells of what waits (`ages`), not over changes. A step ends with a cell, or when the lanes' shares
    of OldHost's time change, so there are about as many steps as cells.

    `txn`, `lww`: the cells in the order of their lanes.
    """

    def __init__(
        self,
        txn: Iterator[tuple[int, int, int]],
        lww: Iterator[tuple[int, int, int]],
        rates: Rates,
        now_ms: int,
        promises: Promises = USUAL_PROMISES,
    ) -> None:
        self.txn, self.lww = _LaneFront(txn, now_ms), _LaneFront(lww, now_ms)
        self._rates = rates
        self._at_s = rates.begin_s
        self._newcomers = rates.come
        self._late_ms = promises.oldest_first_ms - now_ms  # late at second s: first + this <= 1000 s

    def run(self) -> None:
        """Walk to the end of both lanes. Each then has `last_ms`, its end, `oldest_ms`, its greatest age, and
        `work_ms`, when OldHost would have had all of it if it waited for no debounce.
        """
        while self.txn.left or self.lww.left:
            self._step()

    def _step(self) -> None:
        """Serve both lanes at their present rates, up to the end of a cell or to a change of these rates."""
        rates, both = self._rates, self.txn.left > 0 and self.lww.left > 0
        txn, lww, newcomers, until_s = 0.0, 0.0, 0.0, float("inf")
        if not self.lww.left:
            txn = rates.free
        elif self._is_late() and (not both or self.lww.first_ms < self.txn.first_ms):
            lww = rates.free
        elif self._is_late():
            txn = rates.free
        elif both or self._newcomers > _NOTHING:
            lww, until_s = rates.lww, self._late_in_s()
            txn, newcomers = (rates.txn, 0.0) if both else (0.0, rates.txn)
        else:
            lww, newcomers = max(rates.free - rates.arrivals, rates.lww), rates.arrivals
            until_s = self._late_in_s()
        times = [self.txn.left / txn if txn else until_s, self.lww.left / lww if lww else until_s, until_s]
        if newcomers > rates.arrivals:
            times.append(self._newcomers / (newcomers - rates.arrivals))
        self._pass(min(times), txn, lww, newcomers)

    def _pass(self, seconds: float, txn: float, lww: float, newcomers: float) -> None:
        self._at_s += seconds
        self._newcomers = max(0.0, self._newcomers + (self._rates.arrivals - newcomers) * seconds)
        self.txn.serve(txn * seconds, self._at_s)
        self.lww.serve(lww * seconds, self._at_s)

    def _is_late(self) -> bool:
        return self._late_in_s() <= _NOTHING

    def _late_in_s(self) -> float:
        first = min(lane.first_ms for lane in (self.txn, self.lww) if lane.left)
        return (first + self._late_ms) / 1000 - self._at_s
