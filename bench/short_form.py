"""The short form of a scenario, played in real time: the same with an eighteenth of the changes and units, at a quarter
of OldHost's latency and so in a seventy-second of the time. Each key's life keeps its shape (debounce and maximum wait
shrink with it), and the lower bounds shrink alike.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.deployment import Deployment
from bench.stage import SimulatedHost, Stage
from oldhost_sync.planner import Arrival, Scenario
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.transactions import run_in_transaction

SIZE = 18
FASTER = 4
# A ban shrinks with the time, but what follows it no further than safety allows: settle > request timeout + 3 s.
SETTINGS = {"request_timeout_seconds": 1.0, "settle_seconds": 4.0, "sweep_seconds": 300.0}
DRAINED_SECONDS_MAX = 300.0


@dataclass(frozen=True, slots=True)
class Played:
    """What one system did with a short form. Spans in seconds from its first change."""

    operations: int
    drained_s: float
    emergencies_s: list[float]
    applied_at_s: list[float]


def short_form(scenario: Scenario, size: int = SIZE) -> Scenario:
    """The same scenario with 1/`size` of everything that counts, in 1/(`size` × FASTER) of the time."""
    shorter = size * FASTER
    return dataclasses.replace(
        scenario,
        units=scenario.units // size,
        changes=scenario.changes // size,
        duration_s=scenario.duration_s / shorter,
        burst_changes=scenario.burst_changes // size,
        latency_ms=scenario.latency_ms / FASTER,
        debounce_s=scenario.debounce_s / shorter,
        max_wait_s=scenario.max_wait_s / shorter,
        ban_at_s=None if scenario.ban_at_s is None else scenario.ban_at_s / shorter,
        ban_s=scenario.ban_s / shorter,
    )


def play(stage: Stage, scenario: Scenario, changes: Sequence[Arrival], roles: Sequence[str]) -> Played:
    """Record the changes at their times, ban when it is time, and wait until none is left without a fate."""
    given = {
        **SETTINGS,
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
        deployment.wait_for("an open session", lambda: simulator.stats()["requests"] >= 2)
        began = time.time()
        accepted: dict[str, float] = {}
        for happening in _timeline(scenario, changes, began):
            if isinstance(happening, Arrival):
                accepted |= _record(deployment, happening)
            else:
                simulator.act("ban", seconds=scenario.ban_s)
        deployment.wait_for("all have a fate", lambda: deployment.unprocessed() == 0, DRAINED_SECONDS_MAX)
        return _played(simulator, began, accepted)


def _timeline(scenario: Scenario, changes: Sequence[Arrival], began: float) -> Iterator[Arrival | None]:
    """Each change, and None for the ban, when its time has come."""
    timeline: list[tuple[float, Arrival | None]] = [(change.at_ms / 1000, change) for change in changes]
    if scenario.ban_at_s is not None:
        timeline.append((scenario.ban_at_s, None))
    for at_s, happening in sorted(timeline, key=lambda each: each[0]):
        pause = began + at_s - time.time()
        if pause > 0:
            time.sleep(pause)
        yield happening


def _record(deployment: Deployment, change: Arrival) -> dict[str, float]:
    """Record the change as an application does. An emergency's idempotency key, and when it was accepted."""
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
    is_emergency = change.priority_class is PriorityClass.EMERGENCY
    return {recorded.idempotency_key: recorded.accepted_at.timestamp()} if is_emergency else {}


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
