"""The peak half hour: by the planner's clock in full, and a short form in real time beside the rivals.

The short form is the same peak with a fifteenth of the changes, units and time at a quarter of the latency: each key's
life keeps its shape (debounce and maximum wait shrink with it), and the lower bounds shrink alike. The oracle knows the
whole future: an operation for every EMERGENCY and TXN change and for the last state of every key, sent back to back as
soon as they exist.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from bench.deployment import RIVALS, Deployment
from bench.result import Picture, Result, Series, spread
from bench.stage import SimulatedHost, Stage
from oldhost_sync.planner import Arrival, Bounds, Pace, Plan, Scenario, arrivals, bounds, rehearse
from oldhost_sync.store.recording import record_change
from oldhost_sync.store.transactions import run_in_transaction

SIZE = 18
FASTER = 4
OPENING_READS = 2
# In the short form a ban shrinks with the time, but no further than safety allows: settle > request timeout + 3 s.
SHORT_SETTINGS = {"request_timeout_seconds": 1.0, "settle_seconds": 4.0, "sweep_seconds": 300.0}
SHORT_PACE = Pace(late_ms=2_000)


@dataclass(frozen=True, slots=True)
class Played:
    """What one system did with the short form. Spans in seconds from its first change."""

    operations: int
    drained_s: float
    emergencies_s: list[float]
    applied_at_s: list[float]


def measure(stage: Stage) -> Result:
    short = compressed(Scenario(), SIZE * (3 if stage.quick else 1), FASTER)
    banned = dataclasses.replace(short, ban_at_s=short.duration_s / 3)
    result = Result(
        "peak",
        "The peak: 10,000 changes in half an hour",
        conditions=[
            f"short form in real time: {short.changes:,} changes in {short.duration_s:.0f} s on {short.units} units",
            f"there OldHost at {short.latency_ms:g} ms, debounce {short.debounce_s:.1f} s, bursts of 300/s",
            "changes are recorded in the database at their time; product: relay and worker run",
            "the whole peak by the planner's clock, which drives the writer's own machine",
        ],
    )
    _by_the_planner(result)
    changes = arrivals(short)
    bound = _bounds(short, changes)
    played = {"product": play(stage, short, changes, ("worker", "relay"))}
    for name in RIVALS:
        played[name] = play(stage, short, changes, (name,))
    header = ("", "operations", "/ lower bound", "drained, s", "/ lower bound", "EMERGENCY p50, s", "p99", "largest")
    table = result.table(
        f"Short form in real time (lower bounds: {bound.operations} operations, {bound.drained_ms / 1000:.1f} s)",
        header,
    )
    for name, each in played.items():
        table.rows.append(_row(name, each, bound))
    plan = rehearse(short)
    table.rows.append(_planned(plan, bound))
    product = played["product"]
    gap = product.drained_s / (plan.drained_ms / 1000) - 1
    result.notes.append(
        f"Prediction and measurement of the short form: {plan.operations} and {product.operations} operations "
        f"({100 * (product.operations / plan.operations - 1):+.1f} %), drained after {plan.drained_ms / 1000:.1f} s and "
        f"{product.drained_s:.1f} s ({100 * gap:+.1f} %)."
    )
    result.target("planner's drain time beside the measured one, short form", 100 * abs(gap), "<=", 5, "%")
    _with_a_ban(stage, result, banned, changes)
    result.pictures.append(
        Picture(
            "peak",
            "Short form of the peak: operations applied",
            "s from the first change",
            "operations",
            [Series(name, _staircase(each.applied_at_s)) for name, each in played.items()],
        )
    )
    return result


def compressed(scenario: Scenario, size: int, faster: int) -> Scenario:
    """The same scenario with 1/`size` of everything that counts, at 1/`faster` of the latency."""
    shorter = size * faster
    return dataclasses.replace(
        scenario,
        units=scenario.units // size,
        changes=scenario.changes // size,
        duration_s=scenario.duration_s / shorter,
        burst_changes=scenario.burst_changes // size,
        latency_ms=scenario.latency_ms / faster,
        debounce_s=scenario.debounce_s / shorter,
        max_wait_s=scenario.max_wait_s / shorter,
        ban_s=scenario.ban_s / shorter,
    )


def _by_the_planner(result: Result) -> None:
    peak = Scenario()
    at_once = dataclasses.replace(peak, duration_s=33.0, bursts=0)
    scenarios = {
        "in 30 minutes": peak,
        "in 30 minutes, 15-minute ban at 10 min": dataclasses.replace(peak, ban_at_s=600.0),
        "in 33 s": at_once,
        "in 33 s, 15-minute ban at 10 min": dataclasses.replace(at_once, ban_at_s=600.0),
    }
    header = (
        "10,000 changes",
        "operations",
        "/ lower bound",
        "drained, s",
        "/ lower bound",
        "EMERGENCY p50, s",
        "p99",
        "largest",
    )
    table = result.table("The whole peak by the planner's clock", header)
    plans = {name: rehearse(scenario) for name, scenario in scenarios.items()}
    for name, plan in plans.items():
        emergencies = [each / 1000 for each in plan.emergencies_ms]
        table.rows.append(
            (
                name,
                plan.operations,
                plan.operations_ratio,
                plan.drained_ms / 1000,
                plan.drained_ratio,
                *spread(emergencies),
            )
        )
    plan = plans["in 30 minutes"]
    result.target("peak: operations / lower bound", plan.operations_ratio, "<=", 1.02)
    result.target("peak: time to drain / lower bound", plan.drained_ratio, "<=", 1.05)


def play(stage: Stage, scenario: Scenario, changes: Sequence[Arrival], roles: Sequence[str]) -> Played:
    """Record the changes at their times, and wait until none is left without a fate."""
    given = {
        **SHORT_SETTINGS,
        "debounce_seconds": scenario.debounce_s,
        "max_wait_seconds": scenario.max_wait_s,
        "ban_seconds": scenario.ban_s,
    }
    with (
        stage.simulator(scenario.latency_ms, ban_seconds=scenario.ban_s) as simulator,
        Deployment(stage, simulator, given) as deployment,
    ):
        for role in roles:
            deployment.start(role)
        if "worker" in roles:
            deployment.start_writer()
            deployment.wait_for("a session", lambda: deployment.status()["session"]["phase"] == "open")
        else:
            time.sleep(4)  # rivals have no status to ask; they connect at their start
        began, accepted = _record_all(deployment, simulator, changes, scenario)
        left = "SELECT COUNT(*) FROM outbox_events WHERE host = %s AND processed_at IS NULL"
        deployment.wait_for("nothing is left without a fate", lambda: _count(deployment, left) == 0, 300)
        return _played(simulator, began, accepted)


def _record_all(
    deployment: Deployment, simulator: SimulatedHost, changes: Sequence[Arrival], scenario: Scenario
) -> tuple[float, dict[str, float]]:
    """When it began, and when each emergency was accepted, by idempotency key."""
    emergencies: dict[str, float] = {}
    ban_at_s = scenario.ban_at_s
    began = time.time()
    for change in changes:
        pause = began + change.at_ms / 1000 - time.time()
        if pause > 0:
            time.sleep(pause)
        if ban_at_s is not None and change.at_ms >= 1000 * ban_at_s:
            simulator.act("ban", seconds=scenario.ban_s)
            ban_at_s = None
        recorded = run_in_transaction(
            deployment.engine,
            partial(
                record_change,
                host=deployment.host,
                entity_type=change.entity_type,
                entity_id=change.entity_id,
                event_type=change.event_type,
                payload={"status": f"s-{change.step}", "revision": change.number},
            ),
        )
        if change.priority_class.value == "EMERGENCY":
            emergencies[recorded.idempotency_key] = recorded.accepted_at.timestamp()
    return began, emergencies


def _played(simulator: SimulatedHost, began: float, accepted: dict[str, float]) -> Played:
    entries = [entry for entry in simulator.journal() if entry["outcome"] == "applied"]
    at = {entry["body"]["idempotency_key"]: entry["applied_at"] for entry in entries}
    times = sorted(at.values())
    return Played(
        len(entries),
        times[-1] - began,
        [at[key] - when for key, when in accepted.items()],
        [each - began for each in times],
    )


def _with_a_ban(stage: Stage, result: Result, scenario: Scenario, changes: Sequence[Arrival]) -> None:
    assert scenario.ban_at_s is not None
    played = play(stage, scenario, changes, ("worker", "relay"))
    bound = _bounds(scenario, changes)
    plan = rehearse(scenario, SHORT_PACE)
    header = ("", "operations", "/ lower bound", "drained, s", "/ lower bound", "EMERGENCY p50, s", "p99", "largest")
    result.table(
        f"Short form with a ban of {scenario.ban_s:.0f} s after {scenario.ban_at_s:.0f} s "
        f"(lower bounds: {bound.operations} operations, {bound.drained_ms / 1000:.1f} s)",
        header,
        [_row("product", played, bound), _planned(plan, bound)],
    )
    gap = played.drained_s / (plan.drained_ms / 1000) - 1
    result.target("planner's drain time beside the measured one, with a ban", 100 * abs(gap), "<=", 5, "%")


def _bounds(scenario: Scenario, changes: Sequence[Arrival]) -> Bounds:
    ban = None if scenario.ban_at_s is None else (1000 * scenario.ban_at_s, 1000 * (scenario.ban_at_s + scenario.ban_s))
    return bounds(changes, scenario.latency_ms, ban)


def _row(name: str, each: Played, bound: Bounds) -> tuple[str | int | float, ...]:
    drained = each.drained_s / (bound.drained_ms / 1000)
    return (
        name,
        each.operations,
        each.operations / bound.operations,
        each.drained_s,
        drained,
        *spread(each.emergencies_s),
    )


def _planned(plan: Plan, bound: Bounds) -> tuple[str | int | float, ...]:
    emergencies = [each / 1000 for each in plan.emergencies_ms]
    return (
        "product, predicted",
        plan.operations,
        plan.operations / bound.operations,
        plan.drained_ms / 1000,
        plan.drained_ms / bound.drained_ms,
        *spread(emergencies),
    )


def _staircase(times: Sequence[float]) -> list[tuple[float, float]]:
    step = max(1, len(times) // 100)
    return [
        (0.0, 0.0),
        *[
            (at, float(number))
            for number, at in enumerate(times, start=1)
            if number % step == 0 or number == len(times)
        ],
    ]


def _count(deployment: Deployment, query: str) -> int:
    with deployment.engine.connect() as connection:
        return int(connection.exec_driver_sql(query, (deployment.host,)).scalar_one())
