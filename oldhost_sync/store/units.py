"""Units as the application shows them, and the one write that may be two changes: a unit's details with its status.

Reading takes no locks. Lists are paged by id, never by offset: a unit that changes its place can't push another one
off the page, and the last page costs what the first one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Connection, Row

from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.recording import RecordedChange, record_change
from oldhost_sync.store.tables import outbox_events, units

STATUS_CHANGED = "unit_status_changed"
DETAILS_CHANGED = "unit_details_changed"
# The key of the second change that one request makes.
STATUS_KEY_SUFFIX = ":status"

_SHOWN = (
    units.c.id,
    units.c.name,
    units.c.property_id,
    units.c.status,
    units.c.sync_status,
    units.c.synced_at,
    units.c.newest_change_id,
    units.c.synced_change_id,
    units.c.updated_at,
)


@dataclass(frozen=True, slots=True)
class UnitView:
    """One unit's shadow row, without its payloads."""

    id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str
    synced_at: datetime | None
    newest_change_id: int | None
    synced_change_id: int | None
    updated_at: datetime


def find_unit(connection: Connection, host: str, unit_id: str) -> UnitView | None:
    row = connection.execute(select(*_SHOWN).where(units.c.host == host, units.c.id == unit_id)).one_or_none()
    return None if row is None else _view(row)


def list_units(
    connection: Connection, host: str, *, sync_status: str | None, after_id: str | None, limit: int
) -> list[UnitView]:
    """At most `limit` units in id order, after `after_id`, of one sync status or of all."""
    query = select(*_SHOWN).where(units.c.host == host).order_by(units.c.id).limit(limit)
    if sync_status is not None:
        query = query.where(units.c.sync_status == sync_status)
    if after_id is not None:
        query = query.where(units.c.id > after_id)
    return [_view(row) for row in connection.execute(query)]


def record_status(
    connection: Connection, *, host: str, unit_id: str, status: str, key: str, source: str
) -> RecordedChange:
    """The change that a new status is."""
    return record_change(
        connection,
        host=host,
        entity_type="unit",
        entity_id=unit_id,
        event_type=STATUS_CHANGED,
        payload={"status": status},
        idempotency_key=key,
        source=source,
    )


def record_details(
    connection: Connection,
    *,
    host: str,
    unit_id: str,
    name: str,
    property_id: str | None,
    status: str | None,
    key: str,
    source: str,
) -> list[RecordedChange]:
    """The change that a unit's details are, and one more for its status when that is given; both or none.

    Raises IdempotencyConflict also when the key was used for the same details with or without a status.
    """
    details = record_change(
        connection,
        host=host,
        entity_type="unit",
        entity_id=unit_id,
        event_type=DETAILS_CHANGED,
        payload={"name": name, "property_id": property_id},
        idempotency_key=key,
        source=source,
    )
    status_key = key + STATUS_KEY_SUFFIX
    if details.duplicate and _is_known(connection, host, status_key) != (status is not None):
        raise IdempotencyConflict(f"idempotency key {key} was used with another body; use a new key for a new change")
    if status is None:
        return [details]
    second = record_status(connection, host=host, unit_id=unit_id, status=status, key=status_key, source=source)
    return [details, second]


def _is_known(connection: Connection, host: str, key: str) -> bool:
    query = select(outbox_events.c.id).where(outbox_events.c.host == host, outbox_events.c.idempotency_key == key)
    return connection.execute(query).first() is not None


def _view(row: Row[*tuple[Any, ...]]) -> UnitView:
    return UnitView(**row._mapping)  # noqa: SLF001 - the documented way to a row by name
