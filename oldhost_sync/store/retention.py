"""Delete what ended long ago, in bounded batches, so that no lock is held for long and tables stay small.

Never deleted: changes without a fate, undecided dead letters, discarded changes whose state is still shown, the rows of
nonces that may still be compared with OldHost, open alerts. With a change its idempotency key is deleted too (of one
that was scheduled: with the last of its two rows); so before that, its ledger row, where that key is unique, is moved
to the ledger's archive. The archive is kept longer, and only rows that are in a settlement file may be deleted from it.

The rows to delete are first read, by an index and without a lock, then deleted by primary key: nothing is sorted,
nothing else is locked, and stale statistics of the server do no harm. A pass continues after the rows that it did not
delete; a change whose row another transaction has locked is deleted by the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection, Row

from oldhost_sync.policy.limits import RETENTION_AUDIT_DAYS, RETENTION_DAYS, RETENTION_LEDGER_DAYS
from oldhost_sync.store.ledger import statements
from oldhost_sync.store.ledger.settlement import released_until, settled_until
from oldhost_sync.store.outbox.books import forget_fates
from oldhost_sync.store.outbox.pending_fates import listed

# The last rows of the ledger are kept, however old: if OldHost goes back, they are sent again.
NONCES_KEPT = 10_000
EARLIEST = datetime(1970, 1, 1)  # noqa: DTZ001 - without a zone, as in the columns

_ENDED = text(
    "SELECT o.id, o.processed_at, o.fate_sequence, o.outcome <> 'DEAD' AND (o.outcome <> 'DISCARDED' OR EXISTS ("
    "SELECT 1 FROM applied_states a WHERE a.host = o.host AND a.entity_type = o.entity_type "
    "AND a.entity_id = o.entity_id AND a.event_type = o.event_type AND a.change_id > o.id)) AND NOT EXISTS ("
    "SELECT 1 FROM nonce_requests r FORCE INDEX (ix_nonce_requests_change) "
    "WHERE r.host = o.host AND r.change_id = o.id) AS may_go "
    "FROM outbox_events o FORCE INDEX (ix_outbox_events_outstanding) "
    "WHERE o.host = :host AND o.processed_at < :changes AND o.processed_at >= :after "
    "AND (o.processed_at > :after OR o.id > :after_id) ORDER BY o.processed_at, o.id LIMIT :rows"
)
# Nonces end in their order, so only the lowest can be old, and only those are read.
_NONCES = text(
    "SELECT r.nonce, r.completed_at < :changes AS may_go FROM nonce_requests r FORCE INDEX (PRIMARY) "
    "WHERE r.host = :host AND r.nonce < :below ORDER BY r.nonce LIMIT :rows"
)
_FREE = (
    "SELECT id, outcome, fate_sequence FROM outbox_events FORCE INDEX (PRIMARY) WHERE id IN ({ids}) "
    "FOR UPDATE SKIP LOCKED"
)
_SETTLED = text("SELECT last_applied_nonce FROM nonce_ledger WHERE host = :host")
# Each: a table, the index that finds the rows to delete, and their condition (no row meets it if the limit is NULL).
_ARCHIVE = "nonce_requests_archive"
_OTHERS = (
    ("scheduled_changes", "ix_scheduled_changes_due", "recorded_at < :changes"),
    ("scheduled_changes", "ix_scheduled_changes_due", "recorded_at IS NULL AND cancelled_at < :changes"),
    ("alerts", "ix_alerts_closed", "closed_at < :alerts"),
    ("alert_events", "ix_alert_events_created", "created_at < :alerts"),
    ("late_emergencies", "ix_late_emergencies_started", "started_at < :alerts AND ended_at < :alerts"),
    # The last pause or resume says whether the writer is paused.
    ("operator_audit", "ix_operator_audit_created", "created_at < :audit AND action NOT IN ('pause', 'resume')"),
    (_ARCHIVE, "ix_nonce_requests_archive_completed", "completed_at < :ledger"),
    (_ARCHIVE, "ix_nonce_requests_archive_archived", "archived_at < :ledger AND completed_at IS NULL"),
)
_ITS_KEY = (
    "t FORCE INDEX (PRIMARY) STRAIGHT_JOIN submitted_keys k FORCE INDEX (PRIMARY) "
    "ON k.host = t.host AND k.idempotency_key = t.idempotency_key"
)
_FORGET_KEYS = f"DELETE k FROM outbox_events {_ITS_KEY} WHERE t.id IN ({{ids}}) AND NOT k.is_scheduled"
# If the change is still in the outbox, its first answer is now that row's.
_MOVE_KEYS = (
    f"UPDATE scheduled_changes {_ITS_KEY} SET k.is_scheduled = FALSE, k.row_id = t.change_id WHERE t.id IN ({{ids}})"
)
_FORGET_SCHEDULED_KEYS = (
    f"DELETE k FROM scheduled_changes {_ITS_KEY} WHERE t.id IN ({{ids}}) AND NOT EXISTS (SELECT 1 FROM outbox_events o "
    "FORCE INDEX (uq_outbox_events_idempotency_key) WHERE o.host = t.host AND o.idempotency_key = t.idempotency_key)"
)
# By table: what is done to the keys of its rows before these are deleted.
_KEYS = {"outbox_events": (_FORGET_KEYS,), "scheduled_changes": (_MOVE_KEYS, _FORGET_SCHEDULED_KEYS)}
# A client that reads the feed from before this has missed fates.
_HORIZON = text(
    "INSERT INTO feed_horizon (host, pruned_sequence) VALUES (:host, :sequence) "
    "ON DUPLICATE KEY UPDATE pruned_sequence = GREATEST(pruned_sequence, VALUES(pruned_sequence))"
)
_CLOCK = text("SELECT UTC_TIMESTAMP(6)")


@dataclass(frozen=True, slots=True)
class RetentionDays:
    """For how many days each kind is kept. `settles`: whether settlement files are written."""

    changes: int = RETENTION_DAYS
    alerts: int = RETENTION_DAYS
    audit: int = RETENTION_AUDIT_DAYS
    ledger: int = RETENTION_LEDGER_DAYS
    settles: bool = False


@dataclass(frozen=True, slots=True)
class Horizon:
    """What ended before these times may be deleted; UTC, without a zone. `ledger` None: nothing of the ledger."""

    changes: datetime
    alerts: datetime
    audit: datetime
    ledger: datetime | None = None


@dataclass(frozen=True, slots=True)
class PassPosition:
    """The last change that a pass has read."""

    processed_at: datetime = EARLIEST
    change_id: int = 0


BEGINNING = PassPosition()


@dataclass(frozen=True, slots=True)
class Pruned:
    """One batch of a pass: how many rows were deleted or archived, whether there are more, and where to continue."""

    gone: int
    more: bool
    place: PassPosition


def horizon_of(connection: Connection, host: str, kept: RetentionDays) -> Horizon:
    """The times before which rows may be deleted now. For the ledger: the end of the last released day. If settlement
    files are written, nothing that ended on a day without a file may be deleted.
    """
    now = database_clock(connection)
    limits = {name: now - timedelta(days=getattr(kept, name)) for name in ("changes", "alerts", "audit")}
    if not kept.settles:
        return Horizon(**limits)
    settled = settled_until(connection, host) or EARLIEST
    return Horizon(
        **{name: min(limit, settled) for name, limit in limits.items()}, ledger=released_until(connection, host)
    )


def prune(connection: Connection, host: str, before: Horizon, *, rows: int, place: PassPosition = BEGINNING) -> Pruned:
    """Delete at most `rows` rows of each kind that ended before its limit: first old nonces are moved to the archive,
    then changes are deleted from `place` on and, once there are no more of them, the other kinds.
    """
    values: dict[str, object] = {"host": host, "rows": rows, **asdict(before)}
    gone, more = _archive_nonces(connection, values)
    ended = connection.execute(_ENDED, values | {"after": place.processed_at, "after_id": place.change_id}).all()
    going = _lock(connection, [row.id for row in ended if row.may_go])
    gone += _delete(connection, "outbox_events", [row.id for row in going])
    forget_fates(connection, host, going)
    _raise_horizon(connection, host, max((row.fate_sequence or 0 for row in going), default=0))
    if len(ended) == rows:
        return Pruned(gone, True, PassPosition(ended[-1].processed_at, ended[-1].id))
    for table, index, condition in _OTHERS:
        query = f"SELECT id FROM {table} FORCE INDEX ({index}) WHERE host = :host AND {condition} LIMIT :rows"
        ids = [row.id for row in connection.execute(text(query), values)]
        gone += _delete(connection, table, ids)
        more = more or len(ids) == rows
    return Pruned(gone, more, place)


def database_clock(connection: Connection) -> datetime:
    """The database's time: UTC, without a zone."""
    moment: datetime = connection.execute(_CLOCK).scalar_one()
    return moment


def _archive_nonces(connection: Connection, values: dict[str, object]) -> tuple[int, bool]:
    settled = connection.execute(_SETTLED, values).scalar()
    if settled is None:
        return 0, False
    lowest = connection.execute(_NONCES, values | {"below": settled - NONCES_KEPT}).all()
    going = [row.nonce for row in lowest if row.may_go]
    if not going:
        return 0, False
    nonces = listed(going)
    connection.exec_driver_sql(
        f"{statements.ARCHIVE} nonce IN ({nonces})", ("its change is old enough to be forgotten", values["host"])
    )
    statement = text(
        f"DELETE r FROM nonce_requests r FORCE INDEX (PRIMARY) WHERE r.host = :host AND r.nonce IN ({nonces})"
    )
    return connection.execute(statement, values).rowcount, len(going) == values["rows"]


def _lock(connection: Connection, change_ids: list[int]) -> Sequence[Row[Any]]:
    """Lock those that still exist and are free, and return their current rows."""
    if not change_ids:
        return []
    return connection.exec_driver_sql(_FREE.format(ids=listed(change_ids))).all()


def _delete(connection: Connection, table: str, ids: list[int]) -> int:
    """Delete these rows, after what is to be done with their keys."""
    if not ids:
        return 0
    for statement in (*_KEYS.get(table, ()), f"DELETE t FROM {table} t FORCE INDEX (PRIMARY) WHERE t.id IN ({{ids}})"):
        deleted = connection.exec_driver_sql(statement.format(ids=listed(ids)))
    return deleted.rowcount


def _raise_horizon(connection: Connection, host: str, sequence: int) -> None:
    if sequence:
        connection.execute(_HORIZON, {"host": host, "sequence": sequence})
