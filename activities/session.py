"""The activities that talk to OldHost: open a session, send, probe, close. Each host has at most one session here.

`open_session` runs on any worker; the others run on the queue of the worker that holds the session. They block a thread
of the worker's pool and heartbeat, so that a dead worker is noticed in seconds.
A heartbeat is not a lease: the ledger's epoch fences a session. Temporal never retries these activities.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial

from sqlalchemy.engine import Engine
from temporalio import activity

from activities import calling_writer
from oldhost_sync.drivers import mapping_code
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.connection import Clock
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.expected_nonce import FirstContact
from oldhost_sync.oldhost.ledger import Count, Ledger
from oldhost_sync.oldhost.recovery import Opened, Opening
from oldhost_sync.oldhost.refusals import ConnectionPace
from oldhost_sync.oldhost.session import Session
from oldhost_sync.oldhost.session_limits import SessionLimits
from oldhost_sync.oldhost.shared_connection import Exchange
from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeResult, Outcome
from oldhost_sync.policy.machine.actions import CloseSession, OpenSession, Probe, Send, StopSends
from oldhost_sync.policy.machine.events import (
    OpeningHalted,
    OpeningPostponed,
    OpeningResult,
    Probed,
    SendEnded,
    SessionOpened,
)
from oldhost_sync.settings import SettingsError
from oldhost_sync.store.audit import current_pause
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.ledger.halt import halted_by_count, note_count
from oldhost_sync.store.ledger.maria_ledger import MariaLedger
from oldhost_sync.store.ledger.reconciliation import MachineClock, steady_clock
from oldhost_sync.store.mappings import mapping_of
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.workers import SessionRecorder
from oldhost_sync.telemetry import WorkerMetrics
from oldhost_sync.traces.change_spans import operation_span
from oldhost_sync.traces.span import Span
from oldhost_sync.traces.tracer import Tracer

logger = logging.getLogger(__name__)

WATCH_SECONDS = 2.0
# How often a halted host is asked for its count.
HALT_CHECK_SECONDS = 60.0
# The first heartbeat, and the time between two: a delay of over two seconds has room within the timeout of six, and a
# send that waits for 3 s and then sends for 3 s has one.
FIRST_HEARTBEAT_SECONDS, HEARTBEAT_SECONDS = 3.0, 3.5
_LEAVING = OpeningPostponed(1000, "leaving")
# How soon a writer asks again that does not know of a pause, or whose worker lacks code; and one whose pause can't be
# read.
PAUSED_MS = 5_000
DATABASE_AWAY_MS = 1_000
NOT_HERE = "this worker does not hold the session"


@dataclass(slots=True)
class SessionActivities:
    """`connect_to`: how each host is reached, on the given clock; `limits`: each host's. `task_queue`: this worker's
    own, for its sessions' activities. `clock`: in seconds. `resent_types`: each host's LWW event types that may be sent
    twice.
    """

    engine: Engine
    connect_to: Callable[[str, Clock], Connector]
    task_queue: str
    owner: str
    limits: Callable[[str], SessionLimits]
    metrics: WorkerMetrics
    clock: Callable[[], float] = steady_clock
    tracer: Tracer | None = None
    resent_types: Callable[[str], frozenset[str]] = lambda _: frozenset()
    recorder: SessionRecorder = field(init=False)
    _sessions: dict[str, Session] = field(default_factory=dict)
    _connectors: dict[str, Connector] = field(default_factory=dict)
    _reply_timeout: dict[str, ReplyTimeout] = field(default_factory=dict)
    _first_contact: dict[str, FirstContact] = field(default_factory=dict)
    _pace: dict[str, ConnectionPace] = field(default_factory=dict)
    _halts_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _opens_no_more: threading.Event = field(default_factory=threading.Event)
    _leaving: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.recorder = SessionRecorder(self.engine, self.clock)

    # ---------------------------------------------------------------------------------------------- activities

    @activity.defn(no_thread_cancel_exception=True)
    def open_session(self, action: OpenSession) -> OpeningResult:
        host, heartbeat = calling_writer.host(), self._heartbeat()
        if self._opens_no_more.is_set():
            return _LEAVING
        if (postponed := self._postponed(host)) is not None:
            return postponed
        self._end_here(host, "a new session begins", heartbeat)  # one connection for each host
        opening = replace(self._opening(host, heartbeat), newest=action.newest)
        outcome = opening.open()
        result = self._opened(host, action, outcome) if isinstance(outcome, Opened) else outcome
        if isinstance(outcome, Opened) and self._leaving.is_set():  # the worker drained during the opening
            self._end_here(host, "this worker is leaving", heartbeat)
            self._write_down()
            return _LEAVING
        _log_opening(host, result)
        self.metrics.sessions.labels(host, result.state).inc()
        if isinstance(result, OpeningPostponed) and result.reason == "settle":
            self.metrics.settle_seconds.labels(host).inc(result.wait_ms / 1000)
        return result

    @activity.defn(no_thread_cancel_exception=True)
    def send(self, action: Send) -> SendEnded:
        host, heartbeat = calling_writer.host(), self._heartbeat()
        session = self._session(host, action.epoch)
        if session is None:
            waiting = [ChangeResult(change_id, WAITING) for change_id in action.change_ids]
            return SendEnded(waiting, session_open=False, reason=NOT_HERE)
        accepted = dict(zip(action.change_ids, action.accepted_at_ms, strict=False))
        ended = session.send(
            action.change_ids, heartbeat, sequence=action.sequence, accepted_at_ms=accepted, urgent=action.urgent
        )
        self._count(host, action.epoch, ended)
        return ended

    @activity.defn(no_thread_cancel_exception=True)
    def stop_sends(self, action: StopSends) -> None:
        session = self._session(calling_writer.host(), action.epoch)
        if session is not None:
            session.stop_sends()

    @activity.defn(no_thread_cancel_exception=True)
    def probe(self, action: Probe) -> Probed:
        session = self._session(calling_writer.host(), action.epoch)
        if session is None:
            return Probed(session_open=False, reason=NOT_HERE)
        return session.probe(self._heartbeat())

    @activity.defn(no_thread_cancel_exception=True)
    def close_session(self, action: CloseSession) -> None:
        host = calling_writer.host()
        session = self._session(host, action.epoch)
        if session is not None:
            self._end(host, session, "the writer closed it", self._heartbeat())

    # ----------------------------------------------------------------------------------- what the worker drives

    def watch(self) -> None:
        """Until `drain`, release connections that OldHost has closed or whose host another session has taken over."""
        while not self._leaving.wait(WATCH_SECONDS):
            for host, session in self._open_sessions():
                self._check(host, session)
            self._ask_halted_hosts()
            self._write_down()

    def _check(self, host: str, session: Session) -> None:
        """Check one session. An error must not stop the next check: a fenced connection must be released."""
        try:
            if self._connector(host).has_moved():
                session.close("the name of OldHost's address leads elsewhere now")
            if session.watch():
                return
            about = {"host": host, "epoch": session.epoch}
            logger.info("session of %s ended: %s", host, session.closed_because, extra=about)
            self.recorder.ended(host, session.epoch, session.closed_because)
            self._forget(host, session)
        except Exception:
            logger.exception("a check of the session of %s failed; it will be checked again", host)

    def _ask_halted_hosts(self) -> None:
        """Ask OldHost now and then whether the count that halted it fits the ledger again."""
        if self.clock() < self._halts_at:
            return
        self._halts_at = self.clock() + HALT_CHECK_SECONDS
        try:
            for host in run_in_transaction(self.engine, halted_by_count, attempts=1):
                if self.serves(host):
                    count = self.count(host)
                    run_in_transaction(self.engine, partial(note_count, host=host, count=count), attempts=1)
        except Exception:
            logger.exception("halted hosts can't be asked for their counts; they will be again")

    def open_no_more(self) -> None:
        """At SIGTERM: refuse further openings; running ones may finish, and open sessions go on."""
        self._opens_no_more.set()

    def drain(self) -> None:
        """Finish the operations on the wire, record them, close the connections; open nothing more."""
        self.open_no_more()
        self._leaving.set()
        sessions, why = self._open_sessions(), "this worker is leaving"
        for _, session in sessions:  # all together, since each may take long
            session.begin_no_more(why)
        for host, session in sessions:
            if not self._end(host, session, why, _no_heartbeat):
                logger.error("session of %s did not end in time; the next session waits for the settle time", host)
        self._write_down()

    # -------------------------------------------------------------------------------------------------- sessions

    def _heartbeat(self) -> Callable[[], None]:
        """Returns the heartbeat that running code calls often; few of them leave, since each costs an action.

        The heartbeat timeout runs from the activity's start, so an earlier first one would be useless.
        """
        due = self.clock() + FIRST_HEARTBEAT_SECONDS

        def heartbeat() -> None:
            nonlocal due
            if (now := self.clock()) >= due:
                due = now + HEARTBEAT_SECONDS
                activity.heartbeat()

        return heartbeat

    def _postponed(self, host: str) -> OpeningPostponed | None:
        """An operator's pause that the writer does not know, because Temporal's data were set back: the sweep tells it
        later, and nothing may be sent until then. Or a mapping whose code is not here, though another worker may have
        it; the first reservation has found out.
        """
        try:
            pause = run_in_transaction(self.engine, lambda connection: current_pause(connection, host), attempts=1)
            if pause is not None:
                return OpeningPostponed(PAUSED_MS, "pause", f"by {pause.operator}: {pause.reason}")
            if mapping_code.missed:
                mapping = run_in_transaction(self.engine, lambda connection: mapping_of(connection, host), attempts=1)
                if lacking := mapping.lacks():
                    return OpeningPostponed(PAUSED_MS, "mapping", lacking)
        except StoreError as error:
            return OpeningPostponed(DATABASE_AWAY_MS, "database", str(error))
        return None

    def _opening(self, host: str, heartbeat: Callable[[], None]) -> Opening:
        connector = self._connector(host)
        return Opening(
            ledger=self.ledger(host),
            connect=lambda: connector.connect(heartbeat),
            owner=self.owner,
            condition=threading.Condition(),
            clock=self.clock,
            limits=self.limits(host),
            heartbeat=heartbeat,
            reply_timeout=self._reply_timeout_of(host),
            first_contact=self._first_contact_with(host),
            pace=self._pace_of(host),
            capabilities=connector.capabilities,
            resent_types=self.resent_types(host),
            listener=None if self.tracer is None else partial(_trace, self.tracer, host),
        )

    def _connector(self, host: str) -> Connector:
        """One for each host, because it remembers the address that worked."""
        with self._lock:
            if host not in self._connectors:
                self._connectors[host] = self.connect_to(host, self.clock)
            return self._connectors[host]

    def _reply_timeout_of(self, host: str) -> ReplyTimeout:
        """One for each host, so that the next session knows what this one has learnt."""
        with self._lock:
            return self._reply_timeout.setdefault(host, ReplyTimeout())

    def _first_contact_with(self, host: str) -> FirstContact:
        with self._lock:
            return self._first_contact.setdefault(host, FirstContact())

    def _pace_of(self, host: str) -> ConnectionPace:
        with self._lock:
            return self._pace.setdefault(host, ConnectionPace())

    def ledger(self, host: str) -> Ledger:
        clock = MachineClock(self.clock)
        return MariaLedger(self.engine, host, timedelta(seconds=self.limits(host).settle_seconds), clock)

    def serves(self, host: str) -> bool:
        try:
            self._connector(host)
        except SettingsError:
            return False
        return True

    def count(self, host: str) -> Count:
        """What OldHost expects now, for an operator who resolves a halt, during which no session is open."""
        return self._opening(host, _no_heartbeat).count()

    def _opened(self, host: str, action: OpenSession, opened: Opened) -> SessionOpened:
        with self._lock:
            self._sessions[host] = opened.session
        self.recorder.opened(host, opened.session.epoch, self.owner, opened.event.expected_nonce)
        self.metrics.epoch.labels(host).set(opened.session.epoch)
        self.metrics.connection_open.labels(host).set(1)
        fates = {fate.change_id: fate for fate in opened.event.fates}
        self._count_used(host, opened.event.fates)
        missing = [change_id for change_id in action.in_doubt if change_id not in fates]
        for fate in self.ledger(host).fates(missing):
            fates[fate.change_id] = fate
        return replace(opened.event, task_queue=self.task_queue, fates=list(fates.values()))

    def _session(self, host: str, epoch: int) -> Session | None:
        with self._lock:
            session = self._sessions.get(host)
        return session if session is not None and session.epoch == epoch else None

    def _open_sessions(self) -> list[tuple[str, Session]]:
        with self._lock:
            return list(self._sessions.items())

    def _forget(self, host: str, session: Session) -> None:
        with self._lock:
            if self._sessions.get(host) is session:
                del self._sessions[host]
                self.metrics.connection_open.labels(host).set(0)

    def _end_here(self, host: str, why: str, heartbeat: Callable[[], None]) -> None:
        """End this host's session, if this worker has one."""
        with self._lock:
            session = self._sessions.pop(host, None)
        if session is not None:
            self._end(host, session, why, heartbeat)
            self.metrics.connection_open.labels(host).set(0)

    def _count(self, host: str, epoch: int, ended: SendEnded) -> None:
        for fate in ended.fates:
            if fate.outcome not in {BOUND, HELD, WAITING}:
                self.metrics.operations.labels(host, fate.outcome).inc()
        if any(fate.outcome == BOUND for fate in ended.fates):
            self.metrics.lost_replies.labels(host).inc()
            self.recorder.lost_reply(host, epoch)
        if ended.service_ms:
            self.metrics.service_seconds.labels(host).observe(ended.service_ms / 1000)
        if ended.refusal:
            self.metrics.refusals.labels(host, ended.refusal).inc()

    def _count_used(self, host: str, fates: Sequence[ChangeResult]) -> None:
        """Those whose fate the opening found by their used nonces."""
        for fate in fates:
            self.metrics.operations.labels(host, fate.outcome).inc()
            if fate.unproven and fate.outcome == Outcome.APPLIED:
                self.metrics.unconfirmed.labels(host).inc()

    def _end(self, host: str, session: Session, why: str, heartbeat: Callable[[], None]) -> bool:
        ended = session.drain(why, self.limits(host).drained_within_seconds, heartbeat)
        self.recorder.ended(host, session.epoch, session.closed_because)
        return ended

    def _write_down(self) -> None:
        """Write the records of sessions. They are only for people, so an error must not stop anything."""
        try:
            self.recorder.write()
        except Exception:
            logger.exception("the records of sessions can't be written")


def _trace(tracer: Tracer, host: str, done: Exchange) -> None:
    """Must run in the thread of the sending activity, since the span has its ids in Temporal's UI."""

    def spans() -> Iterator[Span]:
        operation, accepted_at_ms = done.operation, done.accepted_at_ms
        trace = None if accepted_at_ms is None else tracer.trace_of(host, operation.change_id, accepted_at_ms)
        if trace is not None:
            info = activity.info()
            run = {"temporalWorkflowID": info.workflow_id, "temporalRunID": info.workflow_run_id}
            yield operation_span(host, done, trace, tracer.now_ns(), run | {"temporalActivityID": info.activity_id})

    tracer.record(spans)


def _no_heartbeat() -> None:
    """No heartbeat: for work outside of an activity that heartbeats."""


def _log_opening(host: str, ended: OpeningResult) -> None:
    """Log only what changes the writer's state; openings are postponed for other reasons far too often."""
    match ended:
        case SessionOpened():
            about = {"host": host, "epoch": ended.epoch, "nonce": ended.expected_nonce}
            logger.info("session of %s is open, epoch %s; OldHost expects nonce %s", *about.values(), extra=about)
        case OpeningPostponed(reason="ban"):
            wait = {"host": host, "wait_ms": ended.wait_ms}
            logger.warning("OldHost bans %s for %s ms more", *wait.values(), extra=wait)
        case OpeningHalted():
            logger.error("sending to %s is halted: %s", host, ended.message, extra={"host": host})
