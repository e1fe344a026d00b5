"""How long an emergency takes to OldHost while everything else waits: accepted → OldHost's 200.

A backlog that outlasts the measurement waits at 400 ms an operation. Emergencies are recorded one after the other, each
after a pause, so that none waits for another; each fifth is of a unit whose older change waits, which must go first
(invariant I4). Accepted is the database's time of the commit's change, applied is OldHost's own.

Each waits for what is left of the operation on the wire, which is most of what differs between two of them. So they are
spread evenly over an operation's time, for each system alike, and no chance decides who is quicker.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import UTC

from bench.deployment import Deployment, rivals
from bench.result import Picture, Result, Series, median, quantile
from bench.stage import SimulatedHost, Stage
from bench.workload import Change, backlog, emergency, put_into_outbox, record
from oldhost_sync.policy.changes import PriorityClass

LATENCY_MS = 400
PAUSE_SECONDS = 1.2
OPERATION_SECONDS_MAX = 2.0  # then none is on the wire: nothing waits any more
OLDER_WAITS_EVERY = 5
FEW, FEW_SENT = 20, 4  # waiting and emergencies of the plain loop: it would take hours with more


@dataclass(frozen=True, slots=True)
class Waits:
    """Accepted → applied in seconds: of units with nothing else waiting, and of those whose older change goes first."""

    alone: list[float]
    behind_older: list[float]


def measure(stage: Stage) -> Result:
    count = 5 if stage.quick else 12
    waiting = 2_000 if stage.quick else 10_000
    result = Result(
        "emergency",
        "An emergency under a full backlog",
        conditions=[
            f"OldHost at {LATENCY_MS} ms, {waiting:,} other changes wait",
            (
                f"one emergency after a pause of {PAUSE_SECONDS:g} s, evenly spread over the operation on the wire; "
                "each fifth of a unit whose older change waits"
            ),
            f"{count} emergencies each ({FEW_SENT} of the plain loop); through outbox, relay, Temporal and worker",
        ],
    )
    found = {"product": _product(stage, waiting, count)}
    for name in rivals(stage):
        handed_over = name != "plain loop"
        found[name] = _rival(
            stage, name, waiting if handed_over else FEW, count if handed_over else FEW_SENT, handed_over=handed_over
        )
    header = ("", "changes that waited", "an older one of its unit waits", "emergencies", "p50", "p90", "largest")
    rows = [
        (name, FEW if name == "plain loop" else waiting, "yes" if older else "no", len(seconds), *_shown(seconds))
        for name, waits in found.items()
        for older, seconds in ((False, waits.alone), (True, waits.behind_older))
    ]
    result.table("Accepted → applied, s", header, rows)
    if not stage.quick:
        result.notes.append(
            f"The plain loop has no lanes: an emergency waits for all that came before it. With {FEW} of them that "
            f"is what the table shows; with {waiting:,} it would be {waiting * LATENCY_MS / 1000 / 60:,.0f} min."
        )
    alone = {name: waits.alone for name, waits in found.items() if name != "plain loop"}
    behind = {name: waits.behind_older for name, waits in found.items() if name != "plain loop"}
    _target(result, "p50", {name: median(each) for name, each in alone.items()}, 0.65)
    _target(result, "largest", {name: max(each) for name, each in alone.items()}, 1.0)
    _target(result, "largest where an older change goes first", {name: max(each) for name, each in behind.items()}, 1.4)
    seconds = [*alone["product"], *behind["product"]]
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


def _target(result: Result, which: str, seconds: dict[str, float], limit: float) -> None:
    rivals = {name: value for name, value in seconds.items() if name != "product"}
    result.target(
        f"EMERGENCY under full backlog, accepted → applied, {which}", seconds["product"], "<=", limit, "s", rivals
    )


def _shown(seconds: list[float]) -> tuple[float, float, float]:
    """So few have no p99 apart from the largest."""
    return quantile(seconds, 0.5), quantile(seconds, 0.9), max(seconds)


def _product(stage: Stage, waiting: int, count: int) -> Waits:
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, _others(waiting), relayed=True)
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        deployment.wait_applied(4)
        deployment.wait_backlog_read()
        return _emergencies(deployment, simulator, waiting, count)


def _rival(stage: Stage, name: str, waiting: int, count: int, *, handed_over: bool) -> Waits:
    """A rival that sends in order gets a short queue, or nothing would come out of it in the time there is."""
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, _others(waiting), relayed=False)
        deployment.start(name)
        deployment.wait_applied(1)
        if handed_over:
            deployment.wait_for("the backlog handed over", lambda: deployment.unrelayed() == 0)
        return _emergencies(deployment, simulator, waiting, count)


def _others(count: int) -> list[Change]:
    return backlog(count, only=PriorityClass.LWW)


def _emergencies(deployment: Deployment, simulator: SimulatedHost, waiting: int, count: int) -> Waits:
    kinds = [number % OLDER_WAITS_EVERY == 0 for number in range(count)]
    shares = {kind: _spread_evenly(kinds.count(kind)) for kind in (True, False)}
    accepted: dict[str, float] = {}
    behind_older: set[str] = set()
    for number, is_behind in enumerate(kinds):
        simulator.journal(len(simulator.journal()), wait_seconds=OPERATION_SECONDS_MAX)  # one has just ended
        time.sleep(shares[is_behind].pop() * LATENCY_MS / 1000)
        unit = f"u-{waiting - 1 - number:05}" if is_behind else f"locked-out-{number}"
        recorded = record(deployment.engine, deployment.host, emergency(unit, number))
        if is_behind:
            behind_older.add(recorded.idempotency_key)
        accepted[recorded.idempotency_key] = recorded.accepted_at.astimezone(UTC).timestamp()
        time.sleep(PAUSE_SECONDS)
    applied: dict[str, float] = {}
    deployment.wait_for("all emergencies applied", lambda: _read_applied(simulator, applied, accepted), 90)
    took = {key: applied[key] - at for key, at in accepted.items()}
    return Waits(
        [seconds for key, seconds in took.items() if key not in behind_older],
        [seconds for key, seconds in took.items() if key in behind_older],
    )


def _spread_evenly(count: int) -> list[float]:
    """Shares of an operation's time, in an order that is always the same but not a sequence."""
    shares = [(number + 0.5) / count for number in range(count)]
    random.Random(5).shuffle(shares)
    return shares


def _read_applied(simulator: SimulatedHost, applied: dict[str, float], wanted: dict[str, float]) -> bool:
    for entry in simulator.journal():
        key = entry["body"]["idempotency_key"]
        if key in wanted:
            applied[key] = entry["applied_at"]
    return len(applied) == len(wanted)
