"""Scenarios in which it matters whose turn it is, by the decisions before and after: the table in docs/scaling.md.

`python -m tests.unit.planner.turn_scenarios` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from random import Random

from oldhost_sync.planner import Arrival, Plan, Scenario, arrivals, quantile, rehearse
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.release import BY_PROPERTY, GIVES_WAY, RELEASE
from oldhost_sync.policy.writer_policy import CONSISTENCY_MS

LWW, TXN = PriorityClass.LWW, PriorityClass.TXN
PEAK = Scenario()


@dataclass(frozen=True)
class Figures:
    """One scenario played by the decisions before a rule, and by today's."""

    before: Plan
    after: Plan

    def lines(self, name: str, figures: dict[str, Callable[[Plan], float]]) -> Iterable[str]:
        for what, of in figures.items():
            yield f"| {name} | {what} | {_shown(of(self.before))} | {_shown(of(self.after))} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


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


@cache
def hot(units: int, latency_ms: float) -> Figures:
    """2,000 TXN of so few units at once; before: one operation of a unit at a time."""
    changes = [Arrival(number, 0, TXN, "unit", f"U-{number % units}", "txn") for number in range(1, 2_001)]
    scenario = Scenario(changes=len(changes), duration_s=1.0, bursts=0, latency_ms=latency_ms)
    played = (rehearse(scenario, changes=changes, release=release) for release in (GIVES_WAY - 1, RELEASE))
    return Figures(*played)


@cache
def uneven() -> Figures:
    """The peak, its LWW changes on units of which the n-th changes 1/n as often as the first."""
    chance = Random(2)
    weights = [1 / number for number in range(1, PEAK.units + 1)]
    changes = [
        replace(one, entity_id=f"Z-{chance.choices(range(PEAK.units), weights)[0]}", event_type="status")
        if one.priority_class is LWW
        else one
        for one in arrivals(PEAK)
    ]
    before, after = (rehearse(PEAK, changes=changes, release=release) for release in (GIVES_WAY, RELEASE))
    return Figures(before, after)


CALM = Scenario(units=500, changes=2_000, duration_s=3_600.0, bursts=0)


STORMY = "stormy"


@cache
def storm() -> Figures:
    """4,000 LWW keys and 2,000 TXN of one property in a minute; 49 others with 0.8 changes a second for 40 minutes."""
    chance = Random(1)
    found = [
        (round(chance.uniform(0, 60_000)), LWW, f"S-{number}", "storm", STORMY)
        if chance.random() < 2 / 3
        else (round(chance.uniform(0, 60_000)), TXN, f"S-{chance.randrange(400)}", "txn", STORMY)
        for number in range(6_000)
    ]
    at_s = 0.0
    while at_s < 2_400:
        at_s += chance.expovariate(0.8)
        cls, whose = TXN if chance.random() < 0.4 else LWW, chance.randrange(49)
        found.append((round(at_s * 1000), cls, f"U-{whose}-{chance.randrange(60)}", cls.value, f"P-{whose}"))
    return _played(sorted(found), before=BY_PROPERTY - 1)


@cache
def storm_of_hours() -> Figures:
    """2,000 LWW keys of one property at once, beside 0.2 changes a second of 49 others; a tenth, like `bulk_beside`."""
    chance = Random(1)
    found = [(0, LWW, f"S-{number}", "storm", STORMY) for number in range(2_000)]
    at_s = 0.0
    while at_s < 5 * 3_600:
        at_s += chance.expovariate(0.2)
        whose = chance.randrange(49)
        found.append((round(at_s * 1000), LWW, f"U-{whose}-{chance.randrange(60)}", "status", f"P-{whose}"))
    return _played(found, SLOW_MS, before=BY_PROPERTY - 1)


@cache
def peak_of_properties() -> Figures:
    """The peak, its units in fifty properties of some two to one hundred units each."""
    chance = Random(3)
    weights = [1 / (1 + number) for number in range(50)]
    of_unit = dict(zip(range(1, PEAK.units + 1), chance.choices(range(50), weights, k=PEAK.units), strict=True))
    changes = [
        replace(one, property_id=f"P-{of_unit[int(one.entity_id[2:])]}") if one.entity_type == "unit" else one
        for one in arrivals(PEAK)
    ]
    before, after = (rehearse(PEAK, changes=changes, release=release) for release in (BY_PROPERTY - 1, RELEASE))
    return Figures(before, after)


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


def _played(
    found: Sequence[tuple[int, PriorityClass, str, str] | tuple[int, PriorityClass, str, str, str]],
    latency_ms: float = PEAK.latency_ms,
    before: int = GIVES_WAY,
) -> Figures:
    """What came when, its class, unit and event type, and perhaps its property."""
    changes = [
        Arrival(number, at, cls, "unit", whose, what, property_id="".join(told))
        for number, (at, cls, whose, what, *told) in enumerate(found, 1)
    ]
    scenario = Scenario(changes=len(changes), duration_s=changes[-1].at_ms / 1000, bursts=0, latency_ms=latency_ms)
    played = (rehearse(scenario, changes=changes, release=release) for release in (before, RELEASE))
    return Figures(*played)


def late(plan: Plan) -> int:
    """How many changes were older than the promise when OldHost had them."""
    return sum(age_ms > CONSISTENCY_MS for ages_ms in plan.ages_ms.values() for age_ms in ages_ms)


def mean_s(cls: PriorityClass) -> Callable[[Plan], float]:
    """The mean age of a class, in seconds."""
    return lambda plan: sum(plan.ages_ms[cls]) / len(plan.ages_ms[cls]) / 1000


def worst_s(cls: PriorityClass, part: float = 1.0) -> Callable[[Plan], float]:
    """That quantile of the ages of a class, in seconds."""
    return lambda plan: (quantile(plan.ages_ms[cls], part) or 0) / 1000


def others_ms(plan: Plan, cls: PriorityClass) -> list[int]:
    """The ages of a class, but for the stormy property's."""
    ages = plan.ages_of_property_ms.items()
    return [age_ms for (one, whose), found in ages if one is cls and whose != STORMY for age_ms in found]


def others_mean_s(cls: PriorityClass) -> Callable[[Plan], float]:
    """The mean age of a class in the properties without a storm, in seconds."""
    return lambda plan: sum(others_ms(plan, cls)) / len(others_ms(plan, cls)) / 1000


def others_p99_s(cls: PriorityClass) -> Callable[[Plan], float]:
    """What 99 of 100 of them are younger than, in seconds."""
    return lambda plan: (quantile(others_ms(plan, cls), 0.99) or 0) / 1000


FIGURES: dict[str, tuple[Callable[[], Figures], dict[str, Callable[[Plan], float]]]] = {
    **{
        f"2,000 TXN of {words} at {latency_ms} ms": (
            partial(hot, units, latency_ms),
            {"drain / bound": lambda plan: plan.drained_ratio},
        )
        for units, words in ((1, "one unit"), (2, "two units"))
        for latency_ms in (400, 100, 20)
    },
    "the peak": (
        peak,
        {
            "operations / bound": lambda plan: plan.operations_ratio,
            "drain / bound": lambda plan: plan.drained_ratio,
            "oldest change, s": lambda plan: plan.oldest_ms / 1000,
            "LWW p99, s": worst_s(LWW, 0.99),
        },
    ),
    "the peak, some units' LWW changing often, most seldom": (
        uneven,
        {
            "operations / bound": lambda plan: plan.operations_ratio,
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
    "4,000 LWW and 2,000 TXN of one property, 49 others": (
        storm,
        {
            "others' TXN mean, s": others_mean_s(TXN),
            "others' TXN p99, s": others_p99_s(TXN),
            "others' LWW mean, s": others_mean_s(LWW),
            "others' LWW p99, s": others_p99_s(LWW),
            "operations / bound": lambda plan: plan.operations_ratio,
            "drain / bound": lambda plan: plan.drained_ratio,
        },
    ),
    "4 s a request: 2,000 LWW keys of one property, 0.2/s of 49 others": (
        storm_of_hours,
        {
            "later than 4 h": late,
            "oldest change, s": lambda plan: plan.oldest_ms / 1000,
            "others' LWW mean, s": others_mean_s(LWW),
        },
    ),
    "the peak, its units in 50 properties of all sizes": (
        peak_of_properties,
        {
            "operations / bound": lambda plan: plan.operations_ratio,
            "drain / bound": lambda plan: plan.drained_ratio,
            "oldest change, s": lambda plan: plan.oldest_ms / 1000,
            "TXN p99, s": worst_s(TXN, 0.99),
            "LWW p99, s": worst_s(LWW, 0.99),
        },
    ),
    "2,000 changes in an hour; `SYNC_EARLY_SEND_SECONDS=60`": (
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
