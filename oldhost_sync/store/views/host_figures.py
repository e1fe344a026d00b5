"""The figures of all hosts of a relay, for Prometheus: two statements, by indexes, without a lock.

Waiting changes are counted by reading their part of an index (about 30 ms for 100,000 changes); the relay does this so
rarely that it takes only a small share of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.alert_kinds import SEVERITIES
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.outbox.relay_queue import held_back_up_to

# Above it, the count means "at least".
HELD_COUNTED_MAX = 100_000

_ACT = (
    "(SELECT MAX(a.id) FROM operator_audit a FORCE INDEX (ix_operator_audit_action) "
    "WHERE a.host = l.host AND a.action = '{}')"
)
_DEAD = "outbox_events d FORCE INDEX (ix_outbox_events_outcome) WHERE d.host = l.host AND d.outcome = 'DEAD'"
_OPEN = (
    "(SELECT COUNT(*) FROM alerts a FORCE INDEX (ix_alerts_closed) "
    "WHERE a.host = l.host AND a.closed_at IS NULL AND a.severity = '{0}') AS open_{0}"
)
_FACTS = text(
    "SELECT f.*, TIMESTAMPDIFF(MICROSECOND, p.created_at, UTC_TIMESTAMP(6)) DIV 1000 AS paused_ms FROM ("
    "SELECT l.host, COALESCE(n.epoch, 0) AS epoch, COALESCE(n.fate_sequence, 0) AS fates, "
    "n.halted IS NOT NULL AS halted, "
    f"GREATEST(0, COALESCE({BAN_LEFT_MS}, 0)) AS ban_left_ms, "
    f"{_ACT.format('pause')} AS pause_id, {_ACT.format('resume')} AS resume_id, "
    f"(SELECT COUNT(*) FROM {_DEAD}) AS dead, (SELECT COALESCE(SUM(d.id), 0) FROM {_DEAD}) AS dead_ids, "
    "(SELECT COUNT(*) FROM pending_fates d WHERE d.host = l.host AND d.outcome = 'DEAD') AS dead_pending, "
    "(SELECT COUNT(*) FROM scheduled_changes s FORCE INDEX (ix_scheduled_changes_due) "
    "WHERE s.host = l.host AND s.recorded_at IS NULL AND s.cancelled_at IS NULL) AS scheduled, "
    + ", ".join(_OPEN.format(severity) for severity in SEVERITIES)
    + " FROM relay_lease l LEFT JOIN nonce_ledger n ON n.host = l.host WHERE l.owner = :owner) f "
    "LEFT JOIN operator_audit p ON p.id = f.pause_id AND f.pause_id > COALESCE(f.resume_id, 0)"
)
_OF_CLASS = (
    "FROM outbox_events e FORCE INDEX (ix_outbox_events_unrelayed) "
    "WHERE e.host = l.host AND e.processed_at IS NULL AND e.priority_class = '{cls}'"
)
# The relay hands over each class in id order, so the oldest change is the first relayed or the first unrelayed one.
_WAITING_OF_CLASS = (
    f"SELECT l.host, '{{cls}}' AS priority_class, (SELECT COUNT(*) {_OF_CLASS}) AS changes, LEAST("
    f"COALESCE((SELECT e.created_at {_OF_CLASS} AND e.relayed_at IS NULL ORDER BY e.id LIMIT 1), UTC_TIMESTAMP(6)), "
    f"COALESCE((SELECT e.created_at {_OF_CLASS} AND e.relayed_at IS NOT NULL ORDER BY e.relayed_at, e.id LIMIT 1), "
    "UTC_TIMESTAMP(6))) AS oldest_at FROM relay_lease l WHERE l.owner = :owner"
)
_WAITING = text(
    "SELECT host, priority_class, changes, "
    "GREATEST(0, TIMESTAMPDIFF(MICROSECOND, oldest_at, UTC_TIMESTAMP(6))) DIV 1000 AS oldest_ms FROM ("
    + " UNION ALL ".join(_WAITING_OF_CLASS.format(cls=cls.value) for cls in PriorityClass)
    + ") w WHERE changes > 0"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """Changes of one class without a fate: how many, and how long the oldest has waited."""

    changes: int = 0
    oldest_s: float = 0.0


@dataclass(frozen=True, slots=True)
class HostFigures:
    """One host's figures. `fates`: a number that grows with each fate. `ban_left_s`: 0 without a ban. `paused_s`: for
    how long it has been paused, None if it is not. `dead_letters_id`: changes when the set of dead letters changes.
    """

    epoch: int = 0
    fates: int = 0
    halted: bool = False
    ban_left_s: float = 0.0
    paused_s: float | None = None
    dead_letters: int = 0
    dead_letters_id: tuple[int, int] = (0, 0)
    held: int = 0
    scheduled: int = 0
    open_alerts: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[PriorityClass, Waiting] = field(default_factory=dict)


def read_figures(connection: Connection, owner: str) -> dict[str, HostFigures]:
    """The figures of each host whose lease `owner` holds."""
    found = {
        row.host: HostFigures(
            epoch=int(row.epoch),
            fates=int(row.fates),
            halted=bool(row.halted),
            ban_left_s=int(row.ban_left_ms) / 1000,
            paused_s=None if row.paused_ms is None else max(0, int(row.paused_ms)) / 1000,
            dead_letters=int(row.dead + row.dead_pending),
            dead_letters_id=(int(row.dead + row.dead_pending), int(row.dead_ids)),
            scheduled=int(row.scheduled),
            open_alerts={severity: int(getattr(row, f"open_{severity}")) for severity in SEVERITIES},
        )
        for row in connection.execute(_FACTS, {"owner": owner})
    }
    waiting: dict[str, dict[PriorityClass, Waiting]] = {host: {} for host in found}
    for row in connection.execute(_WAITING, {"owner": owner}):
        by_class = waiting.setdefault(row.host, {})
        by_class[PriorityClass(row.priority_class)] = Waiting(int(row.changes), int(row.oldest_ms) / 1000)
    return {
        host: replace(figures, waiting=waiting[host], held=_held(connection, host, figures))
        for host, figures in found.items()
    }


def _held(connection: Connection, host: str, figures: HostFigures) -> int:
    return held_back_up_to(connection, host, HELD_COUNTED_MAX) if figures.dead_letters else 0
