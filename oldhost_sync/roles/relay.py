"""The relay as a role: settings → engine, Temporal → a relay for each host and the watches over all of them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
import uuid
from functools import partial

from prometheus_client import CollectorRegistry

from oldhost_sync import temporal
from oldhost_sync.relay.duty import Duty, DutyLoop
from oldhost_sync.relay.fate_writer import FateWriter
from oldhost_sync.relay.host_relay import CONNECTIONS, HostRelay, SharedPolls, relay_transactions
from oldhost_sync.relay.host_watch import HostWatch
from oldhost_sync.relay.load_recorder import LoadRecorder
from oldhost_sync.relay.pace import RelayPace
from oldhost_sync.relay.promise_watch import PromiseWatch
from oldhost_sync.relay.readiness import ReadinessCheck
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.watchdog import Watchdog
from oldhost_sync.relay.writers import TemporalWriters
from oldhost_sync.role_server import Readiness, served
from oldhost_sync.settings import Settings
from oldhost_sync.store.engine import create_engine
from oldhost_sync.telemetry import AppliedWaits, FateMetrics, HostMetrics, RelayMetrics, show_role


async def run(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    registry = CollectorRegistry()
    readiness = Readiness()
    engine = create_engine(settings.need_database_url(), pool_size=CONNECTIONS)
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    try:
        transactions, metrics = relay_transactions(engine), RelayMetrics(registry)
        writers = TemporalWriters(temporal.writer_policy(settings))
        with served(settings.metrics_bind, registry, readiness):
            show_role(registry, "relay", readiness.looked_at)
            await _relay(settings, transactions, writers, metrics, registry, owner, readiness, stop)
    finally:
        engine.dispose()


async def _relay(
    settings: Settings,
    transactions: dict[str, Transactions],
    writers: TemporalWriters,
    metrics: RelayMetrics,
    registry: CollectorRegistry,
    owner: str,
    readiness: Readiness,
    stop: asyncio.Event,
) -> None:
    polls = SharedPolls.at(RelayPace())
    relays = {
        host: HostRelay(transactions, partial(writers.signal, host), host, owner=owner, polls=polls, metrics=metrics)
        for host in settings.hosts()
    }
    leaderships = {host: relay.leadership for host, relay in relays.items()}
    watchdog = Watchdog(transactions["watch"], leaderships, writers, owner=owner)
    waits, fates = AppliedWaits(registry), FateMetrics(registry)
    promises = PromiseWatch(transactions["promise"], leaderships, owner=owner, waits=waits, metrics=fates)
    shown = HostMetrics(registry)
    watches: tuple[Duty, ...] = (
        watchdog,
        promises,
        HostWatch(transactions["figures"], leaderships, owner, shown, watchdog.troubles, promises.flows),
        FateWriter(transactions["fates"], settings.hosts()),
        LoadRecorder(transactions["load"], leaderships),
        ReadinessCheck(relays, watchdog, readiness),
    )
    async with asyncio.TaskGroup() as tasks:
        for relay in relays.values():
            tasks.create_task(relay.run(stop))
        for watch in watches:
            loop = DutyLoop(
                watch,
                monotonic=time.monotonic,
                metrics=metrics,
                outage_known=lambda: any(relay.knows_of_outage() for relay in relays.values()),
            )
            tasks.create_task(loop.run(stop))
