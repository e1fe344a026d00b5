"""Alerts: one open alert per cause, until its cause is gone.

An alert is opened; updated (count, worst severity, last message); acknowledged by a person; closed, with the reason.
The events to be posted to the webhook are stored in the same transaction (`alert_events`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX, OPERATOR_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.machine.actions import RecordConditions
from oldhost_sync.policy.plain_text import plain
from oldhost_sync.policy.rules.alert_kinds import KINDS, WRITER_KINDS, grew, worse
from oldhost_sync.policy.rules.conditions import Step
from oldhost_sync.store.alert_events import NOW, largest_count, record_event
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from oldhost_sync.store.tables import alerts, condition_lists

_OPEN = (
    "INSERT INTO alerts (host, kind, severity, message, dedupe_key, change_id, is_open, created_at, updated_at, "
    "occurrences) VALUES (%s, %s, %s, %s, %s, %s, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), %s) RETURNING id"
)
_FIRST_LIST = "INSERT INTO condition_lists (host, sequence) VALUES (%s, 0) ON DUPLICATE KEY UPDATE host = host"

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
    adds: bool = False,
) -> bool:
    """Open an alert; False if one of this cause is open already, which is then updated: its severity never goes down.

    `severity`: info, warning or critical. `dedupe_key`: the cause; by default the kind. `count`: how many things
    `message` is about; with `adds`, how many more than before.
    """
    key = cause_key(dedupe_key or kind)
    new = _Raising(kind, severity, storable(plain(message), TEXT_LENGTH_MAX), change_id, count)
    found = _open_alert(connection, host, key)
    if found is None:
        alert_id = _open(connection, host, key, new)
        if alert_id is not None:
            record_event(connection, host, alert_id, "opened", severity, new.message, count)
            return True
        found = _open_alert(connection, host, key)  # another transaction has opened it in the meantime
    if found is not None:
        _update(connection, host, found, new, adds=adds)
    return False


@dataclass(frozen=True, slots=True)
class _Raising:
    kind: str
    severity: str
    message: str
    change_id: int | None
    count: int


def cause_key(cause: str) -> str:
    """The cause as it is stored."""
    return storable(cause, IDEMPOTENCY_KEY_LENGTH_MAX)


def _open(connection: Connection, host: str, key: str, new: _Raising) -> int | None:
    values = (host, new.kind, new.severity, new.message, key, new.change_id, new.count)
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
    changed["updated_at"] = NOW
    if escalates:
        changed["delivered_at"] = None
    connection.execute(update(alerts).where(alerts.c.id == found.id).values(**changed))
    if escalates:
        record_event(connection, host, found.id, "escalated", severity, new.message, count)


def require_alerts(connection: Connection) -> None:
    """Raises if alerts can't be read now."""
    connection.execute(select(alerts.c.id).limit(1))


def close_alert(connection: Connection, host: str, dedupe_key: str, *, reason: str = "") -> bool:
    """Close the open alert of this cause; False if none is open. `reason`: by default what ends alerts of its kind."""
    found = _open_alert(connection, host, cause_key(dedupe_key))
    if found is None:
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
    host, kind, fact, cause = step.host, step.kind, step.fact, step.cause or step.kind
    if fact is None:
        return f"alert {kind} of {host} is closed: {KINDS[kind].ends}" if close_alert(connection, host, cause) else ""
    severity = fact.severity or KINDS[kind].severity
    is_new = raise_alert(connection, host, kind, severity, fact.why, dedupe_key=cause, count=fact.count)
    return f"alert {kind} of {host}: {fact.why}" if is_new else ""


def keep_writer_conditions(connection: Connection, host: str, told: RecordConditions) -> None:
    """Bring the writer's alerts in line with what is the case. A list that is older than a recorded one, as an
    abandoned attempt may bring it, is ignored, and so is one that comes twice: it may count events.
    """
    connection.exec_driver_sql(_FIRST_LIST, (host,))
    of_host = condition_lists.c.host == host
    newer = update(condition_lists).where(of_host, condition_lists.c.sequence < told.sequence)
    if connection.execute(newer.values(sequence=told.sequence)).rowcount == 0:
        return
    causes = {cause_key(each.cause): None for each in told.conditions}
    of_writer = alerts.c.kind.in_([kind for kind in WRITER_KINDS if kind not in told.unknown])
    is_open = select(alerts.c.dedupe_key).where(alerts.c.host == host, alerts.c.closed_at.is_(None), of_writer)
    for cause in connection.execute(is_open.order_by(alerts.c.id)).scalars().all():
        if cause not in causes:
            close_alert(connection, host, cause)
    for each in (*told.conditions, *told.events):
        raise_alert(
            connection,
            host=host,
            kind=each.kind,
            severity=KINDS[each.kind].severity,
            message=each.why,
            dedupe_key=each.cause,
            change_id=each.change_id,
            count=each.count,
            adds=each in told.events,
        )


def newest_list(connection: Connection, host: str) -> int:
    """The number of the writer's last recorded list of conditions; 0 if there is none. The next one's must be higher:
    by a clock that was set back since, all its lists would count as older, and be ignored.
    """
    statement = select(condition_lists.c.sequence).where(condition_lists.c.host == host)
    return int(connection.execute(statement).scalar() or 0)


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
