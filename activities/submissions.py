"""Changes that applications sent to the writer itself: recorded in the outbox, each in its own transaction.

Temporal retries this until it succeeds, and it is idempotent, since each submission has an idempotency key. An invalid
change is recorded as refused and never raises. One that can't be recorded for long is reported: the writer tries it
again and again, and whoever sent the signal got no answer that could say so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from temporalio import activity

from activities import calling_writer
from oldhost_sync.policy.limits import ID_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.rules.conditions import Conditions, Fact
from oldhost_sync.store.alerts import keep_condition
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import InvalidChange, StoreError, TransactionContended, error_code, is_the_values_fault
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change, record_refused
from oldhost_sync.store.intake.rules import class_of
from oldhost_sync.store.intake.validation import change_fields, check_name
from oldhost_sync.store.outbox.outstanding_changes import older_are_unrelayed, with_property
from oldhost_sync.store.transactions import lock_wait, run_in_transaction
from workflows import messages
from workflows.messages import to_wire

logger = logging.getLogger(__name__)

# For a row that is locked: a row is usually free again within a second. A batch waits this long in all, and its last
# wait may take some seconds longer, which is far below the activities' limits (`DATABASE_LIMIT`, `RECOVERY_HEARTBEAT`).
LOCK_WAIT_SECONDS = 1
LOCK_WAITS_SECONDS_MAX = 2.0
# Of those that are left the oldest are forgotten beyond this.
KNOWN_MAX = 10_000
# One that is left is tried again within half a minute: after this, another worker has recorded it.
SEEN_AGAIN_SECONDS = 120.0
KIND, CAUSE = "writes-refused", "writes-refused:signals"
LOCKED = "another transaction holds rows that they need"


class LeftSubmissions:
    """Signalled changes that this worker can't record for long: people are told, also if they are recorded by then.

    `clock`: seconds, monotonic. Safe to use from several threads.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._conditions = Conditions()
        # By host and key, why, and when it was seen last.
        self._left: dict[str, dict[str, tuple[str, float]]] = {}

    def note(self, engine: Engine, host: str, left: Mapping[str, bool], why: str = LOCKED) -> None:
        """By the submissions' keys, whether each was left, and why. Opens and closes the alert."""
        now = self._clock()
        with self._lock:
            self._report(host, left, why, now)
            steps = self._conditions.due(now)
        for step in steps:
            try:
                run_in_transaction(engine, partial(keep_condition, step=step))
            except (StoreError, DBAPIError) as error:
                what = "the alert about changes that can't be recorded can't be stored"
                logger.warning("%s (%s)", what, type(error).__name__)
                return
            with self._lock:
                self._conditions.written(step, now)

    def _report(self, host: str, left: Mapping[str, bool], why: str, now: float) -> None:
        before = self._left.get(host, {})
        known = {key: seen for key, seen in before.items() if key in left or now < seen[1] + SEEN_AGAIN_SECONDS}
        known |= {key: (why, now) for key, is_left in left.items() if is_left}
        known = dict([*known.items()][-KNOWN_MAX:])
        ours = [key for key in left if key in known]
        self._left[host] = {key: seen for key, seen in known.items() if left.get(key, True)}
        if ours:  # what is recorded now, too, was left until now
            words = why if any(left.values()) else known[ours[0]][0]
            message = f"Changes that applications signalled could not be recorded for half a minute: {words}"
            self._conditions.found(host, KIND, Fact(message, count=len(known), afterwards=True), now, CAUSE)
        if before and not self._left[host]:
            self._conditions.found(host, KIND, None, now, CAUSE)


@dataclass(frozen=True, slots=True)
class SubmissionActivities:
    """Works on the database. `left`: what this worker could not record yet."""

    engine: Engine
    left: LeftSubmissions = field(default_factory=LeftSubmissions)

    @activity.defn(no_thread_cancel_exception=True)
    def record_submissions(self, request: messages.Submissions) -> list[messages.Recorded]:
        """One answer per item; an invalid change is stored as refused, with an alert, and never raises."""
        if request.original_run_id and request.original_run_id != activity.info().workflow_run_id:
            return [messages.Recorded(item.fallback_key, left=True, after_reset=True) for item in request.items]
        host = calling_writer.host()
        try:
            answers = self._recorded(host, request)
        except (StoreError, DBAPIError) as error:
            all_left = {item.fallback_key: True for item in request.items}
            why = str(error) if isinstance(error, StoreError) else f"MariaDB {error_code(error)}"
            self.left.note(self.engine, host, all_left, why)
            raise
        left = {item.fallback_key: answer.left for item, answer in zip(request.items, answers, strict=True)}
        self.left.note(self.engine, host, left)
        return answers

    def _recorded(self, host: str, request: messages.Submissions) -> list[messages.Recorded]:
        if request.may_leave:
            return record_or_leave(self.engine, host, request.items, set())
        return [run_in_transaction(self.engine, partial(record, host=host, item=item)) for item in request.items]


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
            waiting = partial(_record_waiting, host=host, item=item, seconds=seconds)
            answers.append(run_in_transaction(engine, waiting, attempts=1))
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
        outcome=recorded.outcome or messages.WAITING,
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
