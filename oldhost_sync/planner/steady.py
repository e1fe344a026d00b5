"""A steady load, and the highest one at which every promise is kept however long it lasts.

The load is the scenario's mix at one rate: its half hour again and again, on the same units, without bursts. A backlog
that grows slowly keeps every promise for hours, so each rate is tried as it is after days of it: everything but
emergencies waits that came in the last three hours, and in the six that follow nothing may break, nor get older.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from oldhost_sync.planner.plan import Plan, quantile
from oldhost_sync.planner.rehearsal import Pace, rehearse
from oldhost_sync.planner.scenario import Arrival, Scenario, arrivals
from oldhost_sync.policy.changes import CoalescingKey, PriorityClass
from oldhost_sync.policy.writer_policy import CONSISTENCY_MS, EMERGENCY_MS

BEHIND_S = 3 * 3600.0
TRIED_S = 6 * 3600.0
# Halving the range so often finds the rate to a hundredth of the ceiling.
STEPS = 7
# What chance alone changes from one part of the six hours to the other.
GROWTH_MAX, GROWTH_MS_MAX = 1.01, 60_000
EMERGENCY, LWW = PriorityClass.EMERGENCY, PriorityClass.LWW


@dataclass(frozen=True, slots=True)
class Tried:
    """One rate, in changes per second. `grows`: something gets older and older, and would break the promise one day.
    `oldest_ms`: of each class in the last third of the time, when nothing of the first backlog can be left.
    """

    per_s: float
    breaks: bool
    grows: bool
    oldest_ms: dict[PriorityClass, int]

    @property
    def kept(self) -> bool:
        return not self.breaks and not self.grows


def steady(scenario: Scenario, per_s: float, seconds: float, *, behind_s: float = 0.0) -> list[Arrival]:
    """The mix at that rate, from `behind_s` before the start; of what came before it, only what would still wait."""
    made: list[Arrival] = []
    began: set[CoalescingKey] = set()
    before = max(1, round(behind_s / scenario.duration_s))
    for block in range(int(-(-(behind_s + seconds) // scenario.duration_s))):
        shift_ms = round(1000 * (block * scenario.duration_s - behind_s))
        changes = max(1, round(per_s * scenario.duration_s))
        for change in arrivals(replace(scenario, changes=changes, bursts=0, seed=scenario.seed + block)):
            own = f"{change.entity_id}-{block}" if change.entity_type == "booking" else change.entity_id
            moved = replace(change, number=len(made) + 1, at_ms=change.at_ms + shift_ms, entity_id=own)
            if moved.at_ms >= 0 or _still_waits(moved, began, block, before):
                made.append(moved)
    return [change for change in made if change.at_ms < 1000 * seconds]


def _still_waits(change: Arrival, began: set[CoalescingKey], block: int, before: int) -> bool:
    """Of each LWW key the first change since it went last, which was in one of the blocks before."""
    if change.priority_class is LWW:
        first = change.key not in began and block >= sum(change.entity_id.encode()) % before
        began.update([change.key] if first else [])
        return first
    return change.priority_class is not EMERGENCY


def ceiling_per_s(scenario: Scenario) -> float:
    """Above this rate what can't be compressed alone takes more than all of OldHost's time; inf when all can be."""
    share = scenario.emergency_share + scenario.txn_share
    return 1000 / scenario.latency_ms / share if share and scenario.latency_ms else float("inf")


def try_rate(scenario: Scenario, per_s: float, pace: Pace | None = None) -> Tried:
    """Play that rate, beginning three hours behind, until six hours are over or the promise is broken."""
    changes = steady(scenario, per_s, TRIED_S, behind_s=BEHIND_S)
    plan = rehearse(replace(scenario, bursts=0), pace, changes, steady_ms=round(1000 * TRIED_S))
    p99_ms = quantile(plan.emergencies_ms, 0.99) or 0
    third_ms = round(1000 * TRIED_S / 3)
    then, now = (_oldest(plan, third_ms * part, third_ms * (part + 1)) for part in (1, 2))
    grows = any(now[cls] > then[cls] * GROWTH_MAX + GROWTH_MS_MAX for cls in PriorityClass)
    return Tried(per_s, plan.oldest_ms > CONSISTENCY_MS or p99_ms >= EMERGENCY_MS, grows, now)


def _oldest(plan: Plan, from_ms: int, to_ms: int) -> dict[PriorityClass, int]:
    """The oldest of each class among what OldHost had in that time."""
    return {
        cls: max(
            (age_ms for at_ms, age_ms in plan.oldest_by_minute[cls].items() if from_ms <= at_ms < to_ms), default=0
        )
        for cls in PriorityClass
    }


def capacity(scenario: Scenario, pace: Pace | None = None, *, steps: int = STEPS) -> Iterator[Tried]:
    """Rates tried one after the other, each between the highest that kept every promise and the lowest that did not."""
    kept, broken = 0.0, min(ceiling_per_s(scenario), 10 * 1000 / max(scenario.latency_ms, 1.0))
    for _ in range(steps):
        tried = try_rate(scenario, (kept + broken) / 2, pace)
        yield tried
        kept, broken = (tried.per_s, broken) if tried.kept else (kept, tried.per_s)
