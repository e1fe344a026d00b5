"""Lists of changes for people: those that were recorded, newest first, and the scheduled ones, in due order.

A page reads a bounded part of the table. Of the recorded ones, the filter that leaves the fewest changes decides which
index is read, in id order; the other filters are applied to the rows found there. So a page may have fewer changes than
its limit, even none, before the list ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, NamedTuple

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import WAITING, PriorityClass
from oldhost_sync.store.columns import UtcDateTime, like_pattern
from oldhost_sync.store.outbox.pending_fates import IDS_MAX, JOIN_PENDING, fate_columns
from oldhost_sync.store.record import RECORD, described

# ---------------------------------------------------------------------------------------------------- scheduled changes

# Two branches, one for the same due time and one for later ones, so that each reads the index and stops at the limit.
_PART = (
    "(SELECT id, idempotency_key, entity_type, entity_id, event_type, source, not_before, created_at "
    "FROM scheduled_changes FORCE INDEX (ix_scheduled_changes_due) WHERE host = :host AND recorded_at IS NULL "
    "AND cancelled_at IS NULL AND {after} ORDER BY not_before, id LIMIT :limit)"
)
_LIST = text(
    f"{_PART.format(after='not_before = :at AND id > :id')} UNION ALL {_PART.format(after='not_before > :at')} "
    "ORDER BY not_before, id LIMIT :limit"
).columns(not_before=UtcDateTime(), created_at=UtcDateTime())


class ScheduledPlace(NamedTuple):
    """The last one that was listed: when it is due, in UTC without a zone, and its number."""

    not_before: datetime
    scheduled_id: int


BEGINNING = ScheduledPlace(datetime(1970, 1, 1), 0)  # noqa: DTZ001 - as the column holds it


def list_scheduled(
    connection: Connection, host: str, *, limit: int, after: ScheduledPlace = BEGINNING
) -> tuple[list[dict[str, Any]], ScheduledPlace | None]:
    """At most `limit` changes that are neither recorded nor cancelled, and where the next page begins; None at the end.

    The index has `recorded_at` and `cancelled_at` first, both NULL here, so a page reads only the rows that it shows.
    """
    values = {"host": host, "at": after.not_before, "id": after.scheduled_id, "limit": limit + 1}
    rows = [dict(row._mapping) for row in connection.execute(_LIST, values)]  # noqa: SLF001 - a row by name
    page = rows[:limit]
    ends = [ScheduledPlace(row["not_before"].replace(tzinfo=None), row.pop("id")) for row in page]
    return page, ends[-1] if len(rows) > limit else None


# ------------------------------------------------------------------------------------------------------------ certainty

# How certain a fate is (I14): the stored mark `unproven` has one word for each fate, for people and programs.


def unconfirmed(outcome: str | None, unproven: Any) -> bool:
    """Applied, as far as the used nonce shows or an operator said: no answer of OldHost confirms it."""
    return bool(unproven) and outcome == "APPLIED"


def unsure(outcome: str | None, unproven: Any) -> bool:
    """A dead letter of which OldHost's answer says neither applied nor rejected."""
    return bool(unproven) and outcome == "DEAD"


def with_certainty(row: dict[str, Any]) -> dict[str, Any]:
    """The row with `unconfirmed` and `unsure` in place of `unproven`."""
    unproven = row.pop("unproven")
    outcome = row.get("outcome")
    return {**row, "unconfirmed": unconfirmed(outcome, unproven), "unsure": unsure(outcome, unproven)}


# ----------------------------------------------------------------------------------------------------- recorded changes

# The filter's word for "no fate yet".
OUTSTANDING = "OUTSTANDING"
# Fates with a text: OldHost's reason, or the product's.
ANSWERED = ("DEAD", "DISCARDED", "REFUSED")
# Changes that one page reads: about 50 ms.
PAGE_LOOKS_AT_MAX = 5_000
_CHUNK = IDS_MAX
# The range of ids that one query for a property's changes covers; of 50,000 units a property has some hundreds.
_WINDOW = 20_000
# With more units than this, a property has a large share of all changes, so reading all of them finds enough.
_UNITS_MAX = 2 * IDS_MAX
# A statement may get its id and then wait for locks: a change may be this much older than one with a smaller id.
_OUT_OF_ORDER = timedelta(seconds=60)
_BEYOND_ALL = 2**63 - 1

_WALK = (
    "(SELECT o.id FROM outbox_events o FORCE INDEX ({index}) WHERE o.host = :host AND {condition} "
    "AND o.id < :before AND o.id >= :floor ORDER BY o.id DESC LIMIT :chunk)"
)
_WALK_PENDING = (
    "(SELECT p.change_id AS id FROM pending_fates p WHERE p.host = :host AND p.outcome IN ({outcomes}) "
    "AND p.change_id < :before AND p.change_id >= :floor ORDER BY p.change_id DESC LIMIT :chunk)"
)
_OF_UNITS = text(
    _WALK.format(index="ix_outbox_events_entity", condition="o.entity_type = 'unit' AND o.entity_id IN :units")[1:-1]
).bindparams(bindparam("units", expanding=True))
_UNITS = text(
    "SELECT id FROM units FORCE INDEX (ix_units_property) WHERE host = :host AND property_id = :property_id "
    "ORDER BY id LIMIT :limit"
)
_EACH_CLASS = [f"o.priority_class = '{each}'" for each in PriorityClass]
_NEXT = text(
    " UNION ALL ".join(
        f"(SELECT o.id, o.created_at FROM outbox_events o FORCE INDEX (ix_outbox_events_class) WHERE o.host = :host "
        f"AND {each} AND o.id >= :id ORDER BY o.id LIMIT 1)"
        for each in _EACH_CLASS
    )
    + " ORDER BY id LIMIT 1"
).columns(created_at=UtcDateTime())

_OUTCOME = "COALESCE(o.outcome, p.outcome)"
_ROWS = (
    "SELECT o.id AS change_id, o.idempotency_key, o.entity_type, o.entity_id, o.event_type, o.priority_class, "
    f"o.source, o.created_at AS accepted_at, "
    f"{fate_columns('outcome', 'processed_at', 'superseded_by', 'error', 'nonce', 'unproven')}, "
    "(SELECT MAX(r.nonce) FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) WHERE r.host = o.host "
    "AND r.change_id = o.id AND r.status IN ('RESERVED', 'SENT')) AS bound "
    "FROM outbox_events o FORCE INDEX (PRIMARY) "
    f"{JOIN_PENDING} "
    "WHERE o.id IN :ids AND o.host = :host{conditions} ORDER BY o.id DESC"
)
_CONDITIONS = {
    "entity_type": "o.entity_type = :entity_type",
    "entity_id": "o.entity_id = :entity_id",
    "event_type": "o.event_type = :event_type",
    "priority_class": "o.priority_class = :priority_class",
    "accepted_from": "o.created_at >= :accepted_from",
    "accepted_before": "o.created_at < :accepted_before",
    "waited_s": "TIMESTAMPDIFF(MICROSECOND, o.created_at, COALESCE(o.processed_at, p.decided_at, UTC_TIMESTAMP(6))) "
    "> :waited_s * 1000000",
    "answer": "COALESCE(o.error, p.error) LIKE :answer",
    "property_id": "o.entity_type = 'unit' AND EXISTS (SELECT 1 FROM units u WHERE u.host = o.host "
    "AND u.id = o.entity_id AND u.property_id = :property_id)",
}

# Arguments: `before`, `chunk`. Returns at most `chunk` ids below `before`, the largest first, and where to continue;
# None at the end.
Walk = Callable[[int, int], tuple[list[int], int | None]]


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes; None: any. `outcome`: a fate, or OUTSTANDING. `answer`: a part of OldHost's reason,
    case-insensitive; only changes that OldHost rejected and submissions that were refused have one. `accepted_from` and
    `accepted_before`: by the database's clock; if it was set back, changes around that time may be missing. `waited_s`:
    changes that took longer to get a fate, or have waited longer for one.
    """

    entity_type: str | None = None
    entity_id: str | None = None
    outcome: str | None = None
    priority_class: str | None = None
    event_type: str | None = None
    property_id: str | None = None
    answer: str | None = None
    accepted_from: datetime | None = None
    accepted_before: datetime | None = None
    waited_s: float | None = None


@dataclass(frozen=True, slots=True)
class ListedChange:
    """One change, without its payload."""

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
        "entity_type": "unit",
        "entity_id": "12B",
        "source": "api:shop",
        "state": "DEAD",
        "superseded_by": None,
        "unconfirmed": False,
        "unsure": False,
    }

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str
    source: str = field(metadata=described("Who recorded it"))
    state: str = field(metadata=described("WAITING, IN_FLIGHT, or its fate"))
    outcome: str | None
    accepted_at: datetime
    processed_at: datetime | None
    nonce: int | None = field(metadata=described("The nonce that it was sent with, or that is reserved for it now"))
    superseded_by: int | None
    error: str | None = field(metadata=described("OldHost's reason, when it was rejected"))
    unconfirmed: bool = field(metadata=described("APPLIED, and no answer of OldHost confirms it"))
    unsure: bool = field(metadata=described("DEAD, and OldHost's answer says neither applied nor rejected"))


@dataclass(frozen=True, slots=True)
class ChangeList:
    """A page of a list, newest first; the next page is the one with `before_id` = `next_before`, None at the end."""

    changes: list[ListedChange]
    next_before: int | None


def list_changes(
    connection: Connection, host: str, wanted: ChangeFilter = ChangeFilter(), *, before_id: int | None, limit: int
) -> ChangeList:
    """At most `limit` changes with ids below `before_id` (None: the newest first)."""
    before: int | None = _BEYOND_ALL if before_id is None else before_id
    floor = 0
    if wanted.accepted_from is not None:
        floor = _first_id_from(connection, host, wanted.accepted_from - _OUT_OF_ORDER)
    if wanted.accepted_before is not None and before is not None:
        before = min(before, _first_id_from(connection, host, wanted.accepted_before + _OUT_OF_ORDER))
    walk = _walk_of(connection, host, wanted, floor)
    changes: list[ListedChange] = []
    looked_at, chunk = 0, limit + 1
    while before is not None and len(changes) <= limit and looked_at < PAGE_LOOKS_AT_MAX:
        ids, before = walk(before, chunk)
        changes += _rows(connection, host, wanted, ids)
        looked_at, chunk = looked_at + chunk, _CHUNK
    if len(changes) > limit:
        return ChangeList(changes[:limit], changes[limit - 1].change_id)
    return ChangeList(changes, before)


def _walk_of(connection: Connection, host: str, wanted: ChangeFilter, floor: int) -> Walk:
    """Read the index of the filter that leaves the fewest changes."""
    values = {"host": host, "floor": floor}
    rare = wanted.answer is not None or wanted.outcome in (*ANSWERED, OUTSTANDING)
    if wanted.entity_id is not None and wanted.entity_type is not None:
        named = f"{_CONDITIONS['entity_type']} AND {_CONDITIONS['entity_id']}"
        kept = {"entity_type": wanted.entity_type, "entity_id": wanted.entity_id}
        return _index_walk(connection, [_WALK.format(index="ix_outbox_events_entity", condition=named)], values | kept)
    if rare:
        return _index_walk(connection, _walks_of_outcome(wanted), values)
    if wanted.property_id is not None:
        unit_ids = connection.execute(
            _UNITS, {"host": host, "property_id": wanted.property_id, "limit": _UNITS_MAX + 1}
        ).scalars()
        if len(units := [str(unit_id) for unit_id in unit_ids]) <= _UNITS_MAX:
            return _property_walk(connection, units, values)
    if wanted.event_type is not None:
        walk = _WALK.format(index="ix_outbox_events_event", condition=_CONDITIONS["event_type"])
        return _index_walk(connection, [walk], values | {"event_type": wanted.event_type})
    if wanted.outcome is not None:
        return _index_walk(connection, _walks_of_outcome(wanted), values)
    classes = [_CONDITIONS["priority_class"]] if wanted.priority_class is not None else _EACH_CLASS
    walks = [_WALK.format(index="ix_outbox_events_class", condition=condition) for condition in classes]
    return _index_walk(connection, walks, values | {"priority_class": wanted.priority_class})


def _walks_of_outcome(wanted: ChangeFilter) -> list[str]:
    if wanted.outcome == OUTSTANDING:
        return [_WALK.format(index="ix_outbox_events_outcome", condition="o.outcome IS NULL")]
    outcomes = ANSWERED if wanted.outcome is None else (wanted.outcome,)
    walks = [
        _WALK.format(index="ix_outbox_events_outcome", condition=f"o.outcome = '{outcome}'") for outcome in outcomes
    ]
    # The fate of a change whose row is locked is not in the outbox yet.
    return [*walks, _WALK_PENDING.format(outcomes=", ".join(f"'{outcome}'" for outcome in outcomes))]


def _index_walk(connection: Connection, walks: Sequence[str], values: dict[str, Any]) -> Walk:
    statement = text(f"{' UNION '.join(walks)} ORDER BY id DESC LIMIT :chunk" if len(walks) > 1 else walks[0][1:-1])
    given = {name: value for name, value in values.items() if value is not None}

    def walk(before: int, chunk: int) -> tuple[list[int], int | None]:
        found = connection.execute(statement, given | {"before": before, "chunk": chunk}).scalars()
        ids = [int(each) for each in found]
        return ids, ids[-1] if len(ids) == chunk else None

    return walk


def _property_walk(connection: Connection, units: Sequence[str], values: dict[str, Any]) -> Walk:
    """Read one range of ids after the other, each entity by entity."""

    def walk(before: int, chunk: int) -> tuple[list[int], int | None]:
        newest = min(before, _newest_id(connection, values["host"]) + 1)
        floor = max(values["floor"], newest - _WINDOW)
        found: list[int] = []
        for start in range(0, len(units), IDS_MAX):
            some = {"units": units[start : start + IDS_MAX], "before": newest, "floor": floor, "chunk": chunk}
            found += connection.execute(_OF_UNITS, values | some).scalars()
        ids = sorted(found, reverse=True)[:chunk]
        if len(ids) == chunk:
            return ids, ids[-1]
        return ids, floor if floor > max(values["floor"], 1) else None

    return walk if units else lambda _before, _chunk: ([], None)


def _rows(connection: Connection, host: str, wanted: ChangeFilter, ids: Sequence[int]) -> list[ListedChange]:
    """Those of `ids` (at most a page) that match the filter."""
    if not ids:
        return []
    values: dict[str, Any] = {"host": host, "ids": ids}
    conditions = ""
    for name, condition in _CONDITIONS.items():
        if (value := getattr(wanted, name)) is not None:
            conditions += f" AND {condition}"
            values[name] = like_pattern(value, anywhere=True) if name == "answer" else value
    if wanted.outcome == OUTSTANDING:
        conditions += f" AND {_OUTCOME} IS NULL"
    elif wanted.outcome is not None:
        conditions += f" AND {_OUTCOME} = :outcome"
        values["outcome"] = wanted.outcome
    statement = text(_ROWS.format(conditions=conditions)).bindparams(
        bindparam("ids", expanding=True),
        *(bindparam(name, type_=UtcDateTime()) for name in ("accepted_from", "accepted_before") if name in values),
    )
    shown = statement.columns(accepted_at=UtcDateTime(), processed_at=UtcDateTime())
    return [_listed(dict(row._mapping)) for row in connection.execute(shown, values)]  # noqa: SLF001 - a row by name


def _listed(row: dict[str, Any]) -> ListedChange:
    bound = row.pop("bound")
    waits = "IN_FLIGHT" if bound is not None else WAITING
    if row["nonce"] is None:
        row["nonce"] = bound
    return ListedChange(state=row["outcome"] or waits, **with_certainty(row))


def _newest_id(connection: Connection, host: str) -> int:
    walks = [_WALK.format(index="ix_outbox_events_class", condition=condition) for condition in _EACH_CLASS]
    statement = text(f"{' UNION ALL '.join(walks)} ORDER BY id DESC LIMIT 1")
    newest = connection.execute(statement, {"host": host, "before": _BEYOND_ALL, "floor": 0, "chunk": 1}).scalar()
    return int(newest or 0)


def _first_id_from(connection: Connection, host: str, moment: datetime) -> int:
    """The first id that was accepted at or after `moment`: a binary search, as times grow with the ids."""
    low, high = 0, _newest_id(connection, host) + 1
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(_NEXT, {"host": host, "id": middle}).one_or_none()
        if row is None or row.created_at >= moment:
            high = middle
        else:
            low = row.id + 1
    return low
