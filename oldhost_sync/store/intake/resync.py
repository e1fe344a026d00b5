"""Resync: states that OldHost should have already are recorded and sent again, a few at a time, to repair a drift.

A resync is a row with a cursor; the relay records what comes after the cursor. A state is recorded as an ordinary LWW
change with the shadow's state, read under the entity's lock, so nothing newer is ever undone. So that the ledger does
not take it for a no-op, OldHost's state of that key is first marked as unknown: in a transaction of its own, as the
ledger must never wait for this one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.policy.rules.resync import ENTITIES_AT_ONCE, WAITING_MAX, states_to_send
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.errors import InvalidChange, UnknownName
from oldhost_sync.store.intake.change_recorder import record_change
from oldhost_sync.store.intake.rules import classes_of
from oldhost_sync.store.intake.shadow import UNIT, lock_free_entity
from oldhost_sync.store.ledger.fates import UNKNOWN
from oldhost_sync.store.ledger.reservation import HAS_NONCE

_COLUMNS = (
    "id, host, property_id, unit_id, operator, reason, created_at, finished_at, after_type, after_id, recorded, "
    "skipped, first_change_id, last_change_id"
)
_REQUEST = text(
    "INSERT INTO resyncs (host, property_id, unit_id, operator, reason, after_type, after_id, created_at) "
    "VALUES (:host, :property_id, :unit_id, :operator, :reason, '', '', UTC_TIMESTAMP(6)) RETURNING id"
)
_IS_KNOWN = text(
    "SELECT EXISTS (SELECT 1 FROM units WHERE host = :host AND (:property_id IS NULL OR property_id = :property_id) "
    "AND (:unit_id IS NULL OR id = :unit_id))"
)
_OLDEST = text(f"SELECT {_COLUMNS} FROM resyncs WHERE host = :host AND finished_at IS NULL ORDER BY id LIMIT 1")
_LOCK = text(
    f"SELECT {_COLUMNS} FROM resyncs WHERE id = :id AND after_type = :after_type AND after_id = :after_id "
    "AND finished_at IS NULL FOR UPDATE SKIP LOCKED"
)
_LATEST = text(f"SELECT {_COLUMNS} FROM resyncs WHERE host = :host ORDER BY id DESC LIMIT :limit")
_MOVE = text(
    "UPDATE resyncs SET after_type = :after_type, after_id = :after_id, recorded = recorded + :recorded, "
    "skipped = skipped + :skipped, first_change_id = COALESCE(first_change_id, :first), "
    "last_change_id = COALESCE(:last, last_change_id), finished_at = IF(:finished, UTC_TIMESTAMP(6), NULL) "
    "WHERE id = :id"
)
_WAITING = (
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = :host AND o.processed_at IS NULL"
)
# Sorts before every entity type.
_AFTER_UNITS = "!"
# Changes held behind a dead letter are not counted: they wait for an operator, not for OldHost.
_ROOM = text(
    f"SELECT (SELECT COUNT(*) FROM (SELECT 1 {_WAITING} AND o.priority_class = 'LWW' LIMIT {WAITING_MAX}) lww) AS lww, "
    f"EXISTS (SELECT 1 {_WAITING} AND o.priority_class IN ('EMERGENCY', 'TXN') AND NOT EXISTS (SELECT 1 "
    "FROM outbox_events d FORCE INDEX (ix_outbox_events_status) WHERE d.host = o.host AND d.outcome = 'DEAD' "
    "AND d.entity_type = o.entity_type AND d.entity_id = o.entity_id AND d.id < o.id)) AS others"
)
_UNITS = text(
    "SELECT 'unit' AS entity_type, id, state FROM units WHERE host = :host AND id > :after_id "
    "AND (:property_id IS NULL OR property_id = :property_id) AND (:unit_id IS NULL OR id = :unit_id) "
    "ORDER BY id LIMIT :rows"
)
_ENTITIES = text(
    "SELECT entity_type, id, state FROM entities WHERE host = :host AND entity_type >= :after_type "
    "AND (entity_type > :after_type OR id > :after_id) ORDER BY entity_type, id LIMIT :rows"
)
_OF_ENTITY = "host = :host AND entity_type = :entity_type AND entity_id = :entity_id"
_APPLIED = text(f"SELECT event_type, change_id FROM applied_states WHERE {_OF_ENTITY}")
_UNDECIDED = text(
    "SELECT EXISTS (SELECT 1 FROM outbox_events FORCE INDEX (ix_outbox_events_status) "
    f"WHERE {_OF_ENTITY} AND (outcome IS NULL OR outcome = 'DEAD'))"
)
_STATE_OF_UNIT = text("SELECT state FROM units WHERE host = :host AND id = :entity_id")
_STATE = text("SELECT state FROM entities WHERE host = :host AND entity_type = :entity_type AND id = :entity_id")
_FORGET = text(f"UPDATE applied_states SET payload_hash = :unknown WHERE {_OF_ENTITY} AND event_type = :event_type")
_RESULTS = text(
    f"SELECT COALESCE(o.outcome, IF({HAS_NONCE}, 'IN_FLIGHT', 'WAITING')) AS state, COUNT(*) AS changes "
    "FROM outbox_events o FORCE INDEX (PRIMARY) "
    "WHERE o.id BETWEEN :first AND :last AND o.host = :host AND o.source = :source GROUP BY state"
)


@dataclass(frozen=True, slots=True)
class Resync:
    """One request. `property_id`, `unit_id`: only of these; neither: of all entities. `recorded`: how many states were
    recorded to be sent again so far. `skipped`: how many entities had a waiting change, or no state that may be sent.
    """

    resync_id: int
    host: str
    property_id: str | None
    unit_id: str | None
    operator: str
    reason: str
    created_at: datetime
    finished_at: datetime | None
    after_type: str
    after_id: str
    recorded: int
    skipped: int
    first_change_id: int | None
    last_change_id: int | None

    @property
    def is_of_units(self) -> bool:
        """Whether it is limited to units."""
        return self.property_id is not None or self.unit_id is not None

    @property
    def is_at_units(self) -> bool:
        """Whether its cursor is still at the units; they come first, then all other entities."""
        return not self.after_type

    @property
    def source(self) -> str:
        """The `source` of the changes that it records."""
        return f"resync-{self.resync_id}"


@dataclass(frozen=True, slots=True)
class ResyncStep:
    """The next step: by entity, the event types whose states may be sent again; and the cursor's next position.
    `is_last`: no entities follow.
    """

    states: Mapping[tuple[str, str], Sequence[str]]
    entities: int
    after_type: str
    after_id: str
    is_last: bool


def request_resync(
    connection: Connection, host: str, *, property_id: str | None, unit_id: str | None, operator: Actor, reason: str
) -> int:
    """Have the relay send states again; an operator's act. Returns the resync's number. Raises UnknownName."""
    named = {"host": host, "property_id": property_id, "unit_id": unit_id}
    is_of_all = property_id is None and unit_id is None
    if not is_of_all and not connection.execute(_IS_KNOWN, named).scalar_one():
        what = f"unit {unit_id!r}" if unit_id is not None else f"unit of a property {property_id!r}"
        raise UnknownName(f"{host} has no {what}; nothing is sent again")
    values = named | {"operator": operator.name, "reason": reason}
    number = int(connection.execute(_REQUEST, values).scalar_one())
    detail = {"resync": number, "property_id": property_id, "unit_id": unit_id}
    record_act(connection, host=host, action="resync", operator=operator, reason=reason, detail=detail)
    return number


def oldest_unfinished(connection: Connection, host: str) -> Resync | None:
    """The resync that the relay works on."""
    row = connection.execute(_OLDEST, {"host": host}).one_or_none()
    return None if row is None else Resync(*row)


def latest_resyncs(connection: Connection, host: str, limit: int) -> list[Resync]:
    """Newest first."""
    return [Resync(*row) for row in connection.execute(_LATEST, {"host": host, "limit": limit})]


def results_of(connection: Connection, resync: Resync) -> dict[str, int]:
    """How many of its changes are in each state."""
    if resync.first_change_id is None:
        return {}
    values = {"first": resync.first_change_id, "last": resync.last_change_id}
    rows = connection.execute(_RESULTS, values | {"host": resync.host, "source": resync.source})
    return {row.state: int(row.changes) for row in rows}


def has_room(connection: Connection, host: str) -> bool:
    """Whether more may be recorded now: not while an EMERGENCY or a TXN waits, or too many LWW changes."""
    row = connection.execute(_ROOM, {"host": host}).one()
    return not row.others and int(row.lww) < WAITING_MAX


def next_share(connection: Connection, resync: Resync) -> ResyncStep:
    """What to record next: the states of the first entity after the cursor that has any to send; locks nothing."""
    to_send: dict[tuple[str, str], Sequence[str]] = {}
    seen = 0
    rows = _entities_after(connection, resync)
    for row in rows:
        seen += 1
        states = _sendable(connection, resync.host, row.entity_type, row.id, row.state)
        if states:
            to_send[row.entity_type, row.id] = states
            break
    through = seen == len(rows) < ENTITIES_AT_ONCE
    if not resync.is_at_units:
        place = (rows[seen - 1].entity_type, rows[seen - 1].id) if seen else (resync.after_type, resync.after_id)
        return ResyncStep(to_send, seen, place[0], place[1], is_last=through)
    if through:
        return ResyncStep(to_send, seen, _AFTER_UNITS, "", is_last=resync.is_of_units)
    return ResyncStep(to_send, seen, "", rows[seen - 1].id, is_last=False)


def mark_unknown(connection: Connection, host: str, entity: tuple[str, str], event_type: str) -> None:
    """Mark OldHost's state of a key as unknown, so that its next change is sent even if it is equal. Use a connection
    in autocommit mode.
    """
    values = _of_entity(host, *entity) | {"event_type": event_type, "unknown": UNKNOWN}
    connection.execute(_FORGET, values)


def record_share(connection: Connection, resync: Resync, share: ResyncStep) -> int:
    """Record its states as they are now, and move the cursor; returns how many were recorded. If another relay was
    faster, it returns 0 and leaves the cursor. Raises the database's "lock wait" error at once if one of the entities
    is locked.
    """
    values: dict[str, Any] = {"id": resync.resync_id, "after_type": resync.after_type, "after_id": resync.after_id}
    if connection.execute(_LOCK, values).one_or_none() is None:
        return 0
    ids = [
        change_id
        for entity, states in share.states.items()
        for change_id in _record(connection, resync, entity, states)
    ]
    moved = {"after_type": share.after_type, "after_id": share.after_id, "finished": share.is_last}
    counts = {"recorded": len(ids), "skipped": share.entities - len(share.states)}
    first_and_last = {"first": min(ids, default=None), "last": max(ids, default=None)}
    connection.execute(_MOVE, {"id": resync.resync_id} | moved | counts | first_and_last)
    return len(ids)


def _record(connection: Connection, resync: Resync, entity: tuple[str, str], states: Sequence[str]) -> list[int]:
    lock_free_entity(connection, resync.host, entity)
    statement = _STATE_OF_UNIT if entity[0] == UNIT else _STATE
    stored = connection.execute(statement, _of_entity(resync.host, *entity)).scalar()
    if stored is None:
        return []
    still = [event_type for event_type in _sendable(connection, resync.host, *entity, stored) if event_type in states]
    shown = json.loads(stored)
    ids = []
    for event_type in still:
        digest = hashlib.sha256("\0".join((*entity, event_type)).encode()).hexdigest()
        try:
            recorded = record_change(
                connection,
                host=resync.host,
                entity_type=entity[0],
                entity_id=entity[1],
                event_type=event_type,
                payload=shown[event_type],
                idempotency_key=f"{resync.source}-{digest[:40]}",
                source=resync.source,
            )
        except InvalidChange:
            continue  # accepted by another mapping: by the one of now, it can't be sent
        ids += [] if recorded.change_id is None or recorded.duplicate else [recorded.change_id]
    return ids


def _entities_after(connection: Connection, resync: Resync) -> Sequence[Row[Any]]:
    place = {"host": resync.host, "after_type": resync.after_type, "after_id": resync.after_id}
    of = {"property_id": resync.property_id, "unit_id": resync.unit_id, "rows": ENTITIES_AT_ONCE}
    return connection.execute(_UNITS if resync.is_at_units else _ENTITIES, place | of).all()


def _sendable(connection: Connection, host: str, entity_type: str, entity_id: str, state: str) -> list[str]:
    """The event types of an entity whose states may be sent again; none while a change of it waits or is dead."""
    values = _of_entity(host, entity_type, entity_id)
    applied = {row.event_type: int(row.change_id) for row in connection.execute(_APPLIED, values)}
    if not applied or connection.execute(_UNDECIDED, values).scalar_one():
        return []
    return states_to_send(json.loads(state), applied, classes_of(connection, host, sorted(applied)))


def _of_entity(host: str, entity_type: str, entity_id: str) -> dict[str, Any]:
    return {"host": host, "entity_type": entity_type, "entity_id": entity_id}
