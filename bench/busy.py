"""The whole product under a backlog: how busy OldHost is kept, how many operations a second, and what one costs.

A window is measured in which work never runs out: it begins after a warm-up and ends while changes still wait.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bench.actions import (
    HOURS_PER_MONTH,
    RETENTION_DAYS,
    USD_PER_ACTIVE_GB_HOUR,
    USD_PER_MILLION_ACTIONS,
    USD_PER_RETAINED_GB_HOUR,
    month,
)
from bench.deployment import Deployment, rivals
from bench.far_database import FarDatabase
from bench.processes import CpuMeter, served
from bench.result import Picture, Result, Series
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox, record

LATENCIES_MS = (400, 100, 20, 0)
QUICK_LATENCIES_MS = (400, 0)
A_SEND = "ScheduleActivityTask"  # nearly all activities are sends
PARTS = 3  # of a window at 100 ms and below: what disturbs one for a moment does not decide
JUDGED_BY = ("plain loop",)  # a target at 0 ms is its rate
BUSY_MIN = {400: 99.5, 100: 99.5, 20: 98.5}
RUN_EVENTS = 4_096  # when Temporal suggests a new run
# A guess from above, so that the backlog outlasts the window; the quickest was seen at some 700.
OPERATIONS_PER_SECOND_MAX = 1_000
# The peak: 10,000 changes in half an hour.
ARRIVALS_PER_SECOND = 10_000 / 1_800


@dataclass(slots=True)
class Window:
    """What was seen while work never ran out. All but the first four are per operation; CPU in ms.

    `seconds`, `operations` and `busy_share`: of the window's median part.
    """

    latency_ms: float
    seconds: float
    operations: int
    busy_share: float
    statements: float
    commits: float
    cpu_ms: dict[str, float] = field(default_factory=dict)
    events: float | None = None
    history_bytes: float | None = None
    actions: dict[str, float] = field(default_factory=dict)

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu_total_ms(self) -> float:
        return sum(self.cpu_ms.values())

    @property
    def actions_total(self) -> float | None:
        return None if self.events is None else sum(self.actions.values())


Windows = dict[str, Window]


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
            "the window begins when the product's writer has read the backlog, and ends while changes wait",
            (
                f"one window of {_seconds(400, stage.quick):.0f} s at 400 ms (rivals less); otherwise {PARTS} of "
                f"{_seconds(0, stage.quick) / PARTS:.0f} s, of which the median is shown (cost: of all); rivals half"
            ),
            (
                f"and one at 400 ms with {ARRIVALS_PER_SECOND:.1f} changes a second arriving, "
                "whose recording is counted with it"
            ),
        ],
    )
    beside = rivals(stage) or JUDGED_BY
    windows = {at: _all(stage, at, beside) for at in (QUICK_LATENCIES_MS if stage.quick else LATENCIES_MS)}
    arriving = _all(stage, 400, [name for name in rivals(stage) if name != "queue worker"], arriving=True)
    header = ("", *(f"{latency_ms} ms" for latency_ms in windows))
    names = ("product", *beside)
    result.table(
        "OldHost busy, %",
        header,
        [(name, *(100 * some[name].busy_share for some in windows.values())) for name in names],
    )
    result.notes.append("At 0 ms busy is only what the simulator takes to read and answer.")
    result.table(
        "Operations a second", header, [(name, *(some[name].per_second for some in windows.values())) for name in names]
    )
    result.table(
        "What an operation costs",
        (
            "",
            "latency, ms",
            "Temporal actions",
            "history events",
            "history, bytes",
            "statements",
            "commits",
            "CPU, ms",
            "of it own",
            "Temporal",
            "MariaDB",
        ),
        [
            *[_cost(name, some[name]) for name in names for some in windows.values()],
            *[_cost(f"{name}, changes arriving", each) for name, each in arriving.items()],
        ],
    )
    _actions_table(result, {"backlog only": windows[400], "changes arriving": arriving})
    _month_table(result, {"backlog only": windows[400], "changes arriving": arriving})
    _targets(result, windows, arriving)
    _pictures(result, windows)
    return result


def _all(stage: Stage, latency_ms: float, beside: Sequence[str], *, arriving: bool = False) -> Windows:
    first = product(stage, latency_ms, arriving=arriving)
    return {"product": first} | {name: rival(stage, name, latency_ms, arriving=arriving) for name in beside}


def _targets(result: Result, windows: dict[int, Windows], arriving: Windows) -> None:
    def target(what: str, values: dict[str, float], bound: str, limit: float, unit: str = "") -> None:
        rivals = {name: value for name, value in values.items() if name != "product"}
        result.target(what, values["product"], bound, limit, unit, rivals)

    for latency_ms, some in windows.items():
        if latency_ms in BUSY_MIN:
            busy = {name: 100 * each.busy_share for name, each in some.items()}
            target(f"OldHost busy during a backlog, {latency_ms} ms", busy, ">=", BUSY_MIN[latency_ms], "%")
    plain = windows[0]["plain loop"].per_second
    rates = {name: each.per_second / plain for name, each in windows[0].items()}
    target("operations/s when OldHost answers in 0 ms / the plain loop's", rates, ">=", 1)
    for when, some, limit in (("backlog only", windows[400], 12), ("changes arriving", arriving, 20)):
        cpu = {name: each.cpu_total_ms for name, each in some.items()}
        target(f"CPU per operation, 400 ms, {when}", cpu, "<=", limit, "ms")
    events = {name: each.events for name, each in arriving.items() if each.events is not None}
    target("history events per operation, 400 ms, changes arriving", events, "<=", 2.5)
    for when, some in (("backlog only", windows[400]), ("changes arriving", arriving)):
        actions = {name: each.actions_total for name, each in some.items() if each.actions_total is not None}
        target(f"Temporal actions per operation, 400 ms, {when}", actions, "<=", 0.5)


def _actions_table(result: Result, windows: dict[str, Windows]) -> None:
    """By type, of those who use Temporal."""
    rows = [
        (f"{name}, {when}", kind, count)
        for when, some in windows.items()
        for name, each in some.items()
        for kind, count in sorted(each.actions.items(), key=lambda item: -item[1])
    ]
    result.table("Temporal actions per operation at 400 ms, by type", ("", "action", "per operation"), rows)


def _month_table(result: Result, windows: dict[str, Windows]) -> None:
    rows: list[tuple[str | float, ...]] = []
    for when, some in windows.items():
        for name, each in some.items():
            if each.events and each.history_bytes and each.actions_total is not None:
                run_bytes = RUN_EVENTS * each.history_bytes / each.events
                cost = month(1000 / each.latency_ms, each.actions_total, each.history_bytes, run_bytes)
                rows.append((f"{name}, {when}", cost.actions, cost.active_storage, cost.retained_storage, cost.total))
    result.table(
        "A month of one host that is busy all the time, on Temporal Cloud, in US dollars",
        ("", "actions", "active storage", "retained storage", "together"),
        rows,
    )
    result.notes.append(
        f"By arithmetic: 2.5 operations/s for {HOURS_PER_MONTH} h, ${USD_PER_MILLION_ACTIONS:g} a million actions, "
        f"${USD_PER_ACTIVE_GB_HOUR:g} a GB and hour of the open run's history (half of a run's {RUN_EVENTS:,} events) "
        f"and ${USD_PER_RETAINED_GB_HOUR:g} of those kept for {RETENTION_DAYS} days; without a plan's fee."
    )


def _pictures(result: Result, windows: dict[int, Windows]) -> None:
    names = tuple(windows[0])
    timed = [latency_ms for latency_ms in windows if latency_ms]
    busy = [Series(name, [(float(at), 100 * windows[at][name].busy_share) for at in timed]) for name in names]
    title = "OldHost busy during a backlog"
    labels = [f"{latency_ms} ms" for latency_ms in timed]
    result.pictures.append(Picture("busy", title, "OldHost's latency", "busy, %", busy, bars=True, labels=labels))
    # In a quick run's window perhaps no send begins: one of sixteen operations at 400 ms lasts as long.
    begun = {at: each["product"].actions.get(A_SEND, 0) for at, each in windows.items()}
    batches = [(at, 1 / sends) for at, sends in begun.items() if sends]
    cost = [Series("CPU, ms", [(float(at), windows[at]["product"].cpu_total_ms) for at, _ in batches])]
    cost += [Series("history events", [(float(at), windows[at]["product"].events or 0) for at, _ in batches])]
    title = "What an operation costs, by operations in a send"
    labels = [f"{batch:.0f} (at {at} ms)" for at, batch in batches]
    result.pictures.append(Picture("batch", title, "operations in a send", "", cost, bars=True, labels=labels))
    rates = [Series("operations/s", [(0, windows[0][name].per_second) for name in names])]
    title = "Operations a second when OldHost answers in 0 ms"
    result.pictures.append(Picture("rate", title, "", "operations/s", rates, bars=True, labels=list(names)))


def _cost(name: str, window: Window) -> tuple[str | float | None, ...]:
    cpu = window.cpu_ms
    return (
        name,
        window.latency_ms,
        window.actions_total,
        window.events,
        window.history_bytes,
        window.statements,
        window.commits,
        window.cpu_total_ms,
        sum(value for role, value in cpu.items() if role not in {"mariadb", "temporal"}),
        cpu.get("temporal"),
        cpu["mariadb"],
    )


def rival(stage: Stage, name: str, latency_ms: float, *, arriving: bool = False) -> Window:
    """The same window for a rival. It begins with an outbox that nobody has looked at yet."""
    seconds = _seconds(latency_ms, quick=True)
    with stage.simulator(latency_ms) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(enough(latency_ms, seconds)), relayed=False)
        deployment.start(name)
        deployment.wait_applied(warm_up(latency_ms))
        in_temporal = name == "naive workflow"
        return observe(
            deployment, simulator, latency_ms, seconds, _parts(latency_ms), in_temporal=in_temporal, arriving=arriving
        )


def product(stage: Stage, latency_ms: float, *, arriving: bool = False, way: FarDatabase | None = None) -> Window:
    """The product's window. The backlog was relayed before the writer was lost, and is rebuilt at the start. `way`: by
    which its processes reach MariaDB.
    """
    seconds = _seconds(latency_ms, stage.quick)
    with stage.simulator(latency_ms) as simulator, Deployment(stage, simulator, way=way) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(enough(latency_ms, seconds)), relayed=True)
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        deployment.wait_applied(warm_up(latency_ms))
        deployment.wait_backlog_read()
        return observe(deployment, simulator, latency_ms, seconds, _parts(latency_ms), arriving=arriving)


def observe(
    deployment: Deployment,
    simulator: SimulatedHost,
    latency_ms: float,
    seconds: float,
    parts: int = 1,
    *,
    in_temporal: bool = True,
    arriving: bool = False,
) -> Window:
    """Watch for `seconds` from now on, in so many parts, in which work must not run out."""
    written_before = deployment.written() if in_temporal else None
    before = served(deployment.engine)
    meter = CpuMeter(deployment.pids())
    seen = [_part(deployment, simulator, seconds / parts, arriving=arriving) for _ in range(parts)]
    cost, spent = meter.read(), served(deployment.engine).since(before)
    operations = max(1, sum(part.operations for part in seen))
    if deployment.unprocessed() == 0:
        raise RuntimeError(f"nothing was left to do at {latency_ms} ms: a longer backlog is needed")
    middle = sorted(seen, key=lambda part: part.busy_share if latency_ms else part.operations / part.seconds)[
        parts // 2
    ]
    window = Window(
        latency_ms=latency_ms,
        seconds=middle.seconds,
        operations=middle.operations,
        busy_share=middle.busy_share,
        statements=spent.statements / operations,
        commits=spent.commits / operations,
        cpu_ms={name: 1000 * value / operations for name, value in cost.items() if in_temporal or name != "temporal"},
    )
    if written_before is not None:
        written = deployment.written().since(written_before)
        window.events, window.history_bytes = written.events / operations, written.size / operations
        window.actions = {name: count / operations for name, count in written.actions.items()}
    return window


@dataclass(frozen=True, slots=True)
class _Part:
    seconds: float
    operations: int
    busy_share: float


def _part(deployment: Deployment, simulator: SimulatedHost, seconds: float, *, arriving: bool) -> _Part:
    applied = simulator.stats()["applied"]
    simulator.reset()
    if arriving:
        _record_for(deployment, seconds)
    else:
        time.sleep(seconds)
    stats = simulator.stats()
    return _Part(stats["window_seconds"], int(stats["applied"] - applied), stats["busy_share"])


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
    return round(per_second * (seconds + 15)) + 300


def warm_up(latency_ms: float) -> int:
    """Operations before the window: the writer learns OldHost's pace in some ten sends."""
    return 4 if latency_ms >= 100 else 150


def _seconds(latency_ms: float, quick: bool) -> float:
    if quick:
        return 8.0 if latency_ms >= 400 else 6.0
    return 30.0 if latency_ms >= 400 else 12.0


def _parts(latency_ms: float) -> int:
    return 1 if latency_ms >= 400 else PARTS
