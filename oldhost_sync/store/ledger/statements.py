"""The ledger's SQL statements, and the first step of each of its transactions: lock the host's ledger row, and refuse a
session whose epoch is stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

from sqlalchemy.engine import Connection, Row

from oldhost_sync.oldhost.errors import Fenced, InvariantViolated, LedgerHalted, check
from oldhost_sync.store.outbox.pending_fates import JOIN_PENDING, fate_columns
from oldhost_sync.store.transactions import Packet

LedgerRow: TypeAlias = Row[Any]
SentRow: TypeAlias = Row[Any]
FateRow: TypeAlias = Row[Any]

# ----------------------------------------------------------------------------------------------------------- ledger row

_BAN_ENDS_IN_MS = "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), banned_until) DIV 1000"
# If the clock was set back to before the ban began, nothing is left of it and OldHost is probed, which does not prolong
# a ban. So the remaining time is never longer than the ban, and a ban after which OldHost has agreed is over for good.
BAN_LEFT_MS = f"IF(ban_is_over OR UTC_TIMESTAMP(6) < banned_at, LEAST(0, {_BAN_ENDS_IN_MS}), {_BAN_ENDS_IN_MS})"
# A cluster's servers lock rows each for itself; only transactions that write the same row conflict. So what precedes a
# send writes the ledger's row.
WRITE_FENCE = (
    "UPDATE nonce_ledger SET updated_at = UTC_TIMESTAMP(6) "
    "WHERE host = %s AND epoch = %s AND halted IS NULL AND next_nonce IS NOT NULL"
)
CREATE_LEDGER = (
    "INSERT INTO nonce_ledger (host, epoch, updated_at) VALUES (%s, 0, UTC_TIMESTAMP(6)) "
    "ON DUPLICATE KEY UPDATE host = host"
)
READ_LEDGER = (
    "SELECT next_nonce, last_applied_nonce, epoch, halted, halted_expected_nonce, resolve_mode, resolved_epoch, "
    "losses_accepted_at, losses_accepted_id, ban_is_over, count_fell_at, host_incarnation, host_base, "
    "COALESCE(apart_until > UTC_TIMESTAMP(6), 0) AS has_apart, "
    "TIMESTAMPDIFF(MICROSECOND, ban_told_at, UTC_TIMESTAMP(6)) DIV 1000 AS ban_told_ms_ago, "
    f"{BAN_LEFT_MS} AS banned_ms FROM nonce_ledger WHERE host = %s"
)
LOCK_LEDGER = f"{READ_LEDGER} FOR UPDATE"
# In one round trip: what `select` reads is as it is once the row is locked.
LOCK_AND_READ = (
    "BEGIN NOT ATOMIC DECLARE locked BIGINT; SELECT epoch INTO locked FROM nonce_ledger WHERE host = %s FOR UPDATE; "
    "{select}; END"
)
NEXT_EPOCH = (
    "UPDATE nonce_ledger SET epoch = %s, owner = LEFT(%s, 255), updated_at = UTC_TIMESTAMP(6) "
    "WHERE host = %s AND epoch = %s"
)
SET_NEXT_NONCE = "UPDATE nonce_ledger SET next_nonce = %s WHERE host = %s"
ADOPT = (
    "UPDATE nonce_ledger SET next_nonce = %s, last_applied_nonce = %s, host_incarnation = %s, ban_is_over = 1, "
    "updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
MOVE_NEXT_NONCE = "UPDATE nonce_ledger SET next_nonce = %s WHERE host = %s AND epoch = %s AND next_nonce = %s"
# It also increases `fate_sequence`, for the fate that follows in the same transaction.
LAST_APPLIED = (
    "UPDATE nonce_ledger SET last_applied_nonce = %s, fate_sequence = fate_sequence + 1, updated_at = UTC_TIMESTAMP(6) "
    "WHERE host = %s AND epoch = %s AND last_applied_nonce = %s"
)
LAST_APPLIED_SENDING = f"{LAST_APPLIED} AND halted IS NULL"
# A ban that OldHost reports again while it lasts, for example to a probe, keeps its beginning.
BAN = (
    "UPDATE nonce_ledger SET "
    "banned_at = IF(NOT ban_is_over AND UTC_TIMESTAMP(6) BETWEEN banned_at AND banned_until, banned_at, "
    "UTC_TIMESTAMP(6)), banned_until = UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND, ban_is_over = 0, "
    "ban_told_at = UTC_TIMESTAMP(6), "
    "updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
# In the transaction that records the answer; and once OldHost's count agrees with the ledger again.
COUNT_FELL = "UPDATE nonce_ledger SET count_fell_at = %s WHERE host = %s"
SET_INCARNATION = "UPDATE nonce_ledger SET host_incarnation = %s WHERE host = %s"
END_BAN = "UPDATE nonce_ledger SET ban_is_over = 1 WHERE host = %s"
# The first reason is kept: a later one is usually its consequence (what the writer found is added, see ADD_REASON). But
# a reason found while an operator's decision waits is new to the operator: it replaces the first and cancels the
# decision.
_IS_NEWS = "halted IS NULL OR resolve_mode IS NOT NULL"
HALT = (
    f"UPDATE nonce_ledger SET halted_expected_nonce = IF({_IS_NEWS}, %s, halted_expected_nonce), "
    f"halted = IF({_IS_NEWS}, %s, halted), resolve_mode = NULL, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
ACCEPT_LOSSES = "UPDATE nonce_ledger SET losses_accepted_id = %s WHERE host = %s"
COMPLETE_HALT = "UPDATE nonce_ledger SET halted = %s, halted_expected_nonce = %s, resolve_mode = NULL WHERE host = %s"
POSITION = "SELECT host_base, next_nonce FROM nonce_ledger WHERE host = %s"
# A host begins to count anew.
SET_BASE = (
    "UPDATE nonce_ledger SET host_base = %s, host_base_since = UTC_TIMESTAMP(6), host_base_nonce = %s WHERE host = %s"
)
EPOCH = "SELECT epoch FROM nonce_ledger WHERE host = %s"

# ----------------------------------------------------------------------------------------------------------------- rows

# Few rows are RESERVED or SENT. The index is named since the server's statistics may be those of an empty table (for
# example after a restore): then it would read, and lock, all of the host's ledger.
_BY_STATUS = "nonce_requests AS r FORCE INDEX (ix_nonce_requests_status)"
RESERVED_CHANGES = f"SELECT change_id FROM {_BY_STATUS} WHERE host = %s AND status = 'RESERVED' ORDER BY nonce"
RELEASE_RESERVED = f"DELETE r FROM {_BY_STATUS} WHERE r.host = %s AND r.status = 'RESERVED'"
HIGHEST_NONCE = "SELECT MAX(nonce) FROM nonce_requests WHERE host = %s"
# A clock that was set forward must not make a send look older than it is; one that was set back must not put a send
# into the future.
BRING_SENT_AT_FORWARD = (
    f"UPDATE {_BY_STATUS} SET sent_at = LEAST(UTC_TIMESTAMP(6), sent_at + INTERVAL %s MICROSECOND) "
    "WHERE host = %s AND status = 'SENT'"
)
IN_DOUBT = (
    "SELECT nonce, change_id, sends, idempotency_key, EXISTS (SELECT 1 FROM nonce_requests_archive a "
    "FORCE INDEX (ix_nonce_requests_archive_change) WHERE a.host = r.host AND a.change_id = r.change_id "
    "AND a.nonce <> r.nonce AND a.sends > 0) AS tried_before "
    f"FROM {_BY_STATUS} WHERE host = %s AND status = 'SENT' ORDER BY nonce LIMIT %s"
)
# Only of operations that may have been written: one taken back before its first byte can't be applied late.
YOUNGEST_SENT_MS = (
    "SELECT TIMESTAMPDIFF(MICROSECOND, MAX(sent_at), UTC_TIMESTAMP(6)) DIV 1000 "
    f"FROM {_BY_STATUS} WHERE host = %s AND status = 'SENT' AND sends > 0"
)
SENT_ROWS = (
    "SELECT r.nonce, r.change_id, r.idempotency_key, r.body, r.mapping, r.sends, r.said_rejects, r.said_send, "
    "r.said_used, r.refused, r.answer, "
    "TIMESTAMPDIFF(MICROSECOND, r.sent_at, UTC_TIMESTAMP(6)) DIV 1000 AS sent_ms_ago, "
    "o.entity_type, o.entity_id, o.event_type, o.priority_class "
    f"FROM {_BY_STATUS} STRAIGHT_JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = %s AND r.status = 'SENT' ORDER BY r.nonce"
)
BOUND_REFS = (
    "SELECT o.id, o.priority_class, o.entity_type, o.entity_id, o.event_type, o.created_at "
    f"FROM {_BY_STATUS} STRAIGHT_JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = %s AND r.status = 'SENT' AND r.nonce >= %s ORDER BY r.nonce LIMIT %s"
)
INSERT_RESERVED = (
    "INSERT INTO nonce_requests "
    "(host, nonce, idempotency_key, change_id, epoch, body, mapping, status, created_at) VALUES "
)
RESERVED_VALUES = "(%s, %s, %s, %s, %s, %s, %s, 'RESERVED', UTC_TIMESTAMP(6))"
MARK_SENT = (
    "UPDATE nonce_requests SET status = 'SENT', epoch = %s, sent_at = UTC_TIMESTAMP(6), sends = sends + %s "
    "WHERE host = %s AND nonce = %s AND change_id = %s AND (status = 'SENT' OR (status = 'RESERVED' AND epoch = %s))"
)
# An answer may be recorded some time after it arrived.
COMPLETE = (
    "UPDATE nonce_requests SET status = %s, completed_at = UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND, answer = %s "
    "WHERE host = %s AND nonce = %s AND status = 'SENT' AND epoch = %s"
)
COMPLETE_FOUND = (
    "UPDATE nonce_requests SET status = %s, completed_at = UTC_TIMESTAMP(6), answer = %s "
    "WHERE host = %s AND nonce = %s AND status = 'SENT'"
)
# Restores the count of sends from before this epoch's send, so that repeating the statement changes nothing.
UNCOUNT_SEND = "UPDATE nonce_requests SET sends = %s WHERE host = %s AND nonce = %s AND epoch = %s AND status = 'SENT'"
# An answer to this epoch's send, which may have used the nonce; and one to a send that does not count, which must not
# replace the answer to a send that does.
_NOTE = "UPDATE nonce_requests SET said_rejects = %s, said_send = {send}, answer = %s "
COUNT_REFUSAL = (
    "UPDATE nonce_requests SET refused = refused + 1 WHERE host = %s AND nonce = %s AND epoch = %s AND status = 'SENT'"
)
NOTE_USED = "UPDATE nonce_requests SET said_used = 1 WHERE host = %s AND nonce = %s AND epoch = %s AND status = 'SENT'"
_OF_THIS_SEND = "WHERE host = %s AND nonce = %s AND epoch = %s AND status = 'SENT'"
NOTE_ANSWER = f"{_NOTE.format(send='sends')}{_OF_THIS_SEND}"
NOTE_REFUSAL = f"{_NOTE.format(send='0')}{_OF_THIS_SEND} AND (said_send IS NULL OR said_send < sends OR sends = 0)"
# This answer is kept: only it shows that another writer may have used the nonce, or that a proxy delivered the
# operation twice.
CALLED_A_REPLAY = "called a replay at its first send"
CALL_A_REPLAY = f"UPDATE nonce_requests SET answer = '{CALLED_A_REPLAY}' {_OF_THIS_SEND}"

_KEPT = (
    "host, nonce, idempotency_key, change_id, epoch, body, mapping, status, sends, created_at, sent_at, completed_at, "
    "answer, said_rejects, said_send, said_used, refused"
)
ARCHIVE = (
    f"INSERT INTO nonce_requests_archive ({_KEPT}, archived_at, reason) "
    f"SELECT {_KEPT}, UTC_TIMESTAMP(6), %s FROM nonce_requests WHERE host = %s AND "
)
# Which rows: for :func:`archive`.
ONE, SENT_BEYOND = "nonce = %s AND change_id = %s", "nonce > %s AND status = 'SENT'"
RELEASE_RESERVED_BEYOND = "DELETE FROM nonce_requests WHERE host = %s AND nonce > %s AND status = 'RESERVED'"
# Marking counts as a send before the first byte is written, so `sends` 1 is allowed: the caller that gives it back
# guarantees that no byte was written.
MAY_BE_WRITTEN_BEYOND = (
    "SELECT MIN(nonce) FROM nonce_requests WHERE host = %s AND nonce > %s "
    "AND (status IN ('APPLIED', 'FAILED', 'UNSURE') OR sends > 1)"
)
STATUS_OF = "SELECT status FROM nonce_requests WHERE host = %s AND nonce = %s"

# -------------------------------------------------------------------------------------------------------------- changes

# Named indexes, as above: without them all of the host's ledger is read for each change.
LEDGER_ROW = (
    "LEFT JOIN nonce_requests r FORCE INDEX (ix_nonce_requests_change) ON r.host = o.host AND r.change_id = o.id "
)
# Whether the entity has an operation in flight or in doubt. Only few changes hold a nonce at a time.
ENTITY_IN_FLIGHT = (
    f"SELECT EXISTS (SELECT 1 FROM {_BY_STATUS} STRAIGHT_JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = %s AND r.status IN ('RESERVED', 'SENT') AND o.entity_type = %s AND o.entity_id = %s)"
)
CREATED_AT = "SELECT created_at FROM outbox_events WHERE id = %s AND host = %s"
FATES = (
    f"SELECT o.id, {fate_columns('outcome', 'nonce', 'error', 'unproven')}, r.status, r.nonce AS request_nonce "
    "FROM outbox_events o "
    f"{LEDGER_ROW}{JOIN_PENDING} WHERE o.host = %s AND o.id IN ({{ids}}) ORDER BY o.id"
)


def archive(connection: Connection, host: str, which: str, values: Sequence[object], why: str) -> int:
    """Move rows of the ledger into its archive; returns how many. `which`: an SQL condition, with `values`."""
    archived = connection.exec_driver_sql(f"{ARCHIVE}{which}", (why, host, *values)).rowcount
    connection.exec_driver_sql(f"DELETE FROM nonce_requests WHERE host = %s AND {which}", (host, *values))
    return archived


# ------------------------------------------------------------------------------------------------------- the first step


def lock(connection: Connection, host: str, epoch: int) -> LedgerRow:
    return of_epoch(connection.exec_driver_sql(LOCK_LEDGER, (host,)).one_or_none(), epoch)


def of_epoch(row: LedgerRow | None, epoch: int) -> LedgerRow:
    """`row`: the host's, locked. Raises Fenced if this epoch is not the current one."""
    if row is None or row.epoch != epoch:
        current = "there is none" if row is None else f"the current epoch is {row.epoch}"
        raise Fenced(f"epoch {epoch} is stale; {current}")
    return row


def lock_sending(connection: Connection, host: str, epoch: int) -> LedgerRow:
    return sending(lock(connection, host, epoch))


def sending(row: LedgerRow) -> LedgerRow:
    """Raises LedgerHalted while the ledger is halted."""
    if row.halted is not None:
        raise LedgerHalted(row.halted)
    check(row.next_nonce is not None, "the ledger has no next nonce: OldHost was never asked which one it expects")
    return row


def write_sending(packet: Packet, host: str, epoch: int) -> None:
    """As :func:`lock_sending`, and it writes the row: so a takeover on another server of a cluster conflicts."""
    packet.require(WRITE_FENCE, (host, epoch), partial(refuse_sending, packet.connection, host, epoch))


def refuse_sending(connection: Connection, host: str, epoch: int) -> NoReturn:
    """Raises why the row could not be written."""
    lock_sending(connection, host, epoch)
    raise InvariantViolated("the ledger's row allows sending, but could not be written")
