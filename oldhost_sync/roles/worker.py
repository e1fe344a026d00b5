"""The worker: settings → client, engine → activities → two Workers. `python worker.py` works alone, given addresses.

One Worker takes workflows and the activities that any worker may run, on the shared queue; the other takes the
activities of this process's sessions, on its own queue. After SIGTERM the workflows first move to other workers; then
this one drains: the operations on the wire end and are recorded, the connections are closed, and it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache, partial
from typing import Any

from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine
from temporalio.client import Client
from temporalio.worker import FixedSizeSlotSupplier, WorkerTuner

from activities.records import RecordingActivities, unhurried
from activities.session import SessionActivities
from activities.signal_recovery import RecoveryActivities, TemporalHistories
from activities.submissions import SubmissionActivities
from oldhost_sync.delivery import alerts_delivered
from oldhost_sync.environment import settings
from oldhost_sync.explanations import leave_after
from oldhost_sync.host_settings import SEND_WITHIN_SECONDS, HostSettings
from oldhost_sync.logs import log_to_stderr
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.oldhost.connection import Clock
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import NoAccess
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.probes.health import Liveness, Readiness, running_during
from oldhost_sync.probes.server import served
from oldhost_sync.roles.process import collect_only_what_comes, hold_many_objects, share_among_threads, stop_signals
from oldhost_sync.roles.sdk_worker import (
    DATABASE_ACTIVITIES,
    DatabaseActivityLimit,
    LeavingWorker,
    WorkflowSlots,
    shared_slots,
)
from oldhost_sync.secret_keys import encryption_keys, signing_keys
from oldhost_sync.settings import Settings, SettingsError
from oldhost_sync.store.engine import check_database, check_server, create_engine
from oldhost_sync.store.workers import REPORT_SECONDS, WorkerPresence
from oldhost_sync.telemetry import WorkerMetrics, show_role
from oldhost_sync.temporal.client import connect, leave, sdk_runtime, writer_policies
from oldhost_sync.temporal.search_attributes import Registration
from oldhost_sync.traces.tracer import Tracer, role_tracer
from oldhost_sync.user_errors import refuse_arguments
from oldhost_sync.worker.readiness import watch_readiness
from oldhost_sync.worker.release_watch import ReleaseWatch
from oldhost_sync.worker.watch import RelayWatch, others_watched
from workflows.messages import TASK_QUEUE, session_task_queue
from workflows.nightly_resync import NightlyResyncWorkflow
from workflows.sync_writer import SyncWriterWorkflow

logger = logging.getLogger(__name__)

# For each host: two sends, two urgent ones, a probe, and the activity that ends them. They mostly wait for OldHost.
SESSION_THREADS_PER_HOST = 6
SESSION_THREADS_MIN = 16
# One for each host within these: with the SDK's five polls, some of fifty hosts were served half as often as others.
POLLS_MIN, POLLS_MAX = 5, 20
# The shared queue has fewer polls if there are few hosts: the waiting polls of a frozen worker get tasks that it does
# not work on, and each one costs the writer a timeout (10 s for a workflow task). Two is the SDK's minimum.
SHARED_POLLS_MIN = 2
DATABASE_CONNECTIONS_MIN, DATABASE_CONNECTIONS_MAX = 8, 16
# A killed worker is detected by missing heartbeats; the SDK may delay them no longer than this.
HEARTBEAT_INTERVAL = timedelta(seconds=2)
# A workflow task for a worker that was killed is given to another one after this. A live one begins a task within that
# time even among a hundred hosts on two full cores (six of some thousands did not); else it replays the history.
STICKY = timedelta(seconds=1)
# At shutdown, how long to wait until the open polls are used up. A busy writer needs much less; an idle one uses none.
RUN_OUT_SECONDS = 1.0
# Then the shared Worker shuts down, which takes a moment if Temporal answers. The drain waits for it no longer than
# this.
SHARED_LEAVES_SECONDS = 3.0
# For the SDK to end an activity after its grace time, and then to shut down itself.
SDK_LEAVES_SECONDS = 5.0
# Workflows kept in memory: each host's writer, and sometimes its nightly resync.
CACHED_WORKFLOWS_MIN = 100


async def run(settings: Settings, *, stop: asyncio.Event | None = None, client: Client | None = None) -> None:
    """Work until `stop` is set or a signal arrives. Raises SettingsError and the store's errors at the start."""
    share_among_threads()
    hold_many_objects()
    collect_only_what_comes()
    tracer = role_tracer(settings, "worker")
    engine = create_engine(settings.need_database_url(), pool_size=database_connections(settings))
    try:
        await asyncio.to_thread(check_server, engine)
        await asyncio.to_thread(check_database, engine, tuple(settings.urls_by_host()))
        registry = CollectorRegistry()
        metrics = WorkerMetrics(registry)
        metrics.begin(settings.urls_by_host())
        sessions = session_activities(settings, engine, metrics, tracer)
        # Before Temporal is needed: that it is away is one of the alerts.
        relays = RelayWatch(engine, tuple(settings.urls_by_host()))
        async with alerts_delivered(settings, engine, registry), running_during(relays.watch):
            connected = client or await connect(sdk_runtime(settings), keys=encryption_keys(settings))
            readiness, liveness = Readiness(), Liveness()
            show_role(registry, "worker", readiness.looked_at)
            with served(settings.metrics_bind, registry, readiness, liveness):
                release = settings.release_max or RELEASE
                presence = WorkerPresence(engine, tuple(settings.urls_by_host()), sessions.owner, release)
                releases = ReleaseWatch(connected, presence, writer_policies(settings))
                async with (
                    running_during(liveness.keep),
                    _stopped_by_signals(stop or asyncio.Event()) as stopping,
                    _looked_at(settings, connected, readiness, releases),
                    _present(presence),
                    running_during(releases.watch),
                    others_watched(settings.need_database_url(), connected, presence),
                ):
                    if await _is_so_before(releases.may_take_tasks(), stopping):
                        await _work(settings, connected, engine, sessions, releases, stopping)
    finally:
        engine.dispose()
        if tracer:
            tracer.close()


async def _work(
    settings: Settings,
    client: Client,
    engine: Engine,
    sessions: SessionActivities,
    releases: ReleaseWatch,
    stopping: asyncio.Event,
) -> None:
    watch = threading.Thread(target=sessions.watch, name="session-watch", daemon=True)
    watch.start()
    threads_max = shared_slots(len(settings.urls_by_host())) + session_threads(settings)
    with ThreadPoolExecutor(threads_max, thread_name_prefix="activity") as threads:
        registration = Registration()
        slots = WorkflowSlots()
        shared, own = workers(settings, client, engine, sessions, threads, registration, releases, slots)
        async with running_during(partial(registration.watch, client)), own, shared:
            logger.info("worker %s is at work", sessions.owner)
            await stopping.wait()
            logger.info("worker %s is leaving", sessions.owner)
            sessions.open_no_more()
            await slots.run_out(RUN_OUT_SECONDS)
            others_decide = asyncio.create_task(shared.shutdown())
            await asyncio.wait({others_decide}, timeout=SHARED_LEAVES_SECONDS)
            # Only after that: other workers then see at once that the sends have ended, and open a session. And before
            # this process's own Worker stops taking tasks, so that a late send is refused at once.
            await asyncio.to_thread(sessions.drain)
            await asyncio.gather(others_decide, own.shutdown())
    await asyncio.to_thread(watch.join)


def workers(
    settings: Settings,
    client: Client,
    engine: Engine,
    sessions: SessionActivities,
    threads: ThreadPoolExecutor,
    registration: Registration,
    releases: ReleaseWatch,
    slots: WorkflowSlots,
) -> tuple[LeavingWorker, LeavingWorker]:
    """The Worker of the shared queue, and the Worker of this process's own queue."""
    histories = TemporalHistories(client, asyncio.get_running_loop())
    recovery = RecoveryActivities(engine, histories, settings.retention_changes_days)
    grace = drained_within_seconds(settings) + SDK_LEAVES_SECONDS
    of_both: dict[str, Any] = {
        "leaves_within_seconds": grace + SDK_LEAVES_SECONDS,
        "activity_executor": threads,
        "graceful_shutdown_timeout": timedelta(seconds=grace),
        "max_heartbeat_throttle_interval": HEARTBEAT_INTERVAL,
        "default_heartbeat_throttle_interval": HEARTBEAT_INTERVAL,
    }
    shared = LeavingWorker(
        client,
        task_queue=TASK_QUEUE,
        workflows=[SyncWriterWorkflow, NightlyResyncWorkflow],
        activities=[
            sessions.open_session,
            recovery.recover_submissions,
            *_on_the_database(settings, engine, sessions, registration),
        ],
        max_cached_workflows=max(CACHED_WORKFLOWS_MIN, 2 * len(settings.urls_by_host())),
        patch_activation_callback=releases.activates,
        sticky_queue_schedule_to_start_timeout=STICKY,
        tuner=_tuner(settings, slots),
        interceptors=[DatabaseActivityLimit(DATABASE_ACTIVITIES)],
        max_concurrent_workflow_task_polls=polls(settings, SHARED_POLLS_MIN),
        max_concurrent_activity_task_polls=polls(settings, SHARED_POLLS_MIN),
        **of_both,
    )
    own = LeavingWorker(
        client,
        task_queue=sessions.task_queue,
        activities=[sessions.send, sessions.stop_sends, sessions.probe, sessions.close_session],
        max_concurrent_activities=session_threads(settings),
        max_concurrent_activity_task_polls=polls(settings, POLLS_MIN),
        **of_both,
    )
    return shared, own


def _tuner(settings: Settings, slots: WorkflowSlots) -> WorkerTuner:
    one = FixedSizeSlotSupplier(1)  # for kinds of tasks that do not occur here
    return WorkerTuner.create_composite(
        workflow_supplier=slots,
        activity_supplier=FixedSizeSlotSupplier(shared_slots(len(settings.urls_by_host()))),
        local_activity_supplier=one,
        nexus_supplier=one,
    )


def _on_the_database(
    settings: Settings, engine: Engine, sessions: SessionActivities, registration: Registration
) -> list[Callable[..., Any]]:
    """The activities that mainly use the database."""
    recording = RecordingActivities(
        *(engine, writer_policies(settings), sessions.count, unhurried),
        lists_states=lambda: registration.is_known,
        act_keys=signing_keys(settings),
    )
    return [
        SubmissionActivities(engine).record_submissions,
        recording.load_outstanding,
        recording.sweep,
        recording.record_act,
        recording.record_conditions,
        recording.request_nightly_resync,
    ]


def leaves_within_seconds(settings: Settings) -> float:
    """How long the process takes from SIGTERM to its end at most, even if Temporal does not answer."""
    drained = drained_within_seconds(settings)
    return RUN_OUT_SECONDS + SHARED_LEAVES_SECONDS + drained + (drained + 2 * SDK_LEAVES_SECONDS)


def drained_within_seconds(settings: Settings) -> float:
    """How long the sessions of all hosts, which drain together, need at most."""
    return max(session_limits(settings.of_host(host)).drained_within_seconds for host in settings.hosts())


def session_threads(settings: Settings) -> int:
    """How many session activities may run here at a time."""
    return max(SESSION_THREADS_MIN, SESSION_THREADS_PER_HOST * len(settings.urls_by_host()))


def polls(settings: Settings, at_least: int) -> int:
    """How many polls wait at Temporal at a time, for each kind of task."""
    return max(at_least, min(len(settings.urls_by_host()), POLLS_MAX))


def database_connections(settings: Settings) -> int:
    """How many transactions of this worker may run at a time."""
    return max(DATABASE_CONNECTIONS_MIN, min(len(settings.urls_by_host()), DATABASE_CONNECTIONS_MAX))


def session_activities(
    settings: Settings, engine: Engine, metrics: WorkerMetrics, tracer: Tracer | None = None
) -> SessionActivities:
    """The session activities of this process, with a unique owner name."""
    name = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    return SessionActivities(
        engine=engine,
        connect_to=connectors(settings),
        task_queue=session_task_queue(name),
        owner=name,
        limits=cache(lambda host: session_limits(settings.of_host(host))),
        resent_types=lambda host: frozenset(settings.of_host(host).resend_types),
        metrics=metrics,
        tracer=tracer,
    )


def session_limits(of_host: HostSettings) -> SessionLimits:
    return SessionLimits(
        send_within_seconds=SEND_WITHIN_SECONDS,
        request_timeout_seconds=of_host.request_timeout_seconds,
        settle_seconds=of_host.settle_seconds,
        ban_seconds=of_host.ban_seconds,
    )


def access(settings: Settings) -> Callable[[str], Access]:
    """How each host lets us in. SettingsError when a file can't be used now."""
    urls = settings.urls_by_host()
    by_host = {host: settings.of_host(host).access() for host in urls}
    for host, files in by_host.items():
        try:
            if files != Access():
                files.context()
                files.authorization()
                files.proxy_authorization()
                files.signing()
        except NoAccess as error:
            raise SettingsError(f"{settings.place_of(host)}: {error}") from None
        address = parse_address(urls[host])
        if files.auth is not None and not address.tls:
            why = "the address of host %s is %s://, so our credentials for it travel unencrypted"
            logger.warning(why, host, address.scheme)
    return lambda host: by_host.get(host, Access())


def connectors(settings: Settings) -> Callable[[str, Clock], Connector]:
    """How each host is reached. SettingsError when a file can't be used now."""
    urls, access_to = settings.urls_by_host(), access(settings)

    def connect_to(host: str, clock: Clock) -> Connector:
        if host not in urls:
            raise SettingsError(f"no address is set for host {host!r}; this worker serves {', '.join(urls)}")
        return Connector(parse_address(urls[host]), settings.of_host(host).made_driver(), clock, access=access_to(host))

    return connect_to


@asynccontextmanager
async def _looked_at(
    settings: Settings, client: Client, readiness: Readiness, releases: ReleaseWatch
) -> AsyncIterator[None]:
    """If metrics are served, check every few seconds whether the worker can do its work."""
    if not settings.metrics_bind:
        yield
        return
    autocommit_engine = create_engine(settings.need_database_url(), pool_size=1, autocommit=True)
    hosts = list(settings.urls_by_host())
    try:
        watch = partial(watch_readiness, autocommit_engine, client, hosts, readiness, releases.troubles)
        async with running_during(watch):
            yield
    finally:
        autocommit_engine.dispose()


@asynccontextmanager
async def _present(presence: WorkerPresence) -> AsyncIterator[None]:
    """Report that the worker is at work, for other workers and for people, until it has left."""
    await asyncio.to_thread(presence.begin)

    async def say() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await asyncio.to_thread(presence.report)

    try:
        async with running_during(say):
            yield
    finally:
        await asyncio.to_thread(presence.leave)


async def _is_so_before(waited_for: Coroutine[Any, Any, None], stopping: asyncio.Event) -> bool:
    """Whether `waited_for` ended before the worker was told to leave."""
    first, leaving = asyncio.create_task(waited_for), asyncio.create_task(stopping.wait())
    await asyncio.wait({first, leaving}, return_when=asyncio.FIRST_COMPLETED)
    for task in (first, leaving):
        task.cancel()
    return not stopping.is_set()


@asynccontextmanager
async def _stopped_by_signals(stopping: asyncio.Event) -> AsyncIterator[asyncio.Event]:
    """A stop signal sets the event; only the main thread gets them."""
    loop = asyncio.get_running_loop()
    signals = stop_signals() if threading.current_thread() is threading.main_thread() else ()
    for each in signals:
        loop.add_signal_handler(each, stopping.set)
    try:
        yield stopping
    finally:
        for each in signals:
            loop.remove_signal_handler(each)


def main() -> None:
    refuse_arguments("worker.py")
    try:
        given = settings()
        log_to_stderr(given.log_format)
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(run(given))
    except Exception as error:  # noqa: BLE001 - the one place that turns every error into text
        leave_after(error, "worker.py")
    leave(0)
