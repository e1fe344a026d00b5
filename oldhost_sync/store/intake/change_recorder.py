"""Record a change: shadow state and outbox are written in one transaction, the application's own. At the end: changes
that came by a signal, and corrected copies of dead letters.

The order of the statements matters. First the entity's shadow row is locked (created when new). Then the key is taken
in `submitted_keys`. Under the entity's lock the outbox gives out the id, so for one entity a larger id is the newer
change and was committed later (invariant I4, trap 19: no clock decides). Last the shadow is written, with the new id in
it.

The transaction is the application's, with any isolation level, and may stay open for long. So that it delays no other
entity, no statement here locks a gap: rows are inserted, or they exist and are found by their whole primary key. In
particular, nothing looks for a key that may be missing, and only a primary key decides whether a key is new: what finds
or meets a row in another unique index locks the gap before it. No statement here is a consistent read, either: it would
fix the transaction's view, and with `innodb_snapshot_isolation` whatever changes from then on would end the transaction
with an error (MariaDB 1020).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError

from oldhost_sync.fields.scalar import InvalidField, read_id, read_name
from oldhost_sync.policy import limits
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX
from oldhost_sync.policy.rules.alert_cause import cause_of
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.callers_connection import Statements, statements_of
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import DUPLICATE_KEY, NULL_REFUSED, IdempotencyConflict, TransactionNeeded, error_code
from oldhost_sync.store.intake.current_trace import current_traceparent
from oldhost_sync.store.intake.rules import default_class, require_hosts
from oldhost_sync.store.intake.shadow import UNIT, shadow_of, unless_autocommit, write_shadow
from oldhost_sync.store.intake.validation import Acceptable, accept, canonical_json
from oldhost_sync.store.mappings import DEFINITION, check_mapped
from oldhost_sync.store.outbox.outstanding_changes import as_ref
from oldhost_sync.store.outbox.pending_fates import JOIN_PENDING, fate_columns
from oldhost_sync.store.tables import outbox_events, scheduled_changes

PENDING = "PENDING_SYNC"
SCHEDULED = "SCHEDULED"
CANCELLED = "CANCELLED"

# What the application submits, in the order of `common_values`.
_SUBMITTED = (
    "host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, source, occurred_at, traceparent"
)
_SUBMITTED_VALUES = ", ".join(["%s"] * 10)
INSERT_CHANGE = f"INSERT INTO outbox_events ({_SUBMITTED}, priority_class, created_at) VALUES "
INSERT_SCHEDULED = f"INSERT INTO scheduled_changes ({_SUBMITTED}, not_before, created_at) VALUES "
CHANGE_ROW = f"({_SUBMITTED_VALUES}, %s, UTC_TIMESTAMP(6))"
INSERT_ONE = (
    f"{INSERT_CHANGE}({_SUBMITTED_VALUES}, COALESCE("
    "(SELECT priority_class FROM event_rules WHERE host = %s AND event_type = %s), "
    # NULL, which the column refuses, for a host without any rule: it is not registered.
    "CASE WHEN EXISTS (SELECT 1 FROM event_rules WHERE host = %s) THEN %s END), UTC_TIMESTAMP(6))"
)
# Not INSERT … SELECT: its lock on the table's ids would delay the others, who then get error 1467.
SCHEDULE_ONE = (
    f"{INSERT_SCHEDULED}({_SUBMITTED_VALUES}, "
    "IF(%s > UTC_TIMESTAMP(6), %s, NULL), "
    "CASE WHEN EXISTS (SELECT 1 FROM event_rules WHERE host = %s) THEN UTC_TIMESTAMP(6) END)"
)
_CHANGE_TAKEN = f" RETURNING id, created_at, priority_class, {DEFINITION}"
_SCHEDULE_TAKEN = f" RETURNING id, created_at, {DEFINITION}"
TAKE_KEY = (
    f"INSERT INTO submitted_keys (host, idempotency_key, is_scheduled) VALUES (%s, %s, {unless_autocommit('%s')})"
)
KEY_HAS_ROW = "UPDATE submitted_keys SET row_id = %s WHERE host = %s AND idempotency_key = %s"
SAVE, ROLL_BACK = "SAVEPOINT oldhost_sync", "ROLLBACK TO SAVEPOINT oldhost_sync"
# Before a statement: a row that another transaction has locked raises an error at once.
NO_WAIT = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "
# The columns that make up the first answer.
CHANGE_COLUMNS = "idempotency_key, id, request_hash, priority_class, created_at, outcome, nonce"
SCHEDULED_COLUMNS = "idempotency_key, id, request_hash, change_id, created_at, cancelled_at"
ROW_OF_KEY = (
    "SELECT is_scheduled, row_id FROM submitted_keys WHERE host = %s AND idempotency_key = %s LOCK IN SHARE MODE"
)
CHANGE_OF_ID = f"SELECT {CHANGE_COLUMNS} FROM outbox_events WHERE id = %s LOCK IN SHARE MODE"
SCHEDULE_OF_ID = f"SELECT {SCHEDULED_COLUMNS} FROM scheduled_changes WHERE id = %s LOCK IN SHARE MODE"
# Locks a gap. Only for a row that was written without taking its key.
CHANGE_OF_KEY = (
    f"SELECT {CHANGE_COLUMNS} FROM outbox_events WHERE host = %s AND idempotency_key = %s LOCK IN SHARE MODE"
)


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """The result of recording a change. `ref` and `change_id` are None for one that is scheduled.

    `sync_status` is what the application shows: PENDING_SYNC, or SCHEDULED (CANCELLED) while the shadow is unchanged.
    `duplicate`: the key was known and this is the first answer again; then `outcome` and `nonce` give its fate, if any.
    """

    change_id: int | None
    scheduled_id: int | None
    idempotency_key: str
    ref: ChangeRef | None
    accepted_at: datetime
    sync_status: str
    duplicate: bool = False
    outcome: str | None = None
    nonce: int | None = None


def record_change(
    connection: object,
    *,
    host: str,
    entity_type: str,
    entity_id: str,
    event_type: str,
    payload: Mapping[str, Any],
    idempotency_key: str | None = None,
    occurred_at: datetime | str | None = None,
    not_before: datetime | str | None = None,
    source: str = "python",
    schema: str | None = None,
    traceparent: str | None = None,
) -> RecordedChange:
    """Record one change in the caller's transaction; it takes effect when the caller commits.

    `connection`: of SQLAlchemy (a Session, too), of Django, or of a driver by PEP 249. `schema`: where our tables are;
    None: in the connection's own. `payload`: a JSON object. Times have a time zone, and may be text (ISO 8601). Without
    a key, one is generated. `traceparent`: the caller's span, by W3C; None: OpenTelemetry's current one, if the
    application has loaded that; what is not valid, as an empty text, is as none. Same key and same change: the first
    answer; same key and a different change: IdempotencyConflict. InvalidChange for a change outside the limits, or one
    that the host's mapping makes no operation of; UnknownHost for a host that is not registered. The transaction stays
    usable after these. TransactionNeeded for a connection in autocommit mode. Deadlocks are raised as the driver's
    errors: use `run_in_transaction`.
    """
    with statements_of(connection, schema) as statements:
        change = accept(
            host, entity_type, entity_id, event_type, payload, idempotency_key, occurred_at, not_before, source,
            traceparent=current_traceparent() if traceparent is None else traceparent,
        )  # fmt: skip
        if change.not_before is not None:
            scheduled = _record_scheduled(statements, change)
            if scheduled is not None:
                return scheduled
        return record_accepted(statements, change)


@contextmanager
def all_or_nothing(connection: Statements) -> Iterator[None]:
    """If it raises, nothing of it remains, even if the caller catches the error and commits."""
    connection.exec_driver_sql(SAVE)
    try:
        yield
    except BaseException as error:
        try:
            connection.exec_driver_sql(ROLL_BACK)
        except (DBAPIError, InvalidRequestError) as gone:
            # After a deadlock there is no savepoint: the server has rolled back the whole transaction. A known key is
            # answered within it, so there it counts that it is gone.
            if isinstance(error, IntegrityError):
                raise gone from error
        raise


def transaction_needed() -> TransactionNeeded:
    """The caller could not take a change back, and the entity's lock would be gone before the change has its id."""
    return TransactionNeeded("a change needs a transaction: use an engine without isolation_level AUTOCOMMIT")


def record_accepted(
    connection: Statements, change: Acceptable, *, has_key: bool = False, lock_wait: str = ""
) -> RecordedChange:
    """Record `change` now. `has_key`: its key was taken for it when it was scheduled.

    `lock_wait`: NO_WAIT, or empty for the connection's own lock wait timeout.
    """
    try:
        with all_or_nothing(connection):
            return _write(connection, change, has_key, lock_wait)
    except IntegrityError as error:
        if error_code(error) == DUPLICATE_KEY:
            # A key that was taken when the change was scheduled can only be another change's, in the outbox.
            return (
                _recorded_before(connection, change, lock_wait)
                if has_key
                else _first_answer(connection, change, lock_wait)
            )
        if error_code(error) == NULL_REFUSED:
            require_hosts(connection, [change.host], named_by="host")
        raise


def _write(connection: Statements, change: Acceptable, has_key: bool, lock_wait: str) -> RecordedChange:
    # Locked until the end of the transaction; a new entity gets an empty row.
    entity = (change.entity_type, change.entity_id)
    shadow = shadow_of(entity)
    with _refused_in_autocommit():
        connection.exec_driver_sql(lock_wait + shadow.lock, shadow.key_of(change.host, entity))
    if not has_key:
        _take_key(connection, change, lock_wait, scheduled=False)
    row = connection.exec_driver_sql(
        lock_wait + INSERT_ONE + _CHANGE_TAKEN, (*_change_values(change), change.host)
    ).one()
    change_id, accepted_at, priority_class, definition = row
    if not has_key:  # one that was scheduled is accepted: if it can't be sent by now, it becomes a dead letter
        check_mapped(definition, change)
        connection.exec_driver_sql(KEY_HAS_ROW, (change_id, change.host, change.idempotency_key))
    write_shadow(connection, change, change_id)
    return newly_recorded(change, change_id, priority_class, accepted_at)


def _take_key(connection: Statements, change: Acceptable, lock_wait: str, *, scheduled: bool) -> None:
    """Waits for another transaction that is taking the same key."""
    values = (change.host, change.idempotency_key, int(scheduled))
    with _refused_in_autocommit():
        connection.exec_driver_sql(lock_wait + TAKE_KEY, values)


@contextmanager
def _refused_in_autocommit() -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        if error_code(error) == NULL_REFUSED:
            raise transaction_needed() from None
        raise


def newly_recorded(change: Acceptable, change_id: int, priority_class: str, accepted_at: datetime) -> RecordedChange:
    ref = _ref(change_id, priority_class, change, accepted_at)
    return RecordedChange(change_id, None, change.idempotency_key, ref, accepted_at.replace(tzinfo=UTC), PENDING)


def _record_scheduled(connection: Statements, change: Acceptable) -> RecordedChange | None:
    """Schedule `change`; None when it is due already, by the database's clock, or its host is not registered."""
    values = (*common_values(change), stored(change.not_before), stored(change.not_before), change.host, change.host)
    try:
        with all_or_nothing(connection):
            _take_key(connection, change, "", scheduled=True)
            scheduled_id, accepted_at, definition = connection.exec_driver_sql(
                SCHEDULE_ONE + _SCHEDULE_TAKEN, values
            ).one()
            check_mapped(definition, change)
            connection.exec_driver_sql(KEY_HAS_ROW, (scheduled_id, change.host, change.idempotency_key))
    except IntegrityError as error:
        if error_code(error) == DUPLICATE_KEY:
            return _first_answer(connection, change, "")
        if error_code(error) == NULL_REFUSED:
            return None
        raise
    return newly_scheduled(change, scheduled_id, accepted_at)


def newly_scheduled(change: Acceptable, scheduled_id: int, accepted_at: datetime) -> RecordedChange:
    accepted = accepted_at.replace(tzinfo=UTC)
    return RecordedChange(None, scheduled_id, change.idempotency_key, None, accepted, SCHEDULED)


def _first_answer(connection: Statements, change: Acceptable, lock_wait: str) -> RecordedChange:
    """The answer of the change that has this key."""

    def row_of(query: str, *values: object) -> Any:
        return connection.exec_driver_sql(lock_wait + query, values).one_or_none()

    place = row_of(ROW_OF_KEY, change.host, change.idempotency_key)
    if place is not None and place.is_scheduled and (scheduled := row_of(SCHEDULE_OF_ID, place.row_id)) is not None:
        return earlier_schedule(change, scheduled)
    known = None if place is None or place.is_scheduled else row_of(CHANGE_OF_ID, place.row_id)
    return _recorded_before(connection, change, lock_wait) if known is None else earlier_change(change, known)


def _recorded_before(connection: Statements, change: Acceptable, lock_wait: str) -> RecordedChange:
    key = (change.host, change.idempotency_key)
    return earlier_change(change, connection.exec_driver_sql(lock_wait + CHANGE_OF_KEY, key).one())


def earlier_change(change: Acceptable, known: Row[*tuple[Any, ...]]) -> RecordedChange:
    """The first answer of a key in the outbox; IdempotencyConflict if a different change has that key."""
    check_same(change, known.request_hash)
    ref = _ref(known.id, known.priority_class, change, known.created_at)
    accepted_at = known.created_at.replace(tzinfo=UTC)
    return RecordedChange(
        known.id, None, change.idempotency_key, ref, accepted_at, PENDING, True, known.outcome, known.nonce
    )


def earlier_schedule(change: Acceptable, known: Row[*tuple[Any, ...]]) -> RecordedChange:
    """The first answer of a key in `scheduled_changes`; IdempotencyConflict if a different change has that key."""
    check_same(change, known.request_hash)
    accepted_at = known.created_at.replace(tzinfo=UTC)
    status = SCHEDULED if known.cancelled_at is None else CANCELLED
    return RecordedChange(known.change_id, known.id, change.idempotency_key, None, accepted_at, status, duplicate=True)


def check_same(change: Acceptable, request_hash: bytes) -> None:
    if request_hash != change.request_hash:
        raise IdempotencyConflict(
            f"idempotency key {change.idempotency_key} was used for another change; use a new key for a new change"
        )


def common_values(change: Acceptable) -> tuple[Any, ...]:
    named = (change.host, change.idempotency_key, change.request_hash)
    about = (change.entity_type, change.entity_id, change.event_type, change.payload)
    return (*named, *about, change.source, stored(change.occurred_at), change.traceparent)


def _change_values(change: Acceptable) -> tuple[Any, ...]:
    default = default_class(change.event_type).value
    return (*common_values(change), change.host, change.event_type, change.host, default)


def stored(moment: datetime | None) -> datetime | None:
    """The moment as a DATETIME column stores it: UTC, without a zone (the driver would silently drop another zone)."""
    return None if moment is None else moment.astimezone(UTC).replace(tzinfo=None)


def _ref(change_id: int, priority_class: str, change: Acceptable, accepted_at: datetime) -> ChangeRef:
    return as_ref((change_id, priority_class, change.entity_type, change.entity_id, change.event_type, accepted_at))


STATUS_CHANGED = "unit_status_changed"

DETAILS_CHANGED = "unit_details_changed"

# The key of the second change that one request makes.
STATUS_KEY_SUFFIX = ":status"


def status_change(
    *, host: str, unit_id: str, status: str, key: str, source: str, traceparent: str | None = None
) -> Acceptable:
    """The change for a new status; InvalidChange when it is outside the limits."""
    payload = {"status": status}
    key_length_max = IDEMPOTENCY_KEY_LENGTH_MAX  # it may be derived from the one that was given
    return accept(
        host, UNIT, unit_id, STATUS_CHANGED, payload, key, None, None, source, key_length_max, traceparent
    )  # fmt: skip


def details_change(
    *,
    host: str,
    unit_id: str,
    name: str,
    property_id: str | None,
    key: str,
    source: str,
    traceparent: str | None = None,
) -> Acceptable:
    """The change for a unit's details; InvalidChange when they are outside the limits."""
    payload = {"name": name, "property_id": property_id}
    return accept(
        host, UNIT, unit_id, DETAILS_CHANGED, payload, key, None, None, source, traceparent=traceparent
    )  # fmt: skip


def record_details(
    connection: Connection,
    details: Acceptable,
    status: Acceptable | None,
    *,
    lock_wait: str = "",
) -> list[RecordedChange]:
    """Record a unit's details, and its status when that is given; both or none.

    The key of `status` is that of `details` with :data:`STATUS_KEY_SUFFIX`. Also raises IdempotencyConflict if the key
    was used for the same details with a status and is now used without one, or the other way round.
    """
    record = partial(record_accepted, connection, lock_wait=lock_wait)
    first = record(details)
    status_key = details.idempotency_key + STATUS_KEY_SUFFIX
    if first.duplicate and _is_known(connection, details.host, status_key) != (status is not None):
        raise IdempotencyConflict(
            f"idempotency key {details.idempotency_key} was used with another body; use a new key for a new change"
        )
    if status is None:
        return [first]
    return [first, record(status)]


def _is_known(connection: Connection, host: str, key: str) -> bool:
    query = select(outbox_events.c.id).where(outbox_events.c.host == host, outbox_events.c.idempotency_key == key)
    return connection.execute(query).first() is not None


# ---------------------------------------------------------------------------------------- changes that came by a signal

# A signal has no answer, so an invalid change would be lost. It becomes an outbox row with the outcome REFUSED, and one
# alert for all that are refused for the same reason. The row takes its key as every other one does, is never relayed
# and not counted in the books, and keeps only what helps to find the sender's mistake.

UNKNOWN = "unknown"
SUBMITTED_LENGTH_MAX = 2000
_INSERT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, source, created_at, processed_at, outcome, error) VALUES (%s, %s, %s, %s, %s, %s, %s, 'TXN', %s, "
    "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 'REFUSED', %s) RETURNING id"
)


def record_refused(
    connection: Connection, *, host: str, idempotency_key: str, change: Any, reason: str, source: str
) -> int | None:
    """Record a refused submission under `idempotency_key`, a key that we generated; None if it is recorded already."""
    shown = _shown(change)
    fields = change if isinstance(change, Mapping) else {}
    key = (host, idempotency_key[: limits.IDEMPOTENCY_KEY_LENGTH_MAX])
    values = (
        *key,
        sha256(shown.encode()).digest(),
        _name(fields.get("entity_type")),
        _text(fields.get("entity_id")),
        _name(fields.get("event_type")),
        json.dumps({"submitted": shown}),
        source[: limits.SOURCE_LENGTH_MAX],
        storable(reason, limits.TEXT_LENGTH_MAX),
    )
    try:
        with all_or_nothing(connection):
            connection.exec_driver_sql(TAKE_KEY, (*key, 0))
            change_id = int(connection.exec_driver_sql(_INSERT, values).scalar_one())
            connection.exec_driver_sql(KEY_HAS_ROW, (change_id, *key))
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        return None
    message, cause = f"A submitted change was refused: {reason}", f"submission-refused:{cause_of(reason)}"
    raise_alert(
        connection, host, "submission-refused", "warning", message, dedupe_key=cause, change_id=change_id, adds=True
    )
    return change_id


def _shown(change: Any) -> str:
    try:
        return json.dumps(change, default=str, skipkeys=True)[:SUBMITTED_LENGTH_MAX]
    except (RecursionError, ValueError):
        return f"a {type(change).__name__} that can't be shown"


def _name(value: object) -> str:
    try:
        return read_name("name", value)
    except InvalidField:
        return UNKNOWN


def _text(value: object) -> str:
    try:
        return read_id("text", value)
    except InvalidField:
        return UNKNOWN


# Keys looked up in one statement.
KEYS_AT_ONCE = 500
_FIRST_OPERATION = "SELECT created_at FROM nonce_requests WHERE host = %s ORDER BY nonce LIMIT 1"


def wrote_before(connection: Connection, host: str, moment: datetime) -> bool:
    """Whether an operation of this host was reserved before `moment` (aware)."""
    first = connection.exec_driver_sql(_FIRST_OPERATION, (host,)).scalar()
    return first is not None and first.replace(tzinfo=UTC) < moment


def known_hashes(connection: Connection, host: str, keys: Sequence[str]) -> dict[str, bytes]:
    """Those of `keys` under which something was recorded, refused or scheduled; of each the hash of its request."""
    known: dict[str, bytes] = {}
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for table in (outbox_events, scheduled_changes):
            query = select(table.c.idempotency_key, table.c.request_hash).where(
                table.c.host == host, table.c.idempotency_key.in_(keys[start : start + KEYS_AT_ONCE])
            )
            known.update({row.idempotency_key: bytes(row.request_hash) for row in connection.execute(query)})
    return known


# ----------------------------------------------------------------------------------------------- corrected dead letters

# A corrected copy of a dead letter: a new change under a new key, linked with the old one in the audit.
#
# The copy is recorded first; afterwards the writer discards the dead letter. A failure in between leaves both, and the
# same request again completes it. The copy is a new change: it is sent after the entity's changes that already wait.

REPLACE, CORRECT = "replace", "correct"

_LETTER = text(
    f"SELECT o.entity_type, o.entity_id, o.event_type, o.traceparent, {fate_columns('outcome')} FROM outbox_events o "
    f"{JOIN_PENDING} WHERE o.host = :host AND o.id = :id"
)


@dataclass(frozen=True, slots=True)
class Correction:
    """An operator's corrected payload for the dead letter `change_id`. `key`: of the new change; None: derived from
    `change_id` and `payload`.
    """

    change_id: int
    payload: Mapping[str, Any]
    operator: Actor
    source: str
    reason: str
    key: str | None = None

    @property
    def idempotency_key(self) -> str:
        """The same for the same correction, so that a repeated request records one copy."""
        if self.key is not None:
            return self.key
        digest = sha256(canonical_json("payload", self.payload).encode()).hexdigest()
        return f"corrected-{self.change_id}-{digest[:16]}"


class NoDeadLetter(Exception):  # noqa: N818 - a name says what happened
    """The change does not exist (`exists` False), or is not a dead letter: it has another fate, or none (`outcome`)."""

    def __init__(self, *, exists: bool, outcome: str | None) -> None:
        super().__init__("not a dead letter")
        self.exists = exists
        self.outcome = outcome


def record_correction(connection: Connection, host: str, correction: Correction) -> RecordedChange:
    """Record the copy and the two acts that link it. A repetition returns the first copy, even if the dead letter has
    another fate by then.

    Raises NoDeadLetter, InvalidChange, IdempotencyConflict; the caller's transaction must then be rolled back.
    """
    letter = connection.execute(_LETTER, {"host": host, "id": correction.change_id}).one_or_none()
    if letter is None:
        raise NoDeadLetter(exists=False, outcome=None)
    change = accept(
        host, letter.entity_type, letter.entity_id, letter.event_type, correction.payload,
        correction.idempotency_key, None, None, correction.source, traceparent=letter.traceparent,
    )  # fmt: skip
    recorded = record_accepted(connection, change)
    if recorded.duplicate:
        return recorded
    if letter.outcome != "DEAD":
        raise NoDeadLetter(exists=True, outcome=letter.outcome)
    by, why = correction.operator, correction.reason
    old, new = correction.change_id, recorded.change_id
    record_act(
        connection, host=host, action=REPLACE, operator=by, reason=why, change_id=old,
        detail={"message": f"its corrected copy is change {new}", "replaced_by": new},
    )  # fmt: skip
    record_act(
        connection, host=host, action=CORRECT, operator=by, reason=why, change_id=new,
        detail={"message": f"a corrected copy of change {old}", "corrects": old},
    )  # fmt: skip
    return recorded
