"""A worker is killed with an operation on the wire: how long until the next operation is on the wire?

Two workers run, as a deployment has them; the one that holds the session is killed with SIGKILL in the middle of an
operation. The other one must notice, wait the settle time, ask OldHost and go on. The killed one is started again.
"""

from __future__ import annotations

import os
import signal
import time

from bench.deployment import Deployment
from bench.result import Result, spread
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox

LATENCY_MS = 400


def measure(stage: Stage) -> Result:
    kills = 1 if stage.quick else 3
    result = Result(
        "kill",
        "A worker killed in the middle of an operation",
        conditions=[
            f"OldHost at {LATENCY_MS} ms, backlog, two workers, {kills} kills of the one that holds the session",
            "settle time 10 s and request timeout 5 s, as shipped",
        ],
    )
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(1_000), relayed=True)
        names = ["worker-1", "worker-2"]
        for name in names:
            deployment.start("worker", name)
        deployment.start_writer()
        deployment.wait_applied(4)
        gaps = [_kill_once(deployment, simulator, number) for number in range(kills)]
        stats = simulator.stats()
    result.table(
        "Killed → next operation on the wire, s",
        ("kills", "each", "p50", "largest", "gaps at OldHost", "replays"),
        [
            (
                len(gaps),
                ", ".join(f"{gap:.1f}" for gap in gaps),
                spread(gaps)[0],
                max(gaps),
                int(stats["gaps"]),
                int(stats["replays"]),
            )
        ],
    )
    result.target("worker killed → next operation on the wire, largest", max(gaps), "<=", 15, "s")
    return result


def _kill_once(deployment: Deployment, simulator: SimulatedHost, number: int) -> float:
    status = deployment.status()
    holder = next(
        name
        for name, child in deployment.children.items()
        if child.running and f"-{child.pid}-" in status["session"]["task_queue"]
    )
    known = len(simulator.journal())
    simulator.journal(known, wait_seconds=5)  # an operation has just ended: the next one is on the wire
    time.sleep(LATENCY_MS / 2000)
    os.kill(deployment.children[holder].pid, signal.SIGKILL)
    killed_at = time.time()
    deployment.start("worker", f"{holder}-again-{number}")
    found: list[float] = []

    def next_on_the_wire() -> bool:
        found[:] = [each["received_at"] for each in simulator.journal(known) if each["received_at"] > killed_at]
        return bool(found)

    deployment.wait_for("the next operation after the kill", next_on_the_wire, 90)
    time.sleep(3)  # in full swing again
    return found[0] - killed_at
