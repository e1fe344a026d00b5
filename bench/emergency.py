"""How long an emergency takes to OldHost while everything else waits: accepted → OldHost's 200.

A backlog that outlasts the measurement waits at 400 ms an operation. Emergencies are recorded one after the other, each
after a pause of its own length, so that none waits for another; each fifth is of a unit whose older change waits, which
must go first (invariant I4). Accepted is the database's time of the commit's change, applied is OldHost's own.
"""

from __future__ import annotations

import random
import time
from datetime import UTC

from bench.deployment import RIVALS, Deployment
from bench.result import Cell, Picture, Result, Series, quantile
from bench.stage import SimulatedHost, Stage
from bench.workload import Change, backlog, emergency, put_into_outbox, record
from oldhost_sync.policy.changes import PriorityClass

LATENCY_MS = 400
PAUSE_SECONDS = (1.2, 2.2)
OLDER_WAITS_EVERY = 5


def measure(stage: Stage) -> Result:
    count = 6 if stage.quick else 25
    waiting = 2_000 if stage.quick else 10_000
    result = Result(
        "emergency",
        "An emergency under a full backlog",
        conditions=[
            f"OldHost at {LATENCY_MS} ms, {waiting:,} other changes wait",
            (
                f"one emergency every {PAUSE_SECONDS[0]:g} to {PAUSE_SECONDS[1]:g} s, each fifth of a unit whose older "
                "change waits"
            ),
            f"product: {count} emergencies through outbox, relay, Temporal and worker; rivals: {max(1, count // 6)}",
        ],
    )
    seconds = _product(stage, waiting, count)
    rows: list[tuple[Cell, ...]] = [("product", waiting, len(seconds), *_shown(seconds))]
    rivals: dict[str, float] = {}
    for name in RIVALS:
        laned = name != "plain loop"
        found, behind = _rival(stage, name, waiting if laned else 20, max(1, count // 6), handed_over=laned)
        rows.append((name, behind, len(found), *_shown(found)))
        if laned:
            rivals[name] = max(found)
    header = ("", "changes that waited", "emergencies", "p50", "p90", "largest")
    result.table("Accepted → applied, s", header, rows)
    result.notes.append(
        "The plain loop has no lanes: an emergency waits for all that came before it. With 20 changes before it that "
        f"is what the table shows; with {waiting:,} it would be {waiting * LATENCY_MS / 1000 / 60:,.0f} min."
    )
    what = f"EMERGENCY accepted → applied under full backlog, largest of {len(seconds)}"
    result.target(what, max(seconds), "<=", 2, "s", rivals)
    result.pictures.append(
        Picture(
            "emergency",
            "Emergencies under a full backlog",
            "share of emergencies, %",
            "accepted → applied, s",
            [Series("product", [(100 * (n + 1) / len(seconds), each) for n, each in enumerate(sorted(seconds))])],
        )
    )
    return result


def _shown(seconds: list[float]) -> tuple[float, float, float]:
    """So few have no p99 apart from the largest."""
    return quantile(seconds, 0.5), quantile(seconds, 0.9), max(seconds)


def _product(stage: Stage, waiting: int, count: int) -> list[float]:
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, _others(waiting), relayed=True)
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        deployment.wait_applied(4)
        return _emergencies(deployment, simulator, waiting, count)


def _rival(stage: Stage, name: str, waiting: int, count: int, *, handed_over: bool) -> tuple[list[float], int]:
    """A rival that sends in order gets a short queue, or nothing would come out of it in the time there is."""
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, _others(waiting), relayed=False)
        deployment.start(name)
        deployment.wait_applied(1)
        if handed_over:
            deployment.wait_for("the backlog handed over", lambda: deployment.unrelayed() == 0)
        return _emergencies(deployment, simulator, waiting, count), waiting


def _others(count: int) -> list[Change]:
    return backlog(count, only=PriorityClass.LWW)


def _emergencies(deployment: Deployment, simulator: SimulatedHost, waiting: int, count: int) -> list[float]:
    chance = random.Random(5)
    accepted: dict[str, float] = {}
    for number in range(count):
        unit = f"u-{waiting - 1 - number:05}" if number % OLDER_WAITS_EVERY == 0 else f"locked-out-{number}"
        recorded = record(deployment.engine, deployment.host, emergency(unit, number))
        accepted[recorded.idempotency_key] = recorded.accepted_at.astimezone(UTC).timestamp()
        time.sleep(chance.uniform(*PAUSE_SECONDS))
    applied: dict[str, float] = {}
    deployment.wait_for("all emergencies applied", lambda: _read_applied(simulator, applied, accepted), 90)
    return [applied[key] - at for key, at in accepted.items()]


def _read_applied(simulator: SimulatedHost, applied: dict[str, float], wanted: dict[str, float]) -> bool:
    for entry in simulator.journal():
        key = entry["body"]["idempotency_key"]
        if key in wanted:
            applied[key] = entry["applied_at"]
    return len(applied) == len(wanted)
