"""The whole product under a backlog: how busy OldHost is kept, how many operations a second, and what one costs.

A window is measured in which work never runs out: it begins after a warm-up and ends while changes still wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bench.deployment import RIVALS, Deployment
from bench.processes import CpuMeter, resident_mib
from bench.result import Picture, Result, Series
from bench.stage import SimulatedHost, Stage
from bench.statements import served
from bench.workload import backlog, put_into_outbox, record

LATENCIES_MS = (400, 100, 20, 0)
# A guess from above, so that the backlog outlasts the window; the quickest was seen at some 700.
OPERATIONS_PER_SECOND_MAX = 1_000
# The peak: 10,000 changes in half an hour.
ARRIVALS_PER_SECOND = 10_000 / 1_800


@dataclass(slots=True)
class Window:
    """What was seen while work never ran out. CPU in ms per operation."""

    latency_ms: float
    seconds: float
    operations: int
    busy_share: float
    statements: float
    commits: float
    cpu_ms: dict[str, float] = field(default_factory=dict)
    events: float | None = None
    resident_mib: dict[str, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu_total_ms(self) -> float:
        return sum(self.cpu_ms.values())


def measure(stage: Stage) -> Result:
    result = Result(
        "busy",
        "OldHost's use during a backlog, by everybody",
        conditions=[
            (
                "one host; each system's own processes, MariaDB, Temporal dev server (SQLite) and simulator on this "
                "machine"
            ),
            "the product's own: worker and relay; the naive workflow's and the queue worker's have their relay inside",
            "peak's mix, each change of its own unit, all ready at the start",
            "the window begins after a warm-up and ends while changes wait",
            (
                f"one window of {_seconds(400, stage.quick):.0f} s at 400 ms (rivals half of it), "
                f"{_seconds(0, stage.quick):.0f} s otherwise"
            ),
            (
                f"and one at 400 ms with {ARRIVALS_PER_SECOND:.1f} changes a second arriving, "
                "whose recording is counted with it"
            ),
        ],
    )
    windows = {"product": [product(stage, latency_ms) for latency_ms in LATENCIES_MS]}
    for name in RIVALS:
        windows[name] = [rival(stage, name, latency_ms) for latency_ms in LATENCIES_MS]
    arriving = {
        "product": product(stage, 400, arriving=True),
        "naive workflow": rival(stage, "naive workflow", 400, arriving=True),
    }
    header = ("", *(f"{latency_ms} ms" for latency_ms in LATENCIES_MS))
    result.table(
        "OldHost busy, %", header, [(name, *(100 * each.busy_share for each in some)) for name, some in windows.items()]
    )
    result.notes.append("At 0 ms busy is only what the simulator takes to read and answer.")
    result.table(
        "Operations a second", header, [(name, *(each.per_second for each in some)) for name, some in windows.items()]
    )
    result.table(
        "What an operation costs",
        (
            "",
            "latency, ms",
            "history events",
            "statements",
            "commits",
            "CPU own, ms",
            "CPU Temporal, ms",
            "CPU MariaDB, ms",
        ),
        [
            *[_cost(name, each) for name, some in windows.items() for each in some],
            *[_cost(f"{name}, changes arriving", each) for name, each in arriving.items()],
        ],
    )
    slow, fast = ({name: some[at] for name, some in windows.items()} for at in (0, -1))
    busy = {name: 100 * each.busy_share for name, each in slow.items()}
    result.target("OldHost busy during a backlog, 400 ms", busy.pop("product"), ">=", 99, "%", busy)
    rate = {name: each.per_second for name, each in fast.items()}
    result.target("operations/s when OldHost answers in 0 ms", rate.pop("product"), ">=", 200, "/s", rate)
    events = {name: each.events for name, each in arriving.items() if each.events is not None}
    result.target(
        "history events per operation, 400 ms, changes arriving", events.pop("product"), "<=", 8, rivals=events
    )
    result.pictures.append(
        Picture(
            "busy",
            "OldHost busy during a backlog",
            "OldHost's latency",
            "busy, %",
            [
                Series(name, [(each.latency_ms, 100 * each.busy_share) for each in some[:-1]])
                for name, some in windows.items()
            ],
            bars=True,
            labels=[f"{latency_ms} ms" for latency_ms in LATENCIES_MS[:-1]],
        )
    )
    result.pictures.append(
        Picture(
            "rate",
            "Operations a second when OldHost answers in 0 ms",
            "",
            "operations/s",
            [Series("operations/s", [(0, some[-1].per_second) for some in windows.values()])],
            bars=True,
            labels=list(windows),
        )
    )
    return result


def _cost(name: str, window: Window) -> tuple[str | float | None, ...]:
    cpu = window.cpu_ms
    own = sum(value for role, value in cpu.items() if role not in {"mariadb", "temporal"})
    uses_temporal = window.events is not None
    return (
        name,
        window.latency_ms,
        window.events,
        window.statements,
        window.commits,
        own,
        cpu["temporal"] if uses_temporal else None,
        cpu["mariadb"],
    )


def rival(stage: Stage, name: str, latency_ms: float, *, arriving: bool = False) -> Window:
    """The same window for a rival. It begins with an outbox that nobody has looked at yet."""
    seconds = min(_seconds(latency_ms, stage.quick), 12.0)
    with stage.simulator(latency_ms) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(enough(latency_ms, seconds)), relayed=False)
        deployment.start(name)
        deployment.wait_applied(warm_up(latency_ms))
        count_events = deployment.history_events if name == "naive workflow" else None
        return observe(deployment, simulator, latency_ms, seconds, count_events, arriving=arriving)


def product(stage: Stage, latency_ms: float, *, arriving: bool = False) -> Window:
    """The product's window. The backlog was relayed before the writer was lost, and is rebuilt at the start."""
    seconds = _seconds(latency_ms, stage.quick)
    with stage.simulator(latency_ms) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(enough(latency_ms, seconds)), relayed=True)
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        deployment.wait_applied(warm_up(latency_ms))
        return observe(deployment, simulator, latency_ms, seconds, deployment.history_events, arriving=arriving)


def observe(
    deployment: Deployment,
    simulator: SimulatedHost,
    latency_ms: float,
    seconds: float,
    count_events: Callable[[], int] | None = None,
    *,
    arriving: bool = False,
) -> Window:
    """Watch for `seconds` from now on, in which work must not run out."""
    events_before = count_events() if count_events else 0
    before = served(deployment.engine)
    meter = CpuMeter(deployment.pids())
    applied = simulator.stats()["applied"]
    simulator.reset()
    if arriving:
        _record_for(deployment, seconds)
    else:
        time.sleep(seconds)
    stats = simulator.stats()
    cost, spent = meter.read(), served(deployment.engine).since(before)
    operations = max(1, int(stats["applied"] - applied))
    if deployment.unprocessed() == 0:
        raise RuntimeError(f"nothing was left to do at {latency_ms} ms: a longer backlog is needed")
    events = count_events() - events_before if count_events else None
    return Window(
        latency_ms=latency_ms,
        seconds=stats["window_seconds"],
        operations=operations,
        busy_share=stats["busy_share"],
        statements=spent.statements / operations,
        commits=spent.commits / operations,
        cpu_ms={name: 1000 * value / operations for name, value in cost.items()},
        events=None if events is None else events / operations,
        resident_mib={name: resident_mib(pid) for name, pid in deployment.pids().items()},
    )


def _record_for(deployment: Deployment, seconds: float) -> None:
    """Changes come for `seconds`, as applications record them, each of a unit of its own."""
    began = time.monotonic()
    for number, change in enumerate(backlog(round(ARRIVALS_PER_SECOND * seconds), seed=7)):
        time.sleep(max(0.0, began + number / ARRIVALS_PER_SECOND - time.monotonic()))
        record(deployment.engine, deployment.host, replace(change, unit=f"new-{number}"))
    time.sleep(max(0.0, began + seconds - time.monotonic()))


def enough(latency_ms: float, seconds: float) -> int:
    """Changes that outlast warm-up and window at this latency."""
    per_second = min(OPERATIONS_PER_SECOND_MAX, 1000 / latency_ms if latency_ms else OPERATIONS_PER_SECOND_MAX)
    return round(per_second * (seconds + 10)) + 300


def warm_up(latency_ms: float) -> int:
    """Operations before the window: the writer learns OldHost's pace in some ten sends."""
    return 4 if latency_ms >= 100 else 150


def _seconds(latency_ms: float, quick: bool) -> float:
    if quick:
        return 8.0 if latency_ms >= 400 else 5.0
    return 24.0 if latency_ms >= 400 else 7.0
