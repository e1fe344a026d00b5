"""Backlogs of an awkward shape: one entity with 50,000 changes waiting, and 100,000 keys.

How fast do operations go, and how long does the writer think at a stretch?

An entity's changes must go one after the other, so one that has them all shows what order costs. 100,000 keys are more
than a run carries into the next one. All systems work on the same backlog, one after the other, each in a window of its
own; the longest workflow task includes Temporal's part, so an activation is shorter (see `activations`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.busy import Window, observe
from bench.deployment import Deployment, rivals
from bench.result import Result
from bench.stage import SimulatedHost, Stage
from bench.workflow_tasks import task_seconds
from bench.workload import Change, backlog, put_into_outbox
from oldhost_sync.policy.changes import PriorityClass

LATENCY_MS = 20
TASK_SECONDS_MAX = 0.2
_AGAIN = "UPDATE outbox_events SET relayed_at = NULL WHERE host = %s AND processed_at IS NULL"


@dataclass(frozen=True, slots=True)
class Shape:
    """A backlog, and whether it is one entity's."""

    name: str
    changes: Callable[[bool], list[Change]]
    is_one_entity: bool = False


def _one_unit(is_quick: bool) -> list[Change]:
    return backlog(10_000 if is_quick else 50_000, units=1, only=PriorityClass.TXN)


def _many_keys(is_quick: bool) -> list[Change]:
    return backlog(20_000 if is_quick else 100_000, only=PriorityClass.LWW)


SHAPES = (Shape("one unit's changes", _one_unit, is_one_entity=True), Shape("keys", _many_keys))


@dataclass(frozen=True, slots=True)
class Seen:
    """`tasks_s`: how long workflow tasks took in the window; `all_tasks_s`: from the first on, which loads the code."""

    window: Window
    tasks_s: list[float]
    all_tasks_s: list[float]


def measure(stage: Stage) -> Result:
    seconds = 4 if stage.quick else 5
    result = Result(
        "skew",
        "Backlogs of an awkward shape",
        conditions=[
            f"OldHost at {LATENCY_MS} ms, window of {seconds} s each, all systems one after the other on one backlog",
            "a workflow task: from its start to its end in the history, Temporal's own part included",
        ],
    )
    header = (
        "",
        "waiting",
        "operations/s",
        "OldHost busy, %",
        "CPU, ms per operation",
        "longest task, s",
        "with the start",
    )
    table = result.table("While so much waits", header)
    for shape in SHAPES[:1] if stage.quick else SHAPES:  # many keys are what `busy` has
        changes = shape.changes(stage.quick)
        what = f"{len(changes):,} {shape.name}"
        found = _play(stage, changes, seconds, is_one_entity=shape.is_one_entity)
        for name, seen in found.items():
            longest = [max(each) if each else None for each in (seen.tasks_s, seen.all_tasks_s)]
            window = seen.window
            table.rows.append((name, what, window.per_second, 100 * window.busy_share, window.cpu_total_ms, *longest))
        _targets(result, what, found)
    return result


def _targets(result: Result, what: str, found: dict[str, Seen]) -> None:
    busy = {name: 100 * seen.window.busy_share for name, seen in found.items()}
    result.target(f"OldHost busy, {LATENCY_MS} ms, {what} waiting", busy.pop("product"), ">=", 95, "%", busy)
    # Not beside the naive workflow, which by then has been told of a part of the backlog only.
    longest = max(found["product"].tasks_s)
    result.target(f"longest workflow task, {what} waiting", longest, "<=", TASK_SECONDS_MAX, "s")


def _play(stage: Stage, changes: list[Change], seconds: float, *, is_one_entity: bool) -> dict[str, Seen]:
    """Many keys are what `busy` has, so there only the quickest rival is asked again."""
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, changes, relayed=True)
        found = {"product": _watch(deployment, simulator, ("worker", "relay"), seconds)}
        for name in (name for name in rivals(stage) if is_one_entity or name == "plain loop"):
            with deployment.engine.begin() as connection:
                connection.exec_driver_sql(_AGAIN, (deployment.host,))
            found[name] = _watch(deployment, simulator, (name,), seconds)
        return found


def _watch(deployment: Deployment, simulator: SimulatedHost, roles: tuple[str, ...], seconds: float) -> Seen:
    """One system's window; it leaves the rest of the backlog to the next one."""
    in_temporal = "worker" in roles or "naive workflow" in roles
    already = simulator.stats()["applied"]
    for role in roles:
        deployment.start(role)
    if "worker" in roles:
        deployment.start_writer()
    deployment.wait_applied(already + 50)
    time.sleep(2)  # refs that come at the start are placed
    began = time.time()
    window = observe(deployment, simulator, LATENCY_MS, seconds, in_temporal=in_temporal)
    histories = deployment.histories() if in_temporal else []
    deployment.end()
    return Seen(
        window,
        [each for history in histories for each in task_seconds(history, began)],
        [each for history in histories for each in task_seconds(history)],
    )
