"""The burst: 300 writes a second through the API with every role at work, and how soon the writer holds them.

Latency is open-loop: from when a request was due until its answer, so a stall is felt by all that fell due in it.
"Held" is when Temporal acknowledged the signal that carries the change: from then on it is durable in the writer's
history.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from bench.deployment import Deployment
from bench.processes import CpuMeter
from bench.result import Cell, Result, spread
from bench.stage import ROOT, Stage
from bench.workload import backlog, put_into_outbox

RATE = 300
LATENCY_MS = 400
BACKLOG = 1_000
FASTER = (450, 600)
FASTEST_MS_MAX = 15
FASTER_SECONDS = 6
_NEWEST = "SELECT MAX(id) FROM outbox_events"
_HELD = (
    "SELECT priority_class, TIMESTAMPDIFF(MICROSECOND, created_at, relayed_at) / 1000000 "
    "FROM outbox_events WHERE host = %s AND id > %s"
)


def measure(stage: Stage) -> Result:
    seconds = 5 if stage.quick else 30
    result = Result(
        "burst",
        f"{RATE} writes a second through the API, all roles at work",
        conditions=[
            (
                f"{RATE}/s for {seconds} s (faster ones for {FASTER_SECONDS} s) on 2,500 units in the peak's mix, open "
                "loop, 32 keep-alive connections"
            ),
            "API, relay, worker, Temporal, MariaDB, simulator and load generator on the same two cores",
            f"the writer sends a backlog to OldHost at {LATENCY_MS} ms meanwhile",
        ],
    )
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(BACKLOG), relayed=True)
        for role in ("worker", "relay", "api"):
            deployment.start(role)
        deployment.start_writer()
        deployment.wait_applied(4)
        _load(deployment, RATE, 2)  # first requests compile, connect and fill caches
        before = _newest(deployment)
        simulator.reset()
        meter = CpuMeter(deployment.pids())
        began = time.monotonic()
        answers = _load(deployment, RATE, seconds)
        passed = time.monotonic() - began
        cpu, busy_share = meter.read(), simulator.stats()["busy_share"]
        deployment.wait_for("everything held by the writer", lambda: deployment.unrelayed() == 0)
        held = _held_seconds(deployment, before)
        faster = {rate: _load(deployment, rate, FASTER_SECONDS) for rate in FASTER}
    result.table(
        "API, ms from due to answered",
        ("requests/s", "requests", "statuses", "p50", "p90", "p99", "p99.9", "largest"),
        [_answered(rate, each) for rate, each in {RATE: answers, **faster}.items()],
    )
    result.table(
        "Accepted → held by the writer, s",
        ("class", "changes", "p50", "p99", "largest"),
        [(name, len(values), *spread(values)) for name, values in held.items()],
    )
    result.table(
        "CPU while it lasted, share of one core in %",
        tuple(cpu),
        [tuple(100 * value / passed for value in cpu.values())],
    )
    result.notes.append(f"OldHost was busy {100 * busy_share:.1f} % of the burst.")
    result.target(f"API write p99 at {RATE}/s with everything running", answers["p99_ms"], "<=", 10, "ms")
    fastest = FASTER[-1]
    what = f"API write p99 at {fastest}/s with everything running"
    result.target(what, faster[fastest]["p99_ms"], "<=", FASTEST_MS_MAX, "ms")
    everything = [value for values in held.values() for value in values]
    result.target("accepted → held by the writer, p99, during the burst", spread(everything)[1], "<=", 1.2, "s")
    result.target("EMERGENCY accepted → held, p99, during the burst", spread(held["EMERGENCY"])[1], "<=", 0.15, "s")
    return result


def _answered(rate: int, answers: dict[str, Any]) -> tuple[Cell, ...]:
    if rate == RATE and set(answers["statuses"]) != {"202"}:
        raise RuntimeError(f"at {rate}/s not every write was taken: {answers['statuses']}")
    statuses = ", ".join(f"{status}: {count:,}" for status, count in answers["statuses"].items())
    return (
        rate,
        answers["answered"],
        statuses,
        *(answers[f"{name}_ms"] for name in ("p50", "p90", "p99", "p999", "max")),
    )


def _load(deployment: Deployment, rate: int, seconds: float) -> dict[str, Any]:
    return run_load(deployment, "--rate", str(rate), "--seconds", f"{seconds:g}", seconds_max=seconds + 60)


def run_load(deployment: Deployment, *options: str, seconds_max: float) -> dict[str, Any]:
    """bench/load.py as a process of its own, and what it measured."""
    command = [sys.executable, str(ROOT / "bench" / "load.py"), deployment.api_url, "--token", deployment.token]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=seconds_max, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _newest(deployment: Deployment) -> int:
    with deployment.engine.connect() as connection:
        return int(connection.exec_driver_sql(_NEWEST).scalar_one())


def _held_seconds(deployment: Deployment, after_id: int) -> dict[str, list[float]]:
    held: dict[str, list[float]] = {"EMERGENCY": [], "TXN": [], "LWW": []}
    with deployment.engine.connect() as connection:
        for name, seconds in connection.exec_driver_sql(_HELD, (deployment.host, after_id)):
            held[name].append(float(seconds))
    return held
