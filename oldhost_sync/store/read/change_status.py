"""The status of a change: its steps from accepted to its fate; and its payload.

A payload is personal data, so each reading is recorded in the audit with who read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sqlalchemy import select, text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.changes import WAITING, Outcome
from oldhost_sync.policy.plain_text import instant, quantity
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.audit import current_pause, record_act
from oldhost_sync.store.intake.change_recorder import CORRECT, REPLACE
from oldhost_sync.store.ledger.fates import SUPERSEDING, rest_of_pause_ms
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.outbox.pending_fates import FATE, IS_PENDING, JOIN_PENDING
from oldhost_sync.store.read.change_feed import EPOCH
from oldhost_sync.store.read.change_list import unconfirmed, unsure
from oldhost_sync.store.record import HIDDEN, KEY, RECORD, described
from oldhost_sync.store.tables import (
    IS_FATE_OF_CHANGE,
    nonce_ledger,
    nonce_requests,
    nonce_requests_archive,
    operator_audit,
    outbox_events,
    pending_fates,
    scheduled_changes,
)

# ---------------------------------------------------------------------------------------------------------- the payload

READ_PAYLOAD = "read-payload"

_PAYLOAD = text("SELECT payload FROM outbox_events WHERE host = :host AND id = :id")


def payload_of(connection: Connection, host: str, change_id: int, *, operator: Actor) -> dict[str, Any] | None:
    """The payload of a change, recorded as read by `operator` in the same transaction; None when there is no such
    change.
    """
    row = connection.execute(_PAYLOAD, {"host": host, "id": change_id}).one_or_none()
    if row is None:
        return None
    record_act(connection, host=host, action=READ_PAYLOAD, operator=operator, reason="", change_id=change_id)
    payload: dict[str, Any] = json.loads(row.payload)
    return payload


def note_entity_read(connection: Connection, host: str, entity_type: str, entity_id: str, *, operator: Actor) -> None:
    """Record in the audit that `operator` read the payloads of an entity."""
    detail = {"entity_type": entity_type, "entity_id": entity_id}
    record_act(connection, host=host, action=READ_PAYLOAD, operator=operator, reason="", detail=detail)


# ----------------------------------------------------------------------------------------------------------- the status


@dataclass(slots=True)
class Step:
    """One step in a change's history."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "step": "accepted",
        "at": "2026-05-01T12:00:00Z",
        "detail": "as LWW, by api:shop",
        "nonce": None,
    }

    step: str = field(
        metadata=described(
            "scheduled, cancelled, accepted, relayed, reserved, sent, answered, set_aside, an operator's action, "
            "or the fate's name in lower case"
        )
    )
    at: datetime | None
    detail: str | None = None
    nonce: int | None = None


@dataclass(slots=True)
class Fate:
    """Everything that happened to one change, in order, and what it is waiting for."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "change_id": 4711,
        "idempotency_key": KEY,
        "entity_type": "unit",
        "entity_id": "12B",
        "event_type": "unit_status_changed",
        "priority_class": "LWW",
        "accepted_at": "2026-05-01T12:00:00Z",
        "processed_at": "2026-05-01T12:01:02Z",
        "nonce": 501,
        "error": None,
        "state": "APPLIED",
        "outcome": "APPLIED",
        "occurred_at": None,
        "not_before": None,
        "superseded_by": None,
        "supersedes": [4708],
        "mapping": "oldhost/1",
        "answer": "applied",
        "unconfirmed": False,
        "unsure": False,
        "waits_apart": False,
        "waiting_for": [],
        "steps": [
            Step.EXAMPLE,
            {"step": "relayed", "at": "2026-05-01T12:00:01Z", "detail": "the writer holds it", "nonce": None},
            {"step": "reserved", "at": "2026-05-01T12:01:01Z", "detail": "nonce 501, epoch 3", "nonce": 501},
            {"step": "sent", "at": "2026-05-01T12:01:01Z", "detail": "once", "nonce": 501},
            {"step": "answered", "at": "2026-05-01T12:01:02Z", "detail": "applied", "nonce": 501},
            {"step": "applied", "at": "2026-05-01T12:01:02Z", "detail": "OldHost has it", "nonce": 501},
        ],
    }

    idempotency_key: str
    change_id: int | None
    entity_type: str
    entity_id: str
    event_type: str
    source: str = field(metadata=HIDDEN)
    priority_class: str | None
    state: str = field(
        metadata=described(
            "SCHEDULED, CANCELLED, WAITING, IN_FLIGHT, or its fate: APPLIED, SUPERSEDED, NO_OP, STALE, "
            "DEAD, DISCARDED, WITHDRAWN, REFUSED"
        )
    )
    outcome: str | None = None
    occurred_at: datetime | None = None
    not_before: datetime | None = None
    accepted_at: datetime | None = None
    processed_at: datetime | None = None
    nonce: int | None = None
    superseded_by: int | None = None
    supersedes: list[int] = field(
        default_factory=list, metadata=described("The older changes that it replaced, newest first")
    )
    mapping: str | None = field(default=None, metadata=described("Name and version of what made its operation's bytes"))
    answer: str | None = field(default=None, metadata=described("OldHost's answer, word for word"))
    error: str | None = None
    unconfirmed: bool = field(
        default=False,
        metadata=described(
            "APPLIED, but no answer of OldHost says so: only its nonce was used, or an operator confirmed it"
        ),
    )
    unsure: bool = field(
        default=False,
        metadata=described("DEAD, and OldHost's answer says neither applied nor rejected: an operator decides"),
    )
    waits_apart: bool = field(
        default=False,
        metadata=described(
            "OldHost refused it without using its nonce (`answer`): the others go first. It is tried again after "
            "a pause, and can be retried or discarded meanwhile"
        ),
    )
    waiting_for: list[str] = field(
        default_factory=list, metadata=described("Why it has no fate yet, most important first")
    )
    steps: list[Step] = field(default_factory=list)


_NAMES = {each.name for each in fields(Fate)}
_CHANGE = (
    *(column for column in outbox_events.c if column.name not in FATE and column.name != "payload"),
    *FATE.values(),
)
# The changes that one has superseded, and how many of its entity's preceding changes are searched for them.
_LOOKED_AT_MAX = 500
_SUPERSEDED = text(
    "SELECT id FROM (SELECT o.id, o.superseded_by, p.superseded_by AS pending FROM outbox_events o "
    f"FORCE INDEX (ix_outbox_events_entity) {JOIN_PENDING} "
    "WHERE o.host = :host AND o.entity_type = :entity_type AND o.entity_id = :entity_id AND o.id < :id "
    f"ORDER BY o.id DESC LIMIT {_LOOKED_AT_MAX}) older WHERE superseded_by = :id OR pending = :id ORDER BY id DESC"
)
# The dead letters and the outstanding changes that precede a change of its entity.
_PRECEDING = "o.host = :host AND o.entity_type = :entity_type AND o.entity_id = :entity_id AND o.id < :id"
_OLDEST_LETTER = text(
    "SELECT MIN(id) FROM (SELECT MIN(o.id) AS id FROM outbox_events o FORCE INDEX (ix_outbox_events_status) "
    f"WHERE {_PRECEDING} AND o.outcome = 'DEAD' UNION ALL "
    "SELECT MIN(p.change_id) FROM pending_fates p FORCE INDEX (ix_pending_fates_entity) WHERE p.host = :host "
    "AND p.entity_type = :entity_type AND p.entity_id = :entity_id AND p.change_id < :id AND p.outcome = 'DEAD') dead"
)
_OLDER = text(
    f"SELECT COUNT(*) FROM outbox_events o FORCE INDEX (ix_outbox_events_status) WHERE {_PRECEDING} "
    f"AND o.outcome IS NULL AND NOT {IS_PENDING}"
)
_KEY_OF_ID = text("SELECT idempotency_key FROM outbox_events WHERE host = :host AND id = :id")


def find_fate_of_id(connection: Connection, host: str, change_id: int) -> Fate | None:
    """The status of the change with that id; None if there is none."""
    key = connection.execute(_KEY_OF_ID, {"host": host, "id": change_id}).scalar()
    return None if key is None else find_fate(connection, host, key)


def find_fate(connection: Connection, host: str, idempotency_key: str) -> Fate | None:
    """The status of the change with that key; None if there is none."""
    scheduled = connection.execute(
        select(scheduled_changes).where(
            scheduled_changes.c.host == host, scheduled_changes.c.idempotency_key == idempotency_key
        )
    ).one_or_none()
    change = connection.execute(
        select(*_CHANGE)
        .outerjoin_from(outbox_events, pending_fates, IS_FATE_OF_CHANGE)
        .where(outbox_events.c.host == host, outbox_events.c.idempotency_key == idempotency_key)
    ).one_or_none()
    if change is None:
        return None if scheduled is None else _scheduled_fate(scheduled)
    fate = _recorded_fate(change)
    if scheduled is not None:
        fate.not_before = scheduled.not_before
        fate.steps = _schedule_steps(scheduled) + fate.steps
    _add_requests(connection, host, change, fate)
    if change.priority_class == "LWW" and change.outcome in {*SUPERSEDING, Outcome.DISCARDED}:
        fate.supersedes = [int(change_id) for change_id in connection.execute(_SUPERSEDED, _place(change)).scalars()]
    _add_decisions(connection, host, change.id, fate)
    fate.steps.sort(key=lambda step: step.at or EPOCH)
    if change.outcome is None:
        fate.waiting_for = _waiting_for(connection, host, change, fate)
    else:
        fate.steps.append(_end(change, _withdrawal(connection, change) if change.withdrawn_by else ""))
    return fate


def _scheduled_fate(row: Row[Any]) -> Fate:
    cancelled = row.cancelled_at is not None
    state, waiting_for = ("CANCELLED", []) if cancelled else ("SCHEDULED", [f"its due time, {instant(row.not_before)}"])
    return _view(row, state=state, priority_class=None, waiting_for=waiting_for, steps=_schedule_steps(row))


def _view(row: Row[Any], **more: Any) -> Fate:
    """A view of the row's columns that have the view's field names, and of `more`."""
    return Fate(**{name: value for name, value in row._mapping.items() if name in _NAMES} | more)  # noqa: SLF001


def _schedule_steps(row: Row[Any]) -> list[Step]:
    steps = [Step("scheduled", row.created_at, f"for {instant(row.not_before)}")]
    if row.cancelled_at is not None:
        steps.append(Step("cancelled", row.cancelled_at))
    return steps


def _recorded_fate(row: Row[Any]) -> Fate:
    steps = [Step("accepted", row.created_at, f"as {row.priority_class}, by {row.source}")]
    if row.relayed_at is not None:
        steps.append(Step("relayed", row.relayed_at, "the writer holds it"))
    state = row.outcome or WAITING
    certain = {"unconfirmed": unconfirmed(row.outcome, row.unproven), "unsure": unsure(row.outcome, row.unproven)}
    return _view(row, change_id=row.id, state=state, accepted_at=row.created_at, steps=steps, **certain)


def _withdrawal(connection: Connection, change: Row[Any]) -> str:
    """Who has withdrawn it and why."""
    act = connection.execute(
        select(operator_audit.c.operator, operator_audit.c.reason).where(operator_audit.c.id == change.withdrawn_by)
    ).one_or_none()
    again = f"; recorded anew as change {change.superseded_by}" if change.superseded_by else ""
    return f"withdrawal {change.withdrawn_by}" + (f" by {act.operator}: {act.reason}" if act else "") + again


def _end(row: Row[Any], withdrawal: str) -> Step:
    details = {
        "WITHDRAWN": withdrawal,
        "SUPERSEDED": f"replaced by change {row.superseded_by}",
        "NO_OP": "OldHost has this state already",
        "STALE": "OldHost has a newer state already",
        "APPLIED": "no answer of OldHost confirms it" if row.unproven else "OldHost has it",
    }
    return Step(row.outcome.lower(), row.processed_at, details.get(row.outcome, row.error), row.nonce)


def _add_requests(connection: Connection, host: str, change: Row[Any], fate: Fate) -> None:
    """Add the steps of the nonces that the change is or was bound to: of the ledger, and of its archive."""
    for table in (nonce_requests_archive, nonce_requests):
        query = select(table).where(table.c.host == host, table.c.change_id == change.id).order_by(table.c.nonce)
        for row in connection.execute(query):
            fate.steps.extend(_request_steps(row))
            if table is nonce_requests_archive:
                fate.steps.append(Step("set_aside", row.archived_at, row.reason, row.nonce))
            else:
                fate.nonce = row.nonce
            fate.answer = row.answer or fate.answer
            fate.mapping = row.mapping
            if row.status in {"RESERVED", "SENT"} and table is nonce_requests and fate.outcome is None:
                fate.state = "IN_FLIGHT"


def _request_steps(row: Row[Any]) -> list[Step]:
    steps = [Step("reserved", row.created_at, f"nonce {row.nonce}, epoch {row.epoch}", row.nonce)]
    if row.sent_at is not None:
        times = {0: "not taken by OldHost", 1: "once"}.get(row.sends, f"{row.sends} times by now")
        steps.append(Step("sent", row.sent_at, times, row.nonce))
    if row.completed_at is not None:
        steps.append(Step("answered", row.completed_at, row.answer, row.nonce))
    return steps


def _add_decisions(connection: Connection, host: str, change_id: int, fate: Fate) -> None:
    acts = operator_audit.c
    query = select(operator_audit).where(acts.host == host, acts.change_id == change_id, acts.action != READ_PAYLOAD)
    for row in connection.execute(query):
        why = f": {row.reason}" if row.reason else ""
        if row.action in {CORRECT, REPLACE}:
            why += f" ({row.detail['message']})"
        fate.steps.append(Step(row.action, row.created_at, f"by {row.operator}{why}"))


def _waiting_for(connection: Connection, host: str, change: Row[Any], fate: Fate) -> list[str]:
    """Why the change has no fate yet, as far as the database shows; the writer's queue is not in it."""
    reasons = _obstacles(connection, host)
    if fate.state == "IN_FLIGHT":
        return [*reasons, f"OldHost's answer to nonce {fate.nonce}"]
    named = _place(change)
    pause_ms = rest_of_pause_ms(connection, host, change)
    if pause_ms is not None:
        fate.waits_apart = True
        now = connection.exec_driver_sql("SELECT UTC_TIMESTAMP()").scalar_one()
        until = instant((now + timedelta(milliseconds=pause_ms)).replace(tzinfo=UTC))
        reasons.append(
            f"its pause to end at {until}, after OldHost refused it without using its nonce; or to be retried or "
            "discarded"
        )
    letter = None
    if change.priority_class == "TXN":
        letter = connection.execute(_OLDEST_LETTER, named).scalar()
        if letter is not None:
            reasons.append(f"an operator to decide on change {letter}, a dead letter")
    older = connection.execute(_OLDER, named).scalar_one()
    if older:
        reasons.append(f"{quantity(older, 'older change')} of the same entity")
    if change.relayed_at is None:
        reasons.append("the relay to hand it to the writer")
    elif change.priority_class == "LWW":
        reasons.append("the debounce to end, in case a newer change replaces it, and then its turn")
    elif letter is None:  # a change behind a dead letter gets no turn
        reasons.append("its turn")
    return reasons


def _place(change: Row[Any]) -> dict[str, object]:
    """Its entity, and its place among the entity's changes."""
    return {name: getattr(change, name) for name in ("host", "entity_type", "entity_id", "id")}


def _obstacles(connection: Connection, host: str) -> list[str]:
    """What prevents the writer from sending anything at all."""
    row = connection.execute(
        select(
            nonce_ledger.c.halted,
            nonce_ledger.c.resolve_mode,
            nonce_ledger.c.banned_until,
            text(f"{BAN_LEFT_MS} > 0 AS banned"),
        ).where(nonce_ledger.c.host == host)
    ).one_or_none()
    reasons = []
    if row is not None and row.resolve_mode is not None:
        reasons.append(f"the writer to act on what is decided about the halt: {row.resolve_mode}")
    elif row is not None and row.halted is not None:
        reasons.append(f"an operator to resolve the halt: {row.halted}")
    if row is not None and row.banned:
        reasons.append(f"the ban by OldHost to end, {instant(row.banned_until)}")
    pause = current_pause(connection, host)
    if pause is not None:
        if pause.until is None:
            reasons.append(f"an operator to resume sending, which {pause.operator} paused: {pause.reason}")
        else:
            reasons.append(f"the pause of {pause.operator} to end at {instant(pause.until)}: {pause.reason}")
    return reasons
