"""The events for the webhook: each opening, escalation and closing of an alert is a row with the alert's state then.

So nothing is lost that happens while an earlier event is being posted, and an event posted twice has the same content.
An advisory lock elects one sender for each host, for efficiency only: a sender that loses its connection loses the
lock, another process takes over, and an event may be sent twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.engine.interfaces import DBAPIConnection

from oldhost_sync.store.tables import alert_events, alerts

NOW = text("UTC_TIMESTAMP(6)")
# Lock names are server-wide, and several databases may have a host of this name; a name has at most 64 characters.
_NAME = "CONCAT('oldhost-sync-alerts:', MD5(CONCAT(DATABASE(), '/', %s)))"
_CLAIM = f"SELECT GET_LOCK({_NAME}, 0)"
_RELEASE = f"SELECT RELEASE_LOCK({_NAME})"
# The server disconnects a frozen holder after this time; otherwise no event would be sent while it stays frozen. A
# working holder is silent for as long as a webhook may take (oldhost_sync/delivery.py), which is shorter.
SILENT_SECONDS_MAX = 40

Event = Literal["opened", "escalated", "closed"]


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """`opened_at`: when the alert was opened; `at`: when this event happened. `operator`, `reason`: of a closing."""

    event_id: int
    event: str
    alert_id: int
    host: str
    kind: str
    cause: str
    severity: str
    message: str
    count: int
    change_id: int | None
    opened_at: datetime
    at: datetime
    acknowledged_by: str | None
    operator: str | None
    reason: str | None


_COLUMNS = {
    "event_id": alert_events.c.id,
    "cause": alerts.c.dedupe_key,
    "count": alert_events.c.occurrences,
    "kind": alerts.c.kind,
    "change_id": alerts.c.change_id,
    "opened_at": alerts.c.created_at,
    "at": alert_events.c.created_at,
    "acknowledged_by": alerts.c.acknowledged_by,
}
_SHOWN = [_COLUMNS[each.name] if each.name in _COLUMNS else alert_events.c[each.name] for each in fields(AlertEvent)]


def record_event(
    connection: Connection,
    host: str,
    alert_id: int,
    event: Event,
    severity: str,
    message: str,
    count: int,
    *,
    operator: str | None = None,
    reason: str | None = None,
) -> None:
    """Store one event for the webhook. The texts must be storable."""
    connection.execute(
        insert(alert_events).values(
            host=host,
            alert_id=alert_id,
            event=event,
            severity=severity,
            message=message,
            occurrences=count,
            operator=operator,
            reason=reason,
            created_at=NOW,
        )
    )


def largest_count(connection: Connection, alert_id: int) -> int:
    """The largest count in this alert's events; 0 if it has none."""
    statement = select(func.max(alert_events.c.occurrences)).where(alert_events.c.alert_id == alert_id)
    return int(connection.execute(statement).scalar() or 0)


def hosts_with_undelivered(connection: Connection, hosts: Sequence[str]) -> dict[str, int]:
    """How many events of each of `hosts` were not delivered yet; hosts with none are left out."""
    statement = (
        select(alert_events.c.host, func.count())
        .where(alert_events.c.host.in_(list(hosts)), alert_events.c.delivered_at.is_(None))
        .group_by(alert_events.c.host)
        .order_by(alert_events.c.host)
    )
    return {host: int(count) for host, count in connection.execute(statement)}


def undelivered(connection: Connection, host: str, limit: int = 100, *, after_id: int = 0) -> list[AlertEvent]:
    """Events that were not delivered yet, oldest first, including those of alerts that are closed by now."""
    statement = (
        select(*_SHOWN)
        .join(alerts, alerts.c.id == alert_events.c.alert_id)
        .where(alert_events.c.host == host, alert_events.c.delivered_at.is_(None), alert_events.c.id > after_id)
        .order_by(alert_events.c.id)
        .limit(limit)
    )
    return [AlertEvent(*row) for row in connection.execute(statement)]


def mark_delivered(connection: Connection, event: AlertEvent) -> None:
    """The webhook has taken the event; its alert counts as delivered when none of its other events waits."""
    connection.execute(update(alert_events).where(alert_events.c.id == event.event_id).values(delivered_at=NOW))
    waits = select(alert_events.c.id).where(
        alert_events.c.alert_id == event.alert_id, alert_events.c.delivered_at.is_(None)
    )
    connection.execute(update(alerts).where(alerts.c.id == event.alert_id, ~waits.exists()).values(delivered_at=NOW))


@contextmanager
def held_lock(engine: Engine, sender: str) -> Iterator[Connection | None]:
    """The connection that holds the lock of a `sender` (a host's alerts, or one webhook), for the holder's short
    transactions; None if another process holds it.
    """
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        connection.detach()  # removed from the pool and closed at the end, which also releases the lock
        try:
            connection.exec_driver_sql(f"SET SESSION wait_timeout = {SILENT_SECONDS_MAX}")
            held = connection.exec_driver_sql(_CLAIM, (sender,)).scalar_one() == 1
            connection.commit()
            yield connection if held else None
            if held:
                connection.exec_driver_sql(_RELEASE, (sender,))
                connection.commit()
        finally:
            if connection.invalidated and raw is not None:
                _close(raw)


def _close(raw: DBAPIConnection) -> None:
    """SQLAlchemy drops a detached connection that failed, without closing it."""
    with suppress(Exception):
        raw.close()
