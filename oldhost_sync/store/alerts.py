"""Alerts: one open alert per cause, until its cause is gone.

An alert is opened; updated (count, worst severity, last message); acknowledged by a person; closed, with the reason.
The events to be posted to the webhook are stored in the same transaction (`alert_events`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, ClassVar, Literal

from sqlalchemy import func, select, text, update
from sqlalchemy.engine import Connection, Row
from sqlalchemy.exc import IntegrityError

from oldhost_sync.policy.limits import IDEMPOTENCY_KEY_LENGTH_MAX, OPERATOR_LENGTH_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.machine.actions import RecordConditions
from oldhost_sync.policy.plain_text import plain, quantity
from oldhost_sync.policy.rules.alert_cause import LENGTH_MAX, LOOKED_AT, NO_REASON, cause_of
from oldhost_sync.policy.rules.alert_kinds import KINDS, QUIET_DAYS, WRITER_KINDS, grew, may_close, worse
from oldhost_sync.policy.rules.conditions import Step
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.alert_events import NOW, largest_count, record_event
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.columns import storable
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from oldhost_sync.store.ledger.fates import UNSURE
from oldhost_sync.store.outbox.outstanding_changes import DEAD_LETTERS
from oldhost_sync.store.record import HIDDEN, NUMBER, RECORD
from oldhost_sync.store.tables import alerts, condition_lists

_OPEN = (
    "INSERT INTO alerts (host, kind, severity, message, dedupe_key, change_id, is_open, created_at, updated_at, "
    "occurrences) VALUES (%s, %s, %s, %s, %s, %s, 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), %s) RETURNING id"
)
_FIRST_LIST = "INSERT INTO condition_lists (host, sequence) VALUES (%s, 0) ON DUPLICATE KEY UPDATE host = host"

State = Literal["open", "closed", "all"]


@dataclass(frozen=True, slots=True)
class RaisedAlert:
    """One alert for one cause. `closed_by` is null when the product closed the alert because its cause was gone."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "id": 17,
        "kind": "dead-letters",
        "cause": "dead-letters:no such door #",
        "severity": "warning",
        "message": "OldHost rejected 2 changes: no such door #, for example: no such door 17. Later TXN changes of "
        "their entities are held until each is decided on.",
        "count": 2,
        "change_id": 4712,
        "created_at": "2026-05-01T12:01:03Z",
        "updated_at": "2026-05-01T12:03:40Z",
        "delivered_at": "2026-05-01T12:01:04Z",
        "acknowledged_at": "2026-05-01T12:02:10Z",
        "acknowledged_by": "anna",
        "acknowledge_reason": "I am looking into it",
        "closed_at": None,
        "closed_by": None,
        "close_reason": None,
    }

    alert_id: int = field(metadata=NUMBER)
    host: str = field(metadata=HIDDEN)
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
    alert = _open_alert(connection, host, key)
    if alert is None:
        alert_id = _open(connection, host, key, new)
        if alert_id is not None:
            record_event(connection, host, alert_id, "opened", severity, new.message, count)
            return True
        alert = _open_alert(connection, host, key)  # another transaction has opened it in the meantime
    if alert is not None:
        _update(connection, host, alert, new, adds=adds)
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


def _update(connection: Connection, host: str, alert: Row[Any], new: _Raising, *, adds: bool) -> None:
    severity = worse(alert.severity, new.severity)
    count = alert.occurrences + new.count if adds else new.count
    change_id = new.change_id if new.change_id is not None else alert.change_id
    after = (severity, new.message, count, change_id)
    if after == (alert.severity, alert.message, alert.occurrences, alert.change_id):
        return
    escalates = severity != alert.severity or (
        grew(alert.occurrences, count) and grew(largest_count(connection, alert.id), count)
    )
    changed = {"severity": severity, "message": new.message, "occurrences": count, "change_id": change_id}
    changed["updated_at"] = NOW
    if escalates:
        changed["delivered_at"] = None
    connection.execute(update(alerts).where(alerts.c.id == alert.id).values(**changed))
    if escalates:
        record_event(connection, host, alert.id, "escalated", severity, new.message, count)


def require_alerts(connection: Connection) -> None:
    """Raises if alerts can't be read now."""
    connection.execute(select(alerts.c.id).limit(1))


def close_alert(connection: Connection, host: str, dedupe_key: str, *, reason: str = "") -> bool:
    """Close the open alert of this cause; False if none is open. `reason`: by default what ends alerts of its kind."""
    alert = _open_alert(connection, host, cause_key(dedupe_key))
    if alert is None:
        return False
    if not reason:
        reason = KINDS[alert.kind].ends if alert.kind in KINDS else "its cause is gone"
    _close(connection, host, alert, reason)
    return True


def _close(connection: Connection, host: str, alert: Row[Any], reason: str, operator: str | None = None) -> None:
    """Close the open alert of the locked row; `operator`: the person who closes it, None for the product."""
    by = None if operator is None else storable(operator, OPERATOR_LENGTH_MAX)
    why = storable(plain(reason), TEXT_LENGTH_MAX)
    closed = {"is_open": None, "closed_at": NOW, "closed_by": by, "close_reason": why, "delivered_at": None}
    connection.execute(update(alerts).where(alerts.c.id == alert.id).values(**closed))
    record_event(
        connection, host, alert.id, "closed", alert.severity, alert.message, alert.occurrences, operator=by, reason=why
    )


def keep_condition(connection: Connection, step: Step) -> str:
    """Write what was decided about a condition. Returns a line for the log if an alert was opened or closed."""
    host, kind, fact, cause = step.host, step.kind, step.fact, step.cause or step.kind
    if fact is None:
        return f"alert {kind} of {host} is closed: {KINDS[kind].ends}" if close_alert(connection, host, cause) else ""
    severity = fact.severity or KINDS[kind].severity
    is_new = raise_alert(connection, host, kind, severity, fact.why, dedupe_key=cause, count=fact.count)
    return f"alert {kind} of {host}: {fact.why}" if is_new else ""


def keep_writer_conditions(connection: Connection, host: str, listed: RecordConditions) -> None:
    """Bring the writer's alerts in line with what is the case. A list that is older than a recorded one, as an
    abandoned attempt may bring it, is ignored, and so is one that comes twice: it may count events.
    """
    connection.exec_driver_sql(_FIRST_LIST, (host,))
    of_host = condition_lists.c.host == host
    newer = update(condition_lists).where(of_host, condition_lists.c.sequence < listed.sequence)
    if connection.execute(newer.values(sequence=listed.sequence)).rowcount == 0:
        return
    causes = {cause_key(condition.cause) for condition in listed.conditions}
    of_writer = alerts.c.kind.in_([kind for kind in WRITER_KINDS if kind not in listed.unknown])
    is_open = select(alerts.c.dedupe_key).where(alerts.c.host == host, alerts.c.closed_at.is_(None), of_writer)
    for cause in connection.execute(is_open.order_by(alerts.c.id)).scalars().all():
        if cause not in causes:
            close_alert(connection, host, cause)
    for condition in (*listed.conditions, *listed.events):
        raise_alert(
            connection,
            host=host,
            kind=condition.kind,
            severity=KINDS[condition.kind].severity,
            message=condition.why,
            dedupe_key=condition.cause,
            change_id=condition.change_id,
            count=condition.count,
            adds=condition in listed.events,
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
    state: State = "open",
    kind: str | None = None,
    limit: int = 100,
    before_id: int | None = None,
) -> list[RaisedAlert]:
    """Newest first; the next page is the one with the last id as `before_id`."""
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


# -------------------------------------------------------------------------------------------------------- people's acts

# Acknowledge any open alert, close an informational one. Each act is audited.


@dataclass(frozen=True, slots=True)
class AlertDecided:
    """`alert`: its state now, None if there is none with this id. `refused`: why nothing was done; else empty."""

    alert: RaisedAlert | None = None
    refused: str = ""


def acknowledge_alert(connection: Connection, host: str, alert_id: int, operator: Actor, reason: str) -> AlertDecided:
    """Note that `operator` looks after the alert; the latest acknowledgement counts. The alert stays open, and still
    escalates when it gets worse.
    """
    alert, refused = _open_of(connection, host, alert_id)
    if alert is not None:
        acknowledged = {
            "acknowledged_at": NOW,
            "acknowledged_by": storable(operator.name, OPERATOR_LENGTH_MAX),
            "acknowledge_reason": storable(plain(reason), TEXT_LENGTH_MAX),
        }
        connection.execute(update(alerts).where(alerts.c.id == alert_id).values(**acknowledged))
        _audit(connection, alert, "acknowledge-alert", operator, reason)
    return AlertDecided(find_alert(connection, host, alert_id), refused)


def close_alert_by_hand(connection: Connection, host: str, alert_id: int, operator: Actor, reason: str) -> AlertDecided:
    """Close an alert for a person. Refused for kinds that the product closes itself when their cause is gone."""
    alert, refused = _open_of(connection, host, alert_id)
    if alert is not None and not may_close(alert.kind):
        refused = f"the product closes alerts of this kind itself, when {KINDS[alert.kind].ends}; that is not yet so"
    elif alert is not None:
        _close(connection, host, alert, reason, operator.name)
        _audit(connection, alert, "close-alert", operator, reason)
    return AlertDecided(find_alert(connection, host, alert_id), refused)


def close_quiet_alerts(connection: Connection, host: str) -> int:
    """Close informational alerts whose cause did not occur for QUIET_DAYS, so that the next one is posted again."""
    informational = [kind for kind, about in KINDS.items() if about.informational]
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
    rows = connection.execute(quiet).all()
    for row in rows:
        _close(connection, host, row, f"it did not recur for {QUIET_DAYS} days")
    return len(rows)


def _open_of(connection: Connection, host: str, alert_id: int) -> tuple[Row[Any] | None, str]:
    """The open alert, locked; or why there is none."""
    statement = select(alerts).where(alerts.c.id == alert_id, alerts.c.host == host).with_for_update()
    alert = connection.execute(statement).one_or_none()
    if alert is None:
        return None, f"there is no alert {alert_id} of {host}"
    if alert.is_open is None:
        return None, f"alert {alert_id} is closed already"
    return alert, ""


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


# --------------------------------------------------------------------------------------------------------- dead letters

# Alerts about dead letters: one for each reason that OldHost gave, brought in line with the outbox. They are derived
# from what is undecided now, so it does not matter who calls this, how often, or what was raised before. Even if the
# writer's state was lost, or its run ended during a decision, no alert stays open wrongly or is missing.

KIND = "dead-letters"
# Up to this many reasons have an alert each; all others share one, because nobody reads hundreds.
REASONS_MAX = 20
_OTHERS = "other reasons"
# More undecided dead letters of one reason than this are critical.
WARNING_MAX = 20
# Only this many letters of the outbox are grouped, the oldest: for as many different texts this takes up to 0.9 s, for
# texts of 4-byte characters 3 s. All others are counted with those of other reasons.
_LETTERS_MAX = 100_000
# The most texts that are read; those of one reason may differ in ids and numbers.
_TEXTS_MAX = 5_000
# Characters of OldHost's words that are compared, and shown in a message: all that its cause depends on.
_WORDS_MAX = LOOKED_AT * LENGTH_MAX

# Grouped by a digest, because a temporary table of texts is on disk and takes ten times as long. Numbers and hashes do
# not count here already, so that one reason with many of them is one text; `cause_of` finds what else varies.
_DIGEST = f"UNHEX(MD5(REGEXP_REPLACE(LEFT(error, {_WORDS_MAX}), '[0-9a-f]{{16,}}|[0-9]+', '#')))"
_BY_TEXT = text(
    f"SELECT COALESCE(LEFT(o.error, {_WORDS_MAX}), LEFT(p.error, {_WORDS_MAX})) AS error, changes, oldest, "
    f"({DEAD_LETTERS}) AS letters FROM ("
    "SELECT COUNT(*) AS changes, MIN(id) AS oldest FROM ("
    f"SELECT * FROM (SELECT id, {_DIGEST} AS digest FROM outbox_events FORCE INDEX (ix_outbox_events_outcome) "
    "WHERE host = :host AND outcome = 'DEAD' ORDER BY id LIMIT :letters) recorded UNION ALL "
    f"SELECT * FROM (SELECT change_id AS id, {_DIGEST} AS digest FROM pending_fates "
    "WHERE host = :host AND outcome = 'DEAD' ORDER BY change_id LIMIT :letters) pending) dead "
    "GROUP BY digest ORDER BY changes DESC, oldest LIMIT :texts) found "
    "LEFT JOIN outbox_events o ON o.id = oldest AND o.outcome = 'DEAD' "
    "LEFT JOIN pending_fates p ON p.host = :host AND p.change_id = oldest "
    "ORDER BY changes DESC, oldest"
)


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Undecided dead letters of one cause: how many, the first id, and one of OldHost's texts unchanged."""

    cause: str
    example: str
    count: int
    oldest: int

    def with_more(self, count: int, oldest: int) -> DeadLetterGroup:
        return DeadLetterGroup(self.cause, self.example, self.count + count, min(self.oldest, oldest))


def dead_letter_groups(connection: Connection, host: str) -> list[DeadLetterGroup]:
    """Grouped by OldHost's reason without its ids and numbers, the most frequent first; at most REASONS_MAX + 1."""
    groups: dict[str, DeadLetterGroup] = {}
    limits = {"letters": _LETTERS_MAX, "texts": _TEXTS_MAX}
    rows = connection.execute(_BY_TEXT, {"host": host} | limits).all()
    for row in rows:
        cause = cause_of(row.error)
        if cause not in groups and len(groups) >= REASONS_MAX:
            cause = _OTHERS
        group = groups.get(cause, DeadLetterGroup(cause, row.error or "", 0, row.oldest))
        groups[cause] = group.with_more(int(row.changes), row.oldest)
    not_read = rows[0].letters - sum(row.changes for row in rows) if rows else 0
    if not_read:
        others = groups.get(_OTHERS, DeadLetterGroup(_OTHERS, "", 0, rows[-1].oldest))
        groups[_OTHERS] = others.with_more(int(not_read), others.oldest)
    return list(groups.values())


def keep_dead_letter_alerts(connection: Connection, host: str) -> None:
    """Open, update and close the alerts: those with undecided dead letters are open, with their largest count."""
    groups = {cause_key(f"{KIND}:{group.cause}"): group for group in dead_letter_groups(connection, host)}
    open_counts = _open_counts(connection, host)
    for key, group in groups.items():
        severity = "critical" if group.count > WARNING_MAX else "warning"
        count = max(group.count, open_counts.get(key, 0))
        message = _message(group, count)
        raise_alert(connection, host, KIND, severity, message, dedupe_key=key, change_id=group.oldest, count=count)
    for key in open_counts:
        if key not in groups:
            close_alert(connection, host, key, reason="each of them was decided on")


def _message(group: DeadLetterGroup, count: int) -> str:
    """`count` includes those decided on by now: the alert keeps this text when it is closed.

    OldHost's words are quoted, without the details that differ: these may repeat a payload, and alerts are posted.
    """
    words = group.cause if group.cause in {NO_REASON, _OTHERS} else f'"{group.cause.rstrip(".")}"'
    if group.cause.startswith(UNSURE):
        return (
            f"OldHost's answers to {quantity(count, 'change')} say neither applied nor rejected: {words}. "
            "Look whether OldHost has each, then confirm, retry or discard it. Later TXN changes of their entities are "
            "held until then."
        )
    return (
        f"OldHost rejected {quantity(count, 'change')}: {words}. Later TXN changes of their "
        "entities are held until each is decided on."
    )


def _open_counts(connection: Connection, host: str) -> dict[str, int]:
    """How many changes each open alert is about, by its key."""
    statement = select(alerts.c.dedupe_key, alerts.c.occurrences).where(
        alerts.c.host == host, alerts.c.closed_at.is_(None), alerts.c.kind == KIND
    )
    return {row.dedupe_key: row.occurrences for row in connection.execute(statement.order_by(alerts.c.id))}
