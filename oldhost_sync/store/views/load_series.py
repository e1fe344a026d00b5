"""The history of the load: one sample every ten seconds, in three ring buffers of fixed size (an hour, a day, a week).

A sample covers the time since the last one: what waits now, by class, how many changes were accepted and applied, how
long emergencies took, and what stopped sending. The number accepted is computed as the increase of the waiting ones
plus those that ended, because fates are numbered in commit order, and ids are not. A ring's rows are overwritten in
turn, so the table has at most `sum(ring.slots)` rows for each host, and nothing needs to be pruned.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.ledger.statements import BAN_LEFT_MS
from oldhost_sync.store.tables import load_samples


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
    "AND o.priority_class = 'EMERGENCY' AND NOT EXISTS "
    "(SELECT 1 FROM pending_fates p WHERE p.host = o.host AND p.change_id = o.id) "
    f"LIMIT {EMERGENCIES_MAX}) e) AS waiting_ms, "
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
class LoadSample:
    """One bucket that begins at `at`: the most changes that waited in it, by class; how many were accepted and applied;
    the longest time that an emergency took or waits (ms, 0: there was none); what stopped sending, if anything.
    """

    at: datetime
    emergency: int
    txn: int
    lww: int
    accepted: int
    applied: int
    emergency_ms: int
    stopped: str | None


_SHOWN = [load_samples.c[name] for name in LoadSample.__slots__]


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


def read_series(connection: Connection, host: str, span: str) -> list[LoadSample]:
    """The samples of `span` (a key of RINGS), oldest first; buckets without a sample are missing."""
    ring = RINGS[span]
    now: datetime = connection.execute(text("SELECT UTC_TIMESTAMP(6)")).scalar_one()
    begin = now.replace(tzinfo=UTC) - timedelta(seconds=ring.span_s)
    rows = connection.execute(
        select(*_SHOWN)
        .where(load_samples.c.host == host, load_samples.c.step_s == ring.step_s, load_samples.c.at > begin)
        .order_by(load_samples.c.at)
    )
    return [LoadSample(*row) for row in rows]
