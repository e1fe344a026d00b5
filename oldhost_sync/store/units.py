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

from oldhost_sync.store.accepting import Acceptable, accept
from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.recording import RecordedChange, record_accepted
from oldhost_sync.store.tables import outbox_events, units

UNIT = "unit"
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


def status_change(*, host: str, unit_id: str, status: str, key: str, source: str) -> Acceptable:
    """The change that a new status is; InvalidChange when it is outside the limits."""
    return accept(host, UNIT, unit_id, STATUS_CHANGED, {"status": status}, key, None, None, source)


def details_change(*, host: str, unit_id: str, name: str, property_id: str | None, key: str, source: str) -> Acceptable:
    """The change that a unit's details are; InvalidChange when they are outside the limits."""
    payload = {"name": name, "property_id": property_id}
    return accept(host, UNIT, unit_id, DETAILS_CHANGED, payload, key, None, None, source)


def record_details(
    connection: Connection, details: Acceptable, status: Acceptable | None, *, key_is_new: bool
) -> list[RecordedChange]:
    """Record a unit's details, and its status when that is given; both or none.

    `status` has the key of `details` and :data:`STATUS_KEY_SUFFIX`. Raises IdempotencyConflict also when the key was
    used for the same details with a status and now comes without, or the other way round.
    """
    first = record_accepted(connection, details, look_for_schedule=not key_is_new)
    status_key = details.idempotency_key + STATUS_KEY_SUFFIX
    if first.duplicate and _is_known(connection, details.host, status_key) != (status is not None):
        raise IdempotencyConflict(
            f"idempotency key {details.idempotency_key} was used with another body; use a new key for a new change"
        )
    if status is None:
        return [first]
    return [first, record_accepted(connection, status, look_for_schedule=not key_is_new)]


def _is_known(connection: Connection, host: str, key: str) -> bool:
    query = select(outbox_events.c.id).where(outbox_events.c.host == host, outbox_events.c.idempotency_key == key)
    return connection.execute(query).first() is not None


def _view(row: Row[*tuple[Any, ...]]) -> UnitView:
    return UnitView(**row._mapping)  # noqa: SLF001 - the documented way to a row by name
