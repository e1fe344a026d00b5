"""Rates: the writer's load monitor measures them, and forecasts once a minute whether a promise will break; the relay
measures the rates of a host.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.forecast.forecast import Arrivals, Backlog, Forecast, make_forecast
from oldhost_sync.policy.queue.coalescer import Coalescer
from oldhost_sync.policy.queue.operations import PendingOperation
from oldhost_sync.policy.tuning import (
    CALM_MS,
    DEBOUNCE_PER_LONG_SEND,
    DEBOUNCE_PER_SEND,
    FORECAST_MS,
    LONG_SEND_FILL_MS,
    LONG_SEND_OPERATIONS,
    QUICK_SEND_FILL_MS,
    SEND_FILL_MS,
    SEND_OPERATIONS,
    SEND_OPERATIONS_MAX,
    SERVICE_MS_DEFAULT,
    SHORT_SEND_FILL_MS,
    WriterPolicy,
)

SMOOTHING = 0.2  # weight of the newest measurement
# Most of a rate comes from the measurements of this last time.
RATES_OVER_MS = round(FORECAST_MS / SMOOTHING)
# Emergencies that a forecast looks at one by one; the others are estimated from these.
URGENT_MAX = 500
# Rates are measured over at least this time; a forecast may be requested sooner.
MEASURE_MS_MIN = 30_000
# A promise will no longer break when the figure has fallen to this share of it.
OVER_PERCENT = 95
# Measured over this time: short for the pace, so that it is current; long for the ratio, so that one burst hardly
# changes it.
PACE_SECONDS = 300.0
RATIO_SECONDS = 3600.0
# One entry for each measurement that found something, some seconds apart.
ENTRIES_MAX = 2_000


class LoadMonitor:
    """Rates are smoothed at each minute's measurement, `service_ms` at each send's. A forecast is also made at once
    when a ban begins (`update_soon`). `breaks`: by its name, the promise that will break, and why, as first seen.
    """

    def __init__(self, now_ms: int, policy: WriterPolicy, in_flight: Iterable[PendingOperation]) -> None:
        self.service_ms = SERVICE_MS_DEFAULT
        self.arrivals_per_s = 0.0
        self.applied_per_s = 0.0
        self.next_at_ms = now_ms + FORECAST_MS
        self.latest: Forecast | None = None
        self.breaks: dict[str, str] = {}
        self.rates = dict.fromkeys(PriorityClass, 0.0)
        self._since_ms = self._calm_from_ms = now_ms
        self._arrived = 0
        self._applied = 0
        self._by_class = dict.fromkeys(PriorityClass, 0)
        self._in_flight = in_flight
        self._txn_per_lww, self._promises = policy.txn_per_lww, policy.promises
        self._late_since_ms: int | None = None

    def arrived(self, cls: PriorityClass, now_ms: int, *, is_new: bool = True) -> None:
        """`is_new`: not read from MariaDB with the rest of a backlog."""
        self._arrived += 1
        self._by_class[cls] += 1
        if is_new and cls is PriorityClass.TXN:
            self._calm_from_ms = now_ms + CALM_MS

    def send_size(self, debounce_ms: int, now_ms: int = 0) -> int:
        """How many operations a send has now, at least one. Each send costs Temporal the same, so more of them make an
        operation cheaper; but an arriving TXN change waits for the sends in flight, and what is in a send can't
        coalesce. `now_ms`: if it may be a long one, while no TXN change arrives.
        """
        service_ms = self.service_ms
        quick_ms = max(SHORT_SEND_FILL_MS, min(QUICK_SEND_FILL_MS, debounce_ms // DEBOUNCE_PER_SEND))
        size = max(int(quick_ms / service_ms), min(SEND_OPERATIONS, int(SEND_FILL_MS / service_ms)))
        if now_ms and self.is_calm(now_ms):
            long_ms = min(LONG_SEND_FILL_MS, debounce_ms // DEBOUNCE_PER_LONG_SEND)
            size = max(size, min(LONG_SEND_OPERATIONS, int(long_ms / service_ms)))
        return max(1, min(SEND_OPERATIONS_MAX, size))

    def is_calm(self, now_ms: int) -> bool:
        """Whether no TXN change has arrived for a minute, or since the run began."""
        return now_ms >= self._calm_from_ms

    def applied(self) -> None:
        self._applied += 1

    def served(self, service_ms: float) -> None:
        self.service_ms += SMOOTHING * (service_ms - self.service_ms)
        self.service_ms = max(self.service_ms, 0.1)

    def update_soon(self, now_ms: int) -> None:
        self.next_at_ms = now_ms

    def update(self, coalescer: Coalescer, blocked_ms: int, now_ms: int) -> None:
        if now_ms - self._since_ms >= MEASURE_MS_MIN:
            self._measure(now_ms)
        self.next_at_ms = now_ms + FORECAST_MS
        self.latest = found = self.forecast(coalescer, blocked_ms, now_ms)
        oldest_ms = found.oldest_age_ms or 0
        self._judge(
            "consistency",
            _breaks(oldest_ms, self._promises.consistency_ms, is_seen="consistency" in self.breaks),
            f"The {self._promises.consistency} promise will break: {len(coalescer.waiting)} operations wait, and the "
            f"oldest will be {oldest_ms / 3_600_000:.1f} h old when OldHost has it.",
        )
        self._judge(
            "emergency",
            # Emergencies that wait because of a ban have an alert for that.
            self._lasts(late=not blocked_ms and found.breaks_emergency, now_ms=now_ms),
            f"The {self._promises.emergency} promise for emergencies will break: "
            f"{len(coalescer.lanes[PriorityClass.EMERGENCY])} wait, the last of them for "
            f"{found.emergency_ms / 1000:.0f} s more.",
        )

    def _lasts(self, *, late: bool, now_ms: int) -> bool:
        """Whether it has been so for a minute of forecasts: a burst is over before people could act on an alert. Those
        emergencies of a burst that are late have an alert of their own (`promise`), as soon as they are late.
        """
        if not late:
            self._late_since_ms = None
        elif self._late_since_ms is None:
            self._late_since_ms = now_ms
        return self._late_since_ms is not None and now_ms - self._late_since_ms >= FORECAST_MS

    def forecast(self, coalescer: Coalescer, blocked_ms: int, now_ms: int) -> Forecast:
        return make_forecast(self.backlog(coalescer, blocked_ms), self.arrivals, now_ms)

    def backlog(self, coalescer: Coalescer, blocked_ms: int) -> Backlog:
        """What waits now."""
        ages = coalescer.ages
        return Backlog(
            txn=ages[PriorityClass.TXN],
            lww=ages[PriorityClass.LWW],
            urgent=urgent(coalescer, URGENT_MAX),
            emergencies=len(coalescer.lanes[PriorityClass.EMERGENCY]),
            blocked_ms=blocked_ms,
            service_ms=self.service_ms,
            txn_per_lww=self._txn_per_lww,
            sent_since_ms=min((entry.first_at_ms for entry in self._in_flight), default=None),
            sent_urgent_ms=[
                entry.first_at_ms for entry in self._in_flight if entry.ref.priority_class is PriorityClass.EMERGENCY
            ],
            promises=self._promises,
        )

    @property
    def arrivals(self) -> Arrivals:
        """The measured rates."""
        rates = self.rates
        return Arrivals(rates[PriorityClass.EMERGENCY], rates[PriorityClass.TXN], rates[PriorityClass.LWW])

    def _measure(self, now_ms: int) -> None:
        elapsed_s = max(now_ms - self._since_ms, 1) / 1000
        self.arrivals_per_s += SMOOTHING * (self._arrived / elapsed_s - self.arrivals_per_s)
        self.applied_per_s += SMOOTHING * (self._applied / elapsed_s - self.applied_per_s)
        for cls, count in self._by_class.items():
            self.rates[cls] += SMOOTHING * (count / elapsed_s - self.rates[cls])
            self._by_class[cls] = 0
        self._arrived = self._applied = 0
        self._since_ms = now_ms

    def _judge(self, promise: str, will_break: bool, why: str) -> None:
        if will_break:
            self.breaks.setdefault(promise, why)
        else:
            self.breaks.pop(promise, None)


def urgent(coalescer: Coalescer, count: int) -> list[tuple[int, int]]:
    """The first emergencies in order: when each began to wait, and how many operations are sent up to and with it."""
    found: list[tuple[int, int]] = []
    last: dict[EntityKey, int] = {}
    position = 0
    for (_, change_id, _), entity in coalescer.lanes[PriorityClass.EMERGENCY].first(count):
        here = bisect_left(coalescer.ids_of(entity), change_id) + 1
        position += here - last.get(entity, 0)
        last[entity] = here
        found.append((coalescer.waiting[change_id].first_at_ms, position))
    return found


def _breaks(age_ms: int, promise_ms: int, *, is_seen: bool) -> bool:
    return age_ms > (promise_ms * OVER_PERCENT // 100 if is_seen else promise_ms)


@dataclass
class FateRates:
    """How fast changes get their fate, and how many of them share one operation, over the last minutes. Monotonic s."""

    since: float
    _ended: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=ENTRIES_MAX))

    def saw(self, now: float, changes: int, operations: int) -> None:
        """`changes` more changes got their fate, `operations` of them by an operation of their own."""
        if changes:
            self._ended.append((now, changes, operations))
        while self._ended and self._ended[0][0] < now - RATIO_SECONDS:
            self._ended.popleft()

    def drain_seconds(self, now: float, waiting: int) -> float:
        """How long the waiting changes take at the current pace, if no more arrive; infinite while none gets a fate."""
        if not waiting:
            return 0.0
        span = max(1.0, min(PACE_SECONDS, now - self.since))
        ended = sum(changes for at, changes, _ in self._ended if at >= now - span)
        return waiting * span / ended if ended else float("inf")

    def compression_ratio(self) -> float:
        """Changes with a fate per applied operation; 1 while there was none."""
        operations = sum(operations for _, _, operations in self._ended)
        return sum(changes for _, changes, _ in self._ended) / operations if operations else 1.0
