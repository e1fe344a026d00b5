"""Units and other entities as applications and people see them: the shown state, whether OldHost has it, what is on its
way.

Reading takes no locks. Lists are paged by id, never by offset: no unit is missed when others change, and the last page
costs as little as the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from sqlalchemy import bindparam, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.drivers.mapping import ChangeContent, CodeMissing, HostMapping, NotMapped
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.fates import UNKNOWN
from oldhost_sync.store.mappings import mapping_of
from oldhost_sync.store.outbox.pending_fates import FATE, IS_PENDING
from oldhost_sync.store.record import KEY, RECORD, described
from oldhost_sync.store.tables import (
    IS_FATE_OF_CHANGE,
    entities,
    outbox_events,
    pending_fates,
    scheduled_changes,
    units,
)

# ---------------------------------------------------------------------------------------------------------- sync status

# Whether OldHost has an entity's shown state is derived from the outbox when it is read, and not stored (I7).
#
# To store it, each fate would have to wait for the entity's row, which applications may keep locked for long, while it
# holds the lock of the ledger's row, which every operation of the host needs. Nor can a derived status be out of date.
#
# | sync status   | when                                                                                              |
# |---------------|---------------------------------------------------------------------------------------------------|
# | SYNC_FAILED   | it has an undecided dead letter, or a discarded change whose state is still shown                 |
# | PENDING_SYNC  | otherwise, while it has a change without a fate                                                   |
# | SYNCED        | otherwise                                                                                         |
#
# A discarded change no longer matters once a newer one of its event type was applied, and is about to be replaced
# while a newer one waits. Each part is a lookup in `ix_outbox_events_status`.

PENDING_SYNC, SYNCED, SYNC_FAILED = "PENDING_SYNC", "SYNCED", "SYNC_FAILED"

_BY_STATUS = "FORCE INDEX (ix_outbox_events_status)"
# `alias`: a table's alias; `host`, `kind` and `id`: the expressions that name the entity.
_ENTITY = "{{alias}}.host = {host} AND {{alias}}.entity_type = {kind} AND {{alias}}.entity_id = {id}"
# All of them: a rule may have changed the event type's class since. Without them the index is not read by event type.
_CLASSES = ", ".join(f"'{each}'" for each in PriorityClass)
_STILL_SHOWN = (
    "NOT EXISTS (SELECT 1 FROM applied_states a WHERE a.host = g.host AND a.entity_type = g.entity_type "
    "AND a.entity_id = g.entity_id AND a.event_type = g.event_type AND a.change_id > g.id) "
    "AND NOT EXISTS (SELECT 1 FROM outbox_events n FORCE INDEX (ix_outbox_events_key) WHERE n.host = g.host "
    "AND n.entity_type = g.entity_type AND n.entity_id = g.entity_id AND n.processed_at IS NULL "
    f"AND n.priority_class IN ({_CLASSES}) AND n.event_type = g.event_type AND n.id > g.id)"
)


def status_expression(*, host: str, kind: str, id: str) -> str:  # noqa: A002 - the columns' own name
    """SQL for the sync status of the entity that the three expressions name."""
    entity = _ENTITY.format(host=host, kind=kind, id=id)

    def exists(table: str, alias: str, condition: str) -> str:
        return f"EXISTS (SELECT 1 FROM {table} WHERE {entity.format(alias=alias)} AND {condition})"

    dead = exists(f"outbox_events d {_BY_STATUS}", "d", "d.outcome = 'DEAD'")
    dead_soon = exists("pending_fates p FORCE INDEX (ix_pending_fates_entity)", "p", "p.outcome = 'DEAD'")
    given_up = exists(f"outbox_events g {_BY_STATUS}", "g", f"g.outcome = 'DISCARDED' AND {_STILL_SHOWN}")
    waits = exists(
        f"outbox_events w {_BY_STATUS}",
        "w",
        "w.outcome IS NULL AND NOT EXISTS (SELECT 1 FROM pending_fates f WHERE f.host = w.host AND f.change_id = w.id)",
    )
    return (
        f"CASE WHEN {dead} OR {dead_soon} OR {given_up} THEN '{SYNC_FAILED}' "
        f"WHEN {waits} THEN '{PENDING_SYNC}' ELSE '{SYNCED}' END"
    )


_STATUS = text(f"SELECT {status_expression(host=':host', kind=':kind', id=':id')} AS sync_status")
_CANDIDATES = text(
    f"SELECT DISTINCT entity_type, entity_id FROM outbox_events {_BY_STATUS} "
    "WHERE host = :host AND (outcome IS NULL OR outcome IN ('DEAD', 'DISCARDED')) ORDER BY entity_type, entity_id"
)


def sync_status(connection: Connection, host: str, entity_type: str, entity_id: str) -> str:
    """The sync status of an entity with at least one accepted change."""
    return str(connection.execute(_STATUS, {"host": host, "kind": entity_type, "id": entity_id}).scalar_one())


def not_synced(connection: Connection, host: str) -> dict[tuple[str, str], str]:
    """All entities whose shown state OldHost lacks, with their sync status. For tools: its cost is unbounded."""
    statuses = {}
    for entity_type, entity_id in connection.execute(_CANDIDATES, {"host": host}).all():
        status = sync_status(connection, host, entity_type, entity_id)
        if status != SYNCED:
            statuses[entity_type, entity_id] = status
    return statuses


# ---------------------------------------------------------------------------------------------------------------- units

# How many units one page reads to find those with a sync status: about 0.1 s. Then the page ends early.
LOOKED_AT_MAX = 2_000
_CHUNK = 500

_STATUS_OF_UNIT = status_expression(host="u.host", kind="'unit'", id="u.id")
_UNIT = (
    f"SELECT u.id, u.name, u.property_id, u.status, {_STATUS_OF_UNIT} AS sync_status, "
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
_UNITS_OF_STATUS = {
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
class ScheduledOfEntity:
    """A change that is scheduled for later."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "idempotency_key": KEY,
        "event_type": "door_code_changed",
        "not_before": "2026-12-24T14:00:00Z",
        "created_at": "2026-05-01T12:00:50Z",
    }

    idempotency_key: str
    event_type: str
    not_before: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ChangeOfEntity:
    """One of the entity's latest changes."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "change_id": 4712,
        "idempotency_key": "booking-2093-checked-in",
        "event_type": "checked_in",
        "priority_class": "TXN",
        "accepted_at": "2026-05-01T12:00:30Z",
        "outcome": "DEAD",
        "processed_at": "2026-05-01T12:01:03Z",
        "nonce": 502,
        "error": "no such guest",
    }

    change_id: int
    idempotency_key: str
    event_type: str
    priority_class: str
    accepted_at: datetime
    outcome: str | None
    processed_at: datetime | None
    nonce: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit as applications show it: the newest accepted state, and whether OldHost has it."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "id": "12B",
        "name": "Seaview 12",
        "property_id": "seaview",
        "status": "Clean",
        "sync_status": "SYNCED",
        "synced_at": "2026-05-01T12:01:02Z",
        "newest_change_id": 4711,
        "synced_change_id": 4711,
        "updated_at": "2026-05-01T12:00:00Z",
    }

    id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str = field(metadata=described("PENDING_SYNC, SYNCED or SYNC_FAILED"))
    synced_at: datetime | None = field(metadata=described("When OldHost last applied a state of this unit"))
    newest_change_id: int | None
    synced_change_id: int | None = field(metadata=described("The newest change whose state OldHost has"))
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

    units: list[Unit]
    next_after: str | None


def find_unit(connection: Connection, host: str, unit_id: str) -> Unit | None:
    views = _views(connection, "u.host = :host AND u.id = :id", {"host": host, "id": unit_id})
    return views[0] if views else None


def list_units(
    connection: Connection, host: str, wanted: UnitFilter = UnitFilter(), *, after_id: str | None, limit: int
) -> UnitList:
    """At most `limit` units in id order, after `after_id`. It reads about LOOKED_AT_MAX units at most, so it may return
    fewer than `limit`, or none.
    """
    listed: list[Unit] = []
    after: str | None = after_id or ""
    looked_at, chunk = 0, limit + 1
    while after is not None and len(listed) <= limit and looked_at < LOOKED_AT_MAX:
        seen, after = _chunk(connection, host, wanted, after, chunk)
        listed += [unit for unit in seen if wanted.sync_status in {None, unit.sync_status}]
        looked_at, chunk = looked_at + chunk, _CHUNK
    if len(listed) > limit:
        return UnitList(listed[:limit], listed[limit - 1].id)
    return UnitList(listed, after)


def _chunk(
    connection: Connection, host: str, wanted: UnitFilter, after: str, size: int
) -> tuple[list[Unit], str | None]:
    """At most `size` units that may match, and where to continue; None at the end."""
    values: dict[str, Any] = {"host": host, "after": after, "limit": size}
    candidates = _UNITS_OF_STATUS.get(wanted.sync_status or "")
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


def _views(connection: Connection, condition: str, values: dict[str, Any]) -> list[Unit]:
    query = text(f"{_UNIT} WHERE {condition} ORDER BY u.id{' LIMIT :limit' if 'limit' in values else ''}")
    if "ids" in values:
        query = query.bindparams(bindparam("ids", expanding=True))
    shown = query.columns(synced_at=UtcDateTime(), updated_at=UtcDateTime())
    return [Unit(**row._mapping) for row in connection.execute(shown, values)]  # noqa: SLF001 - a row by name


# ----------------------------------------------------------------------------------------------------------- one entity

CHANGES_SHOWN = 20


def read_entity(connection: Connection, host: str, entity_type: str, entity_id: str) -> dict[str, Any]:
    if entity_type == "unit":
        shadow = select(units).where(units.c.host == host, units.c.id == entity_id)
    else:
        shadow = select(entities).where(
            entities.c.host == host, entities.c.entity_type == entity_type, entities.c.id == entity_id
        )
    columns = outbox_events.c
    latest = (
        select(
            columns.id.label("change_id"), columns.idempotency_key, columns.event_type, columns.priority_class,
            columns.created_at.label("accepted_at"),
            *(FATE[name] for name in ("outcome", "processed_at", "nonce", "error")),
        )
        .outerjoin(pending_fates, IS_FATE_OF_CHANGE)
        .where(columns.host == host, columns.entity_type == entity_type, columns.entity_id == entity_id)
        .order_by(columns.id.desc())
        .limit(CHANGES_SHOWN)
    )  # fmt: skip
    later = scheduled_changes.c
    scheduled = (
        select(later.idempotency_key, later.event_type, later.not_before, later.created_at)
        .where(later.host == host, later.recorded_at.is_(None), later.cancelled_at.is_(None))
        .where(later.entity_type == entity_type, later.entity_id == entity_id)
        .order_by(later.not_before, later.id)
        .limit(CHANGES_SHOWN)
    )
    row = connection.execute(shadow).one_or_none()
    status = sync_status(connection, host, entity_type, entity_id)
    return {
        "shadow": None if row is None else dict(row._mapping) | {"sync_status": status},  # noqa: SLF001 - a row by name
        "changes": [dict(row._mapping) for row in connection.execute(latest)],  # noqa: SLF001
        "scheduled": [dict(row._mapping) for row in connection.execute(scheduled)],  # noqa: SLF001
    }


# ------------------------------------------------------------------------------------ one entity, compared with OldHost

# Payloads are compared by their hashes, so that a user who may not read them still sees whether they are equal.

# Above it, a count means "at least".
COUNTED_MAX = 10_000
DEAD_LETTERS_SHOWN = 20

_APPLIED = text(
    "SELECT event_type, change_id, payload_hash, nonce, applied_at FROM applied_states "
    "WHERE host = :host AND entity_type = :type AND entity_id = :id"
).columns(applied_at=UtcDateTime())
_PAYLOADS = text("SELECT id, payload FROM outbox_events WHERE host = :host AND id IN :ids").bindparams(
    bindparam("ids", expanding=True)
)
_NAMED = "o.host = :host AND o.entity_type = :type AND o.entity_id = :id"
_NO_FATE = f"{_NAMED} AND o.outcome IS NULL AND NOT {IS_PENDING}"
_OUTSTANDING = text(
    f"SELECT COUNT(*) FROM (SELECT 1 FROM outbox_events o {_BY_STATUS} WHERE {_NO_FATE} LIMIT :limit) counted"
)
_HELD = text(
    f"SELECT COUNT(*) FROM (SELECT 1 FROM outbox_events o {_BY_STATUS} WHERE {_NO_FATE} AND o.priority_class = 'TXN' "
    "AND o.id > :dead LIMIT :limit) counted"
)
_DEAD = text(
    f"(SELECT o.id FROM outbox_events o {_BY_STATUS} WHERE {_NAMED} AND o.outcome = 'DEAD' ORDER BY o.id LIMIT :limit) "
    "UNION (SELECT p.change_id FROM pending_fates p FORCE INDEX (ix_pending_fates_entity) WHERE p.host = :host "
    "AND p.entity_type = :type AND p.entity_id = :id AND p.outcome = 'DEAD' ORDER BY p.change_id LIMIT :limit) "
    "ORDER BY id LIMIT :limit"
)


@dataclass(slots=True)
class KeyComparison:
    """One coalescing key: what the application shows, and what OldHost has."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "event_type": "unit_status_changed",
        "is_shown": True,
        "change_id": 4711,
        "nonce": 501,
        "applied_at": "2026-05-01T12:01:02Z",
        "equal": True,
        "shown": None,
        "at_oldhost": None,
    }

    event_type: str
    is_shown: bool = field(metadata=described("Whether the application shows a state of this key"))
    change_id: int | None = field(default=None, metadata=described("The change that OldHost applied last"))
    nonce: int | None = None
    applied_at: datetime | None = None
    equal: bool | None = field(
        default=None, metadata=described("Whether both are equal; null: it is not known what OldHost has")
    )
    shown: dict[str, Any] | None = field(
        default=None, metadata=described("The payload that is shown, if payloads were requested")
    )
    at_oldhost: dict[str, Any] | None = field(
        default=None, metadata=described("The payload that OldHost has, if payloads were requested")
    )


@dataclass(slots=True)
class Entity:
    """What the application shows, what OldHost has, and which changes are still outstanding."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "entity_type": "unit",
        "entity_id": "12B",
        "name": "Seaview 12",
        "property_id": "seaview",
        "status": "Clean",
        "sync_status": "SYNC_FAILED",
        "newest_change_id": 4713,
        "updated_at": "2026-05-01T12:00:45Z",
        "keys": [KeyComparison.EXAMPLE],
        "outstanding": 1,
        "held": 1,
        "dead_letters": [4712],
        "scheduled": [ScheduledOfEntity.EXAMPLE],
        "changes": [ChangeOfEntity.EXAMPLE],
        "writer": {"entity_type": "unit", "entity_id": "12B", "changes": [], "dead_letters": [4712]},
        "note": None,
    }

    entity_type: str
    entity_id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str = field(metadata=described("PENDING_SYNC, SYNCED or SYNC_FAILED"))
    newest_change_id: int | None
    updated_at: datetime
    keys: list[KeyComparison]
    outstanding: int = field(metadata=described("Changes without a fate; counting stops at 10,000"))
    held: int = field(metadata=described("How many of these are TXN changes behind a dead letter"))
    dead_letters: list[int] = field(metadata=described("The oldest 20 undecided dead letters"))
    scheduled: list[ScheduledOfEntity] = field(default_factory=list)
    changes: list[ChangeOfEntity] = field(default_factory=list, metadata=described("The latest 20"))
    writer: dict[str, Any] | None = field(
        default=None, metadata=described("Where its changes are in the writer; null: see `note`")
    )
    note: str | None = field(default=None, metadata=described("Why `writer` is missing"))


def compare_entity(
    connection: Connection, host: str, entity_type: str, entity_id: str, *, payloads: bool
) -> Entity | None:
    """None if no change of the entity was ever accepted or scheduled. With only scheduled ones, it has no keys yet."""
    entity = read_entity(connection, host, entity_type, entity_id)
    shadow = entity["shadow"]
    if shadow is None and not entity["changes"] and not entity["scheduled"]:
        return None
    shadow = shadow or {"state": {}, "sync_status": "SYNCED", "updated_at": entity["scheduled"][0]["created_at"]}
    named = {"host": host, "type": entity_type, "id": entity_id}
    dead = [int(change_id) for change_id in connection.execute(_DEAD, named | {"limit": DEAD_LETTERS_SHOWN}).scalars()]
    counted = named | {"limit": COUNTED_MAX}
    columns = ("name", "property_id", "status", "newest_change_id")
    return Entity(
        entity_type,
        entity_id,
        **{column: shadow.get(column) for column in columns},
        sync_status=shadow["sync_status"],
        updated_at=shadow["updated_at"],
        keys=_keys(connection, named, shadow["state"], payloads=payloads),
        outstanding=connection.execute(_OUTSTANDING, counted).scalar_one(),
        held=connection.execute(_HELD, counted | {"dead": dead[0]}).scalar_one() if dead else 0,
        dead_letters=dead,
        scheduled=[ScheduledOfEntity(**row) for row in entity["scheduled"]],
        changes=[ChangeOfEntity(**row) for row in entity["changes"]],
    )


def _keys(
    connection: Connection, named: dict[str, Any], state: Mapping[str, Any], *, payloads: bool
) -> list[KeyComparison]:
    keys = {event_type: KeyComparison(event_type, is_shown=True) for event_type in state}
    state_hash = partial(_state_hash, mapping_of(connection, named["host"]), named)
    hashes: dict[str, bytes] = {}
    for row in connection.execute(_APPLIED, named):
        key = keys.setdefault(row.event_type, KeyComparison(row.event_type, is_shown=False))
        key.change_id, key.nonce, key.applied_at = row.change_id, row.nonce, row.applied_at
        hashes[row.event_type] = bytes(row.payload_hash).rstrip(b"\0")
        if key.is_shown and hashes[row.event_type] != UNKNOWN:
            key.equal = state_hash(row.event_type, state[row.event_type]) == bytes(row.payload_hash)
    shown = [keys[event_type] for event_type in sorted(keys)]
    if payloads:
        _add_payloads(connection, named["host"], shown, state, hashes, state_hash)
    return shown


def _state_hash(mapping: HostMapping, named: Mapping[str, Any], event_type: str, payload: dict[str, Any]) -> bytes:
    """Of what the host's mapping sends for `payload`; UNKNOWN if it makes nothing of it, at least here."""
    try:
        return mapping.encode(ChangeContent(named["type"], named["id"], event_type, payload)).state_hash
    except (NotMapped, CodeMissing):
        return UNKNOWN


def _add_payloads(
    connection: Connection,
    host: str,
    keys: list[KeyComparison],
    state: Mapping[str, Any],
    hashes: Mapping[str, bytes],
    state_hash: Callable[[str, dict[str, Any]], bytes],
) -> None:
    ids = [key.change_id for key in keys if key.change_id is not None]
    rows = connection.execute(_PAYLOADS, {"host": host, "ids": ids}) if ids else ()
    kept = {row.id: json.loads(row.payload) for row in rows}
    for key in keys:
        key.shown = state.get(key.event_type)
        brought = None if key.change_id is None else kept.get(key.change_id)
        # A retried older change may have been applied after this one: then OldHost does not have this payload.
        if brought is not None and state_hash(key.event_type, brought).rstrip(b"\0") == hashes[key.event_type]:
            key.at_oldhost = brought


# -------------------------------------------------------------------------------------------------------- all of a host

# For tools that check it from outside: this reads everything.


def all_states(connection: Connection, host: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Entity type, id and shadow state (payloads by event type) of each entity."""
    unit_rows = select(units.c.id, units.c.state).where(units.c.host == host)
    other_rows = select(entities.c.entity_type, entities.c.id, entities.c.state).where(entities.c.host == host)
    of_units = [("unit", row.id, row.state) for row in connection.execute(unit_rows)]
    return of_units + [(row.entity_type, row.id, row.state) for row in connection.execute(other_rows)]


def all_changes(connection: Connection, host: str) -> Iterable[Any]:
    """Each change in id order: key, class, entity, times, outcome."""
    columns = outbox_events.c
    query = (
        select(
            columns.id, columns.idempotency_key, columns.priority_class, columns.entity_type, columns.entity_id,
            columns.created_at, columns.processed_at, columns.outcome,
        )
        .where(columns.host == host)
        .order_by(columns.id)
    )  # fmt: skip
    return connection.execute(query).all()
