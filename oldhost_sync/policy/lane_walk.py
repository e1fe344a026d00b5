"""A forecast's walk over both lanes: by turns, but the older head first once one is too old to wait for its turn.

Within a lane the walk is in order of age, although properties take turns. The last change is done at the same time in
both cases, and properties take no turns that would make a change three hours old, so the result for the promise is the
same. Only the oldest change of a property with many changes may get older than predicted, up to those three hours.

The walk is over cells of what waits (`ages`), not over changes. A step ends with a cell, or when the lanes' shares of
OldHost's time change, so there are about as many steps as cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oldhost_sync.policy.writer_policy import OLDEST_FIRST_MS

_NOTHING = 1e-6


@dataclass(frozen=True, slots=True)
class Shares:
    """Operations per second: `free`, all that emergencies leave over; `txn` and `lww`, while these take turns.
    `arrivals`: new TXN changes per second; `come`: how many of them arrive before the walk begins.
    """

    free: float
    txn: float
    lww: float
    arrivals: float
    come: float


class _Front:
    """One lane's current cell."""

    def __init__(self, cells: Iterator[tuple[int, int, int]], now_ms: int) -> None:
        self._cells = cells
        self._now_ms = now_ms
        self.first_ms = self._ready_ms = 0
        self.left = 0.0
        self.last_ms = self.oldest_ms = 0
        self._next()

    def _next(self) -> None:
        self._ready_ms, self.first_ms, self.left = next(self._cells, (0, 0, 0))

    def serve(self, count: float, at_s: float) -> None:
        """`count` more of the cell are done at `at_s`."""
        if count <= 0 or not self.left:
            return
        self.left -= count
        if self.left <= _NOTHING:
            done_ms = max(round(1000 * at_s), self._ready_ms - self._now_ms)
            self.last_ms = max(self.last_ms, done_ms)
            self.oldest_ms = max(self.oldest_ms, self._now_ms - self.first_ms + done_ms)
            self._next()


class LaneWalk:
    """`txn`, `lww`: the cells in the order of their lanes; `begin_s`: in how many seconds the first can be sent."""

    def __init__(
        self,
        txn: Iterator[tuple[int, int, int]],
        lww: Iterator[tuple[int, int, int]],
        shares: Shares,
        *,
        begin_s: float,
        now_ms: int,
    ) -> None:
        self.txn, self.lww = _Front(txn, now_ms), _Front(lww, now_ms)
        self._shares = shares
        self._at_s = begin_s
        self._newcomers = shares.come
        self._late_ms = OLDEST_FIRST_MS - now_ms  # late at second s: first + this <= 1000 s

    def run(self) -> None:
        """Walk to the end of both lanes. Each then has `last_ms`, its end, and `oldest_ms`, its greatest age."""
        while self.txn.left or self.lww.left:
            self._step()

    def _step(self) -> None:
        """Serve both lanes at their present rates, up to the end of a cell or to a change of these rates."""
        shares, both = self._shares, self.txn.left > 0 and self.lww.left > 0
        txn, lww, newcomers, until_s = 0.0, 0.0, 0.0, float("inf")
        if not self.lww.left:
            txn = shares.free
        elif self._is_late() and (not both or self.lww.first_ms < self.txn.first_ms):
            lww = shares.free
        elif self._is_late():
            txn = shares.free
        elif both or self._newcomers > _NOTHING:
            lww, until_s = shares.lww, self._late_in_s()
            txn, newcomers = (shares.txn, 0.0) if both else (0.0, shares.txn)
        else:
            lww, newcomers = max(shares.free - shares.arrivals, shares.lww), shares.arrivals
            until_s = self._late_in_s()
        times = [self.txn.left / txn if txn else until_s, self.lww.left / lww if lww else until_s, until_s]
        if newcomers > shares.arrivals:
            times.append(self._newcomers / (newcomers - shares.arrivals))
        self._pass(min(times), txn, lww, newcomers)

    def _pass(self, seconds: float, txn: float, lww: float, newcomers: float) -> None:
        self._at_s += seconds
        self._newcomers = max(0.0, self._newcomers + (self._shares.arrivals - newcomers) * seconds)
        self.txn.serve(txn * seconds, self._at_s)
        self.lww.serve(lww * seconds, self._at_s)

    def _is_late(self) -> bool:
        return self._late_in_s() <= _NOTHING

    def _late_in_s(self) -> float:
        first = min(lane.first_ms for lane in (self.txn, self.lww) if lane.left)
        return (first + self._late_ms) / 1000 - self._at_s
