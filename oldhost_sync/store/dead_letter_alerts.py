"""The alerts about dead letters: one for each reason that OldHost gave, brought in line with the outbox.

They are derived from what is undecided now, so it does not matter who calls this, how often, or what was raised before.
Even if the writer's state was lost, or its run ended during a decision, no alert stays open wrongly or is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.alert_cause import LENGTH_MAX, LOOKED_AT, NO_REASON, cause_of
from oldhost_sync.store.alerts import cause_key, close_alert, raise_alert
from oldhost_sync.store.ledger.fates import UNSURE
from oldhost_sync.store.outbox.outstanding_changes import DEAD_LETTERS
from oldhost_sync.store.tables import alerts

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
    found = connection.execute(_BY_TEXT, {"host": host} | limits).all()
    for row in found:
        cause = cause_of(row.error)
        if cause not in groups and len(groups) >= REASONS_MAX:
            cause = _OTHERS
        group = groups.get(cause, DeadLetterGroup(cause, row.error or "", 0, row.oldest))
        groups[cause] = group.with_more(int(row.changes), row.oldest)
    not_read = found[0].letters - sum(row.changes for row in found) if found else 0
    if not_read:
        others = groups.get(_OTHERS, DeadLetterGroup(_OTHERS, "", 0, found[-1].oldest))
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
