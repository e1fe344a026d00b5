"""The batch route beside the route for one change: how many changes a second the API takes with every role at work.

Closed loop: the next request leaves when the last one is answered, on as many connections as fill the API. So it is
what the machine can take, not a rate that somebody set; latency is from the send. One generator process that only
writes requests made beforehand and reads statuses.
"""

from __future__ import annotations

import time
from typing import Any

from bench.burst import LATENCY_MS, run_load
from bench.deployment import Deployment
from bench.processes import CpuMeter
from bench.result import Cell, Result, median
from bench.stage import Stage
from bench.workload import backlog, put_into_outbox

BATCH = 500
BATCH_CONNECTIONS, SINGLE_CONNECTIONS = 4, 16
SECONDS_MAX = 120.0
TARGET = 3_000
MEASURED_ROLES = ("api", "mariadb")


def measure(stage: Stage) -> Result:
    rounds, batches, singles = (1, 20, 1_000) if stage.quick else (3, 40, 3_000)
    result = Result(
        "batch",
        f"Batches of {BATCH} changes through the API, all roles at work",
        conditions=[
            (
                f"{rounds} × {batches} batches on {BATCH_CONNECTIONS} connections, in turn with {singles:,} single "
                f"requests on {SINGLE_CONNECTIONS}; closed loop; 2,500 units in the peak's mix; in a batch each change "
                "has a key"
            ),
            "API, relay, worker, Temporal, MariaDB (each commit synced), simulator and load generator on two cores",
            f"the writer sends to OldHost at {LATENCY_MS} ms meanwhile",
        ],
    )
    many, one = [], []
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(1_000), relayed=True)
        for role in ("worker", "relay", "api"):
            deployment.start(role)
        deployment.start_writer()
        deployment.wait_applied(4)
        _round(deployment, 4, BATCH_CONNECTIONS, BATCH)  # first requests make the units, connect and fill caches
        _round(deployment, 200, SINGLE_CONNECTIONS, 1)
        for _ in range(rounds):
            one.append(_round(deployment, singles, SINGLE_CONNECTIONS, 1))
            many.append(_round(deployment, batches, BATCH_CONNECTIONS, BATCH))
    result.table(
        "",
        (
            *("route", "connections", "changes/s", "request p50 ms", "p99 ms"),
            *(f"CPU a change, {role}, ms" for role in MEASURED_ROLES),
        ),
        [
            *(_row("one change", SINGLE_CONNECTIONS, each) for each in one),
            *(_row(f"batch of {BATCH}", BATCH_CONNECTIONS, each) for each in many),
        ],
    )
    reached = {name: median([each["changes_per_s"] for each in rows]) for name, rows in (("one", one), ("many", many))}
    result.target("changes/s through the batch route", reached["many"], ">=", TARGET, "/s")
    result.notes.append(f"{reached['many'] / reached['one']:.1f} times as many as one by one.")
    return result


def _round(deployment: Deployment, requests: int, connections: int, size: int) -> dict[str, Any]:
    meter, began = CpuMeter(deployment.pids()), time.time_ns()
    options = ["--closed", str(requests), "--connections", str(connections), "--seed", str(began % 2**31)]
    if size > 1:
        options += ["--batch", str(size)]
    found = run_load(deployment, *options, seconds_max=SECONDS_MAX)
    if set(found["statuses"]) != {"202"} or found["answered"] != requests:
        raise RuntimeError(f"not every change was taken: {found['statuses']}")
    cpu = meter.read()
    changes = requests * size
    return found | {
        "changes_per_s": changes / found["took_s"],
        "cpu_ms": {role: 1000 * cpu[role] / changes for role in MEASURED_ROLES},
    }


def _row(route: str, connections: int, found: dict[str, Any]) -> tuple[Cell, ...]:
    cpu = [found["cpu_ms"][role] for role in MEASURED_ROLES]
    return (route, connections, found["changes_per_s"], found["p50_ms"], found["p99_ms"], *cpu)
