"""The writer's other work on the database: it reads outstanding changes, records operators' acts and what
is the case, requests resyncs.

Temporal retries what records until it succeeds, so that is idempotent: an act has its own id.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection, Engine
from temporalio import activity

from activities import calling_writer
from oldhost_sync.oldhost.ledger import NOT_ASKED, Count
from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.machine.actions import LoadOutstanding, RecordConditions, Sweep
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.rules.operator_act import Actor, ActRecorded, Channel, OperatorAct, actor_of
from oldhost_sync.store.alerts import keep_writer_conditions
from oldhost_sync.store.audit import AuditEntry
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.intake.resync import oldest_unfinished, request_resync
from oldhost_sync.store.ledger.maria_ledger import read_fates
from oldhost_sync.store.ledger.operator_commands import awaits_count, decide
from oldhost_sync.store.outbox.outstanding_changes import (
    IdPage,
    emergencies_page,
    entity_page,
    outstanding_page,
)
from oldhost_sync.store.read.host_condition import PersistedState, blockers, read_ban, read_persisted_state
from oldhost_sync.store.transactions import run_in_transaction
from workflows import messages
from workflows.messages import NightlyResync, to_wire

# Before a further page of a backlog: each page costs this process some 0.1 s of CPU, in which sessions wait for their
# turn at the interpreter. With this pause, OldHost stays busy while 100,000 changes are read.
PAGE_PAUSE_SECONDS = 0.8
PARTS_READ_WITH_PAUSES = (Part.REST, Part.ENTITY)
RESTING_MAX = 3  # at once, of a worker's eight slots for activities of all hosts
PAGE_REFS = 2000
# A sweep's page, and how long ago a change must have been relayed to count as missed: a younger one may still arrive.
SWEEP_REFS = 1000
SWEEP_QUIET_MS = 30_000
# Far below the time after which a dead worker is noticed.
HEARTBEAT_SECONDS = 5.0
# Who asks for the nightly resync: Temporal's Schedule, not a person.
SCHEDULE = Actor("nightly-resync", Channel.TEMPORAL, verified=None)


def _not_told() -> None:
    return None


def _no_policy(_: str) -> None:
    return None


def _not_asked(_: str) -> Count:
    return NOT_ASKED


@dataclass(frozen=True, slots=True)
class RecordingActivities:
    """Works on the database. `policy`: each host's, for a writer that was started without any.

    `count`: asks what a host expects now, before a halt is resolved; `unhurried`: the engine for that. `act_keys`:
    verify the API's signatures of operators' acts. `lists_states`: whether the writer's search attributes are
    registered.
    """

    engine: Engine
    policy: Callable[[str], messages.WriterPolicy | None] = _no_policy
    count: Callable[[str], Count] = _not_asked
    unhurried: Callable[[Engine], AbstractContextManager[Engine]] = nullcontext
    lists_states: Callable[[], bool | None] = _not_told
    act_keys: Sequence[str] = ()
    rest: Callable[[float], None] = time.sleep
    resting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(RESTING_MAX))

    @activity.defn(no_thread_cancel_exception=True)
    def load_outstanding(self, action: LoadOutstanding) -> messages.Outstanding:
        """A page of a rebuild. The first one also has what else a new writer needs."""
        host, is_first = calling_writer.host(), action.after_id == 0

        def read(connection: Connection) -> messages.Outstanding:
            outstanding = _outstanding(_page(connection, host, action))
            if is_first:
                outstanding.lists_states = self.lists_states()
            if is_first and action.part is Part.EMERGENCIES:
                _add_persisted_state(outstanding, read_persisted_state(connection, host))
                outstanding.policy = self.policy(host)
            return outstanding

        if action.after_id and action.part in PARTS_READ_WITH_PAUSES:
            self._rest()
        return run_in_transaction(self.engine, read)

    @activity.defn(no_thread_cancel_exception=True)
    def sweep(self, action: Sweep) -> messages.Outstanding:
        """A page of the sweep. The first one also has what only an operator can end."""
        host = calling_writer.host()

        def read(connection: Connection) -> messages.Outstanding:
            page = outstanding_page(connection, host, action.after_id, SWEEP_REFS, quiet_ms=SWEEP_QUIET_MS)
            outstanding = _outstanding(page)
            if action.after_id == 0:
                outstanding.lists_states = self.lists_states()
                pause, outstanding.halted = blockers(connection, host)
                outstanding.paused = in_force(pause)
            return outstanding

        return run_in_transaction(self.engine, read)

    def _rest(self) -> None:
        """Unless RESTING_MAX rest already."""
        if self.resting.acquire(blocking=False):
            try:
                self.rest(PAGE_PAUSE_SECONDS)
            finally:
                self.resting.release()

    @activity.defn(no_thread_cancel_exception=True)
    def record_act(self, act: OperatorAct) -> ActRecorded:
        count, is_resolve = NOT_ASKED, act.action == "resolve"
        if is_resolve and run_in_transaction(self.engine, partial(awaits_count, host=act.host)):
            count = self.count(act.host)
        operator = actor_of(act, self.act_keys, now_ms=time.time_ns() // 1_000_000)
        with self.unhurried(self.engine) if is_resolve else nullcontext(self.engine) as engine:
            recorded = run_in_transaction(engine, lambda connection: decide(connection, act, count, operator))
        return replace(recorded, fates=read_fates(self.engine, act.host, act.in_doubt))

    @activity.defn(no_thread_cancel_exception=True)
    def record_conditions(self, told: RecordConditions) -> None:
        """Open and close the writer's alerts, all or none."""
        host = calling_writer.host()

        def keep(connection: Connection) -> None:
            keep_writer_conditions(connection, host, _with_cause_of_ban(connection, host, told))

        run_in_transaction(self.engine, keep)

    @activity.defn(no_thread_cancel_exception=True)
    def request_nightly_resync(self, nightly: NightlyResync) -> int:
        """The number of the resync; if one is still unfinished, its number, and no second one is requested."""

        def ask(connection: Connection) -> int:
            under_way = oldest_unfinished(connection, nightly.host)
            if under_way is not None:
                return under_way.resync_id
            everything = {"property_id": None, "unit_id": None}
            return request_resync(connection, nightly.host, **everything, operator=SCHEDULE, reason="every night")

        return run_in_transaction(self.engine, ask)


def _page(connection: Connection, host: str, action: LoadOutstanding) -> IdPage:
    if action.part is Part.EMERGENCIES:
        return emergencies_page(connection, host, action.after_id, PAGE_REFS)
    if action.entity is not None:
        return entity_page(connection, host, EntityKey(*action.entity), action.after_id, PAGE_REFS)
    return outstanding_page(connection, host, action.after_id, PAGE_REFS)


def _outstanding(page: IdPage) -> messages.Outstanding:
    return messages.Outstanding([to_wire(ref) for ref in page.refs], last_id=page.last_id, more=page.more)


def in_force(pause: AuditEntry | None) -> list[Any] | None:
    """The pause as the writer loads it."""
    return None if pause is None else [pause.operator, pause.reason, pause.until_ms]


def _add_persisted_state(outstanding: messages.Outstanding, persisted: PersistedState) -> None:
    outstanding.dead_letters = persisted.dead_letters
    outstanding.paused = in_force(persisted.pause)
    outstanding.ban_left_ms = persisted.ban_left_ms
    outstanding.conditions_sequence = persisted.conditions_sequence


def _with_cause_of_ban(connection: Connection, host: str, told: RecordConditions) -> RecordConditions:
    """The cause of a ban is in the ledger only."""
    ban = read_ban(connection, host) if any(each.kind == "ban" for each in told.conditions) else None
    if ban is None:
        return told
    conditions = [
        replace(each, why=f"{each.why} {ban.cause}") if each.kind == "ban" else each for each in told.conditions
    ]
    return replace(told, conditions=tuple(conditions))


@contextmanager
def unhurried(engine: Engine, seconds: float = limits.RESOLVE_STATEMENT_SECONDS_MAX) -> Iterator[Engine]:
    """For a resolve, which may concern a day's operations and then takes minutes, in one transaction: an engine for the
    same database on which a statement may take `seconds`. Meanwhile the activity heartbeats, so that a dead worker is
    noticed.
    """
    url = engine.url.render_as_string(hide_password=False)
    own = create_engine(url, pool_size=1, statement_seconds=seconds)
    over = threading.Event()
    heartbeats = threading.Thread(target=contextvars.copy_context().run, args=(_heartbeat_until, over), daemon=True)
    heartbeats.start()
    try:
        yield own
    finally:
        over.set()
        heartbeats.join()
        own.dispose()


def _heartbeat_until(over: threading.Event) -> None:
    while not over.wait(HEARTBEAT_SECONDS):
        activity.heartbeat()
