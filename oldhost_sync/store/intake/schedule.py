"""Scheduled changes: stored apart, recorded when due, and cancellable until then.

The database's clock decides what is due. Several due changes are recorded in due order, not in the order of arrival,
each in its own transaction, so that one bad row delays no other. Each transaction locks its entity's oldest due change,
so that even if two relays are active for a moment, each entity's order is kept; it never waits for an entity that an
application has locked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import bindparam, select, text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_accepted
from oldhost_sync.store.intake.shadow import lock_free_entity
from oldhost_sync.store.intake.validation import Acceptable, unit_columns
from oldhost_sync.store.tables import scheduled_changes

_WAITING = "host = :host AND recorded_at IS NULL AND cancelled_at IS NULL"
_DUE = text(
    "SELECT id, entity_type, entity_id, not_before FROM scheduled_changes FORCE INDEX (ix_scheduled_changes_due) "
    f"WHERE {_WAITING} AND not_before <= UTC_TIMESTAMP(6) AND (not_before, id) > (:after, :after_id) "
    "AND not_before >= :after ORDER BY not_before, id LIMIT :limit"
)
# Reads one entry of each host, however many changes are scheduled: EXISTS would read all of them.
_HOSTS_DUE = text(
    "SELECT l.host FROM relay_lease l WHERE l.owner = :owner AND (SELECT s.not_before FROM scheduled_changes s "
    "FORCE INDEX (ix_scheduled_changes_due) WHERE s.host = l.host AND s.recorded_at IS NULL AND s.cancelled_at IS NULL "
    "ORDER BY s.not_before LIMIT 1) <= UTC_TIMESTAMP(6)"
)
# Locked in due order: a relay that waits for the first row gets the next one once the first is recorded.
_OLDEST = text(
    f"SELECT * FROM scheduled_changes FORCE INDEX (ix_scheduled_changes_entity) WHERE {_WAITING} "
    "AND entity_type = :entity_type AND entity_id = :entity_id ORDER BY not_before, id LIMIT 1 FOR UPDATE"
)
_RECORDED = text("UPDATE scheduled_changes SET recorded_at = UTC_TIMESTAMP(6), change_id = :change_id WHERE id = :id")
_CANCEL = text(
    f"UPDATE scheduled_changes SET cancelled_at = UTC_TIMESTAMP(6) WHERE {_WAITING} AND idempotency_key = :key"
)
_WITHDRAW = text("UPDATE scheduled_changes SET cancelled_at = UTC_TIMESTAMP(6) WHERE id = :id AND recorded_at IS NULL")
_DUE_WITHIN = text(
    "SELECT COUNT(*) FROM (SELECT 1 FROM scheduled_changes FORCE INDEX (ix_scheduled_changes_due) "
    f"WHERE {_WAITING} AND not_before >= :since AND not_before < :until AND source = :source "
    "AND event_type IN :event_types AND idempotency_key NOT IN :but LIMIT :most) found"
).bindparams(bindparam("event_types", expanding=True), bindparam("but", expanding=True))
_EVER = datetime(1970, 1, 1)  # noqa: DTZ001 - as the column holds it


@dataclass(frozen=True, slots=True)
class ScheduledChange:
    """One scheduled change, without its payload. `change_id`: set once it is recorded."""

    scheduled_id: int
    host: str
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    not_before: datetime
    created_at: datetime
    recorded_at: datetime | None
    cancelled_at: datetime | None
    change_id: int | None


_SHOWN = [scheduled_changes.c["id" if each.name == "scheduled_id" else each.name] for each in fields(ScheduledChange)]


@dataclass(frozen=True, slots=True)
class Due:
    """A scheduled change that is due."""

    scheduled_id: int
    host: str
    entity: tuple[str, str]
    not_before: datetime


def hosts_due(connection: Connection, owner: str) -> frozenset[str]:
    """The hosts with a due change, among those whose lease `owner` holds; one index lookup each."""
    return frozenset(connection.execute(_HOSTS_DUE, {"owner": owner}).scalars())


def due_in_minute(
    connection: Connection,
    host: str,
    source: str,
    event_types: Collection[str],
    minute: datetime,
    most: int,
    *,
    but: Sequence[str] = (),
) -> int:
    """How many changes of these types from `source` are scheduled for `minute` (:func:`minute_of`), without those whose
    keys are in `but`; stops counting at `most`.
    """
    values = {"host": host, "source": source, "since": minute, "until": minute + timedelta(minutes=1), "most": most}
    lists = {"event_types": sorted(event_types), "but": list(but)}
    return int(connection.execute(_DUE_WITHIN, values | lists).scalar_one())


def minute_of(at: datetime) -> datetime:
    """The beginning of the minute of `at`, as the database stores times."""
    return at.astimezone(UTC).replace(tzinfo=None, second=0, microsecond=0)


def due(connection: Connection, host: str, limit: int, after: Due | None = None) -> list[Due]:
    """What is due now and not yet recorded, in due order. `after`: the last one of the previous page."""
    values = {"host": host, "limit": limit, "after": after.not_before if after else _EVER, "after_id": 0}
    if after:
        values["after_id"] = after.scheduled_id
    return [
        Due(row.id, host, (row.entity_type, row.entity_id), row.not_before) for row in connection.execute(_DUE, values)
    ]


def record_due(connection: Connection, due: Due) -> RecordedChange | None:
    """Record one scheduled change in the caller's transaction.

    None if it is no longer its entity's oldest: it was recorded or cancelled in the meantime, or an older one must be
    recorded first. Raises the database's "lock wait" error at once if the entity is locked.
    """
    values = {"host": due.host, "entity_type": due.entity[0], "entity_id": due.entity[1]}
    row = connection.execute(_OLDEST, values).one_or_none()
    if row is None or row.id != due.scheduled_id:
        return None
    lock_free_entity(connection, row.host, (row.entity_type, row.entity_id))
    recorded = record_accepted(connection, _as_accepted(row), has_key=True)
    connection.execute(_RECORDED, {"id": row.id, "change_id": recorded.change_id})
    return recorded


def cancel(connection: Connection, host: str, idempotency_key: str) -> bool:
    """Cancel a scheduled change; False when there is none, or when it was recorded or cancelled already."""
    return connection.execute(_CANCEL, {"host": host, "key": idempotency_key}).rowcount == 1


def cancel_by_operator(
    connection: Connection, host: str, idempotency_key: str, *, operator: Actor, reason: str
) -> bool:
    """As :func:`cancel`, as an operator's act with an entry in the audit."""
    if not cancel(connection, host, idempotency_key):
        return False
    detail = {"idempotency_key": idempotency_key}
    record_act(connection, host=host, action="cancel-scheduled", operator=operator, reason=reason, detail=detail)
    return True


def withdraw(connection: Connection, scheduled_id: int) -> None:
    """Cancel a change that can't be recorded (its key belongs to another one in the outbox)."""
    connection.execute(_WITHDRAW, {"id": scheduled_id})


def scheduled_of_key(connection: Connection, host: str, idempotency_key: str) -> ScheduledChange | None:
    """The scheduled change of this key, also when it is recorded or cancelled."""
    columns = scheduled_changes.c
    query = select(*_SHOWN).where(columns.host == host, columns.idempotency_key == idempotency_key)
    row = connection.execute(query).one_or_none()
    return None if row is None else ScheduledChange(*row)


def _as_accepted(row: Row[*tuple[Any, ...]]) -> Acceptable:
    """The row as it was accepted: it was checked then, and keeps its hash, so that its key gets the same answer."""
    return Acceptable(
        **{
            name: getattr(row, name)
            for name in ("host", "entity_type", "entity_id", "event_type", "payload", "source", "traceparent")
        },
        idempotency_key=row.idempotency_key,
        request_hash=row.request_hash,
        occurred_at=None if row.occurred_at is None else row.occurred_at.replace(tzinfo=UTC),
        not_before=None,
        columns=unit_columns(row.event_type, json.loads(row.payload)) if row.entity_type == "unit" else (),
    )
