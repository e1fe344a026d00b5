"""What became of a change: one change's whole way, and the feed of all fates.

The feed must lose nothing, and neither ids nor times are in commit order (trap 13): a transaction may decide a fate at
12:00:00 and commit it at 12:00:30, behind a reader that is already past 12:00:00. So the feed goes by `processed_at`
(a change that is retried comes again with its next fate), and two things together close the gap:

* it shows only fates older than a lag that no statement outlives (`max_statement_time`): a fate's time is taken when
  its statement begins, so by then its entry stands in the index, committed or not;
* it reads with a shared lock: an entry that is not committed yet is not skipped but met. Then the page ends with
  nothing, and the reader asks again a moment later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import func, select, text
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import OperationalError

from oldhost_sync.store.audit import current_pause
from oldhost_sync.store.tables import (
    nonce_ledger,
    nonce_requests,
    nonce_requests_archive,
    operator_audit,
    outbox_events,
    scheduled_changes,
)
from oldhost_sync.store.transactions import error_code

_LOCKED = 1205
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


# -------------------------------------------------------------------------------------------------------------- a fate


@dataclass(slots=True)
class StepView:
    """One step of a change's way. `at` is None when the step has no time of its own."""

    step: str
    at: datetime | None
    detail: str | None = None
    nonce: int | None = None


@dataclass(slots=True)
class FateView:
    """All that is known of one change; `steps` in order of time."""

    idempotency_key: str
    change_id: int | None
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str | None
    state: str
    outcome: str | None = None
    occurred_at: datetime | None = None
    not_before: datetime | None = None
    accepted_at: datetime | None = None
    processed_at: datetime | None = None
    nonce: int | None = None
    superseded_by: int | None = None
    answer: str | None = None
    error: str | None = None
    waiting_for: list[str] = field(default_factory=list)
    steps: list[StepView] = field(default_factory=list)


def find_fate(connection: Connection, host: str, idempotency_key: str) -> FateView | None:
    """The whole way of the change with that key; None when there is none."""
    scheduled = connection.execute(
        select(scheduled_changes).where(
            scheduled_changes.c.host == host, scheduled_changes.c.idempotency_key == idempotency_key
        )
    ).one_or_none()
    change = connection.execute(
        select(outbox_events).where(outbox_events.c.host == host, outbox_events.c.idempotency_key == idempotency_key)
    ).one_or_none()
    if change is None:
        return None if scheduled is None else _scheduled_fate(scheduled)
    fate = _recorded_fate(change)
    if scheduled is not None:
        fate.not_before = scheduled.not_before
        fate.steps = _schedule_steps(scheduled) + fate.steps
    _add_requests(connection, host, change, fate)
    if change.outcome in {"DEAD", "DISCARDED"} or any(step.step == "set_aside" for step in fate.steps):
        _add_decisions(connection, host, change.id, fate)
    fate.steps.sort(key=lambda step: step.at or _EPOCH)
    if change.outcome is None:
        fate.waiting_for = _waiting_for(connection, host, change, fate)
    else:
        fate.steps.append(_end(change))
    return fate


def _scheduled_fate(row: Row[Any]) -> FateView:
    cancelled = row.cancelled_at is not None
    return FateView(
        idempotency_key=row.idempotency_key,
        change_id=row.change_id,
        entity_type=row.entity_type,
        entity_id=row.entity_id,
        event_type=row.event_type,
        priority_class=None,
        state="CANCELLED" if cancelled else "SCHEDULED",
        occurred_at=row.occurred_at,
        not_before=row.not_before,
        waiting_for=[] if cancelled else [f"its time, {row.not_before.isoformat()}"],
        steps=_schedule_steps(row),
    )


def _schedule_steps(row: Row[Any]) -> list[StepView]:
    steps = [StepView("scheduled", row.created_at, f"for {row.not_before.isoformat()}")]
    if row.cancelled_at is not None:
        steps.append(StepView("cancelled", row.cancelled_at))
    return steps


def _recorded_fate(row: Row[Any]) -> FateView:
    steps = [StepView("accepted", row.created_at, f"as {row.priority_class}, by {row.source}")]
    if row.relayed_at is not None:
        steps.append(StepView("relayed", row.relayed_at, "the writer holds it"))
    return FateView(
        idempotency_key=row.idempotency_key,
        change_id=row.id,
        entity_type=row.entity_type,
        entity_id=row.entity_id,
        event_type=row.event_type,
        priority_class=row.priority_class,
        state=row.outcome or ("ACCEPTED" if row.relayed_at is None else "WAITING"),
        outcome=row.outcome,
        occurred_at=row.occurred_at,
        accepted_at=row.created_at,
        processed_at=row.processed_at,
        nonce=row.nonce,
        superseded_by=row.superseded_by,
        error=row.error,
        steps=steps,
    )


def _end(row: Row[Any]) -> StepView:
    details = {
        "SUPERSEDED": f"replaced by change {row.superseded_by}",
        "NO_OP": "OldHost has this state already",
        "STALE": "OldHost has a newer state already",
        "APPLIED": "OldHost has it",
    }
    return StepView(row.outcome.lower(), row.processed_at, details.get(row.outcome, row.error), row.nonce)


def _add_requests(connection: Connection, host: str, change: Row[Any], fate: FateView) -> None:
    """The nonces it was bound to: the present ones, and those set aside."""
    for table in (nonce_requests_archive, nonce_requests):
        query = select(table).where(table.c.host == host, table.c.change_id == change.id).order_by(table.c.nonce)
        for row in connection.execute(query):
            fate.steps.extend(_request_steps(row))
            if table is nonce_requests_archive:
                fate.steps.append(StepView("set_aside", row.archived_at, row.reason, row.nonce))
            else:
                fate.nonce = row.nonce
            fate.answer = row.answer or fate.answer
            if row.status in {"RESERVED", "SENT"} and table is nonce_requests and fate.outcome is None:
                fate.state = "IN_FLIGHT"


def _request_steps(row: Row[Any]) -> list[StepView]:
    steps = [StepView("reserved", row.created_at, f"nonce {row.nonce}, epoch {row.epoch}", row.nonce)]
    if row.sent_at is not None:
        times = {0: "not taken by OldHost", 1: "once"}.get(row.sends, f"{row.sends} times by now")
        steps.append(StepView("sent", row.sent_at, times, row.nonce))
    if row.completed_at is not None:
        steps.append(StepView("answered", row.completed_at, row.answer, row.nonce))
    return steps


def _add_decisions(connection: Connection, host: str, change_id: int, fate: FateView) -> None:
    query = select(operator_audit).where(operator_audit.c.host == host, operator_audit.c.change_id == change_id)
    for row in connection.execute(query):
        fate.steps.append(StepView(row.action, row.created_at, f"by {row.operator}: {row.reason}"))


def _waiting_for(connection: Connection, host: str, change: Row[Any], fate: FateView) -> list[str]:
    """Why it has no fate yet, as far as the database knows; the writer's queue is the writer's to tell."""
    reasons = _obstacles(connection, host)
    if fate.state == "IN_FLIGHT":
        return [*reasons, f"OldHost's answer to nonce {fate.nonce}"]
    mine = (
        outbox_events.c.host == host,
        outbox_events.c.entity_type == change.entity_type,
        outbox_events.c.entity_id == change.entity_id,
        outbox_events.c.id < change.id,
    )
    letter = None
    if change.priority_class == "TXN":
        dead = connection.execute(select(func.min(outbox_events.c.id)).where(*mine, outbox_events.c.outcome == "DEAD"))
        letter = dead.scalar()
        if letter is not None:
            reasons.append(f"an operator to retry or discard change {letter}, which OldHost rejected")
    older = connection.execute(select(func.count()).where(*mine, outbox_events.c.processed_at.is_(None))).scalar_one()
    if older:
        reasons.append(f"{older} older change(s) of the same entity")
    if change.relayed_at is None:
        reasons.append("the relay to hand it to the writer")
    elif change.priority_class == "LWW":
        reasons.append("the debounce to end, in case a newer change replaces it, and then its turn")
    elif letter is None:  # behind a dead letter it has none
        reasons.append("its turn")
    return reasons


def _obstacles(connection: Connection, host: str) -> list[str]:
    """What keeps the writer from sending anything at all."""
    row = connection.execute(
        select(
            nonce_ledger.c.halted, nonce_ledger.c.banned_until, text("UTC_TIMESTAMP(6) < banned_until AS banned")
        ).where(nonce_ledger.c.host == host)
    ).one_or_none()
    reasons = []
    if row is not None and row.halted is not None:
        reasons.append(f"an operator to resolve the halt: {row.halted}")
    if row is not None and row.banned:
        reasons.append(f"the ban by OldHost to end, {row.banned_until.isoformat()}")
    pause = current_pause(connection, host)
    if pause is not None:
        reasons.append(f"an operator to resume sending, which {pause.operator} paused: {pause.reason}")
    return reasons


# ------------------------------------------------------------------------------------------------------------ the feed


class FeedCursor(NamedTuple):
    """The last fate that was handed out: when it was decided (microseconds since the epoch), and its change."""

    processed_at_us: int
    change_id: int

    @property
    def processed_at(self) -> datetime:
        return _EPOCH + self.processed_at_us * _MICROSECOND

    @classmethod
    def of(cls, processed_at: datetime, change_id: int) -> FeedCursor:
        return cls((processed_at - _EPOCH) // _MICROSECOND, change_id)


@dataclass(frozen=True, slots=True)
class FeedPage:
    """`rows` in the order of their fates; `more`: there is a next page already; `outstanding`: fates are to come."""

    rows: list[dict[str, Any]]
    cursor: FeedCursor
    more: bool
    outstanding: bool


# The index is named because a lock is taken on every row that is looked at: it must never be the whole table.
_FEED = text(
    "SELECT id AS change_id, idempotency_key, entity_type, entity_id, event_type, priority_class, outcome, "
    "created_at AS accepted_at, processed_at, nonce, superseded_by, error "
    "FROM outbox_events FORCE INDEX (ix_outbox_events_outstanding) "
    "WHERE host = :host AND processed_at >= :after AND (processed_at > :after OR id > :after_id) "
    "AND processed_at <= UTC_TIMESTAMP(6) - INTERVAL :lag SECOND "
    "ORDER BY processed_at, id LIMIT :limit LOCK IN SHARE MODE NOWAIT"
).columns(
    outbox_events.c.id.label("change_id"),
    outbox_events.c.idempotency_key,
    outbox_events.c.entity_type,
    outbox_events.c.entity_id,
    outbox_events.c.event_type,
    outbox_events.c.priority_class,
    outbox_events.c.outcome,
    outbox_events.c.created_at.label("accepted_at"),
    outbox_events.c.processed_at,
    outbox_events.c.nonce,
    outbox_events.c.superseded_by,
    outbox_events.c.error,
)


def read_feed(connection: Connection, host: str, since: FeedCursor, *, limit: int, lag_seconds: float) -> FeedPage:
    """The fates decided after `since`, at most `limit`, none younger than the lag (see the module for why)."""
    values = {
        "host": host,
        "after": since.processed_at.replace(tzinfo=None),
        "after_id": since.change_id,
        "lag": lag_seconds,
        "limit": limit + 1,
    }
    try:
        rows = [dict(row._mapping) for row in connection.execute(_FEED, values)]  # noqa: SLF001
    except OperationalError as error:
        if error_code(error) != _LOCKED:
            raise
        return FeedPage([], since, more=False, outstanding=True)
    page = rows[:limit]
    cursor = FeedCursor.of(page[-1]["processed_at"], page[-1]["change_id"]) if page else since
    return FeedPage(page, cursor, len(rows) > limit, _has_outstanding(connection, host))


def latest_cursor(connection: Connection, *, lag_seconds: float) -> FeedCursor:
    """Where the feed stands now: what comes after it is new."""
    now: datetime = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
    return FeedCursor.of(now.replace(tzinfo=UTC) - timedelta(seconds=lag_seconds), 0)


def _has_outstanding(connection: Connection, host: str) -> bool:
    query = select(outbox_events.c.id).where(outbox_events.c.host == host, outbox_events.c.processed_at.is_(None))
    return connection.execute(query.limit(1)).first() is not None
