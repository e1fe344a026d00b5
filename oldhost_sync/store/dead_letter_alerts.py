"""The alerts about dead letters: one for each reason that OldHost gave, made to agree with the outbox.

They follow from what is undecided now, so it does not matter who asks, how often, or what was told before: a writer
that was lost, or a decision whose run ended, leaves no alert open and none out.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.alert_cause import cause_of
from oldhost_sync.store.alerts import cause_key, close_alert, raise_alert
from oldhost_sync.store.tables import alerts

KIND = "dead-letters"
# As the release before named the alert of one dead letter; such an alert is closed, and counted in its reason's.
_OLD_KIND = "dead-letter"
# More reasons than these share one alert: nobody reads hundreds.
REASONS_MAX = 20
_OTHERS = "other reasons"
# More undecided ones of a reason are critical.
WARNING_MAX = 20
# Texts of one reason may differ in ids and numbers.
_TEXTS_MAX = 5_000

_BY_TEXT = text(
    "SELECT error, COUNT(*) AS changes, MIN(id) AS oldest, MAX(id) AS newest FROM ("
    "SELECT id, error FROM outbox_events FORCE INDEX (ix_outbox_events_outcome) "
    "WHERE host = :host AND outcome = 'DEAD' "
    "UNION SELECT change_id, error FROM pending_fates WHERE host = :host AND outcome = 'DEAD') dead "
    "GROUP BY error ORDER BY changes DESC, oldest LIMIT :limit"
)


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Undecided dead letters of one cause: how many, and the first and the last id."""

    cause: str
    count: int
    oldest: int
    newest: int

    def with_more(self, count: int, oldest: int, newest: int) -> DeadLetterGroup:
        return DeadLetterGroup(self.cause, self.count + count, min(self.oldest, oldest), max(self.newest, newest))


def dead_letter_groups(connection: Connection, host: str) -> list[DeadLetterGroup]:
    """By OldHost's reason without what differs between changes, the most frequent first; at most REASONS_MAX + 1."""
    groups: dict[str, DeadLetterGroup] = {}
    for row in connection.execute(_BY_TEXT, {"host": host, "limit": _TEXTS_MAX}):
        cause = cause_of(row.error)
        if cause not in groups and len(groups) >= REASONS_MAX:
            cause = _OTHERS
        group = groups.get(cause, DeadLetterGroup(cause, 0, row.oldest, row.newest))
        groups[cause] = group.with_more(int(row.changes), row.oldest, row.newest)
    return list(groups.values())


def keep_dead_letter_alerts(connection: Connection, host: str) -> None:
    """Open, update and close them, so that they say what is undecided now."""
    groups = {cause_key(f"{KIND}:{group.cause}"): group for group in dead_letter_groups(connection, host)}
    for key, group in groups.items():
        severity = "critical" if group.count > WARNING_MAX else "warning"
        change_id, count = group.oldest, group.count
        raise_alert(connection, host, KIND, severity, _told(group), dedupe_key=key, change_id=change_id, count=count)
    for key in _open_keys(connection, host):
        if key not in groups:
            close_alert(connection, host, key, reason="each of them was decided on")


def _told(group: DeadLetterGroup) -> str:
    many = f"{group.count} changes" if group.count > 1 else "a change"
    which = f"{group.oldest}" if group.count == 1 else f"the oldest {group.oldest}, the newest {group.newest}"
    return (
        f"OldHost rejected {many} ({which}): {group.cause}. Later TXN changes of their entities are held. "
        "`oldhost-sync dead-letters list` names them; retry or discard each."
    )


def _open_keys(connection: Connection, host: str) -> list[str]:
    statement = select(alerts.c.dedupe_key).where(
        alerts.c.host == host, alerts.c.closed_at.is_(None), alerts.c.kind.in_((KIND, _OLD_KIND))
    )
    return list(connection.execute(statement.order_by(alerts.c.id)).scalars())
