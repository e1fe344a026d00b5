"""Withdrawal: an operator takes back changes that wait, one or all that a filter finds; and its undo.

A change is either withdrawn or bound, never both: its fate WITHDRAWN is decided under the lock of the host's ledger
row, as every reservation is, and only if it has no nonce. So what the writer still has in memory does no harm: the
reservation tells it. What may have been written to OldHost before is not withdrawn either (an operator discards it).

Afterwards all is as if the change had never come. The shadow shows the newest state that waits, else what OldHost has.
Of an LWW key the newest state that still waits is sent; if newer operations of its entity were applied or hold a nonce,
it would come too late (I4), and is superseded. No-op and stale checks know only what was applied.

Each step is a short transaction, so that nobody waits for long. It locks the entities' rows, then the changes', then
the ledger's; what another transaction has locked is left out. No holder of the ledger's row waits for the other two.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar
from uuid import uuid4

from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.errors import InvalidChange
from oldhost_sync.store.intake.change_recorder import record_accepted, stored
from oldhost_sync.store.intake.shadow import Entity, clear_shadow, lock_free_entities, write_shadows
from oldhost_sync.store.intake.validation import Acceptable, accept
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.fates import MAY_ARRIVE, MAY_ARRIVE_VALUES, supersede_older
from oldhost_sync.store.ledger.reservation import HAS_NONCE, IS_PASSED
from oldhost_sync.store.outbox.outstanding_changes import REF, as_ref
from oldhost_sync.store.outbox.pending_fates import IS_PENDING, RAISE_SEQUENCE, SEQUENCE, listed
from oldhost_sync.store.record import RECORD, described
from oldhost_sync.store.transactions import Packet

WITHDRAW, UNDO = "withdraw", "undo-withdraw"
# Changes of one step: its transaction holds the ledger's row for some 30 ms.
AT_ONCE = 200
UNDONE_AT_ONCE = 100
# A preview counts no more than that, page by page.
PREVIEWED_MAX = 100_000
_PREVIEWED_AT_ONCE = 2_000
UNDO_SECONDS_MAX = 60
# OldHost's time for an operation is that of so many.
_MEASURED = 50

_MAY_ARRIVE = (
    "(SELECT a.id FROM nonce_requests_archive a FORCE INDEX (ix_nonce_requests_archive_change) "
    f"WHERE a.host = o.host AND a.change_id = o.id AND ({MAY_ARRIVE} OR a.status = 'UNSURE') LIMIT 1) IS NOT NULL"
)
_MATCHING = (
    "SELECT o.id, o.entity_type, o.entity_id, o.event_type, o.priority_class, "
    f"{HAS_NONCE} OR {_MAY_ARRIVE} AS is_bound "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_outstanding) WHERE o.host = %s AND o.processed_at IS NULL "
    f"AND o.id > %s AND o.id <= %s{{conditions}} AND NOT {IS_PENDING} ORDER BY o.id LIMIT %s"
)
_NEWEST_ID = "SELECT MAX(id) FROM outbox_events"
_FREE_ROWS = "SELECT id FROM outbox_events FORCE INDEX (PRIMARY) WHERE id IN ({ids}) FOR UPDATE SKIP LOCKED"
_STILL_FREE = (
    "SELECT o.id FROM outbox_events o FORCE INDEX (PRIMARY) WHERE o.id IN ({ids}) AND o.processed_at IS NULL "
    f"AND NOT {IS_PENDING} AND NOT {HAS_NONCE} AND NOT {_MAY_ARRIVE} ORDER BY o.id"
)
_WITHDRAW = (
    "UPDATE outbox_events SET outcome = 'WITHDRAWN', processed_at = UTC_TIMESTAMP(6), withdrawn_by = %s, "
    f"fate_sequence = {SEQUENCE} WHERE id IN ({{ids}}) AND processed_at IS NULL"
)
_ACT = "SELECT id FROM operator_audit WHERE host = %s AND action = %s AND JSON_VALUE(detail, '$.decision') = %s LIMIT 1"
_COUNT = (
    "UPDATE operator_audit SET detail = JSON_SET(detail, '$.withdrawn', "
    "CAST(JSON_VALUE(detail, '$.withdrawn') AS INTEGER) + %s) WHERE id = %s"
)
_OF_KEY = (
    "{n}.host = o.host AND {n}.entity_type = o.entity_type AND {n}.entity_id = o.entity_id "
    "AND {n}.event_type = o.event_type"
)
# The newest state of its LWW key that waits, if it is older than `o`; and whether it can't be sent any more.
_REMAINING = (
    f"SELECT {REF}, h.id AS head, {HAS_NONCE} AS has_nonce, {IS_PASSED} AS is_passed FROM outbox_events h "
    "STRAIGHT_JOIN outbox_events o FORCE INDEX (PRIMARY) ON o.id = (SELECT n.id FROM outbox_events n "
    "FORCE INDEX (ix_outbox_events_key) WHERE n.host = h.host AND n.entity_type = h.entity_type "
    "AND n.entity_id = h.entity_id AND n.event_type = h.event_type AND n.processed_at IS NULL "
    "AND n.priority_class = 'LWW' AND NOT EXISTS (SELECT 1 FROM pending_fates p WHERE p.host = n.host "
    "AND p.change_id = n.id) ORDER BY n.id DESC LIMIT 1) WHERE h.id IN ({ids}) AND o.id < h.id ORDER BY o.id"
)
# What the shadow shows: the newest change of a key with one of these fates, or none yet.
_SHOWN_FATES = "'APPLIED', 'NO_OP', 'DEAD', 'DISCARDED'"
_FATE = "COALESCE((SELECT p.outcome FROM pending_fates p WHERE p.host = n.host AND p.change_id = n.id), n.outcome)"
_IS_SHOWN = f"({_FATE} IS NULL OR {_FATE} IN ({_SHOWN_FATES}))"
_SHOWN_ID = (
    f"(SELECT n.id FROM outbox_events n FORCE INDEX (ix_outbox_events_entity) WHERE {_OF_KEY.format(n='n')} "
    f"AND {_IS_SHOWN}{{but}} ORDER BY n.id DESC LIMIT 1)"
)
# A change that was refused is in no shadow.
_NEWEST_OF_ENTITY = (
    "(SELECT n.id FROM outbox_events n FORCE INDEX (ix_outbox_events_entity) WHERE n.host = o.host "
    "AND n.entity_type = o.entity_type AND n.entity_id = o.entity_id "
    "AND (n.outcome IS NULL OR n.outcome NOT IN ('WITHDRAWN', 'REFUSED')) ORDER BY n.id DESC LIMIT 1)"
)
_SHOWN = (
    f"SELECT o.id, o.entity_type, o.entity_id, o.event_type, {_NEWEST_OF_ENTITY} AS newest, s.id AS shown, s.payload "
    f"FROM outbox_events o FORCE INDEX (PRIMARY) LEFT JOIN outbox_events s ON s.id = {_SHOWN_ID.format(but='')} "
    "WHERE o.id IN ({ids}) ORDER BY o.id"
)
_AFTERWARDS = (
    "SELECT o.id, o.priority_class, s.id AS shown, s.outcome FROM outbox_events o FORCE INDEX (PRIMARY) "
    "LEFT JOIN outbox_events s ON s.id = {shown} WHERE o.id IN ({ids})"
)
_SERVICE_MS = (
    "SELECT AVG(ms) FROM (SELECT TIMESTAMPDIFF(MICROSECOND, sent_at, completed_at) DIV 1000 AS ms FROM nonce_requests "
    f"FORCE INDEX (PRIMARY) WHERE host = %s AND status = 'APPLIED' ORDER BY nonce DESC LIMIT {_MEASURED}) latest"
)


# ----------------------------------------------------------------------------------------------------------- the filter


@dataclass(frozen=True, slots=True)
class WithdrawalFilter:
    """Which waiting changes: those that fit all that is given. `property_id`: of the unit. `accepted_before`: aware."""

    change_id: int | None = None
    idempotency_key: str | None = None
    source: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    event_type: str | None = None
    property_id: str | None = None
    priority_class: str | None = None
    accepted_before: datetime | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What is given, by name; empty: every change that waits."""
        named = ((name, getattr(self, name)) for name in self.__slots__)
        return {name: value for name, value in named if value is not None}

    @property
    def detail(self) -> dict[str, Any]:
        """For the audit."""
        return {name: value.isoformat() if name == "accepted_before" else value for name, value in self.given.items()}

    def conditions(self, alias: str) -> tuple[str, list[Any]]:
        """SQL, each condition after an AND, with its values."""
        conditions, values = "", []
        for name, value in self.given.items():
            column, shown = _COLUMNS.get(name, f"{{o}}.{name} = %s"), value
            if isinstance(value, datetime):
                shown = stored(value)
            conditions += f" AND {column.format(o=alias)}"
            values.append(shown)
        return conditions, values


_COLUMNS = {
    "change_id": "{o}.id = %s",
    "accepted_before": "{o}.created_at < %s",
    "property_id": "{o}.entity_type = 'unit' AND (SELECT u.property_id FROM units u WHERE u.host = {o}.host "
    "AND u.id = {o}.entity_id) = %s",
}


def _matching(
    connection: Connection, host: str, wanted: WithdrawalFilter, after: int, up_to: int, limit: int
) -> Sequence[Row[Any]]:
    conditions, values = wanted.conditions("o")
    statement = _MATCHING.format(conditions=conditions)
    return connection.exec_driver_sql(statement, (*MAY_ARRIVE_VALUES, host, after, up_to, *values, limit)).all()


# ---------------------------------------------------------------------------------------------------------- the preview


@dataclass(slots=True)
class WithdrawalPreview:
    """What a withdrawal would do now. Of more than 100,000 changes only so many are counted."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "up_to": 4711,
        "changes": 1200,
        "is_more": False,
        "by_class": {"LWW": 1200},
        "by_event_type": {"rate_changed": 1200},
        "bound": 2,
        "entities": 400,
        "shown_before": 30,
        "shown_at_oldhost": 360,
        "shown_none": 10,
        "operations": 370,
        "seconds_freed": 148.0,
    }

    up_to: int = field(default=0, metadata=described("Give it with the withdrawal: no newer change is withdrawn"))
    changes: int = field(default=0, metadata=described("How many wait and would be withdrawn"))
    is_more: bool = field(default=False, metadata=described("There are more; all of them would be withdrawn"))
    by_class: dict[str, int] = field(default_factory=dict)
    by_event_type: dict[str, int] = field(default_factory=dict)
    bound: int = field(
        default=0, metadata=described("Are at OldHost or may be: these stay (discard one that waits apart)")
    )
    entities: int = 0
    shown_before: int = field(default=0, metadata=described("States that go back to an older change that waits"))
    shown_at_oldhost: int = field(default=0, metadata=described("States that go back to what OldHost has"))
    shown_none: int = field(default=0, metadata=described("States of which nothing older is stored: they are removed"))
    operations: int = field(default=0, metadata=described("How many operations OldHost is spared"))
    seconds_freed: float | None = field(
        default=None, metadata=described("The time that they would take, by the last 50; null: none was applied yet")
    )


def preview(connection: Connection, host: str, wanted: WithdrawalFilter) -> WithdrawalPreview:
    """Locks nothing. Its numbers are those of the moment; what is accepted or sent meanwhile changes them."""
    seen = WithdrawalPreview(up_to=int(connection.exec_driver_sql(_NEWEST_ID).scalar() or 0))
    classes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    newest: dict[tuple[Entity, str], Row[Any]] = {}
    after = 0
    while page := _matching(connection, host, wanted, after, seen.up_to, _PREVIEWED_AT_ONCE):
        after = page[-1].id
        free = [row for row in page if not row.is_bound]
        seen.bound += len(page) - len(free)
        classes.update(row.priority_class for row in free)
        types.update(row.event_type for row in free)
        newest |= {(_entity(row), row.event_type): row for row in free}
        if classes.total() >= PREVIEWED_MAX:
            seen.is_more = True
            break
    seen.changes, seen.by_class, seen.by_event_type = classes.total(), dict(classes), dict(types.most_common())
    seen.entities = len({entity for entity, _ in newest})
    seen.operations = classes.total() - classes[PriorityClass.LWW]
    heads = [row.id for row in newest.values()]
    for start in range(0, len(heads), AT_ONCE):
        _add_effect(connection, seen, wanted, heads[start : start + AT_ONCE])
    service_ms = connection.exec_driver_sql(_SERVICE_MS, (host,)).scalar()
    if service_ms is not None:
        seen.seconds_freed = round(float(service_ms) * seen.operations / 1000, 1)
    return seen


def _add_effect(
    connection: Connection, seen: WithdrawalPreview, wanted: WithdrawalFilter, heads: Sequence[int]
) -> None:
    """Add what becomes of these keys' states. `heads`: the newest change of each that would be withdrawn."""
    conditions, values = wanted.conditions("n")
    but = f" AND NOT (n.processed_at IS NULL AND n.id <= %s{conditions})"
    statement = _AFTERWARDS.format(shown=_SHOWN_ID.format(but=but), ids=listed(heads))
    for row in connection.exec_driver_sql(statement, (seen.up_to, *values)):
        is_newest = row.shown is None or row.shown < row.id
        waits = row.shown is not None and row.outcome is None
        seen.shown_none += row.shown is None
        seen.shown_before += is_newest and waits
        seen.shown_at_oldhost += is_newest and row.shown is not None and not waits
        seen.operations += row.priority_class == PriorityClass.LWW and is_newest and not waits


# ---------------------------------------------------------------------------------------------------------- withdrawing


@dataclass(frozen=True, slots=True)
class WithdrawalStep:
    """What one transaction did. `change_ids`: withdrawn; `refs`: the older states that wait in their place."""

    change_ids: list[int] = field(default_factory=list)
    refs: list[ChangeRef] = field(default_factory=list)
    locked: int = 0
    bound: int = 0
    last_id: int = 0
    is_last: bool = True


@dataclass(slots=True)
class Withdrawal:
    """One act, step by step: `step` in a transaction, then, once that is committed, `took`. `locked`: how many another
    transaction had locked; `bound`: how many are at OldHost or may be.
    """

    host: str
    act_id: int
    wanted: WithdrawalFilter
    up_to: int
    withdrawn: int = 0
    locked: int = 0
    bound: int = 0
    done: bool = False
    _after: int = 0

    def step(self, connection: Connection) -> WithdrawalStep:
        page = _matching(connection, self.host, self.wanted, self._after, self.up_to, AT_ONCE)
        if not page:
            return WithdrawalStep()
        found = [row for row in page if not row.is_bound]
        ids = _withdraw(connection, self.host, self.act_id, found) if found else None
        change_ids, refs, locked = ids or ([], [], 0)
        bound = len(page) - len(change_ids) - locked
        return WithdrawalStep(change_ids, refs, locked, bound, page[-1].id, len(page) < AT_ONCE)

    def took(self, step: WithdrawalStep) -> None:
        self.withdrawn += len(step.change_ids)
        self.locked += step.locked
        self.bound += step.bound
        self.done, self._after = step.is_last, step.last_id


def begin_withdrawal(
    connection: Connection, host: str, wanted: WithdrawalFilter, up_to: int, *, operator: Actor, reason: str
) -> Withdrawal:
    """Record the act; nothing is withdrawn yet."""
    decision = str(uuid4())
    detail = {"filter": wanted.detail, "up_to": up_to, "withdrawn": 0, "decision": decision}
    record_act(
        connection, host=host, action=WITHDRAW, operator=operator, reason=reason, change_id=wanted.change_id,
        detail=detail,
    )  # fmt: skip
    act_id = int(connection.exec_driver_sql(_ACT, (host, WITHDRAW, decision)).scalar_one())
    return Withdrawal(host, act_id, wanted, up_to)


def _withdraw(
    connection: Connection, host: str, act_id: int, found: Sequence[Row[Any]]
) -> tuple[list[int], list[ChangeRef], int]:
    """Those that are withdrawn, the refs of those that wait in their place, and how many were locked."""
    unlocked = lock_free_entities(connection, host, {_entity(row) for row in found})
    ids = [row.id for row in found if _entity(row) in unlocked]
    free = connection.exec_driver_sql(_FREE_ROWS.format(ids=listed(ids))).scalars().all() if ids else []
    locked = len(found) - len(free)
    if not free:
        return [], [], locked
    connection.exec_driver_sql(sql.CREATE_LEDGER, (host,))
    connection.exec_driver_sql(RAISE_SEQUENCE, (host,))  # from here on, no other fate is decided
    still_free = _STILL_FREE.format(ids=listed(free))
    going = connection.exec_driver_sql(still_free, MAY_ARRIVE_VALUES).scalars().all()
    if not going:
        return [], [], locked
    connection.exec_driver_sql(_WITHDRAW.format(ids=listed(going)), (act_id,))
    withdrawn = set(going)
    rows = [row for row in found if row.id in withdrawn]
    refs = _free_older(connection, host, _newest(row for row in rows if row.priority_class == PriorityClass.LWW))
    _show_older(connection, host, _newest(rows))
    connection.exec_driver_sql(_COUNT, (len(rows), act_id))
    return list(going), refs, locked


def _newest(rows: Iterable[Row[Any]]) -> list[int]:
    """The newest of each key; `rows` by id."""
    return sorted({(_entity(row), row.event_type): row.id for row in rows}.values())


def _free_older(connection: Connection, host: str, heads: Sequence[int]) -> list[ChangeRef]:
    """The older states that wait in their place; those that would come too late are superseded."""
    refs: list[ChangeRef] = []
    if not heads:
        return refs
    packet = Packet(connection)
    for row in connection.exec_driver_sql(_REMAINING.format(ids=listed(heads))):
        if row.has_nonce:
            continue
        if row.is_passed:
            key = (host, row.entity_type, row.entity_id, row.event_type)
            supersede_older(packet, row.head, key, unless_bound=True)
        else:
            refs.append(as_ref(row[:6]))  # the first six columns are a ref's
    packet.run()
    return refs


def _show_older(connection: Connection, host: str, heads: Sequence[int]) -> None:
    """The shadow shows the newest state that is left; its rows are locked."""
    changes: list[Acceptable] = []
    newest: dict[str, int | None] = {}
    for row in connection.exec_driver_sql(_SHOWN.format(ids=listed(heads))).all():
        if row.shown is not None and row.shown > row.id:
            continue
        if row.shown is None:
            clear_shadow(connection, host, _entity(row), row.event_type, row.newest)
            continue
        key = str(row.shown)
        newest[key] = row.newest
        changes.append(accept(host, *_entity(row), row.event_type, json.loads(row.payload), key, None, None, WITHDRAW))
    write_shadows(connection, host, changes, newest)


def _entity(row: Row[Any]) -> Entity:
    return row.entity_type, row.entity_id


# ----------------------------------------------------------------------------------------------------------------- undo

# Withdrawn changes are recorded anew, each under a key of its own, for a minute after the act, and as long as no newer
# change of the entity came: it may build on the withdrawal. The withdrawn row names the new change.

_WITHDRAWAL = (
    "SELECT created_at, (SELECT TIMESTAMPDIFF(MICROSECOND, MAX(o.processed_at), UTC_TIMESTAMP(6)) DIV 1000 "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_outstanding) WHERE o.host = a.host "
    "AND o.processed_at >= a.created_at AND o.withdrawn_by = a.id) AS ms_ago FROM operator_audit a "
    "WHERE a.host = %s AND a.id = %s AND a.action = %s"
)
_WITHDRAWN = (
    "SELECT o.id, o.entity_type, o.entity_id, o.event_type, o.payload, o.occurred_at, o.source, o.traceparent, "
    "o.processed_at FROM outbox_events o FORCE INDEX (ix_outbox_events_outstanding) "
    "WHERE o.host = %s AND o.processed_at >= %s "
    "AND (o.processed_at > %s OR o.id > %s) AND o.withdrawn_by = %s ORDER BY o.processed_at, o.id LIMIT %s"
)
_NEWER = (
    "SELECT DISTINCT o.id FROM outbox_events o FORCE INDEX (PRIMARY) STRAIGHT_JOIN outbox_events n "
    "FORCE INDEX (ix_outbox_events_entity) ON n.host = o.host AND n.entity_type = o.entity_type "
    "AND n.entity_id = o.entity_id AND n.id > o.id "
    "AND (n.outcome IS NULL OR n.outcome NOT IN ('WITHDRAWN', 'REFUSED')) "
    "AND SUBSTR(n.idempotency_key, 1, %s) <> %s WHERE o.id IN ({ids})"
)
_REPLACED = "UPDATE outbox_events SET superseded_by = %s WHERE id = %s"


class NothingToUndo(Exception):  # noqa: N818 - says what happened
    """There is no such withdrawal, or its minute is over; `str` is the reason."""


@dataclass(frozen=True, slots=True)
class UndoStep:
    recorded: int = 0
    left_out: int = 0
    place: tuple[datetime, int] | None = None
    is_last: bool = True


@dataclass(slots=True)
class Undo:
    """As :class:`Withdrawal`. `left_out`: changes of entities that have a newer change, or are locked, or that can't be
    recorded any more.
    """

    host: str
    act_id: int
    place: tuple[datetime, int]
    recorded: int = 0
    left_out: int = 0
    done: bool = False

    def step(self, connection: Connection) -> UndoStep:
        began, after = self.place
        values = (self.host, began, began, after, self.act_id, UNDONE_AT_ONCE)
        page = connection.exec_driver_sql(_WITHDRAWN, values).all()
        if not page:
            return UndoStep()
        prefix = f"undo-{self.act_id}-"
        unlocked = lock_free_entities(connection, self.host, {_entity(row) for row in page})
        newer = connection.exec_driver_sql(
            _NEWER.format(ids=listed([row.id for row in page])), (len(prefix), prefix)
        ).scalars()
        passed = set(newer)
        rows = [row for row in page if _entity(row) in unlocked and row.id not in passed]
        recorded = sum(_record_anew(connection, self.host, f"{prefix}{row.id}", row) for row in rows)
        last = page[-1]
        place = (last.processed_at, last.id)
        return UndoStep(recorded, len(page) - recorded, place, len(page) < UNDONE_AT_ONCE)

    def took(self, step: UndoStep) -> None:
        self.recorded += step.recorded
        self.left_out += step.left_out
        self.done, self.place = step.is_last, step.place or self.place


def begin_undo(connection: Connection, host: str, act_id: int, *, operator: Actor, reason: str) -> Undo:
    """Record the act; nothing is recorded anew yet. Raises NothingToUndo."""
    act = connection.exec_driver_sql(_WITHDRAWAL, (host, act_id, WITHDRAW)).one_or_none()
    if act is None:
        raise NothingToUndo(f"there is no withdrawal {act_id} of {host}")
    if act.ms_ago is None:
        raise NothingToUndo(f"withdrawal {act_id} has withdrawn nothing")
    if act.ms_ago > UNDO_SECONDS_MAX * 1000:
        raise NothingToUndo(
            f"withdrawal {act_id} ended more than {UNDO_SECONDS_MAX} s ago; have the application submit what is needed"
        )
    detail = {"withdrawal": act_id}
    record_act(connection, host=host, action=UNDO, operator=operator, reason=reason, detail=detail)
    return Undo(host, act_id, (act.created_at, 0))


def _record_anew(connection: Connection, host: str, key: str, row: Row[Any]) -> bool:
    try:
        change = accept(host, *_entity(row), row.event_type, json.loads(row.payload), key, None, None, row.source)
        occurred = None if row.occurred_at is None else row.occurred_at.replace(tzinfo=UTC)
        again = replace(change, occurred_at=occurred, traceparent=row.traceparent)
        recorded = record_accepted(connection, again)
    except InvalidChange:  # by the host's mapping of now
        return False
    connection.exec_driver_sql(_REPLACED, (recorded.change_id, row.id))
    return True
