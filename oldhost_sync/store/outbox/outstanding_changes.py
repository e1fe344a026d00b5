"""Outstanding changes, which have no fate yet: the relay claims them, the writer reads them again page by page; and the
lease that says which relay works for a host.

The relay claims changes by their state, in id order, never from a remembered id on: ids are given out under an entity's
lock, so they are not in commit order between entities, and a row with a smaller id may become visible after one with a
larger (trap 13). Claims lock nothing: two relays that claim the same rows both signal them, and the writer ignores the
repetition by the change's id.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.changes import ChangeRef, EntityKey, PriorityClass
from oldhost_sync.policy.limits import RELAY_LOOK_SECONDS
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from oldhost_sync.store.outbox.pending_fates import AT_ONCE, IDS_MAX, IS_PENDING, listed, tried_at_once
from oldhost_sync.store.transactions import REFUSE_READ_ONLY

REF = "o.id, o.priority_class, o.entity_type, o.entity_id, o.event_type, o.created_at"
# A ref and the property that its unit has now: one lookup by the primary key for each row, without locks.
REF_AND_PROPERTY = f"{REF}, u.property_id"
ITS_UNIT = "LEFT JOIN units u ON u.host = o.host AND u.id = o.entity_id AND o.entity_type = 'unit'"
_UNRELAYED = "o.host = :host AND o.processed_at IS NULL AND o.relayed_at IS NULL"
# Without it the server may scan the primary key through all changes that ended long ago.
_BY_STATE = "FORCE INDEX (ix_outbox_events_unrelayed)"
# Without it, one entity's changes may cost a scan of all outstanding ones: 15 s instead of 5 ms for 400 emergencies
# among 50,000 other changes.
BY_ENTITY = "FORCE INDEX (ix_outbox_events_key)"

# One subquery per class, each reading the first entry of its range: the index has the class before `relayed_at`.
_ANY_UNRELAYED = (
    f"EXISTS (SELECT 1 FROM outbox_events o {_BY_STATE} WHERE o.host = l.host AND o.processed_at IS NULL "
    "AND o.priority_class = '{cls}' AND o.relayed_at IS NULL)"
)
_UNRELAYED_OF_OWNER = text(
    "SELECT l.host, "
    + ", ".join(f"{_ANY_UNRELAYED.format(cls=each)} AS {each.lower()}" for each in PriorityClass)
    + " FROM relay_lease l WHERE l.owner = :owner"
)
# The same for any host of the owner: by class here, too, or all changes without a fate would be read.
_OF_SOME_HOST = (
    f"EXISTS (SELECT 1 FROM relay_lease l STRAIGHT_JOIN outbox_events o {_BY_STATE} ON o.host = l.host "
    "AND o.processed_at IS NULL AND o.priority_class = '{cls}' AND o.relayed_at IS NULL WHERE l.owner = :owner{more})"
)
_KNOWN_APART = " AND NOT FIND_IN_SET(l.host, :known)"
# The polling loop runs in the server: between two polls it holds no lock, no transaction and no read view. Each look is
# a SELECT: as a condition of the loop it would lock, and wait for every row that another transaction has not committed.
_AWAIT_UNRELAYED = text(
    f"BEGIN NOT ATOMIC DECLARE looks INT DEFAULT :looks; DECLARE found BOOLEAN DEFAULT FALSE; {REFUSE_READ_ONLY} "
    "WHILE looks > 0 AND NOT found DO SELECT "
    + " OR ".join(
        _OF_SOME_HOST.format(cls=each, more="" if each is PriorityClass.EMERGENCY else _KNOWN_APART)
        for each in PriorityClass
    )
    + " INTO found; IF NOT found THEN DO SLEEP(:pause); END IF; SET looks = looks - 1; END WHILE; "
    f"{_UNRELAYED_OF_OWNER}; END"
)

_PROGRESS = text(
    "SELECT l.host, COALESCE(n.fate_sequence, 0) AS fates, "
    "EXISTS (SELECT 1 FROM outbox_events o FORCE INDEX (ix_outbox_events_outstanding) "
    "WHERE o.host = l.host AND o.processed_at IS NULL) AS outstanding "
    "FROM relay_lease l LEFT JOIN nonce_ledger n ON n.host = l.host WHERE l.owner = :owner"
)

# One branch per class: each reads its index in id order and stops at the limit, however long the backlog is.
_CLAIM = text(
    " UNION ALL ".join(
        f"(SELECT {REF_AND_PROPERTY} FROM outbox_events o {_BY_STATE} {ITS_UNIT} "
        f"WHERE {_UNRELAYED} AND o.priority_class = '{each}' "
        "ORDER BY o.id LIMIT :limit)"
        for each in PriorityClass
    )
    + " ORDER BY id LIMIT :limit"
)

# An emergency is claimed with its entity's older changes, or it would overtake them (trap 11).
_CLAIM_EMERGENCIES = text(
    f"SELECT {REF_AND_PROPERTY} FROM (SELECT host, entity_type, entity_id, MAX(id) AS id FROM ("
    f"SELECT o.id, o.host, o.entity_type, o.entity_id FROM outbox_events o {_BY_STATE} "
    f"WHERE {_UNRELAYED} AND o.priority_class = 'EMERGENCY' ORDER BY o.id LIMIT :limit) first "
    "GROUP BY host, entity_type, entity_id) e "
    f"JOIN outbox_events o {BY_ENTITY} "
    "ON o.host = e.host AND o.entity_type = e.entity_type AND o.entity_id = e.entity_id "
    f"AND o.processed_at IS NULL AND o.relayed_at IS NULL AND o.id <= e.id {ITS_UNIT} ORDER BY o.id"
)

_MARK = f"{AT_ONCE}UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6) WHERE id IN ({{ids}}) AND relayed_at IS NULL"
_UNMARKED = "SELECT id FROM outbox_events WHERE id IN ({ids}) AND relayed_at IS NULL"

_OLDER_UNRELAYED = text(
    f"SELECT EXISTS (SELECT 1 FROM outbox_events o {BY_ENTITY} WHERE o.host = :host AND o.entity_type = :entity_type "
    "AND o.entity_id = :entity_id AND o.processed_at IS NULL AND o.relayed_at IS NULL AND o.id < :id)"
)

_PROPERTY = text("SELECT property_id FROM units WHERE host = :host AND id = :entity_id")

_UNPROCESSED = text(
    "SELECT "
    + " + ".join(
        f"(SELECT COUNT(*) FROM (SELECT 1 FROM outbox_events o {_BY_STATE} WHERE o.host = :host "
        f"AND o.processed_at IS NULL AND o.priority_class = '{each}' AND o.relayed_at IS NOT NULL LIMIT :limit) "
        f"{each.lower()})"
        for each in PriorityClass
    )
)

# Entity by entity, so that each is read by its index; a TXN change is held behind an older dead letter of its entity.
_HELD_BACK = text(
    "SELECT COUNT(*) FROM (SELECT 1 FROM (SELECT entity_type, entity_id, MIN(id) AS id FROM outbox_events "
    "FORCE INDEX (ix_outbox_events_status) "
    "WHERE host = :host AND outcome = 'DEAD' GROUP BY entity_type, entity_id) dead "
    "STRAIGHT_JOIN outbox_events o FORCE INDEX (ix_outbox_events_status) ON o.host = :host AND o.outcome IS NULL "
    "AND o.entity_type = dead.entity_type AND o.entity_id = dead.entity_id AND o.id > dead.id "
    "WHERE o.relayed_at IS NOT NULL AND o.priority_class = 'TXN' LIMIT :limit) counted"
)


def claim_batch(connection: Connection, host: str, limit: int, *, emergencies_only: bool = False) -> list[ChangeRef]:
    """The oldest unrelayed changes in id order, at most `limit`.

    With `emergencies_only`: the oldest emergencies, at most `limit`, and with each the older unrelayed changes of its
    entity. These are not counted in the limit, because an emergency without them would be out of order.
    """
    statement = _CLAIM_EMERGENCIES if emergencies_only else _CLAIM
    return [as_ref(row) for row in connection.execute(statement, {"host": host, "limit": limit})]


@dataclass(frozen=True, slots=True)
class Unrelayed:
    """Whether a host's outbox has unrelayed changes, and emergencies among them."""

    anything: bool = False
    emergency: bool = False


def unrelayed(connection: Connection, owner: str) -> dict[str, Unrelayed]:
    """For each host whose lease `owner` holds; three index lookups each."""
    return _by_host(connection.execute(_UNRELAYED_OF_OWNER, {"owner": owner}))


def await_unrelayed(
    connection: Connection, owner: str, known: Collection[str], wait_seconds: float
) -> dict[str, Unrelayed]:
    """As :func:`unrelayed`, but waits until there is an emergency or any change of a host not in `known`; at most
    `wait_seconds`. `connection` must be in autocommit mode, so that each poll sees what is committed by then.
    """
    asked = {
        "owner": owner,
        "known": ",".join(known),
        "looks": round(wait_seconds / RELAY_LOOK_SECONDS),
        "pause": RELAY_LOOK_SECONDS,
    }
    return _by_host(connection.execute(_AWAIT_UNRELAYED, asked))


def _by_host(rows: Iterable[Any]) -> dict[str, Unrelayed]:
    return {row.host: Unrelayed(bool(row.emergency or row.txn or row.lww), bool(row.emergency)) for row in rows}


@dataclass(frozen=True, slots=True)
class HostProgress:
    """Whether a host has something outstanding, and a number that grows with each fate."""

    outstanding: bool = False
    fates: int = 0


def progress(connection: Connection, owner: str) -> dict[str, HostProgress]:
    """For each host whose lease `owner` holds; two index lookups each."""
    rows = connection.execute(_PROGRESS, {"owner": owner})
    return {row.host: HostProgress(bool(row.outstanding), int(row.fates)) for row in rows}


def mark_relayed(connection: Connection, change_ids: Sequence[int]) -> int:
    """Mark the changes that the writer acknowledged; returns how many were not marked before.

    It waits for no lock: a locked row stays unmarked (:func:`unmarked`), so that the others need not wait for it.
    """
    ids = sorted(change_ids)
    return sum(_mark(connection, ids[start : start + IDS_MAX]) for start in range(0, len(ids), IDS_MAX))


def _mark(connection: Connection, change_ids: Sequence[int]) -> int:
    changed = tried_at_once(connection, _MARK.format(ids=listed(change_ids)), ())
    if changed is None:
        free = connection.exec_driver_sql(_UNMARKED.format(ids=listed(change_ids)) + " FOR UPDATE SKIP LOCKED")
        ids = free.scalars().all()
        changed = tried_at_once(connection, _MARK.format(ids=listed(ids)), ()) if ids else 0
    return changed or 0


def unmarked(connection: Connection, change_ids: Sequence[int]) -> list[int]:
    """Those of `change_ids` that are still not marked as relayed."""
    unmarked_ids: list[int] = []
    for start in range(0, len(change_ids), IDS_MAX):
        ids = listed(change_ids[start : start + IDS_MAX])
        unmarked_ids += connection.exec_driver_sql(_UNMARKED.format(ids=ids)).scalars().all()
    return unmarked_ids


def older_are_unrelayed(connection: Connection, host: str, ref: ChangeRef) -> bool:
    """Whether older changes of the same entity have not reached the writer yet. Call it under the entity's lock."""
    values = {"host": host, "entity_type": ref.entity_type, "entity_id": ref.entity_id, "id": ref.change_id}
    return bool(connection.execute(_OLDER_UNRELAYED, values).scalar_one())


def with_property(connection: Connection, host: str, ref: ChangeRef) -> ChangeRef:
    """The ref with the property that its unit has now."""
    property_id = connection.execute(_PROPERTY, {"host": host, "entity_id": ref.entity_id}).scalar()
    return ref if property_id is None or ref.entity_type != "unit" else ChangeRef(*ref[:6], property_id)


def unprocessed_up_to(connection: Connection, host: str, limit: int) -> int:
    """How many relayed changes have no fate yet; counting stops at `limit`."""
    return min(limit, int(connection.execute(_UNPROCESSED, {"host": host, "limit": limit}).scalar_one()))


def held_back_up_to(connection: Connection, host: str, limit: int) -> int:
    """How many of these are held behind a dead letter and so are not in the writer; counting stops at `limit`."""
    return int(connection.execute(_HELD_BACK, {"host": host, "limit": limit}).scalar_one())


def as_ref(row: Sequence[Any]) -> ChangeRef:
    """The ref in a row of id, priority_class, entity_type, entity_id, event_type, created_at, and optionally the
    property.
    """
    change_id, priority_class, entity_type, entity_id, event_type, created_at, *more = row
    at_ms, property_id = unix_ms(created_at), (more[0] or "") if more else ""
    return ChangeRef(change_id, PriorityClass(priority_class), entity_type, entity_id, event_type, at_ms, property_id)


def unix_ms(stored: datetime) -> int:
    """A stored time, in the milliseconds that refs use."""
    return int(stored.replace(tzinfo=UTC).timestamp() * 1000)


# ------------------------------------------------------------------------------------------------------------ the lease

# By the database's clock, for efficiency only: a relay that was frozen may resume and still act as the active one, and
# that is harmless.
# A lease that ends later than a new one would end was taken before the clock was set back: it counts as expired, or a
# dead relay's lease could last for hours. A lease that is offered is made to end so late: any relay may take it, and
# its owner still counts as at work.

_UNTIL = "UTC_TIMESTAMP(6) + INTERVAL :span_us MICROSECOND"
_RENEW = text(
    f"UPDATE relay_lease SET owner = :owner, expires_at = {_UNTIL} "
    f"WHERE host = :host AND (owner = :owner OR expires_at <= UTC_TIMESTAMP(6) OR expires_at > {_UNTIL})"
)
_FIRST = text(f"INSERT INTO relay_lease (host, owner, expires_at) VALUES (:host, :owner, {_UNTIL})")
# An expired lease that no other relay has taken is renewed too, one that is offered is not. The table has few rows: one
# for each host.
_RENEW_ALL = text(f"UPDATE relay_lease SET expires_at = {_UNTIL} WHERE owner = :owner AND expires_at <= {_UNTIL}")
_HELD = text(f"SELECT host FROM relay_lease WHERE owner = :owner AND expires_at <= {_UNTIL}")
_UNSERVED = text(
    "SELECT r.host FROM (SELECT DISTINCT host FROM event_rules) r WHERE NOT EXISTS ("
    "SELECT 1 FROM relay_lease l WHERE l.host = r.host AND l.expires_at > UTC_TIMESTAMP(6)) AND EXISTS ("
    "SELECT 1 FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = r.host "
    "AND o.processed_at IS NULL) ORDER BY r.host"
)
_OFFER = text(
    f"UPDATE relay_lease SET expires_at = {_UNTIL} + INTERVAL :span_us MICROSECOND "
    "WHERE host = :host AND owner = :owner"
)
_RELEASE = text("DELETE FROM relay_lease WHERE host = :host AND owner = :owner")


def take_lease(connection: Connection, host: str, owner: str, span: timedelta) -> bool:
    """Take or renew the lease for `span` from now; False while another owner holds it."""
    values = {"host": host, "owner": owner, "span_us": _microseconds(span)}
    if connection.execute(_RENEW, values).rowcount:
        return True
    try:
        connection.execute(_FIRST, values)
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        return False
    return True


def renew_leases(connection: Connection, owner: str, span: timedelta) -> list[str]:
    """Renew all leases of this owner that are not offered for `span` from now; returns the hosts of these leases."""
    values = {"owner": owner, "span_us": _microseconds(span)}
    connection.execute(_RENEW_ALL, values)
    return list(connection.execute(_HELD, values).scalars())


def offer_lease(connection: Connection, host: str, owner: str, span: timedelta) -> bool:
    """Let any other relay take the lease within `span`; False if it is another's."""
    values = {"host": host, "owner": owner, "span_us": _microseconds(span)}
    return bool(connection.execute(_OFFER, values).rowcount)


def release_lease(connection: Connection, host: str, owner: str) -> None:
    """Release the lease, so that the next relay need not wait until it expires."""
    connection.execute(_RELEASE, {"host": host, "owner": owner})


def unserved_hosts(connection: Connection) -> list[str]:
    """The registered hosts with changes that have no fate, and for which no relay holds a lease."""
    return list(connection.execute(_UNSERVED).scalars())


def _microseconds(span: timedelta) -> int:
    return span // timedelta(microseconds=1)


# ----------------------------------------------------------------------------------------------------- pages of changes

# Pages of outstanding changes for the writer: emergencies first, then the rest; those of one entity; those of a sweep.
#
# A TXN change behind a dead letter of its entity is in none of these pages: it can't be sent before an operator has
# decided, and tens of thousands of them must cost the writer nothing. So a page reads a bounded number of rows and may
# return fewer than its limit; `last_id` is the last row that it read.

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

# As above.
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
    f"SELECT {REF_AND_PROPERTY} FROM outbox_events o {_BY_STATE} {ITS_UNIT} WHERE o.host = :host "
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
    first = [as_ref(row) for row in connection.execute(_EMERGENCIES, values | {"limit": limit + 1})]
    emergencies = first[:limit]
    if not emergencies:
        return IdPage([], after_id, more=False)
    last_id = emergencies[-1].change_id
    older = connection.execute(_OLDER, values | {"last_id": last_id, "limit": OLDER_MAX})
    refs = sorted([*emergencies, *map(as_ref, older)], key=lambda ref: ref.change_id)
    return IdPage(refs, last_id, more=len(first) > limit)


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
        free = connection.execute(text(scan.free), given | {"last_id": looked.last_id, "limit": limit})
        refs = [as_ref(row) for row in free]
        if len(refs) == limit:
            return IdPage(refs, refs[-1].change_id, more=True)
        after_id, more, rows = looked.last_id, looked.changes == rows, ROWS_LOOKED_AT
        if refs or not more:
            return IdPage(refs, after_id, more)
    return IdPage([], after_id, more=True)
