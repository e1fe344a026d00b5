"""The peak by the planner's clock in full, and its short form in real time, beside the rivals, the oracle and the
prediction.

The oracle knows the whole future: an operation for every EMERGENCY and TXN change and for the last state of every key,
sent back to back as soon as they exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.result import Picture, Result, Series, spread
from bench.short_form import SIZE, Played, play, short_form
from bench.stage import Stage
from oldhost_sync.planner import Bounds, Plan, Scenario, arrivals, bounds, rehearse
from oldhost_sync.planner.rehearsal import ban_interval_ms
from oldhost_sync.policy.tuning import EMERGENCY_MS

PEAK = Scenario()
AT_ONCE = dataclasses.replace(PEAK, duration_s=33.0, bursts=0)
BAN_AT_S = 600.0
SCENARIOS = {
    "in 30 minutes": PEAK,
    "in 30 minutes, 15-minute ban at 10 min": dataclasses.replace(PEAK, ban_at_s=BAN_AT_S),
    "in 33 s": AT_ONCE,
    "in 33 s, 15-minute ban at 10 min": dataclasses.replace(AT_ONCE, ban_at_s=BAN_AT_S),
}
# The naive workflow needs a core for itself; the others wait for OldHost nearly all of the time.
PLAYED_AT_ONCE = (("naive workflow",), ("plain loop", "queue worker"))
_HEADER = ("operations", "/ lower bound", "drained, s", "/ lower bound", "EMERGENCY p50, s", "p99", "largest")


def measure(stage: Stage) -> Result:
    size = SIZE * (3 if stage.quick else 1)
    short = {name: short_form(scenario, size) for name, scenario in SCENARIOS.items()}
    first = short["in 30 minutes"]
    result = Result(
        "peak",
        "The peak: 10,000 changes in half an hour",
        conditions=[
            f"short form in real time: {first.changes:,} changes in {first.duration_s:.0f} s on {first.units} units",
            f"there OldHost at {first.latency_ms:g} ms, debounce {first.debounce_s:.1f} s, ban {first.ban_s:.0f} s",
            "changes are recorded in the database at their time; product: relay and worker run",
            f"one system after the other; {' and '.join(PLAYED_AT_ONCE[-1])}, which mostly wait for OldHost, at once",
            "the whole peak by the planner's clock, which drives the writer's own machine",
        ],
    )
    _by_the_planner(result)
    for name, scenario in short.items():
        if scenario.duration_s < first.duration_s or (stage.quick and scenario is not first):
            continue  # what comes at once is a backlog; so short a ban would end within the settle time, as none does
        _in_real_time(stage, result, name, scenario, beside_rivals=scenario is first and not stage.quick)
    return result


def _by_the_planner(result: Result) -> None:
    plans = {name: rehearse(scenario) for name, scenario in SCENARIOS.items()}
    result.table(
        "The whole peak by the planner's clock",
        ("10,000 changes", *_HEADER),
        [(name, *_planned(plan, plan.bounds)) for name, plan in plans.items()],
    )
    plan = plans["in 30 minutes"]
    result.target("peak: operations / lower bound", plan.operations_ratio, "<=", 1.01)
    result.target("peak: time to drain / lower bound", plan.drained_ratio, "<=", 1.03)
    result.pictures += [_life(plans["in 30 minutes, 15-minute ban at 10 min"]), _promise(plans)]


def _life(plan: Plan) -> Picture:
    """What waits and what was sent, with the ban in the middle."""
    minutes = [each.at_ms / 60_000 for each in plan.samples]

    def line(name: str, values: Iterable[int]) -> Series:
        return Series(name, list(zip(minutes, map(float, values), strict=True)))

    banned = [at for at, each in zip(minutes, plan.samples, strict=True) if each.banned]
    return Picture(
        "life",
        "A backlog's life: 10,000 changes in half an hour, and a ban in the middle",
        "minutes",
        "operations",
        [
            line("held back by the debounce", (each.debounced for each in plan.samples)),
            line("ready to go", (each.ready for each in plan.samples)),
            line("sent", (each.sent for each in plan.samples)),
        ],
        shades=[(min(banned), max(banned), "banned")],
    )


def _promise(plans: Mapping[str, Plan]) -> Picture:
    """Each emergency's wait outside of bans, beside what was promised."""
    banned = plans["in 30 minutes, 15-minute ban at 10 min"]
    waits = {
        "in half an hour": plans["in 30 minutes"].emergencies_ms,
        "outside of a ban of 15 min": banned.emergencies_outside_ban_ms,
        "200 of them in 33 s": plans["in 33 s"].emergencies_ms,
    }
    series = [
        Series(name, [(100 * (n + 1) / len(found), each / 1000) for n, each in enumerate(sorted(found))])
        for name, found in waits.items()
    ]
    promise = EMERGENCY_MS / 1000
    return Picture(
        "promise",
        "Emergencies of the peak against the promise, by the planner's clock",
        "share of emergencies, %",
        "accepted → applied, s (log)",
        [*series, Series("promised", [(0.0, promise), (100.0, promise)])],
        log_y=True,
    )


def _in_real_time(stage: Stage, result: Result, name: str, scenario: Scenario, *, beside_rivals: bool) -> None:
    """The product, and rivals beside it, play `scenario`; with what the planner said of it."""
    changes = arrivals(scenario)
    bound = bounds(changes, scenario.latency_ms, ban_interval_ms(scenario))
    played = {"product": play(stage, scenario, changes, ("worker", "relay"))}
    for rivals_at_once in PLAYED_AT_ONCE if beside_rivals else ():
        with ThreadPoolExecutor() as threads:
            each = threads.map(lambda rival: play(stage, scenario, changes, (rival,)), rivals_at_once)
            played |= zip(rivals_at_once, each, strict=True)
    plan = rehearse(scenario)
    result.table(
        f"Short form, {name} (lower bounds: {bound.operations} operations, {bound.drained_ms / 1000:.1f} s)",
        ("", *_HEADER),
        [
            *[(who, *_done(each, bound)) for who, each in played.items()],
            ("product, predicted", *_planned(plan, bound)),
        ],
    )
    gap = played["product"].drained_s / (plan.drained_ms / 1000) - 1
    result.target(f"short form {name}: drain time beside the planner's", 100 * abs(gap), "<=", 5, "%")
    if beside_rivals:
        _targets_beside_rivals(result, played, bound)
        result.pictures.append(_staircases(played))


def _targets_beside_rivals(result: Result, played: Mapping[str, Played], bound: Bounds) -> None:
    operations = {who: each.operations / bound.operations for who, each in played.items()}
    drained = {who: 1000 * each.drained_s / bound.drained_ms for who, each in played.items()}
    result.target(
        "short form in 30 minutes: operations / lower bound", operations.pop("product"), "<=", 1.02, rivals=operations
    )
    result.target(
        "short form in 30 minutes: time to drain / lower bound", drained.pop("product"), "<=", 1.05, rivals=drained
    )


def _done(each: Played, bound: Bounds) -> tuple[int | float, ...]:
    return _row(each.operations, each.drained_s, each.emergencies_s, bound)


def _planned(plan: Plan, bound: Bounds) -> tuple[int | float, ...]:
    return _row(plan.operations, plan.drained_ms / 1000, [each / 1000 for each in plan.emergencies_ms], bound)


def _row(operations: int, drained_s: float, emergencies_s: Sequence[float], bound: Bounds) -> tuple[int | float, ...]:
    return (
        operations,
        operations / bound.operations,
        drained_s,
        1000 * drained_s / bound.drained_ms,
        *spread(emergencies_s),
    )


def _staircases(played: Mapping[str, Played]) -> Picture:
    series = [Series(who, _staircase(each.applied_at_s)) for who, each in played.items()]
    return Picture(
        "peak", "Short form of the peak: operations applied", "s from the first change", "operations", series
    )


def _staircase(times: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, len(times) // 100)
    points = [(at, float(number)) for number, at in enumerate(times, start=1)]
    return [(0.0, 0.0), *points[step - 1 : -1 : step], points[-1]]
