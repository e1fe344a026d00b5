"""Alerts: one open alert per cause, until its cause is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, text, update
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.store.tables import alert_closings, alerts
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import DUPLICATE_KEY, error_code

NOW = text("UTC_TIMESTAMP(6)")
# An abandoned attempt to open an alert ends with its statement; a day is far longer than that.
_REMEMBER_CLOSING = (
    "INSERT INTO alert_closings (host, dedupe_key, sequence, closed_at) VALUES (%s, %s, %s, UTC_TIMESTAMP(6)) "
    "ON DUPLICATE KEY UPDATE sequence = GREATEST(sequence, VALUES(sequence)), closed_at = VALUES(closed_at)"
)
_FORGET_CLOSINGS = "DELETE FROM alert_closings WHERE host = %s AND closed_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY"


@dataclass(frozen=True, slots=True)
class RaisedAlert:
    """One alert; `closed_at` None while it is open, `delivered_at` None until the webhook took it."""

    alert_id: int
    host: str
    kind: str
    severity: str
    message: str
    change_id: int | None
    dedupe_key: str
    created_at: datetime
    delivered_at: datetime | None
    closed_at: datetime | None


_SHOWN = [alerts.c["id" if each.name == "alert_id" else each.name] for each in fields(RaisedAlert)]


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
) -> bool:
    """Open an alert; False when one with this key is open already. Its text and count are then updated, if this one is
    numbered. `severity`: info, warning or critical. `dedupe_key`: the kind when it is not given. `sequence`: ignored
    when its cause was closed by a later one (0: not numbered).
    """
    dedupe_key = dedupe_key or kind
    if sequence and _was_closed_later(connection, host, dedupe_key, sequence):
        return False
    values = {
        "host": host,
        "kind": kind,
        "severity": severity,
        "message": storable(message, TEXT_LENGTH_MAX),
        "dedupe_key": storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX),
        "change_id": change_id,
        "is_open": True,
        "created_at": NOW,
        "occurrences": count,
        "sequence": sequence,
    }
    try:
        connection.execute(insert(alerts).values(**values))
    except IntegrityError as error:
        if error_code(error) != DUPLICATE_KEY:
            raise
        if sequence:
            _renew(connection, values)
        return False
    return True


def _renew(connection: Connection, values: dict[str, Any]) -> None:
    """Update an open alert, unless a later update was made already."""
    of_cause = (alerts.c.host == values["host"], alerts.c.dedupe_key == values["dedupe_key"])
    renewed = {name: values[name] for name in ("severity", "message", "change_id", "occurrences", "sequence")}
    connection.execute(
        update(alerts)
        .where(*of_cause, alerts.c.is_open.is_not(None), alerts.c.sequence <= values["sequence"])
        .values(**renewed)
    )


def _was_closed_later(connection: Connection, host: str, dedupe_key: str, sequence: int) -> bool:
    closed = select(alert_closings.c.sequence).where(
        alert_closings.c.host == host, alert_closings.c.dedupe_key == storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX)
    )
    last = connection.execute(closed).scalar()
    return last is not None and last >= sequence


def _remember_closing(connection: Connection, host: str, dedupe_key: str, sequence: int) -> None:
    """For as long as an older opening of this cause may still arrive; also forgets closings older than a day."""
    connection.exec_driver_sql(_REMEMBER_CLOSING, (host, storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX), sequence))
    connection.exec_driver_sql(_FORGET_CLOSINGS, (host,))


def close_alert(connection: Connection, host: str, dedupe_key: str, *, sequence: int = 0) -> bool:
    """Close the open alert of this cause; False when none is open. One raised before `sequence` can't open it again."""
    if sequence:
        _remember_closing(connection, host, dedupe_key, sequence)
    statement = (
        update(alerts)
        .where(
            alerts.c.host == host,
            alerts.c.dedupe_key == storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX),
            alerts.c.is_open.is_not(None),
            *([alerts.c.sequence < sequence] if sequence else []),
        )
        .values(is_open=None, closed_at=NOW)
    )
    return connection.execute(statement).rowcount == 1


def list_alerts(
    connection: Connection, host: str, *, open_only: bool = True, limit: int = 100, before_id: int | None = None
) -> list[RaisedAlert]:
    """Newest first; ask for the next page with the last id as `before_id`."""
    statement = select(*_SHOWN).where(alerts.c.host == host).order_by(alerts.c.id.desc()).limit(limit)
    if open_only:
        statement = statement.where(alerts.c.closed_at.is_(None))
    if before_id is not None:
        statement = statement.where(alerts.c.id < before_id)
    return [RaisedAlert(*row) for row in connection.execute(statement)]


def hosts_with_undelivered(connection: Connection, hosts: Sequence[str]) -> list[str]:
    """Which of `hosts` have alerts that were not sent yet."""
    statement = select(alerts.c.host).where(alerts.c.host.in_(list(hosts)), alerts.c.delivered_at.is_(None)).distinct()
    return list(connection.execute(statement.order_by(alerts.c.host)).scalars())


def undelivered(connection: Connection, host: str, limit: int = 100, *, after_id: int = 0) -> list[RaisedAlert]:
    """Alerts that were not sent yet, oldest first, also those that were closed meanwhile."""
    statement = (
        select(*_SHOWN)
        .where(alerts.c.host == host, alerts.c.delivered_at.is_(None), alerts.c.id > after_id)
        .order_by(alerts.c.id)
        .limit(limit)
    )
    return [RaisedAlert(*row) for row in connection.execute(statement)]


def mark_delivered(connection: Connection, alert_id: int, severity: str) -> bool:
    """Mark it as sent; False when its severity has changed since, so that it must be sent again."""
    statement = update(alerts).where(alerts.c.id == alert_id, alerts.c.severity == severity).values(delivered_at=NOW)
    return connection.execute(statement).rowcount == 1
