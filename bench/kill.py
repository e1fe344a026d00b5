"""A worker is killed, with an operation on the wire or idle: how long until OldHost gets something again?

Of the product two workers run, as a deployment has them; the one that holds the session is killed with SIGKILL. In the
middle of an operation: the other one must notice, ask OldHost, wait the settle time if the operation is not applied,
and go on. With nothing on the wire: an emergency is recorded the moment the worker is dead, which is the worst for it.
A rival has one process, which is started again at once, as a supervisor would.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench.deployment import Deployment, rivals
from bench.result import Result, spread
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, emergency, put_into_outbox, record

LATENCY_MS = 400
BACKLOG = 1_000
IDLE_SECONDS_MAX = 5.0
IN_DOUBT_SECONDS_MAX = 11.0


@dataclass
class Killed:
    """Seconds by system, each kill's; `misplaced`: gaps and replays that OldHost counted."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    misplaced: dict[str, tuple[int, int]] = field(default_factory=dict)


def measure(stage: Stage) -> Result:
    kills = 1 if stage.quick else 2
    result = Result(
        "kill",
        "A worker killed",
        conditions=[
            f"OldHost at {LATENCY_MS} ms; product: two workers, {kills} kills of the one that holds the session",
            "rivals: one process, killed once and started again at once",
            "in the middle of an operation: a backlog waits; nothing on the wire: an emergency is recorded at once",
            "settle time 10 s and request timeout 5 s, as shipped",
        ],
    )
    in_doubt = _each(stage, kills, BACKLOG, _until_next_operation)
    idle = _each(stage, kills, 0, _until_emergency)
    _table(result, "Killed in the middle of an operation → next operation on the wire, s", in_doubt)
    _table(result, "Killed with nothing on the wire → emergency applied, s", idle)
    for what, limit, killed in (
        ("worker killed with one in doubt → next operation on the wire, largest", IN_DOUBT_SECONDS_MAX, in_doubt),
        ("worker killed with nothing on the wire → emergency applied, largest", IDLE_SECONDS_MAX, idle),
    ):
        largest = {name: max(seconds) for name, seconds in killed.seconds.items()}
        result.target(what, largest.pop("product"), "<=", limit, "s", largest)
    return result


def _table(result: Result, title: str, killed: Killed) -> None:
    table = result.table(title, ("", "kills", "each", "p50", "largest", "gaps at OldHost", "replays"))
    for name, seconds in killed.seconds.items():
        each = ", ".join(f"{one:.1f}" for one in seconds)
        table.rows.append((name, len(seconds), each, spread(seconds)[0], max(seconds), *killed.misplaced[name]))


Act = Callable[[Deployment, SimulatedHost, str, str], float]


def _each(stage: Stage, kills: int, waiting: int, act: Act) -> Killed:
    """`act` on the product, so often, and on each rival, once, with so many changes waiting."""
    killed = Killed()
    for name in ("product", *rivals(stage)):
        with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
            if name == "product":
                _start_product(deployment, simulator, waiting)
                killed.seconds[name] = []
                for _ in range(kills):
                    killed.seconds[name].append(act(deployment, simulator, "worker", _holder(deployment)))
                    time.sleep(3 if len(killed.seconds[name]) < kills else 0)  # in full swing again
            else:
                _start_rival(deployment, simulator, waiting, name)
                killed.seconds[name] = [act(deployment, simulator, name, name)]
            stats = simulator.stats()
            killed.misplaced[name] = stats["gaps"], stats["replays"]
    return killed


def _start_product(deployment: Deployment, simulator: SimulatedHost, waiting: int) -> None:
    put_into_outbox(deployment.engine, deployment.host, backlog(waiting), relayed=True)
    for name in ("worker-1", "worker-2"):
        deployment.start("worker", name)
    deployment.start("relay")
    deployment.start_writer()
    _wait_at_work(deployment, simulator, waiting)


def _start_rival(deployment: Deployment, simulator: SimulatedHost, waiting: int, role: str) -> None:
    put_into_outbox(deployment.engine, deployment.host, backlog(waiting), relayed=False)
    deployment.start(role)
    _wait_at_work(deployment, simulator, waiting)


def _wait_at_work(deployment: Deployment, simulator: SimulatedHost, waiting: int) -> None:
    if waiting:
        deployment.wait_applied(4)
    else:
        deployment.wait_for("an open session", lambda: simulator.stats()["requests"] >= 2)
        time.sleep(3)  # idle for a while


def _holder(deployment: Deployment) -> str:
    """The worker that holds the session: its process id is in the name of its task queue."""
    found: list[str] = []

    def held() -> bool:
        queue = (deployment.status()["session"] or {}).get("task_queue") or ""
        found[:] = [name for name, each in deployment.children.items() if each.running and f"-{each.pid}-" in queue]
        return bool(found)

    deployment.wait_for("a session held by a worker", held)
    return found[0]


def _until_next_operation(deployment: Deployment, simulator: SimulatedHost, role: str, name: str) -> float:
    """Kill `name` during an operation, start another; seconds until the next operation."""
    known = len(simulator.journal())
    simulator.journal(known, wait_seconds=5)  # an operation has just ended: the next one is on the wire
    time.sleep(LATENCY_MS / 2000)
    killed_at = _kill(deployment, role, name)
    found: list[float] = []

    def next_on_the_wire() -> bool:
        found[:] = [each["received_at"] for each in simulator.journal(known) if each["received_at"] > killed_at]
        return bool(found)

    deployment.wait_for("the next operation after the kill", next_on_the_wire, 90)
    return found[0] - killed_at


def _until_emergency(deployment: Deployment, simulator: SimulatedHost, role: str, name: str) -> float:
    """Kill idle `name`, start another, record an emergency at once; seconds until OldHost has applied it."""
    known = len(simulator.journal())
    killed_at = _kill(deployment, role, name)
    record(deployment.engine, deployment.host, emergency(f"locked-out-{known}", known))
    deployment.wait_for("the emergency applied", lambda: len(simulator.journal()) > known, 90)
    return float(simulator.journal(known)[0]["applied_at"]) - killed_at


def _kill(deployment: Deployment, role: str, name: str) -> float:
    os.kill(deployment.children[name].pid, signal.SIGKILL)
    killed_at = time.time()
    deployment.start(role, f"{name}-again")
    return killed_at
