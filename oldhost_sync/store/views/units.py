"""Units as the application shows them, and the one write that may be two changes: a unit's details with its status.

Reading takes no locks. Lists are paged by id, never by offset: no unit is missed when others change, and the last page
costs as little as the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.intake.change_recorder import UNIT, RecordedChange, record_accepted
from oldhost_sync.store.intake.validation import Acceptable, accept
from oldhost_sync.store.tables import outbox_events
from oldhost_sync.store.views.sync_status import PENDING_SYNC, SYNC_FAILED, status_expression

STATUS_CHANGED = "unit_status_changed"
DETAILS_CHANGED = "unit_details_changed"
# The key of the second change that one request makes.
STATUS_KEY_SUFFIX = ":status"

# How many units one page reads to find those with a sync status: about 0.1 s. Then the page ends early.
LOOKED_AT_MAX = 2_000
_CHUNK = 500

_STATUS = status_expression(host="u.host", kind="'unit'", id="u.id")
_UNIT = (
    f"SELECT u.id, u.name, u.property_id, u.status, {_STATUS} AS sync_status, "
    "(SELECT MAX(s.applied_at) FROM applied_states s WHERE s.host = u.host AND s.entity_type = 'unit' "
    "AND s.entity_id = u.id) AS synced_at, u.newest_change_id, (SELECT MAX(s.change_id) FROM applied_states s "
    "WHERE s.host = u.host AND s.entity_type = 'unit' AND s.entity_id = u.id) AS synced_change_id, u.updated_at "
    "FROM units u"
)
# Units that may have a sync status, in id order. A unit's outbox rows are adjacent in the index, so this reads only the
# changes of the units that it returns, not the whole outbox.
_OF_OUTCOME = (
    "SELECT DISTINCT entity_id AS id FROM outbox_events FORCE INDEX (ix_outbox_events_status) WHERE host = :host "
    "AND outcome {outcome} AND entity_type = 'unit' AND entity_id > :after ORDER BY entity_id LIMIT :limit"
)
_CANDIDATES = {
    PENDING_SYNC: text(_OF_OUTCOME.format(outcome="IS NULL")),
    SYNC_FAILED: text(
        "SELECT id FROM ("
        + " UNION ".join(f"({_OF_OUTCOME.format(outcome=outcome)})" for outcome in ("= 'DEAD'", "= 'DISCARDED'"))
        + " UNION (SELECT DISTINCT entity_id AS id FROM pending_fates FORCE INDEX (ix_pending_fates_entity) "
        "WHERE host = :host "
        "AND entity_type = 'unit' AND entity_id > :after AND outcome = 'DEAD' ORDER BY entity_id LIMIT :limit)) c "
        "ORDER BY id LIMIT :limit"
    ),
}


@dataclass(frozen=True, slots=True)
class UnitView:
    """One unit as it is shown, without its payloads; `sync_status`: see store/views/sync_status.py.

    `synced_at`, `synced_change_id`: when OldHost last applied a change of the unit, and its newest applied change.
    """

    id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str
    synced_at: datetime | None
    newest_change_id: int | None
    synced_change_id: int | None
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class UnitFilter:
    """Which units; None: any. `name` is matched case-insensitively."""

    sync_status: str | None = None
    property_id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class UnitList:
    """A page of a list in id order; the next page is the one after `next_after`, None at the end. A page that is not
    the last may be empty.
    """

    units: list[UnitView]
    next_after: str | None


def find_unit(connection: Connection, host: str, unit_id: str) -> UnitView | None:
    found = _views(connection, "u.host = :host AND u.id = :id", {"host": host, "id": unit_id})
    return found[0] if found else None


def list_units(
    connection: Connection, host: str, wanted: UnitFilter = UnitFilter(), *, after_id: str | None, limit: int
) -> UnitList:
    """At most `limit` units in id order, after `after_id`. It reads about LOOKED_AT_MAX units at most, so it may return
    fewer than `limit`, or none.
    """
    found: list[UnitView] = []
    after: str | None = after_id or ""
    looked_at, chunk = 0, limit + 1
    while after is not None and len(found) <= limit and looked_at < LOOKED_AT_MAX:
        seen, after = _chunk(connection, host, wanted, after, chunk)
        found += [unit for unit in seen if wanted.sync_status in {None, unit.sync_status}]
        looked_at, chunk = looked_at + chunk, _CHUNK
    if len(found) > limit:
        return UnitList(found[:limit], found[limit - 1].id)
    return UnitList(found, after)


def _chunk(
    connection: Connection, host: str, wanted: UnitFilter, after: str, size: int
) -> tuple[list[UnitView], str | None]:
    """At most `size` units that may match, and where to continue; None at the end."""
    values: dict[str, Any] = {"host": host, "after": after, "limit": size}
    candidates = _CANDIDATES.get(wanted.sync_status or "")
    if candidates is not None and wanted.property_id is None and wanted.name is None:
        ids = [str(unit_id) for unit_id in connection.execute(candidates, values).scalars().all()]
        seen = _views(connection, "u.host = :host AND u.id IN :ids", {"host": host, "ids": ids}) if ids else []
    else:
        conditions = ["u.host = :host", "u.id > :after"]
        for column, value in (("property_id", wanted.property_id), ("name", wanted.name)):
            if value is not None:
                conditions.append(f"u.{column} = :{column}")
                values[column] = value
        seen = _views(connection, " AND ".join(conditions), values)
        ids = [unit.id for unit in seen]
    return seen, ids[-1] if len(ids) == size else None


def _views(connection: Connection, condition: str, values: dict[str, Any]) -> list[UnitView]:
    query = text(f"{_UNIT} WHERE {condition} ORDER BY u.id{' LIMIT :limit' if 'limit' in values else ''}")
    if "ids" in values:
        query = query.bindparams(bindparam("ids", expanding=True))
    shown = query.columns(synced_at=UtcDateTime(), updated_at=UtcDateTime())
    return [UnitView(**row._mapping) for row in connection.execute(shown, values)]  # noqa: SLF001 - a row by name


def status_change(*, host: str, unit_id: str, status: str, key: str, source: str) -> Acceptable:
    """The change for a new status; InvalidChange when it is outside the limits."""
    payload = {"status": status}
    key_length_max = IDEMPOTENCY_KEY_LENGTH_MAX  # it may be derived from the one that was given
    return accept(host, UNIT, unit_id, STATUS_CHANGED, payload, key, None, None, source, key_length_max)


def details_change(*, host: str, unit_id: str, name: str, property_id: str | None, key: str, source: str) -> Acceptable:
    """The change for a unit's details; InvalidChange when they are outside the limits."""
    payload = {"name": name, "property_id": property_id}
    return accept(host, UNIT, unit_id, DETAILS_CHANGED, payload, key, None, None, source)


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
