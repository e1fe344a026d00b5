"""Scenarios in which it matters whose turn it is: the table in docs/decisions/turns.md.

`python -m tests.unit.planner.turn_scenarios` measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from random import Random

from oldhost_sync.planner import Arrival, Plan, Scenario, arrivals, quantile, rehearse
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.tuning import CONSISTENCY_MS

LWW, TXN = PriorityClass.LWW, PriorityClass.TXN
PEAK = Scenario()


def lines(name: str, plan: Plan, figures: dict[str, Callable[[Plan], float]]) -> Iterable[str]:
    """The rows of the table that tell of one scenario."""
    for what, of in figures.items():
        yield f"| {name} | {what} | {_shown(of(plan))} |"


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


@cache
def peak() -> Plan:
    """The peak half hour: keys that change often beside keys that change once."""
    return rehearse(PEAK)


@cache
def inherited() -> Plan:
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
def hot(units: int, latency_ms: float) -> Plan:
    """2,000 TXN of so few units at once."""
    changes = [Arrival(number, 0, TXN, "unit", f"U-{number % units}", "txn") for number in range(1, 2_001)]
    scenario = Scenario(changes=len(changes), duration_s=1.0, bursts=0, latency_ms=latency_ms)
    return rehearse(scenario, changes=changes)


@cache
def uneven() -> Plan:
    """The peak, its LWW changes on units of which the n-th changes 1/n as often as the first."""
    chance = Random(2)
    weights = [1 / number for number in range(1, PEAK.units + 1)]
    changes = [
        replace(one, entity_id=f"Z-{chance.choices(range(PEAK.units), weights)[0]}", event_type="status")
        if one.priority_class is LWW
        else one
        for one in arrivals(PEAK)
    ]
    return rehearse(PEAK, changes=changes)


CALM = Scenario(units=500, changes=2_000, duration_s=3_600.0, bursts=0)


STORMY = "stormy"


@cache
def storm() -> Plan:
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
    return _played(sorted(found))


@cache
def storm_of_hours() -> Plan:
    """2,000 LWW keys of one property at once, beside 0.2 changes a second of 49 others; a tenth, like `bulk_beside`."""
    chance = Random(1)
    found = [(0, LWW, f"S-{number}", "storm", STORMY) for number in range(2_000)]
    at_s = 0.0
    while at_s < 5 * 3_600:
        at_s += chance.expovariate(0.2)
        whose = chance.randrange(49)
        found.append((round(at_s * 1000), LWW, f"U-{whose}-{chance.randrange(60)}", "status", f"P-{whose}"))
    return _played(found, SLOW_MS)


@cache
def peak_of_properties() -> Plan:
    """The peak, its units in fifty properties of some two to one hundred units each."""
    chance = Random(3)
    weights = [1 / (1 + number) for number in range(50)]
    of_unit = dict(zip(range(1, PEAK.units + 1), chance.choices(range(50), weights, k=PEAK.units), strict=True))
    changes = [
        replace(one, property_id=f"P-{of_unit[int(one.entity_id[2:])]}") if one.entity_type == "unit" else one
        for one in arrivals(PEAK)
    ]
    return rehearse(PEAK, changes=changes)


@cache
def calm() -> Plan:
    """An hour of half a change a second; no key goes early."""
    return rehearse(CALM)


@cache
def early() -> Plan:
    """The same hour; keys that were quiet for a minute go early."""
    return rehearse(replace(CALM, early_send_s=60.0))


SLOW_MS = 4_000.0


@cache
def bulk_beside(backlog: PriorityClass, size: int, stream: PriorityClass, per_s: float, hours: float) -> Plan:
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


def keys_beside_txn() -> Plan:
    return bulk_beside(LWW, 1_050, TXN, 0.18, 5.0)


def txn_beside_keys() -> Plan:
    return bulk_beside(TXN, 2_800, LWW, 0.06, 5.0)


def _played(
    found: Sequence[tuple[int, PriorityClass, str, str] | tuple[int, PriorityClass, str, str, str]],
    latency_ms: float = PEAK.latency_ms,
) -> Plan:
    """What came when, its class, unit and event type, and perhaps its property."""
    changes = [
        Arrival(number, at, cls, "unit", whose, what, property_id="".join(told))
        for number, (at, cls, whose, what, *told) in enumerate(found, 1)
    ]
    scenario = Scenario(changes=len(changes), duration_s=changes[-1].at_ms / 1000, bursts=0, latency_ms=latency_ms)
    return rehearse(scenario, changes=changes)


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


FIGURES: dict[str, tuple[Callable[[], Plan], dict[str, Callable[[Plan], float]]]] = {
    "the peak": (
        peak,
        {
            "operations / bound": lambda plan: plan.operations_ratio,
            "oldest change, s": lambda plan: plan.oldest_ms / 1000,
        },
    ),
    "the peak in 50 properties": (peak_of_properties, {"oldest change, s": lambda plan: plan.oldest_ms / 1000}),
    "a burst of one property": (
        storm,
        {"others' TXN mean, s": others_mean_s(TXN), "others' LWW mean, s": others_mean_s(LWW)},
    ),
    "a calm hour": (calm, {"LWW mean, s": mean_s(LWW), "operations / bound": lambda plan: plan.operations_ratio}),
    "the same, early after 60 s": (
        early,
        {"LWW mean, s": mean_s(LWW), "operations / bound": lambda plan: plan.operations_ratio},
    ),
}


def main() -> None:
    print("| scenario | figure | |\n|---|---|---|")
    for name, (play, figures) in FIGURES.items():
        for line in lines(name, play(), figures):
            print(line)


if __name__ == "__main__":
    main()
