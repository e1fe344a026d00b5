"""Many waiting keys in the whole product: is an operation as cheap with 50,000 as with 100, and how is a full writer
carried?

First the cost of an operation while the backlog is held at its size: what OldHost takes is put into the outbox again.
Then a writer with 50,000 waiting keys: rebuilt from MariaDB, carried into a new run, replayed by another worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping
from itertools import pairwise

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer

from bench.busy import Window
from bench.deployment import Deployment
from bench.processes import CpuMeter, peak_mib, resident_mib, served
from bench.result import Picture, Result, Series, median, spread
from bench.stage import SimulatedHost, Stage
from bench.workflow_tasks import TASK_COMPLETED, TASK_STARTED, event_time, task_seconds
from bench.workload import backlog, emergency, put_into_outbox, record
from oldhost_sync.temporal.client import DATA_CONVERTER, writer_handle, writer_policy
from workflows.sync_writer import SyncWriterWorkflow

BACKLOGS = (100, 10_000, 50_000)
QUICK_BACKLOGS = (100, 10_000)
KEYS = 50_000
ROLES = ("worker", "relay", "temporal", "mariadb")
LATENCY_MS = 20
FEED_SECONDS = 0.5
# The database still writes its pages after 50,000 inserts; that is not the operations' cost.
WARM_UP_SECONDS = 3.0
RENEWALS = 2
EMERGENCIES_PER_SECOND = 40
EMERGENCIES_MAX = 4_000


def measure(stage: Stage) -> Result:
    seconds = 5 if stage.quick else 9
    result = Result(
        "waiting",
        "Many waiting keys",
        conditions=[
            f"worker, relay, Temporal, MariaDB and simulator ({LATENCY_MS} ms) on this machine",
            (
                f"the backlog is held at its size for {seconds} s: what was taken is put into the outbox again twice a "
                "second; the window begins when the writer has read it"
            ),
            "CPU of all processes but the simulator",
        ],
    )
    windows = {size: _held_at(stage, size, seconds) for size in (QUICK_BACKLOGS if stage.quick else BACKLOGS)}
    first = windows[BACKLOGS[0]].cpu_total_ms
    result.table(
        "An operation's cost by backlog",
        (
            "waiting",
            "operations/s",
            "history events",
            "statements",
            "commits",
            "CPU, ms per operation",
            "ratio to 100",
            "worker",
            "relay",
            "Temporal",
            "MariaDB",
        ),
        [
            (
                size,
                each.per_second,
                each.events,
                each.statements,
                each.commits,
                each.cpu_total_ms,
                each.cpu_total_ms / first,
                *(each.cpu_ms[name] for name in ROLES),
            )
            for size, each in windows.items()
        ],
    )
    worst = max(abs(each.cpu_total_ms / first - 1) for each in windows.values())
    most = max(windows)
    result.target(f"CPU per operation, 100 → {most:,} waiting: largest change", 100 * worst, "<=", 15, "%")
    if not stage.quick:
        _full_writer(stage, result)
    result.pictures.append(
        Picture(
            "waiting",
            "CPU of an operation by backlog",
            "waiting changes (log)",
            "ms",
            [Series("all processes", [(float(size), each.cpu_total_ms) for size, each in windows.items()])],
            log_x=True,
        )
    )
    return result


def _held_at(stage: Stage, size: int, seconds: float) -> Window:
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(size), relayed=True)
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        deployment.wait_applied(30)
        deployment.wait_backlog_read()
        done = _feed_for(deployment, simulator, size, 0, WARM_UP_SECONDS)
        written = deployment.written()
        applied = simulator.stats()["applied"]
        before, meter = served(deployment.engine), CpuMeter(deployment.pids())
        simulator.reset()
        _feed_for(deployment, simulator, size, done, seconds)
        stats, cost, spent = simulator.stats(), meter.read(), served(deployment.engine).since(before)
        operations = int(stats["applied"] - applied)
        return Window(
            LATENCY_MS,
            stats["window_seconds"],
            operations,
            stats["busy_share"],
            spent.statements / operations,
            spent.commits / operations,
            {name: 1000 * value / operations for name, value in cost.items()},
            deployment.written().since(written).events / operations,
        )


def _feed_for(deployment: Deployment, simulator: SimulatedHost, size: int, done: int, seconds: float) -> int:
    """Put back what was applied since `done`; gives how many are applied and put back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(FEED_SECONDS)
        applied = int(simulator.stats()["applied"])
        again = backlog(applied - done, seed=applied)
        changes = [dataclasses.replace(each, unit=f"again-{size}-{done + number}") for number, each in enumerate(again)]
        if changes:
            put_into_outbox(deployment.engine, deployment.host, changes, relayed=False)
        done = applied
    return done


def _full_writer(stage: Stage, result: Result) -> None:
    """50,000 waiting keys: rebuild, memory, carry-over, workflow tasks, replay."""
    with stage.simulator(100) as simulator, Deployment(stage, simulator) as deployment:
        put_into_outbox(deployment.engine, deployment.host, backlog(KEYS), relayed=True)
        worker = deployment.start("worker")
        deployment.wait_for("the worker", lambda: _polls(deployment))
        idle_mib = resident_mib(worker.pid)
        began = time.time()
        deployment.start_writer()
        deployment.wait_applied(1)
        rebuilt_s = simulator.journal()[0]["received_at"] - began
        deployment.wait_applied(40)
        renewals = [_renew(deployment, simulator) for _ in range(RENEWALS)]
        deployment.wait_backlog_read()
        full_mib = peak_mib(worker.pid)
        histories = deployment.histories()
    carried_s = [_carry_over_seconds(old, new) for new, old in pairwise(histories)]
    newest, first = histories[0], histories[-1]
    carried_kb = len(newest.events[0].workflow_execution_started_event_attributes.input.payloads[0].data) / 1000
    result.table(
        f"{KEYS:,} waiting keys in the running product ({len(renewals)} changes of runs)",
        (
            "rebuild from MariaDB to the first operation, s",
            "carried, KB",
            "last task of the old run begun → first task of the new done, s: median",
            "largest",
            "OldHost waited at the change of runs, s: median",
            "largest",
            "worker idle, MiB",
            "worker at most, MiB",
        ),
        [
            (
                rebuilt_s,
                carried_kb,
                median(carried_s),
                max(carried_s),
                median(renewals),
                max(renewals),
                idle_mib,
                full_mib,
            )
        ],
    )
    tasks = [each for history in histories for each in task_seconds(history)]
    result.table(
        "Workflow tasks with that backlog, s", ("tasks", "p50", "p99", "largest"), [(len(tasks), *spread(tasks))]
    )
    result.target("50,000 waiting keys: carried snapshot", carried_kb / 1000, "<=", 1, "MB")
    result.target("50,000 waiting keys: carry-over into a new run, median", median(carried_s), "<=", 0.4, "s")
    result.target("50,000 waiting keys: worker memory", full_mib, "<=", 250, "MiB")
    replayed = {f"rebuilt run, {KEYS:,} keys": first, f"carried run, {KEYS:,} keys": newest}
    replayed["a run of full length, by a flood of emergencies"] = _longest_history(stage)
    _replay_table(result, replayed)


def _renew(deployment: Deployment, simulator: SimulatedHost) -> float:
    """Let the writer start a new run with what it holds; seconds that OldHost waited meanwhile at most."""
    deployment.wait_backlog_read()
    policy, runs, began = (
        writer_policy(deployment.settings.of_host(deployment.host)),
        len(deployment.histories()),
        time.time(),
    )
    changed = dataclasses.replace(policy, sweep_ms=policy.sweep_ms + runs)

    async def configure(client: Client) -> None:
        await writer_handle(client, deployment.host).signal("configure", changed)

    deployment.ask(configure)
    deployment.wait_for("a new run", lambda: len(deployment.histories()) > runs)
    deployment.wait_applied(len(simulator.journal()) + 40)
    entries = pairwise(simulator.journal())
    return max(float(new["received_at"] - old["applied_at"]) for old, new in entries if new["received_at"] > began)


def _carry_over_seconds(old: WorkflowHistory, new: WorkflowHistory) -> float:
    """From the start of the old run's last workflow task, with the snapshot, to the end of the new one's first."""
    began = next(event for event in reversed(old.events) if event.event_type == TASK_STARTED)
    ended = next(event for event in new.events if event.event_type == TASK_COMPLETED)
    return event_time(ended) - event_time(began)


def _polls(deployment: Deployment) -> bool:
    return "is at work" in deployment.children["worker"].said()


def _longest_history(stage: Stage) -> WorkflowHistory:
    """The history of a whole run, from its start to the new run that Temporal suggested.

    It is the longest there is: a flood of emergencies, each of which the relay signals at once. Nothing of an ordinary
    day fills a run faster.
    """
    with stage.simulator(LATENCY_MS) as simulator, Deployment(stage, simulator) as deployment:
        deployment.start("worker")
        deployment.start("relay")
        deployment.start_writer()
        first = deployment.run_id()
        for number in range(EMERGENCIES_MAX):
            record(deployment.engine, deployment.host, emergency(f"locked-out-{number}", number))
            time.sleep(1 / EMERGENCIES_PER_SECOND)
            if number % EMERGENCIES_PER_SECOND == 0 and deployment.run_id() != first:
                return deployment.histories()[-1]
    raise RuntimeError(f"{EMERGENCIES_MAX} emergencies have not filled a run")


def _replay_table(result: Result, histories: Mapping[str, WorkflowHistory]) -> None:
    """Add a table: each history replayed from its first event, as by a worker after a restart."""
    result.table(
        "Replay from the first event",
        ("history", "events", "s"),
        [(name, len(history.events), _replay_seconds(history)) for name, history in histories.items()],
    )


def _replay_seconds(history: WorkflowHistory) -> float:
    replayer = Replayer(workflows=[SyncWriterWorkflow], data_converter=DATA_CONVERTER)
    began = time.perf_counter()
    asyncio.run(replayer.replay_workflow(history))
    return time.perf_counter() - began
