"""Scenarios in which it matters whose turn it is, by the decisions before and after: the table in docs/scaling.md.

`python -m tests.unit.planner.turn_scenarios` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from oldhost_sync.planner import Arrival, Plan, Scenario, quantile, rehearse
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.release import GIVES_WAY, RELEASE
from oldhost_sync.policy.writer_policy import CONSISTENCY_MS

LWW, TXN = PriorityClass.LWW, PriorityClass.TXN
PEAK = Scenario()


@dataclass(frozen=True)
class Figures:
    """One scenario played by the decisions before release 4, and by today's."""

    before: Plan
    after: Plan

    def lines(self, name: str, figures: dict[str, Callable[[Plan], float]]) -> Iterable[str]:
        for what, of in figures.items():
            yield f"| {name} | {what} | {of(self.before):,.4g} | {of(self.after):,.4g} |"


@cache
def peak() -> Figures:
    """The peak half hour: keys that change often beside keys that change once."""
    return Figures(rehearse(PEAK, release=GIVES_WAY), rehearse(PEAK, release=RELEASE))


@cache
def inherited() -> Figures:
    """9,000 LWW keys on 3,000 units wait; then for half an hour 0.6 TXN a second of these units, and 0.1 of others."""
    chance, units = Random(1), 3_000
    found = [(0, LWW, f"U-{unit}", f"kind_{kind}") for unit in range(units) for kind in range(3)]
    at_s = 130.0
    while at_s < 1_930:
        at_s += chance.expovariate(0.7)
        whose = f"U-{chance.randrange(units)}" if chance.random() < 6 / 7 else f"B-{len(found)}"
        found.append((round(at_s * 1000), TXN, whose, "txn"))
    return _played(found)


CALM = Scenario(units=500, changes=2_000, duration_s=3_600.0, bursts=0)


@cache
def early() -> Figures:
    """An hour of half a change a second; before: no key goes early, after: those that were quiet for a minute do."""
    return Figures(rehearse(CALM), rehearse(replace(CALM, early_send_s=60.0)))


SLOW_MS = 4_000.0


@cache
def bulk_beside(backlog: PriorityClass, size: int, stream: PriorityClass, per_s: float, hours: float) -> Figures:
    """`size` changes of one class at once, beside a stream of the other. A tenth of what a large day brings, at an
    OldHost that takes ten times as long for each, so that hours are played in a second.
    """
    chance = Random(1)
    found = [(0, backlog, f"U-{number}", "bulk") for number in range(size)]
    at_s = 0.0
    while at_s < hours * 3_600:
        at_s += chance.expovariate(per_s)
        found.append((round(at_s * 1000), stream, f"B-{len(found)}", "single"))
    return _played(found, SLOW_MS)


def keys_beside_txn() -> Figures:
    return bulk_beside(LWW, 1_050, TXN, 0.18, 5.0)


def txn_beside_keys() -> Figures:
    return bulk_beside(TXN, 2_800, LWW, 0.06, 5.0)


def _played(found: list[tuple[int, PriorityClass, str, str]], latency_ms: float = PEAK.latency_ms) -> Figures:
    changes = [Arrival(number, at, cls, "unit", whose, what) for number, (at, cls, whose, what) in enumerate(found, 1)]
    scenario = Scenario(changes=len(changes), duration_s=changes[-1].at_ms / 1000, bursts=0, latency_ms=latency_ms)
    before, after = (rehearse(scenario, changes=changes, release=release) for release in (GIVES_WAY, RELEASE))
    return Figures(before, after)


def late(plan: Plan) -> int:
    """How many changes were older than the promise when OldHost had them."""
    return sum(age_ms > CONSISTENCY_MS for ages_ms in plan.ages_ms.values() for age_ms in ages_ms)


def mean_s(cls: PriorityClass) -> Callable[[Plan], float]:
    """The mean age of a class, in seconds."""
    return lambda plan: sum(plan.ages_ms[cls]) / len(plan.ages_ms[cls]) / 1000


def worst_s(cls: PriorityClass, part: float = 1.0) -> Callable[[Plan], float]:
    """That quantile of the ages of a class, in seconds."""
    return lambda plan: (quantile(plan.ages_ms[cls], part) or 0) / 1000


FIGURES: dict[str, tuple[Callable[[], Figures], dict[str, Callable[[Plan], float]]]] = {
    "the peak": (
        peak,
        {
            "operations / bound": lambda plan: plan.operations_ratio,
            "drain / bound": lambda plan: plan.drained_ratio,
            "oldest change, s": lambda plan: plan.oldest_ms / 1000,
            "LWW p99, s": worst_s(LWW, 0.99),
        },
    ),
    "9,000 LWW keys of 3,000 units, then TXN of these units": (
        inherited,
        {"TXN p99, s": worst_s(TXN, 0.99), "LWW p99, s": worst_s(LWW, 0.99)},
    ),
    "4 s a request: 1,050 LWW keys at once, 0.18 TXN/s": (
        keys_beside_txn,
        {"later than 4 h": late, "TXN p99, s": worst_s(TXN, 0.99), "LWW p99, s": worst_s(LWW, 0.99)},
    ),
    "4 s a request: 2,800 TXN at once, 0.06 LWW keys/s": (
        txn_beside_keys,
        {"later than 4 h": late, "TXN p99, s": worst_s(TXN, 0.99), "LWW p99, s": worst_s(LWW, 0.99)},
    ),
    "2,000 changes in an hour; SYNC_EARLY_SEND_SECONDS=60": (
        early,
        {"LWW mean, s": mean_s(LWW), "operations / bound": lambda plan: plan.operations_ratio},
    ),
}


def main() -> None:
    print("| scenario | figure | before | after |\n|---|---|---|---|")
    for name, (play, figures) in FIGURES.items():
        for line in play().lines(name, figures):
            print(line)


if __name__ == "__main__":
    main()
