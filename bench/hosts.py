"""Many hosts on one machine: so many writers, so many OldHosts at 400 ms, one worker process, one database, one
Temporal.

Each host has a backlog that outlasts the window. What a host costs in CPU and memory, and from how many hosts on this
machine no longer keeps them all busy, is what docs/scaling.md calculates from.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass

from temporalio.client import Client

from bench.deployment import Deployment
from bench.processes import CpuMeter, Served, resident_mib, served
from bench.result import Picture, Result, Series, median
from bench.stage import ROOT, SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox
from oldhost_sync.stack.processes import Child
from oldhost_sync.temporal.client import start_writer, writer_handle, writer_policy

LATENCY_MS = 400
PRODUCT, PLAIN = ("worker", "relay"), ("plain loop",)
READY_SECONDS_MAX = 150.0  # a hundred hosts are opened one after the other
# So many operations of each host are before the window: for that long the hosts that were opened last catch up.
WARM_UP = 20
_IDLE_SECONDS = 8


@dataclass(slots=True)
class Crowd:
    """What a number of hosts showed in a window of `seconds`."""

    hosts: int
    seconds: float
    busy: list[float]
    operations: int
    cpu: dict[str, float]
    mib: dict[str, float]
    spent: Served

    def cores(self, part: str) -> float | None:
        return self.cpu[part] / self.seconds if part in self.cpu else None

    @property
    def cpu_ms(self) -> float:
        """Of an operation, of all but the simulators."""
        return 1000 * sum(value for name, value in self.cpu.items() if name != "simulators") / max(1, self.operations)


def measure(stage: Stage) -> Result:
    numbers = (10,) if stage.quick else (50, 100)
    seconds = 8 if stage.quick else 20
    result = Result(
        "hosts",
        "Many hosts on one machine",
        conditions=[
            f"OldHosts at {LATENCY_MS} ms (all simulators in one process), a backlog for each",
            f"a window of {seconds} s, which begins when OldHost has {WARM_UP} operations of each",
            "one worker and one relay process for all hosts (SYNC_OLDHOST_URLS), one Temporal dev server, one MariaDB",
            "beside the plain loop: one process with a thread for each host",
        ],
    )
    crowds = [_crowd(stage, number, seconds) for number in numbers]
    plain = [] if stage.quick else [_crowd(stage, numbers[-1], seconds, PLAIN)]
    rows = [*(("product", "worker", each) for each in crowds), *(("plain loop", *PLAIN, each) for each in plain)]
    result.table(
        "",
        (
            "",
            "hosts",
            "busy, median %",
            "busy, least %",
            "operations/s",
            "CPU of its process, cores",
            "CPU relay",
            "CPU Temporal",
            "CPU MariaDB",
            "CPU simulators",
            "ms CPU per operation",
            "its MiB",
            "Temporal MiB",
            "commits/s",
        ),
        [
            (
                name,
                each.hosts,
                100 * median(each.busy),
                100 * min(each.busy),
                each.operations / each.seconds,
                *(each.cores(part) for part in (own, "relay", "temporal", "mariadb", "simulators")),
                each.cpu_ms,
                each.mib[own],
                each.mib.get("temporal"),
                each.spent.commits / each.seconds,
            )
            for name, own, each in rows
        ],
    )
    first, last = crowds[0], crowds[-1]
    for what, limit, measure_of in (("median", 95, median), ("least", 90, min)):
        busy = {"plain loop": 100 * measure_of(plain[0].busy)} if plain else {}
        result.target(f"{last.hosts} hosts busy, {what}", 100 * measure_of(last.busy), ">=", limit, "%", busy)
    if first is last:
        return result
    per_host = (last.mib["worker"] - first.mib["worker"]) / (last.hosts - first.hosts)
    result.notes.append(f"A further host takes {per_host:.1f} MiB of the worker's memory.")
    for number in (1, numbers[-1]):
        relay, database = _idle_relay(stage, number)
        result.notes.append(
            f"A relay of {number} idle host{'s' * (number > 1)} takes {1000 * relay:.0f} ms of CPU a second and "
            f"{1000 * database:.0f} ms of MariaDB's."
        )
    result.pictures.append(
        Picture(
            "hosts",
            "Many hosts on one machine",
            "hosts",
            "OldHosts busy, %",
            [
                Series("median", [(float(each.hosts), 100 * median(each.busy)) for each in crowds]),
                Series("least", [(float(each.hosts), 100 * min(each.busy)) for each in crowds]),
            ],
        )
    )
    return result


def _crowd(stage: Stage, number: int, seconds: float, roles: tuple[str, ...] = PRODUCT) -> Crowd:
    is_product = roles == PRODUCT
    with ExitStack() as ends:
        simulators, child = _simulators(stage, number)
        ends.callback(child.stop)
        hosts = [stage.name("many-") for _ in simulators]
        urls = dict(zip(hosts, (each.url for each in simulators), strict=True))
        deployment = ends.enter_context(Deployment(stage, simulators[0], {"oldhost_urls": urls}, host=hosts[0]))
        for host in hosts:
            changes = backlog(round(2.5 * (seconds + 60 + number / 2)))
            put_into_outbox(deployment.engine, host, changes, relayed=is_product)
        for role in roles:
            deployment.start(role)
        deployment.children["simulators"] = child
        if is_product:
            ends.callback(lambda: deployment.ask(lambda client: _end(client, hosts)))
            ends.callback(deployment.stop, "relay")  # it would start them again
            deployment.ask(lambda client: _begin(client, deployment, hosts))
        deployment.wait_for(
            "all hosts at work",
            lambda: all(each.stats()["applied"] >= WARM_UP for each in simulators),
            READY_SECONDS_MAX,
        )
        return _watch(deployment, simulators, seconds, uses_temporal=is_product)


def _watch(deployment: Deployment, simulators: list[SimulatedHost], seconds: float, *, uses_temporal: bool) -> Crowd:
    pids = {name: pid for name, pid in deployment.pids().items() if uses_temporal or name != "temporal"}
    before, meter = served(deployment.engine), CpuMeter(pids)
    applied = sum(each.stats()["applied"] for each in simulators)
    for each in simulators:
        each.reset()
    began = time.monotonic()
    time.sleep(seconds)
    stats = [each.stats() for each in simulators]
    passed = time.monotonic() - began
    return Crowd(
        hosts=len(simulators),
        seconds=passed,
        busy=[each["busy_share"] for each in stats],
        operations=int(sum(each["applied"] for each in stats) - applied),
        cpu=meter.read(),
        mib={name: resident_mib(pid) for name, pid in pids.items()},
        spent=served(deployment.engine).since(before),
    )


def _simulators(stage: Stage, number: int) -> tuple[list[SimulatedHost], Child]:
    name = stage.name("simulators")
    command = [sys.executable, "-m", "bench.many_simulators", str(number), str(LATENCY_MS)]
    child = Child(name, command, stage.folder / f"{name}.log", folder=ROOT)
    child.start()
    child.wait_until(lambda: child.said().endswith("\n"), 60)
    return [SimulatedHost(child, url, admin) for url, admin in json.loads(child.said().splitlines()[0])], child


def _idle_relay(stage: Stage, number: int) -> tuple[float, float]:
    """CPU seconds a second of a relay of so many hosts with nothing to do, and of the database for it."""
    with stage.simulator(LATENCY_MS) as simulator:
        hosts = [stage.name("idle-") for _ in range(number)]
        given = {"oldhost_urls": dict.fromkeys(hosts, simulator.url)}
        with Deployment(stage, simulator, given, host=hosts[0]) as deployment:
            deployment.start("relay")
            return _idle_cost(deployment)


def _idle_cost(deployment: Deployment) -> tuple[float, float]:
    time.sleep(3)
    meter = CpuMeter(deployment.pids())
    time.sleep(_IDLE_SECONDS)
    cost = meter.read()
    return cost["relay"] / _IDLE_SECONDS, cost["mariadb"] / _IDLE_SECONDS


async def _begin(client: Client, deployment: Deployment, hosts: list[str]) -> None:
    policy = writer_policy(deployment.settings.of_host(deployment.host))
    await asyncio.gather(*(start_writer(client, host, policy) for host in hosts))


async def _end(client: Client, hosts: list[str]) -> None:
    await asyncio.gather(*(writer_handle(client, host).terminate("measured") for host in hosts[1:]))
