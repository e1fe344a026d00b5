"""What people must be told: one open alert per cause, until it is closed or its cause is gone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, text, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.store.tables import alerts
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import error_code

NOW = text("UTC_TIMESTAMP(6)")
_DUPLICATE_KEY = 1062


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


def raise_alert(
    connection: Connection,
    *,
    host: str,
    kind: str,
    severity: str,
    message: str,
    dedupe_key: str,
    change_id: int | None = None,
) -> bool:
    """Open an alert; False when one with this key is open already. `severity`: info, warning or critical."""
    values = {
        "host": host,
        "kind": kind,
        "severity": severity,
        "message": storable(message, TEXT_LENGTH_MAX),
        "dedupe_key": storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX),
        "change_id": change_id,
        "is_open": True,
        "created_at": NOW,
    }
    try:
        connection.execute(insert(alerts).values(**values))
    except IntegrityError as error:
        if error_code(error) != _DUPLICATE_KEY:
            raise
        return False
    return True


def close_alert(connection: Connection, host: str, dedupe_key: str) -> bool:
    """Close the open alert of this cause; False when none is open."""
    statement = (
        update(alerts)
        .where(
            alerts.c.host == host,
            alerts.c.dedupe_key == storable(dedupe_key, IDEMPOTENCY_KEY_LENGTH_MAX),
            alerts.c.is_open.is_not(None),
        )
        .values(is_open=None, closed_at=NOW)
    )
    return connection.execute(statement).rowcount == 1


def list_alerts(
    connection: Connection, host: str, *, open_only: bool = True, limit: int = 100, before_id: int | None = None
) -> list[RaisedAlert]:
    """Newest first; ask for the next page with the last id as `before_id`."""
    statement = select(alerts).where(alerts.c.host == host).order_by(alerts.c.id.desc()).limit(limit)
    if open_only:
        statement = statement.where(alerts.c.closed_at.is_(None))
    if before_id is not None:
        statement = statement.where(alerts.c.id < before_id)
    return [_as_alert(row) for row in connection.execute(statement)]


def hosts_with_undelivered(connection: Connection, hosts: Sequence[str]) -> list[str]:
    """Which of `hosts` have alerts that nobody was told of yet."""
    statement = select(alerts.c.host).where(alerts.c.host.in_(list(hosts)), alerts.c.delivered_at.is_(None)).distinct()
    return list(connection.execute(statement.order_by(alerts.c.host)).scalars())


def undelivered(connection: Connection, host: str, limit: int = 100, *, after_id: int = 0) -> list[RaisedAlert]:
    """What nobody was told of yet, oldest first; an alert that was closed meanwhile is still told."""
    statement = (
        select(alerts)
        .where(alerts.c.host == host, alerts.c.delivered_at.is_(None), alerts.c.id > after_id)
        .order_by(alerts.c.id)
        .limit(limit)
    )
    return [_as_alert(row) for row in connection.execute(statement)]


def mark_delivered(connection: Connection, alert_id: int, severity: str) -> bool:
    """Say that the webhook took it; False when it has got worse meanwhile, which people are still to be told."""
    statement = update(alerts).where(alerts.c.id == alert_id, alerts.c.severity == severity).values(delivered_at=NOW)
    return connection.execute(statement).rowcount == 1


def _as_alert(row: Row[*tuple[Any, ...]]) -> RaisedAlert:
    return RaisedAlert(
        alert_id=row.id,
        host=row.host,
        kind=row.kind,
        severity=row.severity,
        message=row.message,
        change_id=row.change_id,
        dedupe_key=row.dedupe_key,
        created_at=row.created_at,
        delivered_at=row.delivered_at,
        closed_at=row.closed_at,
    )
