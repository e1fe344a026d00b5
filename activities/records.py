"""The writer's other work on the database: it reads outstanding changes, records operators' acts, requests resyncs.

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

from sqlalchemy.engine import Connection, Engine
from temporalio import activity

from oldhost_sync.oldhost.ledger import NOT_ASKED, Count
from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.rules.operator_act import Actor, Channel, actor_of
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
from oldhost_sync.store.read.live_load import PersistedState, blockers, read_persisted_state
from oldhost_sync.store.transactions import run_in_transaction
from workflows import messages
from workflows.messages import NightlyResync, to_wire

# Before a further page of a backlog: each page costs this process some 0.1 s of CPU, in which sessions wait for their
# turn at the interpreter. With this pause, OldHost stays busy while 100,000 changes are read.
PAGE_PAUSE_SECONDS = 0.8
PARTS_READ_WITH_PAUSES = ("rest", "entity")
RESTING_MAX = 3  # at once, of a worker's eight slots for activities of all hosts
# The part whose first page also has the persisted state: pause, ban, dead letters.
BEGINNING = "emergencies"
SWEEP = "sweep"
# Far below the time after which a dead worker is noticed.
HEARTBEAT_SECONDS = 5.0
# Who asks for the nightly resync: Temporal's Schedule, not a person.
SCHEDULE = Actor("nightly-resync", Channel.TEMPORAL, verified=None)


def _not_told() -> None:
    return None


def _not_asked(_: str) -> Count:
    return NOT_ASKED


@dataclass(frozen=True, slots=True)
class RecordingActivities:
    """Works on the database. `policy`: the settings for a writer that was started without any.

    `count`: asks what a host expects now, before a halt is resolved; `unhurried`: the engine for that. `act_keys`:
    verify the API's signatures of operators' acts. `lists_states`: whether the writer's search attributes are
    registered.
    """

    engine: Engine
    policy: messages.WriterPolicy | None = None
    count: Callable[[str], Count] = _not_asked
    unhurried: Callable[[Engine], AbstractContextManager[Engine]] = nullcontext
    lists_states: Callable[[], bool | None] = _not_told
    act_keys: Sequence[str] = ()
    rest: Callable[[float], None] = time.sleep
    resting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(RESTING_MAX))

    @activity.defn(no_thread_cancel_exception=True)
    def load_outstanding(self, page: messages.OutstandingPage) -> messages.Outstanding:
        def read_page(connection: Connection) -> messages.Outstanding:
            read = _page(connection, page)
            refs = [to_wire(ref) for ref in read.refs]
            outstanding = messages.Outstanding(refs, last_id=read.last_id, more=read.more)
            if page.after_id == 0:
                outstanding.lists_states = self.lists_states()
            if page.after_id == 0 and page.part == BEGINNING:
                _add_persisted_state(outstanding, read_persisted_state(connection, page.host))
                outstanding.policy = self.policy
            if page.after_id == 0 and page.part == SWEEP:
                pause, outstanding.halted = blockers(connection, page.host)
                outstanding.paused = [pause.operator, pause.reason] if pause else None
            return outstanding

        if page.after_id and page.part in PARTS_READ_WITH_PAUSES:
            self._rest()
        return run_in_transaction(self.engine, read_page)

    def _rest(self) -> None:
        """Unless RESTING_MAX rest already."""
        if self.resting.acquire(blocking=False):
            try:
                self.rest(PAGE_PAUSE_SECONDS)
            finally:
                self.resting.release()

    @activity.defn(no_thread_cancel_exception=True)
    def record_decision(self, decision: messages.OperatorAct) -> messages.ActRecorded:
        act, count = decision, NOT_ASKED
        if act.action == "resolve" and run_in_transaction(self.engine, partial(awaits_count, host=act.host)):
            count = self.count(act.host)
        operator = actor_of(act, self.act_keys, now_ms=time.time_ns() // 1_000_000)
        with self.unhurried(self.engine) if act.action == "resolve" else nullcontext(self.engine) as engine:
            recorded = run_in_transaction(engine, lambda connection: decide(connection, act, count, operator))
        return replace(recorded, fates=read_fates(self.engine, act.host, act.unsettled))

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


def _page(connection: Connection, page: messages.OutstandingPage) -> IdPage:
    match page.part:
        case "emergencies":
            return emergencies_page(connection, page.host, page.after_id, page.limit)
        case "rest":
            return outstanding_page(connection, page.host, page.after_id, page.limit)
        case "entity" if page.entity:
            return entity_page(connection, page.host, EntityKey(*page.entity), page.after_id, page.limit)
    return outstanding_page(connection, page.host, page.after_id, page.limit, quiet_ms=page.quiet_ms)


def _add_persisted_state(outstanding: messages.Outstanding, found: PersistedState) -> None:
    outstanding.dead_letters = found.dead_letters
    outstanding.paused = [found.pause.operator, found.pause.reason] if found.pause else None
    outstanding.ban_left_ms = found.ban_left_ms
    outstanding.alert_sequence = found.alert_sequence


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
