"""One search for everything that people may know: a key, a change's id, an entity's id, a unit's name, a property.

Each kind is one lookup by its index. Ids, keys and properties must be complete; units are also found by the beginning
of their id or name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.limits import NAME_PATTERN
from oldhost_sync.store.columns import like_pattern
from oldhost_sync.store.record import RECORD, described

# The most hits of each kind.
HITS_MAX = 10
ID_MAX = 2**63 - 1
TYPE_AND_ID = re.compile(f"({NAME_PATTERN})/(.+)", re.DOTALL)

_CHANGE = "SELECT id, idempotency_key, entity_type, entity_id, event_type FROM"
_BY_ID = text(f"{_CHANGE} outbox_events WHERE host = :host AND id = :id")
_BY_KEY = text(f"{_CHANGE} outbox_events WHERE host = :host AND idempotency_key = :text")
_LATER = text(f"{_CHANGE} scheduled_changes WHERE host = :host AND idempotency_key = :text AND recorded_at IS NULL")
_UNITS = text(
    "(SELECT id, name, 'id' AS found_by FROM units FORCE INDEX (PRIMARY) WHERE host = :host AND id LIKE :beginning "
    "ORDER BY id LIMIT :limit) UNION ALL "
    "(SELECT id, name, 'name' AS found_by FROM units FORCE INDEX (ix_units_name) WHERE host = :host "
    "AND name LIKE :beginning ORDER BY name, id LIMIT :limit)"
)
_ENTITIES = text(
    "SELECT entity_type, id FROM entities FORCE INDEX (ix_entities_id) WHERE host = :host AND id = :text LIMIT :limit"
)
_ENTITY_OF_TYPE = text("SELECT entity_type, id FROM entities WHERE host = :host AND entity_type = :type AND id = :id")
_PROPERTY = text(
    "SELECT property_id FROM units FORCE INDEX (ix_units_property) WHERE host = :host AND property_id = :text LIMIT 1"
)


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One search result. Which fields are set depends on its kind."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "kind": "entity",
        "found_by": "name",
        "title": "unit/12B Seaview 12",
        "change_id": None,
        "idempotency_key": None,
        "entity_type": "unit",
        "entity_id": "12B",
        "property_id": None,
    }

    kind: str = field(metadata=described("change, scheduled, entity or property"))
    found_by: str = field(metadata=described("id, key, name or property"))
    title: str
    change_id: int | None = None
    idempotency_key: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    property_id: str | None = None


def search(connection: Connection, host: str, wanted: str) -> list[SearchHit]:
    """What `wanted` names: complete matches first, then units that begin with it. At most about 40."""
    values = {"host": host, "text": wanted, "beginning": like_pattern(wanted), "limit": HITS_MAX}
    hits: list[SearchHit] = []
    if wanted.isascii() and wanted.isdecimal() and len(wanted) < 20 and int(wanted) <= ID_MAX:
        hits += _changes(connection, "id", {"host": host, "id": int(wanted)})
    hits += _changes(connection, "key", values)
    for row in connection.execute(_LATER, values):
        hits.append(_hit_of_change("scheduled", "key", row, None))
    hits += _entities(connection, host, wanted, values)
    if connection.execute(_PROPERTY, values).first() is not None:
        hits.append(SearchHit("property", "property", wanted, property_id=wanted))
    return hits


def _changes(connection: Connection, found_by: str, values: dict[str, object]) -> list[SearchHit]:
    rows = connection.execute(_BY_ID if found_by == "id" else _BY_KEY, values)
    return [_hit_of_change("change", found_by, row, row.id) for row in rows]


def _hit_of_change(kind: str, found_by: str, row: object, change_id: int | None) -> SearchHit:
    named = {name: getattr(row, name) for name in ("idempotency_key", "entity_type", "entity_id")}
    title = f"{named['entity_type']}/{named['entity_id']} {getattr(row, 'event_type')}"  # noqa: B009 - a row's column
    return SearchHit(kind, found_by, title, change_id=change_id, **named)


def _entities(connection: Connection, host: str, wanted: str, values: dict[str, object]) -> list[SearchHit]:
    """The entities hits: complete ids first, and no entity twice."""
    hits: dict[tuple[str, str], SearchHit] = {}
    if match := TYPE_AND_ID.fullmatch(wanted):
        if match[1] == "unit":
            return _entities(
                connection, host, match[2], values | {"text": match[2], "beginning": like_pattern(match[2])}
            )
        for row in connection.execute(_ENTITY_OF_TYPE, {"host": host, "type": match[1], "id": match[2]}):
            hits[row.entity_type, row.id] = _entity_hit(row.entity_type, row.id, "id", None)
    for row in connection.execute(_ENTITIES, values):
        hits[row.entity_type, row.id] = _entity_hit(row.entity_type, row.id, "id", None)
    units = sorted(connection.execute(_UNITS, values), key=lambda row: row.id != wanted)
    for row in units:
        hits.setdefault(("unit", row.id), _entity_hit("unit", row.id, row.found_by, row.name))
    return list(hits.values())


def _entity_hit(entity_type: str, entity_id: str, found_by: str, name: str | None) -> SearchHit:
    title = f"{entity_type}/{entity_id}" + (f" {name}" if name else "")
    return SearchHit("entity", found_by, title, entity_type=entity_type, entity_id=entity_id)
