"""A steady load, and the highest one at which every promise is kept, however long it lasts.

The load is the scenario's mix at a constant rate: its half hour again and again, on the same units, without bursts. A
backlog that grows slowly keeps every promise for hours. So each rate is tried as if it had lasted for days: all changes
of the last three hours wait, except emergencies, and in the next six hours no promise may break and no age may grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from oldhost_sync.planner.plan import Plan, quantile
from oldhost_sync.planner.rehearsal import Pace, rehearse
from oldhost_sync.planner.scenario import Arrival, Scenario, arrivals
from oldhost_sync.policy.changes import CoalescingKey, PriorityClass

BEHIND_S = 3 * 3600.0
TRIED_S = 6 * 3600.0
# Halving the range this often finds the rate to a hundredth of the ceiling.
STEPS = 7
# Chance alone changes the ages by up to this much from one part of the six hours to the next (factor, ms).
GROWTH_MAX, GROWTH_MS_MAX = 1.01, 60_000
EMERGENCY, LWW = PriorityClass.EMERGENCY, PriorityClass.LWW


@dataclass(frozen=True, slots=True)
class Tried:
    """One rate, in changes per second. `grows`: the ages grow steadily and would break the promise one day.
    `oldest_ms`: the oldest of each class in the last third of the time, when nothing of the first backlog is left.
    """

    per_s: float
    breaks: bool
    grows: bool
    oldest_ms: dict[PriorityClass, int]

    @property
    def kept(self) -> bool:
        return not self.breaks and not self.grows


def steady(scenario: Scenario, per_s: float, seconds: float, *, behind_s: float = 0.0) -> list[Arrival]:
    """The mix at that rate, from `behind_s` before the start; of the changes before it, only those that still wait."""
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
    """Whether a change before the start still waits. Of each LWW key it is the first change since the key was last
    sent, which was in one of the earlier blocks.
    """
    if change.priority_class is LWW:
        first = change.key not in began and block >= sum(change.entity_id.encode()) % before
        began.update([change.key] if first else [])
        return first
    return change.priority_class is not EMERGENCY


def ceiling_per_s(scenario: Scenario) -> float:
    """Above this rate, OldHost has no time even for the changes that can't be compressed; inf if all can be."""
    share = scenario.emergency_share + scenario.txn_share
    return 1000 / scenario.latency_ms / share if share and scenario.latency_ms else float("inf")


def try_rate(scenario: Scenario, per_s: float, pace: Pace | None = None) -> Tried:
    """Run that rate, with a backlog of three hours at the start, for six hours or until the promise is broken."""
    changes = steady(scenario, per_s, TRIED_S, behind_s=BEHIND_S)
    plan = rehearse(replace(scenario, bursts=0), pace, changes, steady_ms=round(1000 * TRIED_S))
    p99_ms = quantile(plan.emergencies_ms, 0.99) or 0
    third_ms = round(1000 * TRIED_S / 3)
    then, now = (_oldest(plan, third_ms * part, third_ms * (part + 1)) for part in (1, 2))
    grows = any(now[cls] > then[cls] * GROWTH_MAX + GROWTH_MS_MAX for cls in PriorityClass)
    promised = scenario.promises
    breaks = plan.oldest_ms > promised.consistency_ms or p99_ms >= promised.emergency_ms
    return Tried(per_s, breaks, grows, now)


def _oldest(plan: Plan, from_ms: int, to_ms: int) -> dict[PriorityClass, int]:
    """The greatest age of each class among the operations that OldHost had in that time."""
    return {
        cls: max(
            (age_ms for at_ms, age_ms in plan.oldest_by_minute[cls].items() if from_ms <= at_ms < to_ms), default=0
        )
        for cls in PriorityClass
    }


def capacity(scenario: Scenario, pace: Pace | None = None, *, steps: int = STEPS) -> Iterator[Tried]:
    """Try rates by bisection: each between the highest that kept every promise and the lowest that did not."""
    kept, broken = 0.0, min(ceiling_per_s(scenario), 10 * 1000 / max(scenario.latency_ms, 1.0))
    for _ in range(steps):
        tried = try_rate(scenario, (kept + broken) / 2, pace)
        yield tried
        kept, broken = (tried.per_s, broken) if tried.kept else (kept, tried.per_s)
