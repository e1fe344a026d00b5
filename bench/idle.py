"""What a host costs that has nothing to send: looks, polls, heartbeats. It is a part of every operation's cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.deployment import Deployment, rivals
from bench.processes import CpuMeter, served
from bench.result import Result
from bench.stage import Stage

# A role has just started, or another measurement's host was just left: until that is over.
SETTLE_SECONDS = 5.0
OPERATIONS_PER_SECOND = 2.5


@dataclass(frozen=True, slots=True)
class Idle:
    """A second of it; CPU in ms by process."""

    cpu_ms: dict[str, float]
    statements: float

    @property
    def total_ms(self) -> float:
        return sum(self.cpu_ms.values())


def measure(stage: Stage) -> Result:
    seconds = 8.0 if stage.quick else 10.0
    result = Result(
        "idle",
        "What a host costs that has nothing to send, by everybody",
        conditions=["one host, nothing in its outbox", f"{seconds:.0f} s, {SETTLE_SECONDS:.0f} s after the start"],
    )
    roles = {"product": ("relay", "worker")} | {name: (name,) for name in rivals(stage)}
    rows = {name: look(stage, some, seconds) for name, some in roles.items()}
    if not stage.quick:
        rows["nobody"] = look(stage, (), seconds)  # last: servers that have just started are not at rest
    result.table(
        "CPU in ms a second",
        ("", "own", "Temporal", "MariaDB", "together", "statements a second"),
        [(name, _own(each), each.cpu_ms["temporal"], each.cpu_ms["mariadb"], each.total_ms, each.statements)
         for name, each in rows.items()],
    )  # fmt: skip
    product = rows["product"]
    result.notes.append(
        f"At {OPERATIONS_PER_SECOND:g} operations a second the product's {product.total_ms:.0f} ms are "
        f"{product.total_ms / OPERATIONS_PER_SECOND:.1f} ms of each operation's."
    )
    return result


def look(stage: Stage, roles: tuple[str, ...], seconds: float) -> Idle:
    with stage.simulator(400) as simulator, Deployment(stage, simulator) as deployment:
        for role in roles:
            deployment.start(role)
        if "worker" in roles:
            deployment.start_writer()
        time.sleep(SETTLE_SECONDS)
        before, meter = served(deployment.engine), CpuMeter(deployment.pids())
        time.sleep(seconds)
        spent, served_since = meter.read(), served(deployment.engine).since(before)
    return Idle({name: 1000 * value / seconds for name, value in spent.items()}, served_since.statements / seconds)


def _own(idle: Idle) -> float:
    return sum(value for name, value in idle.cpu_ms.items() if name not in {"mariadb", "temporal"})
