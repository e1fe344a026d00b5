"""Pages of outstanding changes for the writer: emergencies first, then the rest; those of one entity; those of a sweep.

A TXN change behind a dead letter of its entity is in none of these pages: it can't be sent before an operator has
decided, and tens of thousands of them must cost the writer nothing. So a page reads a bounded number of rows and may
return fewer than its limit; `last_id` is the last row that it read.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.store.outbox.pending_fates import IS_PENDING
from oldhost_sync.store.outbox.relay_queue import BY_ENTITY, ITS_UNIT, REF_AND_PROPERTY, as_ref

OUTSTANDING, DEAD = "IS NULL", "= 'DEAD'"


def oldest_of(cls: PriorityClass, outcome: str) -> str:
    """SQL: the oldest change of a class and outcome (OUTSTANDING or DEAD) of the entity of the row `o` of
    `outbox_events`: its id, or NULL. It reads one row of an index, however many the entity has.

    Whether it is older than `o` is not asked in the subquery: as a condition it would not bound the range, and all of
    the entity's changes would be read to find that none is older than the oldest.
    """
    return (
        "(SELECT x.id FROM outbox_events x FORCE INDEX (ix_outbox_events_status) "
        f"WHERE x.host = o.host AND x.outcome {outcome} AND x.entity_type = o.entity_type "
        f"AND x.entity_id = o.entity_id AND x.priority_class = '{cls.value}' ORDER BY x.id LIMIT 1)"
    )


# Rows that one statement reads: about 30 ms. After rows with only held changes it reads on, up to ROUNDS_MAX times.
ROWS_LOOKED_AT = 10_000
ROUNDS_MAX = 10
# The most older changes in a page of emergencies; if an entity has more, the reservation says which are sent first.
OLDER_MAX = 2_000

# Without it the server may scan the primary key through all changes that ended long ago.
_BY_ID = "FORCE INDEX (ix_outbox_events_outstanding)"

# No dead letter of its entity is before it. Looked up for each TXN change; a list of all dead letters of the host would
# be made anew for each page, in seconds if they are 100,000.
_NONE_DEAD = " AND ".join(f"COALESCE({oldest_of(cls, DEAD)}, o.id) >= o.id" for cls in PriorityClass)
_IS_FREE = (
    f"(o.priority_class <> 'TXN' OR {_NONE_DEAD} AND (SELECT r.change_id FROM pending_fates r WHERE r.host = o.host "
    "AND r.entity_type = o.entity_type AND r.entity_id = o.entity_id AND r.outcome = 'DEAD' AND r.change_id < o.id "
    "LIMIT 1) IS NULL)"
)

_LOOK = (
    "SELECT COUNT(*) AS changes, MAX(id) AS last_id "
    "FROM (SELECT o.id FROM outbox_events o {index} WHERE {which} ORDER BY o.id LIMIT :rows) looked"
)
_FREE = (
    f"SELECT {REF_AND_PROPERTY} FROM outbox_events o {{index}} {ITS_UNIT} "
    f"WHERE {{which}} AND o.id <= :last_id AND {_IS_FREE} ORDER BY o.id LIMIT :limit"
)

_OUTSTANDING = f"o.host = :host AND o.processed_at IS NULL AND o.id > :after_id AND NOT {IS_PENDING}"
# Rows with a `relayed_at` in the future were relayed before the clock was set back.
_QUIET = (
    _OUTSTANDING + " AND (o.relayed_at <= UTC_TIMESTAMP(6) - INTERVAL :quiet_us MICROSECOND "
    "OR o.relayed_at > UTC_TIMESTAMP(6))"
)
_OF_ENTITY = (
    "o.host = :host AND o.entity_type = :entity_type AND o.entity_id = :entity_id AND o.processed_at IS NULL "
    f"AND o.id > :after_id AND NOT {IS_PENDING}"
)


@dataclass(frozen=True, slots=True)
class Scan:
    """One way to page through outstanding rows. `look`: how far the next page reaches. `free`: its rows that may be
    sent.
    """

    look: str
    free: str

    @classmethod
    def of(cls, which: str, index: str) -> Scan:
        return cls(_LOOK.format(which=which, index=index), _FREE.format(which=which, index=index))


_ALL = Scan.of(_OUTSTANDING, _BY_ID)
_SWEPT = Scan.of(_QUIET, _BY_ID)
_ENTITY = Scan.of(_OF_ENTITY, BY_ENTITY)

_EMERGENCIES = text(
    f"SELECT {REF_AND_PROPERTY} FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) {ITS_UNIT} "
    "WHERE o.host = :host "
    f"AND o.processed_at IS NULL AND o.priority_class = 'EMERGENCY' AND o.id > :after_id AND NOT {IS_PENDING} "
    "ORDER BY o.id LIMIT :limit"
)
_OLDER = text(
    f"SELECT {REF_AND_PROPERTY} FROM (SELECT host, entity_type, entity_id, MAX(id) AS id FROM outbox_events "
    "FORCE INDEX (ix_outbox_events_unrelayed) "
    "WHERE host = :host AND processed_at IS NULL AND priority_class = 'EMERGENCY' "
    "AND id > :after_id AND id <= :last_id GROUP BY host, entity_type, entity_id) e "
    f"JOIN outbox_events o {BY_ENTITY} "
    "ON o.host = e.host AND o.entity_type = e.entity_type AND o.entity_id = e.entity_id "
    f"AND o.processed_at IS NULL AND o.id < e.id {ITS_UNIT} "
    f"WHERE o.priority_class <> 'EMERGENCY' AND {_IS_FREE} AND NOT {IS_PENDING} ORDER BY o.id LIMIT :limit"
)

DEAD_LETTERS = (
    "SELECT (SELECT COUNT(*) FROM outbox_events WHERE host = :host AND outcome = 'DEAD') "
    "+ (SELECT COUNT(*) FROM pending_fates WHERE host = :host AND outcome = 'DEAD')"
)


@dataclass(frozen=True, slots=True)
class IdPage:
    """A page of a list in id order; while there is `more`, the next page is the one after `last_id`."""

    refs: list[ChangeRef]
    last_id: int
    more: bool


def outstanding_page(connection: Connection, host: str, after_id: int, limit: int, *, quiet_ms: int = 0) -> IdPage:
    """Changes without a fate after `after_id`; with `quiet_ms`, only those relayed at least that long ago."""
    values: dict[str, object] = {"host": host}
    if not quiet_ms:
        return _scan(connection, _ALL, values, after_id, limit)
    return _scan(connection, _SWEPT, values | {"quiet_us": quiet_ms * 1000}, after_id, limit)


def entity_page(connection: Connection, host: str, entity: EntityKey, after_id: int, limit: int) -> IdPage:
    """One entity's changes without a fate."""
    values: dict[str, object] = {"host": host, "entity_type": entity.entity_type, "entity_id": entity.entity_id}
    return _scan(connection, _ENTITY, values, after_id, limit)


def emergencies_page(connection: Connection, host: str, after_id: int, limit: int) -> IdPage:
    """Emergencies without a fate after `after_id`, at most `limit`, and their entities' older changes."""
    values: dict[str, object] = {"host": host, "after_id": after_id}
    found = [as_ref(row) for row in connection.execute(_EMERGENCIES, values | {"limit": limit + 1})]
    emergencies = found[:limit]
    if not emergencies:
        return IdPage([], after_id, more=False)
    last_id = emergencies[-1].change_id
    older = connection.execute(_OLDER, values | {"last_id": last_id, "limit": OLDER_MAX})
    refs = sorted([*emergencies, *map(as_ref, older)], key=lambda ref: ref.change_id)
    return IdPage(refs, last_id, more=len(found) > limit)


def dead_letters(connection: Connection, host: str) -> int:
    """How many dead letters wait for an operator."""
    return int(connection.execute(text(DEAD_LETTERS), {"host": host}).scalar_one())


def _scan(connection: Connection, scan: Scan, values: dict[str, object], after_id: int, limit: int) -> IdPage:
    rows = 2 * limit  # enough if few changes are held
    for _ in range(ROUNDS_MAX):
        given = values | {"after_id": after_id}
        looked = connection.execute(text(scan.look), given | {"rows": rows}).one()
        if not looked.changes:
            return IdPage([], after_id, more=False)
        found = connection.execute(text(scan.free), given | {"last_id": looked.last_id, "limit": limit})
        refs = [as_ref(row) for row in found]
        if len(refs) == limit:
            return IdPage(refs, refs[-1].change_id, more=True)
        after_id, more, rows = looked.last_id, looked.changes == rows, ROWS_LOOKED_AT
        if refs or not more:
            return IdPage(refs, after_id, more)
    return IdPage([], after_id, more=True)
