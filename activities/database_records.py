"""The workflow's database activities: record submissions and operators' decisions, read outstanding changes.

Temporal retries them until they succeed, so each is idempotent: a submission has its idempotency key, a decision its
own id.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from temporalio import activity

from activities.left_submissions import LeftSubmissions
from oldhost_sync.oldhost.recovery import NOT_ASKED, Count
from oldhost_sync.policy.act_signature import actor_of
from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.limits import ID_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.store.errors import InvalidChange, StoreError, TransactionContended
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change
from oldhost_sync.store.intake.invalid_submissions import record_refused
from oldhost_sync.store.intake.rules import class_of
from oldhost_sync.store.intake.validation import change_fields, check_name
from oldhost_sync.store.ledger.maria_ledger import read_fates
from oldhost_sync.store.ledger.operator_commands import awaits_count, decide
from oldhost_sync.store.ledger.writer_state import PersistedState, read_persisted_state, stops
from oldhost_sync.store.outbox.outstanding_changes import (
    IdPage,
    emergencies_page,
    entity_page,
    outstanding_page,
)
from oldhost_sync.store.outbox.relay_queue import older_are_unrelayed, with_property
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import error_code, is_the_values_fault, lock_wait, run_in_transaction
from workflows import messages
from workflows.messages import to_wire

# Before a further page of a backlog: each page costs this process some 0.1 s of CPU, in which sessions wait for their
# turn at the interpreter. With this pause, OldHost stays busy while 100,000 changes are read.
PAGE_PAUSE_SECONDS = 0.8
PARTS_READ_WITH_PAUSES = ("rest", "entity")
RESTING_MAX = 3  # at once, of a worker's eight slots for activities of all hosts
# For a row that is locked: a row is usually free again within a second. A batch waits this long in all, and its last
# wait may take some seconds longer, which is far below the activities' limits (`DATABASE_LIMIT`, `RECOVERY_HEARTBEAT`).
LOCK_WAIT_SECONDS = 1
LOCK_WAITS_SECONDS_MAX = 2.0
# The part whose first page also has the persisted state: pause, ban, dead letters.
BEGINNING = "emergencies"
SWEEP = "sweep"


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
    left: LeftSubmissions = field(default_factory=LeftSubmissions)

    @activity.defn(no_thread_cancel_exception=True)
    def record_submissions(self, request: messages.Submissions) -> list[messages.Recorded]:
        """One answer per item; an invalid change is stored as refused, with an alert, and never raises."""
        if request.original_run_id and request.original_run_id != activity.info().workflow_run_id:
            return [messages.Recorded(item.fallback_key, left=True, after_reset=True) for item in request.items]
        try:
            answers = self._recorded(request)
        except (StoreError, DBAPIError) as error:
            all_left = {item.fallback_key: True for item in request.items}
            why = str(error) if isinstance(error, StoreError) else f"MariaDB {error_code(error)}"
            self.left.note(self.engine, request.host, all_left, why)
            raise
        left = {item.fallback_key: one.left for item, one in zip(request.items, answers, strict=True)}
        self.left.note(self.engine, request.host, left)
        return answers

    def _recorded(self, request: messages.Submissions) -> list[messages.Recorded]:
        if request.may_leave:
            return record_or_leave(self.engine, request.host, request.items, set())
        return [
            run_in_transaction(self.engine, partial(record, host=request.host, item=item)) for item in request.items
        ]

    @activity.defn(no_thread_cancel_exception=True)
    def load_outstanding(self, page: messages.OutstandingPage) -> messages.Outstanding:
        def read(connection: Connection) -> messages.Outstanding:
            found = _page(connection, page)
            refs = [to_wire(ref) for ref in found.refs]
            outstanding = messages.Outstanding(refs, last_id=found.last_id, more=found.more)
            if page.after_id == 0:
                outstanding.lists_states = self.lists_states()
            if page.after_id == 0 and page.part == BEGINNING:
                _add_persisted_state(outstanding, read_persisted_state(connection, page.host))
                outstanding.policy = self.policy
            if page.after_id == 0 and page.part == SWEEP:
                pause, outstanding.halted = stops(connection, page.host)
                outstanding.paused = [pause.operator, pause.reason] if pause else None
            return outstanding

        if page.after_id and page.part in PARTS_READ_WITH_PAUSES:
            self._rest()
        return run_in_transaction(self.engine, read)

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


def record_or_leave(
    engine: Engine, host: str, items: Sequence[messages.Submission], blocked: set[tuple[str, str]]
) -> list[messages.Recorded]:
    """As `record`, each in its own transaction; a change that needs a locked row is left, with all later ones of its
    entity.

    Locked rows are waited for while the batch is younger than LOCK_WAITS_SECONDS_MAX, later ones not at all. `blocked`:
    the entities with left changes; this call adds to it.
    """
    answers: list[messages.Recorded] = []
    waits_until = time.monotonic() + LOCK_WAITS_SECONDS_MAX
    for item in items:
        entity = _entity_of(item.change)
        left = messages.Recorded(item.fallback_key, left=True)
        if entity in blocked:
            answers.append(left)
            continue
        try:
            seconds = LOCK_WAIT_SECONDS if time.monotonic() < waits_until else 0
            one = partial(_record_waiting, host=host, item=item, seconds=seconds)
            answers.append(run_in_transaction(engine, one, attempts=1))
        except TransactionContended:
            if entity is not None:
                blocked.add(entity)
            answers.append(left)
    return answers


def _record_waiting(connection: Connection, host: str, item: messages.Submission, seconds: int) -> messages.Recorded:
    with lock_wait(connection, seconds):
        return record(connection, host, item)


def _entity_of(change: Any) -> tuple[str, str] | None:
    """The entity that a change names, if it is a valid one."""
    if not isinstance(change, Mapping):
        return None
    entity_type, entity_id = change.get("entity_type"), change.get("entity_id")
    if not isinstance(entity_type, str) or not isinstance(entity_id, str):
        return None
    fits = storable(entity_type, ID_LENGTH_MAX) == entity_type and storable(entity_id, ID_LENGTH_MAX) == entity_id
    return (entity_type, entity_id) if fits else None


def record(connection: Connection, host: str, item: messages.Submission) -> messages.Recorded:
    """Record one submission. The workflow gets it from here, unless older changes of its entity are not relayed yet:
    then the relay brings it after them (invariant I4).

    It is not marked as relayed: this activity's result may be lost, and until its retry newer changes of the entity
    would be sent first. The relay signals it as well, and the writer recognizes it by its id.
    """
    savepoint = connection.begin_nested()
    try:
        recorded = _record_change(connection, host, item)
    except Exception as error:
        reason = _why_refused(error)
        if not reason:
            raise
        savepoint.rollback()
        return _refuse(connection, host, item, reason)
    savepoint.commit()
    return _answer(connection, host, recorded)


def _why_refused(error: Exception) -> str:
    """What is wrong with the change; empty if the error has another cause and the change may succeed later.

    An unforeseen error of a change must not be retried: it would recur for ever and block all later submissions.
    """
    if isinstance(error, InvalidChange):
        return str(error)
    if isinstance(error, DBAPIError):
        return f"the database can't hold it (MariaDB {error_code(error)})" if is_the_values_fault(error) else ""
    if isinstance(error, ValueError | TypeError | OverflowError):
        return f"it can't be recorded ({type(error).__name__})"
    return ""


def _record_change(connection: Connection, host: str, item: messages.Submission) -> RecordedChange:
    fields = _fields(item.change)
    if item.only_class and class_of(connection, host, fields["event_type"]).value != item.only_class:
        raise InvalidChange(f"{fields['event_type']} is not {item.only_class}; submit it as an ordinary change")
    if fields["idempotency_key"] is None:
        fields["idempotency_key"] = item.fallback_key
    return record_change(connection, host=host, source=item.source, **fields)


def _answer(connection: Connection, host: str, recorded: RecordedChange) -> messages.Recorded:
    if recorded.ref is None:
        return messages.Recorded(
            recorded.idempotency_key,
            recorded.change_id or 0,
            outcome=recorded.outcome or recorded.sync_status,
            duplicate=recorded.duplicate,
        )
    ref = with_property(connection, host, recorded.ref)
    by_relay = recorded.outcome is None and older_are_unrelayed(connection, host, ref)
    return messages.Recorded(
        recorded.idempotency_key,
        ref.change_id,
        to_wire(ref),
        processed=recorded.outcome is not None,
        nonce=recorded.nonce,
        by_relay=by_relay,
        outcome=recorded.outcome or "PENDING",
        duplicate=recorded.duplicate,
    )


def _refuse(connection: Connection, host: str, item: messages.Submission, reason: str) -> messages.Recorded:
    """Store the refused change under the workflow's own key: the application's may belong to another change."""
    reason = storable(reason, TEXT_LENGTH_MAX)  # it is returned as an error's text, which must be Unicode
    if not item.only_class:  # the sender of `apply_now` gets the reason at once; a signal's sender has only this row
        record_refused(
            connection,
            host=host,
            idempotency_key=item.fallback_key,
            change=item.change,
            reason=reason,
            source=item.source,
        )
    return messages.Recorded(item.fallback_key, refused=reason)


def _fields(change: Any) -> dict[str, Any]:
    """The fields for `record_change` from any JSON value; InvalidChange says what is wrong. A text is the workflow's:
    why it could not take what arrived (`workflows/intake.py`).
    """
    if isinstance(change, str):
        raise InvalidChange(change or "a change must be a JSON object")
    given = change_fields(change)
    check_name("event_type", given["event_type"])  # its class is read from the database before the other checks
    return given
