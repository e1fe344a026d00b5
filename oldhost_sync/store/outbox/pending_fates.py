"""Pending fates: while a change's outbox row is locked, its fate is kept in a table of its own until the row is free.

Applications may lock outbox rows for long: a duplicate `record_change` in an open transaction holds a shared lock on
the row, a report may have locked whole ranges. A fate is decided under the lock of the host's ledger row, which every
operation of that host needs; waiting there for an application would stop them all. So no statement that writes a fate
waits (:data:`AT_ONCE`): a fate that can't be written now is written here, in the same transaction, and
:func:`write_pending_fates` moves it to the outbox later. Every reader of fates reads both tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func
from sqlalchemy.engine import Connection
from sqlalchemy.exc import OperationalError

from oldhost_sync.store.errors import LOCK_WAIT_TIMEOUT, error_code
from oldhost_sync.store.tables import outbox_events, pending_fates

# On a locked row the server rolls back only the statement, not its transaction (the engine checks that
# innodb_rollback_on_timeout is OFF).
AT_ONCE = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR "
# How many pending fates one call reads: the first may all be locked, and later ones free.
LOOKED_AT_MAX = 5_000
# Above 1,000 the server turns an IN list into a table and scans the rows.
IDS_MAX = 500

# The number of the transaction that decides fates, see RAISE_SEQUENCE.
SEQUENCE = "(SELECT l.fate_sequence FROM nonce_ledger l WHERE l.host = outbox_events.host)"
# Under the ledger row's lock, before the first fate of a transaction: so a higher number is always a later commit.
RAISE_SEQUENCE = "UPDATE nonce_ledger SET fate_sequence = fate_sequence + 1 WHERE host = %s"

_PENDING_NAMES = {"processed_at": "decided_at"}
NONE_PENDING = (
    "NOT EXISTS (SELECT 1 FROM pending_fates p WHERE p.host = outbox_events.host AND p.change_id = outbox_events.id)"
)
# For queries of the outbox's row `o`.
# For `select`, outer-joined by IS_FATE_OF_CHANGE: the columns of a fate, wherever it is. The pending one first: the
# outbox's `unproven` is never NULL.
FATE = {
    name: func.coalesce(pending_fates.c[_PENDING_NAMES.get(name, name)], outbox_events.c[name]).label(name)
    for name in ("processed_at", "outcome", "nonce", "superseded_by", "error", "unproven")
}
IS_PENDING = "EXISTS (SELECT 1 FROM pending_fates p WHERE p.host = o.host AND p.change_id = o.id)"
JOIN_PENDING = "LEFT JOIN pending_fates p ON p.host = o.host AND p.change_id = o.id"
_KEEP = (
    "INSERT INTO pending_fates "
    "(host, change_id, entity_type, entity_id, outcome, nonce, superseded_by, error, unproven, decided_at) "
    "SELECT host, id, entity_type, entity_id, {fate}, UTC_TIMESTAMP(6) FROM outbox_events "
    f"WHERE {{which}} AND processed_at IS NULL AND {NONE_PENDING}"
)
KEEP_FATE = _KEEP.format(fate="%s, %s, %s, %s, %s", which="id = %s AND host = %s")
# Of the row `older`.
KEEP_SUPERSEDED = _KEEP.format(fate="'SUPERSEDED', NULL, %s, NULL, 0", which="id IN (older.id)")
_LOCKED = f"BEGIN DECLARE EXIT HANDLER FOR {LOCK_WAIT_TIMEOUT} {{instead}}; {AT_ONCE}{{statement}}; END"
# OldHost went back to before these nonces: their changes no longer have a fate.
FORGET_FROM = "DELETE FROM pending_fates WHERE host = %s AND nonce >= %s"

_PENDING = "SELECT change_id FROM pending_fates WHERE host = %s ORDER BY change_id LIMIT %s"
_FREE = "SELECT id FROM outbox_events WHERE id IN ({ids}) LIMIT {limit} FOR UPDATE SKIP LOCKED"
_KNOWN = "SELECT id FROM outbox_events WHERE id IN ({ids})"
_WRITE = (
    f"{AT_ONCE}UPDATE outbox_events SET outcome = %s, processed_at = %s, nonce = %s, superseded_by = %s, error = %s, "
    f"unproven = %s, fate_sequence = {SEQUENCE} WHERE id = %s AND host = %s AND processed_at IS NULL"
)
_FATE = (
    "SELECT outcome, decided_at, nonce, superseded_by, error, unproven, change_id, host FROM pending_fates "
    "WHERE host = %s AND change_id = %s"
)
_FORGET = "DELETE FROM pending_fates WHERE host = %s AND change_id = %s"


def fate_columns(*names: str) -> str:
    """SQL: the same columns in a query of `o` with JOIN_PENDING."""
    return ", ".join(f"COALESCE(p.{_PENDING_NAMES.get(name, name)}, o.{name}) AS {name}" for name in names)


def at_once(statement: str, instead: str) -> str:
    """SQL for a packet: `statement`, or `instead` if a row of it is locked. The values of `instead` come first."""
    return _LOCKED.format(statement=statement, instead=instead)


def each(row: str, query: str, statement: str) -> str:
    """SQL for a packet: `statement` for each row that `query` finds; there it is called `row`."""
    return f"FOR {row} IN ({query}) DO {statement}; END FOR"


def listed(change_ids: Sequence[int]) -> str:
    """The ids for an IN list; at most IDS_MAX."""
    return ", ".join(str(int(change_id)) for change_id in change_ids)


def tried_at_once(connection: Connection, statement: str, values: Sequence[object]) -> int | None:
    """How many rows `statement`, which begins with AT_ONCE, changed; None when one of them is locked."""
    try:
        return connection.exec_driver_sql(statement, tuple(values)).rowcount
    except OperationalError as error:
        if error_code(error) != LOCK_WAIT_TIMEOUT:
            raise
        return None


def write_pending_fates(connection: Connection, host: str, limit: int) -> int:
    """Move the fates of unlocked rows to the outbox, at most `limit`; returns how many were moved.

    With nothing pending it costs one index lookup. The outbox rows are locked before the ledger's row: a transaction
    that decides fates never waits for an outbox row, so this can't deadlock, and the ledger's row is locked only while
    the fates are written.
    """
    pending = list(connection.exec_driver_sql(_PENDING, (host, LOOKED_AT_MAX)).scalars().all())
    free: list[int] = []
    for start in range(0, len(pending), IDS_MAX):
        free += _taken(connection, host, pending[start : start + IDS_MAX], limit - len(free))
        if len(free) >= limit:
            break
    return sum(write_pending_fate(connection, host, change_id) for change_id in sorted(free))


def _taken(connection: Connection, host: str, pending: Sequence[int], limit: int) -> list[int]:
    """Lock and return those of `pending` whose rows are free. A fate whose row was deleted by hand is deleted."""
    ids = listed(pending)
    known = set(connection.exec_driver_sql(_KNOWN.format(ids=ids)).scalars().all())
    for change_id in pending:
        if change_id not in known:
            connection.exec_driver_sql(_FORGET, (host, change_id))
    return list(connection.exec_driver_sql(_FREE.format(ids=ids, limit=int(limit))).scalars().all())


def write_pending_fate(connection: Connection, host: str, change_id: int) -> bool:
    """Move one change's fate to the outbox, if one is pending and its row is free.

    If a fate is pending, the ledger's row is locked and stays so until the caller commits.
    """
    if connection.exec_driver_sql(_FATE, (host, change_id)).one_or_none() is None:
        return False
    connection.exec_driver_sql(RAISE_SEQUENCE, (host,))
    # Read it again, now that no other transaction can change it.
    fate = connection.exec_driver_sql(_FATE, (host, change_id)).one_or_none()
    if fate is None or tried_at_once(connection, _WRITE, tuple(fate)) is None:
        return False
    connection.exec_driver_sql(_FORGET, (host, change_id))
    return True
