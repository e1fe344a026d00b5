"""The relay role: settings → engine, Temporal → a relay for each host, and the watches over all of them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine

from oldhost_sync.delivery import CONNECTIONS as DELIVERY_CONNECTIONS
from oldhost_sync.delivery import alerts_delivered
from oldhost_sync.fate_webhooks import fates_posted
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.probes.health import Liveness, Need, Readiness, running_during
from oldhost_sync.probes.needs import database_need, temporal_need
from oldhost_sync.probes.server import served
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import Duty, DutyLoop, RelayPace
from oldhost_sync.relay.fates import FateTracer, FateWriter
from oldhost_sync.relay.host_relay import CONNECTIONS, LOOKS, HostRelay, SharedPolls, relay_transactions
from oldhost_sync.relay.host_watch import HostChecks, HostWatch, LoadRecorder
from oldhost_sync.relay.late_webhooks import LateWebhooks
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.promises import ClockDifference, PromiseWatch
from oldhost_sync.relay.quiet_hours import QuietHoursKeeper
from oldhost_sync.relay.relay_health import FailingRelays, ReadinessCheck, UnservedHosts
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.relay.watchdog import Watchdog
from oldhost_sync.relay.writers import CALL_SECONDS_MAX, TemporalWriters
from oldhost_sync.roles.process import collect_only_what_comes, share_among_threads, stop_signals
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Settings
from oldhost_sync.store.engine import check_database, create_engine
from oldhost_sync.store.errors import AccessRefused, DatabaseUnavailable, TransactionContended
from oldhost_sync.store.retention import RetentionDays
from oldhost_sync.telemetry import AppliedWaits, FateMetrics, HostMetrics, RelayMetrics, show_role
from oldhost_sync.temporal import client as temporal
from oldhost_sync.temporal.writer_client import WriterClient
from oldhost_sync.traces.tracer import Tracer, role_tracer

logger = logging.getLogger(__name__)
# A starting database takes some seconds; this often the queries do not burden it.
DATABASE_RETRY_SECONDS = 2.0


async def run(settings: Settings) -> None:
    """Work until a stop signal."""
    share_among_threads()
    collect_only_what_comes()
    stop = asyncio.Event()
    for signum in stop_signals():
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    registry = CollectorRegistry()
    readiness, liveness = Readiness(), Liveness()
    engine = create_engine(settings.need_database_url(), pool_size=CONNECTIONS + DELIVERY_CONNECTIONS)
    autocommit_engine = create_engine(settings.need_database_url(), pool_size=LOOKS, autocommit=True)
    of_probes = create_engine(settings.need_database_url(), pool_size=1, autocommit=True)
    tracer = role_tracer(settings, "relay")
    try:
        transactions, metrics = relay_transactions(engine, autocommit_engine), RelayMetrics(registry)
        connect = partial(temporal.connect, keys=encryption_keys(settings))
        writers = TemporalWriters(temporal.writer_policies(settings), connect)
        needs = database_need(of_probes, "relay"), temporal_need(writers.connected)
        with served(settings.metrics_bind, registry, readiness, liveness):
            show_role(registry, "relay", readiness.looked_at)
            async with running_during(liveness.keep):
                await _wait_for_database(engine, settings.hosts(), stop)
                async with alerts_delivered(settings, engine, registry), fates_posted(settings) as webhooks:
                    await _relay(
                        settings, transactions, writers, metrics, registry, readiness, needs, stop, tracer, webhooks
                    )
    finally:
        engine.dispose()
        autocommit_engine.dispose()
        of_probes.dispose()
        if tracer:
            tracer.close()


async def _wait_for_database(engine: Engine, hosts: Sequence[str], stop: asyncio.Event) -> None:
    """Wait until it answers, or `stop` is set. Raises SchemaTooOld, UnknownHost or AccessRefused."""
    while not stop.is_set():
        try:
            await asyncio.to_thread(check_database, engine, hosts)
        except AccessRefused:
            raise  # most likely a mistake in SYNC_DATABASE_URL
        except (DatabaseUnavailable, TransactionContended) as error:
            logger.warning("the database is away (%s); the relay starts when it answers", error)
        else:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), DATABASE_RETRY_SECONDS)


async def _relay(
    settings: Settings,
    transactions: dict[str, Transactions],
    writers: TemporalWriters,
    metrics: RelayMetrics,
    registry: CollectorRegistry,
    readiness: Readiness,
    needs: Sequence[Need],
    stop: asyncio.Event,
    tracer: Tracer | None,
    webhooks: Collection[tuple[str, str]],
) -> None:
    conditions = Conditions()
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    relays = host_relays(settings, transactions, writers, metrics, owner, tracer, conditions)
    leaderships = {host: relay.leadership for host, relay in relays.items()}
    watchdog = Watchdog(transactions["watch"], leaderships, writers, conditions, owner)
    waits, fates = AppliedWaits(registry), FateMetrics(registry)
    clocks = ClockDifference(metrics.clock_difference)
    promised = cache(lambda host: settings.of_host(host).promises)
    promises = PromiseWatch(
        transactions["promise"], leaderships, conditions, owner, promised, waits=waits, metrics=fates, clocks=clocks
    )
    checks = HostChecks(transactions["checks"], leaderships, conditions)
    shown, fate_rates = HostMetrics(registry), promises.fate_rates
    watches: tuple[Duty, ...] = (
        watchdog,
        promises,
        HostWatch(transactions["figures"], leaderships, owner, shown, watchdog.troubles, fate_rates, checks, promised),
        checks,
        FateWriter(transactions["fates"], settings.hosts()),
        LoadRecorder(transactions["load"], leaderships),
        UnservedHosts(transactions["load"], metrics),
        FailingRelays(transactions["alerts"], relays, watchdog.troubles, conditions),
        LateWebhooks(transactions["figures"], settings.hosts(), webhooks, conditions),
        ConditionKeeper(transactions["alerts"], conditions),
        ReadinessCheck(relays, watchdog, readiness, needs),
        quiet_hours_keeper(settings, transactions["watch"], leaderships, writers),
        *([FateTracer(transactions["figures"], leaderships, owner, tracer)] if tracer else []),
    )
    loop_of = partial(
        DutyLoop,
        monotonic=time.monotonic,
        metrics=metrics,
        outage_known=lambda: any(relay.knows_of_outage() for relay in relays.values()),
    )
    async with asyncio.TaskGroup() as tasks:
        for relay in relays.values():
            tasks.create_task(relay.run(stop))
        for watch in watches:
            tasks.create_task(loop_of(watch).run(stop))


def quiet_hours_keeper(
    settings: Settings, transactions: Transactions, leaderships: Mapping[str, Leadership], writers: TemporalWriters
) -> QuietHoursKeeper:
    hours = {host: hours for host in leaderships if (hours := settings.of_host(host).quiet_hours)}
    clients = {host: WriterClient(host, CALL_SECONDS_MAX, CALL_SECONDS_MAX, writers.connected) for host in hours}
    return QuietHoursKeeper(transactions, leaderships, clients, writers, hours)


def host_relays(
    settings: Settings,
    transactions: Mapping[str, Transactions],
    writers: TemporalWriters,
    metrics: RelayMetrics,
    owner: str,
    tracer: Tracer | None,
    conditions: Conditions,
) -> dict[str, HostRelay]:
    """The relays by host; they share the polls. `owner` names this process in the leases."""
    pace = RelayPace(retention=_kept(settings))
    polls = SharedPolls.at(pace, transactions["outbox"], owner)
    folder = None if settings.settlement_dir is None else Path(settings.settlement_dir)
    if folder is None:
        logger.info("the ledger is not pruned, and no settlement files are written: SYNC_SETTLEMENT_DIR is not set")
    return {
        host: HostRelay(
            *(transactions, partial(writers.signal, host), host, owner, polls),
            *(pace.within(settings.of_host(host).debounce_seconds), metrics, tracer),
            settlement_dir=folder,
            conditions=conditions,
        )
        for host in settings.hosts()
    }


def _kept(settings: Settings) -> RetentionDays:
    return RetentionDays(
        changes=settings.retention_changes_days,
        alerts=settings.retention_alerts_days,
        audit=settings.retention_audit_days,
        ledger=settings.retention_ledger_days,
    )
