"""A worker is killed with an operation on the wire: how long until the next operation is on the wire?

Of the product two workers run, as a deployment has them; the one that holds the session is killed with SIGKILL in the
middle of an operation. The other one must notice, wait the settle time, ask OldHost and go on. A rival has one process,
which is started again at once, as a supervisor would.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from bench.deployment import RIVALS, Deployment
from bench.result import Result, spread
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox

LATENCY_MS = 400
BACKLOG = 1_000


def measure(stage: Stage) -> Result:
    kills = 1 if stage.quick else 2
    result = Result(
        "kill",
        "A worker killed in the middle of an operation",
        conditions=[
            (
                f"OldHost at {LATENCY_MS} ms, backlog; product: two workers, {kills} kills of the one that holds the "
                "session"
            ),
            "rivals: one process, killed once and started again at once",
            "settle time 10 s and request timeout 5 s, as shipped",
        ],
    )
    table = result.table(
        "Killed → next operation on the wire, s", ("", "kills", "each", "p50", "largest", "gaps at OldHost", "replays")
    )
    largest: dict[str, float] = {}
    for name in ("product", *RIVALS):
        with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
            took = _product(deployment, simulator, kills) if name == "product" else _rival(deployment, simulator, name)
            stats = simulator.stats()
        each = ", ".join(f"{seconds:.1f}" for seconds in took)
        table.rows.append((name, len(took), each, spread(took)[0], max(took), stats["gaps"], stats["replays"]))
        largest[name] = max(took)
    limit = "worker killed → next operation on the wire, largest"
    result.target(limit, largest.pop("product"), "<=", 15, "s", largest)
    return result


def _product(deployment: Deployment, simulator: SimulatedHost, kills: int) -> list[float]:
    put_into_outbox(deployment.engine, deployment.host, backlog(BACKLOG), relayed=True)
    for name in ("worker-1", "worker-2"):
        deployment.start("worker", name)
    deployment.start_writer()
    deployment.wait_applied(4)
    return [_kill_once(deployment, simulator, "worker", lambda: _holder(deployment)) for _ in range(kills)]


def _rival(deployment: Deployment, simulator: SimulatedHost, role: str) -> list[float]:
    put_into_outbox(deployment.engine, deployment.host, backlog(BACKLOG), relayed=False)
    deployment.start(role)
    deployment.wait_applied(4)
    return [_kill_once(deployment, simulator, role, lambda: role)]


def _holder(deployment: Deployment) -> str:
    """The worker that holds the session: its process id is in the name of its task queue."""
    status = deployment.status()
    return next(
        name
        for name, child in deployment.children.items()
        if child.running and f"-{child.pid}-" in status["session"]["task_queue"]
    )


def _kill_once(deployment: Deployment, simulator: SimulatedHost, role: str, holder: Callable[[], str]) -> float:
    """Kill the process that `holder` names during an operation, start another; seconds until the next operation."""
    name = holder()
    known = len(simulator.journal())
    simulator.journal(known, wait_seconds=5)  # an operation has just ended: the next one is on the wire
    time.sleep(LATENCY_MS / 2000)
    os.kill(deployment.children[name].pid, signal.SIGKILL)
    killed_at = time.time()
    deployment.start(role, f"{name}-again")
    found: list[float] = []

    def next_on_the_wire() -> bool:
        found[:] = [each["received_at"] for each in simulator.journal(known) if each["received_at"] > killed_at]
        return bool(found)

    deployment.wait_for("the next operation after the kill", next_on_the_wire, 90)
    time.sleep(3)  # in full swing again
    return found[0] - killed_at
