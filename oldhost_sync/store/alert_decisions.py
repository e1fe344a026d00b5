"""People's acts on alerts: acknowledge any open one, close informational ones. Each act is audited."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select, text, update
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.limits import OPERATOR_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.plain_text import plain
from oldhost_sync.policy.rules.alert_kinds import KINDS, QUIET_DAYS, may_close
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.alert_events import NOW
from oldhost_sync.store.alerts import RaisedAlert, close_found, find_alert
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.columns import storable
from oldhost_sync.store.tables import alerts


@dataclass(frozen=True, slots=True)
class AlertDecided:
    """`alert`: its state now, None if there is none with this id. `refused`: why nothing was done; else empty."""

    alert: RaisedAlert | None = None
    refused: str = ""


def acknowledge_alert(connection: Connection, host: str, alert_id: int, operator: Actor, reason: str) -> AlertDecided:
    """Note that `operator` looks after the alert; the latest acknowledgement counts. The alert stays open, and still
    escalates when it gets worse.
    """
    found, refused = _open_of(connection, host, alert_id)
    if found is not None:
        acknowledged = {
            "acknowledged_at": NOW,
            "acknowledged_by": storable(operator.name, OPERATOR_LENGTH_MAX),
            "acknowledge_reason": storable(plain(reason), TEXT_LENGTH_MAX),
        }
        connection.execute(update(alerts).where(alerts.c.id == alert_id).values(**acknowledged))
        _audit(connection, found, "acknowledge-alert", operator, reason)
    return AlertDecided(find_alert(connection, host, alert_id), refused)


def close_alert_by_hand(connection: Connection, host: str, alert_id: int, operator: Actor, reason: str) -> AlertDecided:
    """Close an alert for a person. Refused for kinds that the product closes itself when their cause is gone."""
    found, refused = _open_of(connection, host, alert_id)
    if found is not None and not may_close(found.kind):
        refused = f"the product closes alerts of this kind itself, when {KINDS[found.kind].ends}; that is not yet so"
    elif found is not None:
        close_found(connection, host, found, reason, operator.name)
        _audit(connection, found, "close-alert", operator, reason)
    return AlertDecided(find_alert(connection, host, alert_id), refused)


def close_quiet_alerts(connection: Connection, host: str) -> int:
    """Close informational alerts whose cause did not occur for QUIET_DAYS, so that the next one is posted again."""
    informational = [kind for kind, known in KINDS.items() if known.informational]
    quiet = (
        select(alerts)
        .where(alerts.c.host == host, alerts.c.closed_at.is_(None), alerts.c.kind.in_(informational))
        .where(
            func.coalesce(alerts.c.updated_at, alerts.c.created_at)
            < text(f"UTC_TIMESTAMP(6) - INTERVAL {QUIET_DAYS} DAY")
        )
        .order_by(alerts.c.id)
        .with_for_update()
    )
    found = connection.execute(quiet).all()
    for row in found:
        close_found(connection, host, row, f"it did not recur for {QUIET_DAYS} days")
    return len(found)


def _open_of(connection: Connection, host: str, alert_id: int) -> tuple[Row[Any] | None, str]:
    """The open alert, locked; or why there is none."""
    statement = select(alerts).where(alerts.c.id == alert_id, alerts.c.host == host).with_for_update()
    found = connection.execute(statement).one_or_none()
    if found is None:
        return None, f"there is no alert {alert_id} of {host}"
    if found.is_open is None:
        return None, f"alert {alert_id} is closed already"
    return found, ""


def _audit(connection: Connection, alert: Row[Any], action: str, operator: Actor, reason: str) -> None:
    detail = {"alert": alert.id, "kind": alert.kind, "cause": alert.dedupe_key}
    record_act(
        connection,
        host=alert.host,
        action=action,
        operator=operator,
        reason=reason,
        change_id=alert.change_id,
        detail=detail,
    )
