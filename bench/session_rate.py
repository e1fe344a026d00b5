"""The session and the ledger alone: how near to OldHost's pace they come, and what one operation costs, without
Temporal.

Two threads give sends to the session as the writer does: each fills some time, the next one waits at the socket while
one is on the wire. This is the ceiling of the product's rate on this machine.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from sqlalchemy.engine import Engine

from bench.processes import CpuMeter, served
from bench.result import Result
from bench.stage import SimulatedHost, Stage
from bench.workload import backlog, put_into_outbox
from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.recovery import Opened, Opening
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.tuning import SEND_FILL_MS, SEND_OPERATIONS_MAX
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.ledger.maria_ledger import MariaLedger

LATENCIES_MS = (400, 20, 0)
QUICK_LATENCIES_MS = (0,)


@dataclass(frozen=True, slots=True)
class Rate:
    """What one run showed."""

    busy_share: float
    per_second: float
    statements: float
    commits: float
    session_cpu_ms: float
    database_cpu_ms: float


def measure(stage: Stage) -> Result:
    result = Result(
        "session",
        "Session and ledger alone",
        conditions=[
            "one process, two sending threads, no Temporal",
            "backlog in the peak's mix, each change of its own unit, all ready",
            "MariaDB with innodb_flush_log_at_trx_commit=1 on this machine",
        ],
    )
    rows = []
    for latency_ms in QUICK_LATENCIES_MS if stage.quick else LATENCIES_MS:
        rounds = 1 if latency_ms or stage.quick else 3
        rates = [run(stage, latency_ms, _count(latency_ms, stage.quick)) for _ in range(rounds)]
        rate = sorted(rates, key=lambda each: each.per_second)[len(rates) // 2]
        rows.append(
            (
                latency_ms,
                100 * rate.busy_share if latency_ms else None,
                rate.per_second,
                rate.statements,
                rate.commits,
                rate.session_cpu_ms,
                rate.database_cpu_ms,
            )
        )
    header = (
        "OldHost's latency, ms",
        "OldHost busy, %",
        "operations/s",
        "statements per operation",
        "commits per operation",
        "session CPU, ms per operation",
        "MariaDB CPU, ms per operation",
    )
    result.table("", header, rows)
    return result


def _count(latency_ms: float, quick: bool) -> int:
    return round(5 * 1000 / latency_ms) if latency_ms else (1_000 if quick else 3_000)


def run(stage: Stage, latency_ms: float, count: int) -> Rate:
    engine = create_engine(stage.database().app, pool_size=8)
    try:
        ids = put_into_outbox(engine, "oldhost", backlog(count), relayed=True)
        with stage.simulator(latency_ms) as simulator:
            return _send_all(stage, engine, simulator, ids, latency_ms)
    finally:
        engine.dispose()


def _send_all(stage: Stage, engine: Engine, simulator: SimulatedHost, ids: list[int], latency_ms: float) -> Rate:
    opened = open_session(engine, "oldhost", simulator.url)
    size = max(1, min(SEND_OPERATIONS_MAX, int(SEND_FILL_MS / (latency_ms + 1))))
    sends = enumerate((ids[start : start + size] for start in range(0, len(ids), size)), start=1)
    before = served(engine)
    meter = CpuMeter({"session": os.getpid(), "mariadb": stage.mariadb.pid})
    own_before = time.process_time()
    simulator.reset()
    began = time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        lock = threading.Lock()
        for done in [threads.submit(_send_some, opened, sends, lock) for _ in range(2)]:
            done.result()
    seconds = time.perf_counter() - began
    stats = simulator.stats()
    busy_seconds = stats["busy_share"] * stats["window_seconds"]
    cost, own = meter.read(), time.process_time() - own_before
    spent = served(engine).since(before)
    opened.session.close("measured")
    assert stats["applied"] == len(ids), f"{stats['applied']} of {len(ids)} applied"
    return Rate(
        busy_share=busy_seconds / seconds,
        per_second=len(ids) / seconds,
        statements=spent.statements / len(ids),
        commits=spent.commits / len(ids),
        session_cpu_ms=1000 * own / len(ids),
        database_cpu_ms=1000 * cost["mariadb"] / len(ids),
    )


def _send_some(opened: Opened, sends: Iterator[tuple[int, list[int]]], lock: threading.Lock) -> None:
    while True:
        with lock:
            sequence, ids = next(sends, (0, []))
        if not ids:
            return
        sent = opened.session.send(ids, lambda: None, sequence=sequence)
        assert sent.session_open, sent.reason


def open_session(engine: Engine, host: str, url: str) -> Opened:
    """A session as the worker opens it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    address = Address(parts.hostname, parts.port)
    limits = SessionLimits()
    outcome = Opening(
        ledger=MariaLedger(engine, host, timedelta(seconds=limits.settle_seconds)),
        connect=lambda: Connector(address, HTTP, time.monotonic).connect(lambda: None),
        owner=f"bench-{os.getpid()}",
        condition=threading.Condition(),
        clock=time.monotonic,
        limits=limits,
        heartbeat=lambda: None,
    ).open()
    assert isinstance(outcome, Opened), outcome
    return outcome
