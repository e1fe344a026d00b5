"""The plan: the figures that a rehearsal measured, beside the bounds of an oracle, which knows the whole future."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from oldhost_sync.planner.scenario import Arrival, Scenario
from oldhost_sync.policy.changes import CoalescingKey, PriorityClass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The oracle's lower bounds, which no policy can reach for sure.

    `operations`: the fewest that are correct · `drained_ms`: the earliest time at which the last of them can end.
    """

    operations: int
    drained_ms: int


@dataclass(frozen=True, slots=True)
class PlannedState:
    """The state at one instant: operations that are ready, in their debounce, and sent so far; whether a ban runs."""

    at_ms: int
    ready: int
    debounced: int
    sent: int
    banned: bool


@dataclass
class Plan:
    """What would happen. Ages and latencies are ms from acceptance to OldHost's answer, `drained_ms` is from the start.

    `changes`: how many were rehearsed · `drained` False: it drains too slowly or never; the rehearsal stopped long
    after the scenario's end · `oldest_ms`: age of the oldest change when it reached OldHost (for a key: of the first
    change that the operation covers) · `lost_ms`: time in which OldHost was idle while something could have been sent
    · `alerts`: how often each kind opened · `emergencies_outside_ban_ms`: those that the ban did not delay ·
    `ages_ms`: the age of each operation, by class · `ages_of_property_ms`: the same by class and property ·
    `oldest_by_minute`: the greatest age among the operations that OldHost had in a minute, by the minute's start.
    """

    scenario: Scenario
    bounds: Bounds
    changes: int
    drained: bool = True
    drained_ms: int = 0
    superseded: int = 0
    busy_ms: float = 0.0
    lost_ms: float = 0.0
    oldest_ms: int = 0
    backlog_max: int = 0
    by_class: dict[PriorityClass, int] = field(default_factory=lambda: dict.fromkeys(PriorityClass, 0))
    ages_ms: dict[PriorityClass, list[int]] = field(default_factory=lambda: {cls: [] for cls in PriorityClass})
    ages_of_property_ms: dict[tuple[PriorityClass, str], list[int]] = field(default_factory=dict)
    oldest_by_minute: dict[PriorityClass, dict[int, int]] = field(
        default_factory=lambda: {cls: {} for cls in PriorityClass}
    )
    emergencies_ms: list[int] = field(default_factory=list)
    emergencies_outside_ban_ms: list[int] = field(default_factory=list)
    alerts: dict[str, int] = field(default_factory=dict)
    samples: list[PlannedState] = field(default_factory=list)

    @property
    def operations(self) -> int:
        return sum(self.by_class.values())

    @property
    def busy_share(self) -> float:
        """OldHost's busy time as a share of the whole time until drained."""
        return self.busy_ms / self.drained_ms if self.drained_ms else 0.0

    @property
    def busy_share_of_backlog(self) -> float:
        """OldHost's busy time as a share of the time in which something could be sent."""
        return self.busy_ms / (self.busy_ms + self.lost_ms) if self.busy_ms else 1.0

    @property
    def operations_ratio(self) -> float:
        return self.operations / self.bounds.operations

    @property
    def drained_ratio(self) -> float:
        return self.drained_ms / self.bounds.drained_ms if self.bounds.drained_ms else 1.0

    @property
    def all_units_dirty_ms(self) -> float:
        """How long OldHost takes for one operation of each unit, independent of the scenario's changes."""
        return self.scenario.units * self.scenario.latency_ms

    @property
    def late_emergencies(self) -> int:
        """How many took longer than promised, including those delayed by a ban."""
        return sum(latency_ms > self.scenario.promises.emergency_ms for latency_ms in self.emergencies_ms)

    def promises(self) -> Iterator[tuple[str, bool]]:
        """Which promises the scenario keeps. A ban from the start is a real one: emergencies behind it count, too."""
        promised = self.scenario.promises
        yield "drains", self.drained
        yield f"consistency within {promised.consistency}", self.drained and self.oldest_ms <= promised.consistency_ms
        if self.scenario.ban_at_s == 0:
            yield f"every emergency within {promised.emergency}", not self.late_emergencies
        else:
            p99_ms = quantile(self.emergencies_outside_ban_ms, 0.99)
            is_kept = p99_ms is None or p99_ms < promised.emergency_ms
            yield f"emergency p99 below {promised.emergency}, outside a ban", is_kept

    def figures(self) -> dict[str, Any]:
        """All figures but the samples, as JSON values; times in seconds."""
        return {
            "changes": self.changes,
            "operations": self.operations,
            "operations_by_class": {cls.value: count for cls, count in self.by_class.items()},
            "operations_lower_bound": self.bounds.operations,
            "operations_ratio": round(self.operations_ratio, 4),
            "superseded": self.superseded,
            "drained": self.drained,
            "drained_s": self.drained_ms / 1000,
            "drained_lower_bound_s": self.bounds.drained_ms / 1000,
            "drained_ratio": round(self.drained_ratio, 4),
            "oldest_age_s": self.oldest_ms / 1000,
            "backlog_max": self.backlog_max,
            "all_units_dirty_s": self.all_units_dirty_ms / 1000,
            "busy_share": round(self.busy_share, 4),
            "busy_share_of_backlog": round(self.busy_share_of_backlog, 4),
            "age_s": {cls.value: _quantiles_s(ages) for cls, ages in self.ages_ms.items()},
            "emergencies": len(self.emergencies_ms),
            "late_emergencies": self.late_emergencies,
            "emergency_s": _quantiles_s(self.emergencies_ms),
            "emergency_outside_ban_s": _quantiles_s(self.emergencies_outside_ban_ms),
            "alerts": self.alerts,
        }


def quantile(values: Sequence[float], part: float) -> float | None:
    """The nearest-rank quantile; None when there are no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    rank = min(len(ordered), max(1, -int(-part * len(ordered) // 1)))
    return ordered[rank - 1]


def _quantiles_s(values_ms: Sequence[int]) -> dict[str, float | None]:
    found = {name: quantile(values_ms, part) for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))}
    return {name: None if value is None else value / 1000 for name, value in found.items()}


def bounds(changes: Iterable[Arrival], latency_ms: float, ban: tuple[float, float] | None = None) -> Bounds:
    """The bounds for these changes; `ban` is (start, end) in ms. The oracle's session is always open.

    Operations: every EMERGENCY and TXN change needs one of its own, and every LWW key at least one, for its last state
    (I2, I3). Drain: each of these can't be sent before its change has arrived (for a key: the last one), they are sent
    one after the other, and none during a ban. Under these conditions, sending each at once is the fastest.
    """
    releases = release_times_ms(changes)
    at_ms = 0.0
    for release_ms in releases:
        start_ms = max(at_ms, release_ms)
        if ban is not None and ban[0] <= start_ms < ban[1]:
            start_ms = ban[1]
        at_ms = start_ms + latency_ms
    return Bounds(len(releases), round(at_ms))


def release_times_ms(changes: Iterable[Arrival]) -> list[int]:
    """The earliest time at which each necessary operation can be sent, sorted."""
    singles: list[int] = []
    last_of_key: dict[CoalescingKey, int] = {}
    for change in changes:
        if change.priority_class is PriorityClass.LWW:
            last_of_key[change.key] = max(change.at_ms, last_of_key.get(change.key, 0))
        else:
            singles.append(change.at_ms)
    return sorted([*singles, *last_of_key.values()])
