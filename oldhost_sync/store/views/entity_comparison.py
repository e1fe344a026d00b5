"""One entity as the application shows it next to OldHost's state of it, key by key, and its outstanding changes.

Payloads are compared by their hashes, so that a user who may not read them still sees whether they are equal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.completion import UNKNOWN, payload_hash
from oldhost_sync.store.views.entity_history import read_entity

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
_BY_STATUS = "outbox_events o FORCE INDEX (ix_outbox_events_status)"
_NO_FATE = (
    f"{_NAMED} AND o.outcome IS NULL AND NOT EXISTS "
    "(SELECT 1 FROM pending_fates p WHERE p.host = o.host AND p.change_id = o.id)"
)
_OUTSTANDING = text(f"SELECT COUNT(*) FROM (SELECT 1 FROM {_BY_STATUS} WHERE {_NO_FATE} LIMIT :limit) counted")
_HELD = text(
    f"SELECT COUNT(*) FROM (SELECT 1 FROM {_BY_STATUS} WHERE {_NO_FATE} AND o.priority_class = 'TXN' AND o.id > :dead "
    "LIMIT :limit) counted"
)
_DEAD = text(
    f"(SELECT o.id FROM {_BY_STATUS} WHERE {_NAMED} AND o.outcome = 'DEAD' ORDER BY o.id LIMIT :limit) UNION "
    "(SELECT p.change_id FROM pending_fates p FORCE INDEX (ix_pending_fates_entity) WHERE p.host = :host "
    "AND p.entity_type = :type AND p.entity_id = :id AND p.outcome = 'DEAD' ORDER BY p.change_id LIMIT :limit) "
    "ORDER BY id LIMIT :limit"
)


@dataclass(slots=True)
class KeyComparison:
    """One coalescing key. `equal`: None if OldHost's state is not known (never applied, or its answer was lost).

    `shown` and `at_oldhost`: the payloads; `at_oldhost` is also None if the change with that payload is no longer kept.
    """

    event_type: str
    is_shown: bool
    change_id: int | None = None
    nonce: int | None = None
    applied_at: datetime | None = None
    equal: bool | None = None
    shown: dict[str, Any] | None = None
    at_oldhost: dict[str, Any] | None = None


@dataclass(slots=True)
class EntityView:
    """`outstanding`: changes without a fate (at most COUNTED_MAX are counted); `held`: those of them behind a dead
    letter. `dead_letters`: the oldest ids. `changes` and `scheduled`: as :func:`read_entity` returns them.
    """

    entity_type: str
    entity_id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str
    newest_change_id: int | None
    updated_at: datetime
    keys: list[KeyComparison]
    outstanding: int
    held: int
    dead_letters: list[int]
    scheduled: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)


def compare_entity(
    connection: Connection, host: str, entity_type: str, entity_id: str, *, payloads: bool
) -> EntityView | None:
    """None if no change of the entity was ever accepted or scheduled. With only scheduled ones, it has no keys yet."""
    found = read_entity(connection, host, entity_type, entity_id)
    shadow = found["shadow"]
    if shadow is None and not found["changes"] and not found["scheduled"]:
        return None
    shadow = shadow or {"state": {}, "sync_status": "SYNCED", "updated_at": found["scheduled"][0]["created_at"]}
    named = {"host": host, "type": entity_type, "id": entity_id}
    dead = [int(each) for each in connection.execute(_DEAD, named | {"limit": DEAD_LETTERS_SHOWN}).scalars()]
    counted = named | {"limit": COUNTED_MAX}
    columns = ("name", "property_id", "status", "newest_change_id")
    return EntityView(
        entity_type,
        entity_id,
        **{column: shadow.get(column) for column in columns},
        sync_status=shadow["sync_status"],
        updated_at=shadow["updated_at"],
        keys=_keys(connection, named, shadow["state"], payloads=payloads),
        outstanding=connection.execute(_OUTSTANDING, counted).scalar_one(),
        held=connection.execute(_HELD, counted | {"dead": dead[0]}).scalar_one() if dead else 0,
        dead_letters=dead,
        scheduled=found["scheduled"],
        changes=found["changes"],
    )


def _keys(
    connection: Connection, named: dict[str, Any], state: Mapping[str, Any], *, payloads: bool
) -> list[KeyComparison]:
    keys = {event_type: KeyComparison(event_type, is_shown=True) for event_type in state}
    hashes: dict[str, bytes] = {}
    for row in connection.execute(_APPLIED, named):
        key = keys.setdefault(row.event_type, KeyComparison(row.event_type, is_shown=False))
        key.change_id, key.nonce, key.applied_at = row.change_id, row.nonce, row.applied_at
        hashes[row.event_type] = bytes(row.payload_hash).rstrip(b"\0")
        if key.is_shown and hashes[row.event_type] != UNKNOWN:
            key.equal = payload_hash(state[row.event_type]) == bytes(row.payload_hash)
    found = [keys[event_type] for event_type in sorted(keys)]
    if payloads:
        _add_payloads(connection, named["host"], found, state, hashes)
    return found


def _add_payloads(
    connection: Connection, host: str, keys: list[KeyComparison], state: Mapping[str, Any], hashes: Mapping[str, bytes]
) -> None:
    ids = [key.change_id for key in keys if key.change_id is not None]
    rows = connection.execute(_PAYLOADS, {"host": host, "ids": ids}) if ids else ()
    kept = {row.id: json.loads(row.payload) for row in rows}
    for key in keys:
        key.shown = state.get(key.event_type)
        brought = None if key.change_id is None else kept.get(key.change_id)
        # A retried older change may have been applied after this one: then OldHost does not have this payload.
        if brought is not None and payload_hash(brought).rstrip(b"\0") == hashes[key.event_type]:
            key.at_oldhost = brought
