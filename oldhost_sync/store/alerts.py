"""Alerts: one open alert per cause, until its cause is gone.

An alert is opened; updated (count, worst severity, last message); acknowledged by a person; closed, with the reason.
The events to be posted to the webhook are stored in the same transaction (`alert_events`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select, text, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX, OPERATOR_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.plain_text import plain
from oldhost_sync.policy.rules.alert_kinds import KINDS, grew, worse
from oldhost_sync.policy.rules.conditions import Step
from oldhost_sync.store.alert_events import NOW, largest_count, record_event
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from oldhost_sync.store.tables import alert_closings, alerts

_OPEN = (
    "INSERT INTO alerts (host, kind, severity, message, dedupe_key, change_id, is_open, created_at, updated_at, "
    "occurrences, sequence) VALUES (%s, %s, %s, %s, %s, %s, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), %s, %s) RETURNING id"
)
# An abandoned attempt to open an alert runs until its statement ends; a day is far longer than that.
_REMEMBER_CLOSING = (
    "INSERT INTO alert_closings (host, dedupe_key, sequence, closed_at) VALUES (%s, %s, %s, UTC_TIMESTAMP(6)) "
    "ON DUPLICATE KEY UPDATE sequence = GREATEST(sequence, VALUES(sequence)), closed_at = VALUES(closed_at)"
)
_FORGET_CLOSINGS = "DELETE FROM alert_closings WHERE host = %s AND closed_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"

# The numbers that a later opening or closing is compared with.
_NEWEST_SEQUENCE = text(
    "SELECT GREATEST("
    "(SELECT COALESCE(MAX(sequence), 0) FROM alerts FORCE INDEX (ix_alerts_closed) "
    "WHERE host = :host AND closed_at IS NULL), "
    "(SELECT COALESCE(MAX(sequence), 0) FROM alert_closings WHERE host = :host))"
)

State = Literal["open", "closed", "all"]


@dataclass(frozen=True, slots=True)
class RaisedAlert:
    """One alert. `cause`: at most one alert of each cause is open. `count`: how many things its message is about.
    `delivered_at`: None until the webhook has taken all its events. `closed_by`: None if the product closed it.
    """

    alert_id: int
    host: str
    kind: str
    cause: str
    severity: str
    message: str
    count: int
    change_id: int | None
    created_at: datetime
    updated_at: datetime | None
    delivered_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    acknowledge_reason: str | None
    closed_at: datetime | None
    closed_by: str | None
    close_reason: str | None


_NAMES = {"alert_id": "id", "cause": "dedupe_key", "count": "occurrences"}
_SHOWN = [alerts.c[_NAMES.get(each.name, each.name)] for each in fields(RaisedAlert)]


def raise_alert(
    connection: Connection,
    host: str,
    kind: str,
    severity: str,
    message: str,
    *,
    dedupe_key: str | None = None,
    change_id: int | None = None,
    count: int = 1,
    sequence: int = 0,
    adds: bool = False,
) -> bool:
    """Open an alert; False if one of this cause is open already, which is then updated: its severity never goes down.

    `severity`: info, warning or critical. `dedupe_key`: the cause; by default the kind. `count`: how many things
    `message` is about; with `adds`, how many more than before. `sequence`: the call is ignored if the cause was closed
    or updated with a higher one (0: not numbered).
    """
    key = cause_key(dedupe_key or kind)
    if sequence and _was_closed_later(connection, host, key, sequence):
        return False
    new = _Raising(kind, severity, storable(plain(message), TEXT_LENGTH_MAX), change_id, count, sequence)
    found = _open_alert(connection, host, key)
    if found is None:
        alert_id = _open(connection, host, key, new)
        if alert_id is not None:
            record_event(connection, host, alert_id, "opened", severity, new.message, count)
            return True
        found = _open_alert(connection, host, key)  # another transaction has opened it in the meantime
    if found is not None and not _is_older(sequence, found.sequence, adds=adds):
        _update(connection, host, found, new, adds=adds)
    return False


def _is_older(sequence: int, known: int, *, adds: bool) -> bool:
    """Whether a later update than `sequence` was applied; one that adds must not be applied twice either."""
    return 0 < sequence < known or (adds and 0 < sequence == known)


@dataclass(frozen=True, slots=True)
class _Raising:
    kind: str
    severity: str
    message: str
    change_id: int | None
    count: int
    sequence: int


def cause_key(cause: str) -> str:
    """The cause as it is stored."""
    return storable(cause, IDEMPOTENCY_KEY_LENGTH_MAX)


def _open(connection: Connection, host: str, key: str, new: _Raising) -> int | None:
    values = (host, new.kind, new.severity, new.message, key, new.change_id, new.count, new.sequence)
    try:
        return int(connection.exec_driver_sql(_OPEN, values).scalar_one())
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        return None


def _open_alert(connection: Connection, host: str, key: str) -> Row[Any] | None:
    """The open alert of this cause, locked."""
    statement = select(alerts).where(alerts.c.host == host, alerts.c.dedupe_key == key, alerts.c.is_open.is_not(None))
    return connection.execute(statement.with_for_update()).one_or_none()


def _update(connection: Connection, host: str, found: Row[Any], new: _Raising, *, adds: bool) -> None:
    severity = worse(found.severity, new.severity)
    count = found.occurrences + new.count if adds else new.count
    change_id = new.change_id if new.change_id is not None else found.change_id
    after = (severity, new.message, count, change_id)
    if after == (found.severity, found.message, found.occurrences, found.change_id):
        return
    escalates = severity != found.severity or (
        grew(found.occurrences, count) and grew(largest_count(connection, found.id), count)
    )
    changed = {"severity": severity, "message": new.message, "occurrences": count, "change_id": change_id}
    changed |= {"updated_at": NOW, "sequence": max(found.sequence, new.sequence)}
    if escalates:
        changed["delivered_at"] = None
    connection.execute(update(alerts).where(alerts.c.id == found.id).values(**changed))
    if escalates:
        record_event(connection, host, found.id, "escalated", severity, new.message, count)


def _was_closed_later(connection: Connection, host: str, key: str, sequence: int) -> bool:
    closed = select(alert_closings.c.sequence).where(alert_closings.c.host == host, alert_closings.c.dedupe_key == key)
    last = connection.execute(closed).scalar()
    return last is not None and last >= sequence


def _remember_closing(connection: Connection, host: str, key: str, sequence: int) -> None:
    """Remember the closing while an older opening of this cause may still arrive; deletes those older than a day."""
    connection.exec_driver_sql(_REMEMBER_CLOSING, (host, key, sequence))
    connection.exec_driver_sql(_FORGET_CLOSINGS, (host,))


def newest_sequence(connection: Connection, host: str) -> int:
    """The highest number that the store compares others with; 0 if there is none. Whoever numbers a host's alerts must
    begin above it: by a clock that was set back since, all its alerts would count as older, and be ignored.
    """
    return int(connection.execute(_NEWEST_SEQUENCE, {"host": host}).scalar_one())


def require_alerts(connection: Connection) -> None:
    """Raises if alerts can't be read now."""
    connection.execute(select(alerts.c.id).limit(1))


def close_alert(connection: Connection, host: str, dedupe_key: str, *, sequence: int = 0, reason: str = "") -> bool:
    """Close the open alert of this cause; False if none is open. A raise with a lower `sequence` can't open it again.

    `reason`: why it is closed; by default what ends alerts of its kind.
    """
    key = cause_key(dedupe_key)
    if sequence:
        _remember_closing(connection, host, key, sequence)
    found = _open_alert(connection, host, key)
    if found is None or (sequence and found.sequence >= sequence):
        return False
    if not reason:
        reason = KINDS[found.kind].ends if found.kind in KINDS else "its cause is gone"
    close_found(connection, host, found, reason)
    return True


def close_found(connection: Connection, host: str, found: Row[Any], reason: str, operator: str | None = None) -> None:
    """Close the open alert of the locked row `found`; `operator`: the person who closes it, None for the product."""
    by = None if operator is None else storable(operator, OPERATOR_LENGTH_MAX)
    why = storable(plain(reason), TEXT_LENGTH_MAX)
    closed = {"is_open": None, "closed_at": NOW, "closed_by": by, "close_reason": why, "delivered_at": None}
    connection.execute(update(alerts).where(alerts.c.id == found.id).values(**closed))
    record_event(
        connection, host, found.id, "closed", found.severity, found.message, found.occurrences, operator=by, reason=why
    )


def keep_condition(connection: Connection, step: Step) -> str:
    """Write what was decided about a condition. Returns a line for the log if an alert was opened or closed."""
    host, kind, fact = step.host, step.kind, step.fact
    if fact is None:
        return f"alert {kind} of {host} is closed: {KINDS[kind].ends}" if close_alert(connection, host, kind) else ""
    severity = fact.severity or KINDS[kind].severity
    is_new = raise_alert(connection, host, kind, severity, fact.why, count=fact.count)
    return f"alert {kind} of {host}: {fact.why}" if is_new else ""


def list_alerts(
    connection: Connection,
    host: str,
    *,
    open_only: bool = True,
    state: State | None = None,
    kind: str | None = None,
    limit: int = 100,
    before_id: int | None = None,
) -> list[RaisedAlert]:
    """Newest first; the next page is the one with the last id as `before_id`. `state`: used instead of `open_only`."""
    state = state or ("open" if open_only else "all")
    statement = select(*_SHOWN).where(alerts.c.host == host).order_by(alerts.c.id.desc()).limit(limit)
    if state != "all":
        statement = statement.where(
            alerts.c.closed_at.is_(None) if state == "open" else alerts.c.closed_at.is_not(None)
        )
    if kind is not None:
        statement = statement.where(alerts.c.kind == kind).with_hint(alerts, "FORCE INDEX (ix_alerts_kind)", "mysql")
    if before_id is not None:
        statement = statement.where(alerts.c.id < before_id)
    return [RaisedAlert(*row) for row in connection.execute(statement)]


def find_alert(connection: Connection, host: str, alert_id: int) -> RaisedAlert | None:
    """One alert, open or closed; None when there is none of this id."""
    row = connection.execute(select(*_SHOWN).where(alerts.c.host == host, alerts.c.id == alert_id)).one_or_none()
    return None if row is None else RaisedAlert(*row)
