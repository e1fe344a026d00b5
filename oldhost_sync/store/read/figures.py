"""Figures of the load: its history for charts, and the present for Prometheus. Nothing is locked but a sample's own
row.

**The history** is one sample every ten seconds, in three ring buffers of fixed size (an hour, a day, a week). A sample
covers the time since the last one: what waits now, by class, how many changes were accepted and applied, how long
emergencies took, and what stopped sending. The number accepted is computed as the increase of the waiting ones plus
those that ended, because fates are numbered in commit order, and ids are not. A ring's rows are overwritten in turn, so
the table has at most `sum(ring.slots)` rows for each host, and nothing needs to be pruned.

**For Prometheus** two statements read all hosts of a relay, by indexes. Waiting changes are counted by reading their
part of an index (about 30 ms for 100,000 changes); the relay does this so rarely that it takes only a small share of
the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.rules.alert_kinds import SEVERITIES
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.outbox.outstanding_changes import held_back_up_to
from oldhost_sync.store.outbox.pending_fates import IS_PENDING
from oldhost_sync.store.record import RECORD, described
from oldhost_sync.store.tables import load_samples

# -------------------------------------------------------------------------------------------------------------- history


@dataclass(frozen=True, slots=True)
class Ring:
    """`slots` buckets of `step_s` seconds each."""

    step_s: int
    slots: int

    @property
    def span_s(self) -> int:
        return self.step_s * self.slots


RINGS = {"1h": Ring(10, 360), "24h": Ring(60, 1_440), "7d": Ring(600, 1_008)}
# Counting stops there, for each class: it takes about 30 ms, and a chart needs no larger numbers.
COUNTED_MAX = 100_000
# Emergencies whose age is read; the oldest may be missed only if more of them wait.
EMERGENCIES_MAX = 5_000
# Transactions whose fates one sample counts; after a longer silence the older ones are left out.
SEQUENCES_MAX = 50_000

_BACKLOG = ", ".join(
    "(SELECT COUNT(*) FROM (SELECT 1 FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) "
    f"WHERE o.host = :host AND o.processed_at IS NULL AND o.priority_class = '{cls}' LIMIT {COUNTED_MAX}) counted) "
    f"AS {cls.lower()}"
    for cls in PriorityClass
)
_NOW = text(
    f"SELECT UTC_TIMESTAMP(6) AS now, {_BACKLOG}, "
    "(SELECT MAX(TIMESTAMPDIFF(MICROSECOND, e.created_at, UTC_TIMESTAMP(6)) DIV 1000) FROM (SELECT o.created_at "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_unrelayed) WHERE o.host = :host AND o.processed_at IS NULL "
    "AND o.priority_class = 'EMERGENCY' "
    f"AND NOT {IS_PENDING} LIMIT {EMERGENCIES_MAX}) e) AS waiting_ms, "
    "COALESCE((SELECT fate_sequence FROM nonce_ledger WHERE host = :host), 0) AS fates, "
    f"(SELECT CASE WHEN halted IS NOT NULL THEN 'HALTED' WHEN {BAN_LEFT_MS} > 0 THEN 'BANNED' END "
    "FROM nonce_ledger WHERE host = :host) AS stopped, "
    "(SELECT action FROM operator_audit WHERE host = :host AND action IN ('pause', 'resume') ORDER BY id DESC LIMIT 1) "
    "AS last_act"
)
_LAST = text(
    "SELECT waiting, sequence FROM load_samples "
    f"WHERE host = :host AND step_s = {RINGS['1h'].step_s} ORDER BY at DESC LIMIT 1 FOR UPDATE"
)
_FATES = text(
    "SELECT COUNT(*) AS ended, COALESCE(SUM(o.outcome = 'APPLIED'), 0) AS applied, MAX(IF(o.priority_class = "
    "'EMERGENCY', TIMESTAMPDIFF(MICROSECOND, o.created_at, o.processed_at) DIV 1000, NULL)) AS took_ms "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_feed) WHERE o.host = :host "
    "AND o.fate_sequence > :after AND o.fate_sequence <= :upto"
)
_GREATEST = ", ".join(
    f"{name} = IF(at = VALUES(at), GREATEST({name}, VALUES({name})), VALUES({name}))"
    for name in (*(cls.lower() for cls in PriorityClass), "emergency_ms")
)
_SUMS = ", ".join(
    f"{name} = IF(at = VALUES(at), {name} + VALUES({name}), VALUES({name}))" for name in ("accepted", "applied")
)
_COLUMNS = "host, step_s, slot, at, emergency, txn, lww, accepted, applied, emergency_ms, stopped, waiting, sequence"
_VALUES = (
    "(:host, {step_s}, :slot_{step_s}, :at_{step_s}, :emergency, :txn, :lww, :accepted, :applied, :emergency_ms, "
    ":stopped, :waiting, :sequence)"
)
# `at` is assigned last: the other assignments compare its old value.
_KEEP = text(
    f"INSERT INTO load_samples ({_COLUMNS}) VALUES "
    + ", ".join(_VALUES.format(step_s=ring.step_s) for ring in RINGS.values())
    + f" ON DUPLICATE KEY UPDATE {_GREATEST}, {_SUMS}, "
    "stopped = IF(at = VALUES(at), COALESCE(VALUES(stopped), stopped), VALUES(stopped)), "
    "waiting = VALUES(waiting), sequence = VALUES(sequence), at = VALUES(at)"
)


@dataclass(frozen=True, slots=True)
class SeriesPoint:
    """One time bucket: the largest backlog of each class, the accepted and applied changes, the slowest emergency."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "at": "2026-05-01T12:00:30Z",
        "emergency": 1,
        "txn": 14,
        "lww": 230,
        "accepted": 61,
        "applied": 25,
        "emergency_ms": 840,
        "stopped": None,
    }

    at: datetime = field(metadata=described("When the bucket begins"))
    emergency: int
    txn: int
    lww: int
    accepted: int
    applied: int
    emergency_ms: int = field(
        metadata=described("The longest time that an emergency took or waited; 0: there was none")
    )
    stopped: str | None = field(metadata=described("BANNED, PAUSED or HALTED, if sending was stopped in this bucket"))


_SHOWN = [load_samples.c[name] for name in SeriesPoint.__slots__]


def record_sample(connection: Connection, host: str) -> None:
    """Add what happened since the last sample to each ring's current bucket. Concurrent calls count nothing twice."""
    last = connection.execute(_LAST, {"host": host}).one_or_none()
    now = connection.execute(_NOW, {"host": host}).one()
    after = now.fates if last is None else max(last.sequence, now.fates - SEQUENCES_MAX)
    fates = connection.execute(_FATES, {"host": host, "after": after, "upto": now.fates}).one()
    waiting = now.emergency + now.txn + now.lww
    values = {
        "host": host,
        "emergency": now.emergency,
        "txn": now.txn,
        "lww": now.lww,
        "accepted": 0 if last is None else max(0, waiting - int(last.waiting) + fates.ended),
        "applied": 0 if last is None else int(fates.applied),
        "emergency_ms": max(now.waiting_ms or 0, fates.took_ms or 0, 0),
        "stopped": now.stopped or ("PAUSED" if now.last_act == "pause" else None),
        "waiting": waiting,
        "sequence": now.fates,
    }
    for ring in RINGS.values():
        number = int(now.now.replace(tzinfo=UTC).timestamp()) // ring.step_s
        values[f"slot_{ring.step_s}"] = number % ring.slots
        values[f"at_{ring.step_s}"] = datetime.fromtimestamp(number * ring.step_s, UTC).replace(tzinfo=None)
    connection.execute(_KEEP, values)


def read_series(connection: Connection, host: str, span: str) -> list[SeriesPoint]:
    """The samples of `span` (a key of RINGS), oldest first; buckets without a sample are missing."""
    ring = RINGS[span]
    now: datetime = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
    begin = now.replace(tzinfo=UTC) - timedelta(seconds=ring.span_s)
    rows = connection.execute(
        select(*_SHOWN)
        .where(load_samples.c.host == host, load_samples.c.step_s == ring.step_s, load_samples.c.at > begin)
        .order_by(load_samples.c.at)
    )
    return [SeriesPoint(*row) for row in rows]


# ------------------------------------------------------------------------------------------------------- for Prometheus

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
    by_host = {
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
    waiting: dict[str, dict[PriorityClass, Waiting]] = {host: {} for host in by_host}
    for row in connection.execute(_WAITING, {"owner": owner}):
        by_class = waiting.setdefault(row.host, {})
        by_class[PriorityClass(row.priority_class)] = Waiting(int(row.changes), int(row.oldest_ms) / 1000)
    return {
        host: replace(figures, waiting=waiting[host], held=_held(connection, host, figures))
        for host, figures in by_host.items()
    }


def _held(connection: Connection, host: str, figures: HostFigures) -> int:
    return held_back_up_to(connection, host, HELD_COUNTED_MAX) if figures.dead_letters else 0
