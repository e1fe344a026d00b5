"""The ledger's tables (see `tables`): the next nonce, nonces with their bytes and how they ended, and settled days."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    Index,
    Integer,
    String,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects import mysql

from oldhost_sync.policy import limits
from oldhost_sync.store.columns import UtcDateTime, by_host, of_host, one_of, stamp, table, text_id

nonce_ledger = table(
    "nonce_ledger",
    by_host(),
    # next_nonce: the next to be bound; NULL: OldHost was never asked. last_applied_nonce: all nonces up to it are used.
    Column("next_nonce", BigInteger),
    Column("last_applied_nonce", BigInteger),
    Column("epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("owner", String(255)),
    # When OldHost's last ban was first seen, when it ends by OldHost's own words, and when it last said so.
    Column("banned_at", UtcDateTime),
    Column("banned_until", UtcDateTime),
    Column("ban_told_at", UtcDateTime),
    # Whether OldHost has agreed with the ledger since: the clock may be set back to within the ban.
    Column("ban_is_over", Boolean, nullable=False, server_default=text("0")),
    Column("halted", String(limits.TEXT_LENGTH_MAX)),
    # The nonce that OldHost expected at the halt, as shown to operators: a `resolve` is valid only for this one.
    Column("halted_expected_nonce", BigInteger),
    # The nonce that an answer called applied while it named a next one that is not beyond it. So OldHost has our
    # operations up to it, whatever its count is: no `resolve` sends them again.
    Column("count_fell_at", BigInteger),
    # Until when a reservation looks for operations that OldHost refused (setting_apart.py).
    Column("apart_until", UtcDateTime),
    # An operator's `resolve` that waits until OldHost can be probed; and the epoch that the last one began.
    Column("resolve_mode", String(8)),
    Column("resolved_epoch", BigInteger),
    # When an operator last ended a halt, and the id of the newest change that the writer had at the next opening.
    # What is missing in the database is given up if it is older by both, since the clock may have been ahead.
    Column("losses_accepted_at", UtcDateTime),
    Column("losses_accepted_id", BigInteger),
    # The number of the last transaction that decided fates; raised under this row's lock, so in commit order.
    Column("fate_sequence", BigInteger, nullable=False, server_default=text("0")),
    stamp("updated_at"),
    CheckConstraint("next_nonce > last_applied_nonce", name="ck_nonce_ledger_order"),
)


# When each machine's monotonic clock was zero, by this database's clock (store/ledger/machine_clock.py).
machine_clocks = table(
    "machine_clocks",
    by_host(),
    Column("machine", text_id(64), primary_key=True),
    Column("began_at", UtcDateTime, nullable=False),
    stamp("seen_at"),
)


def _request_columns() -> list[Any]:
    return [
        Column("idempotency_key", text_id(limits.IDEMPOTENCY_KEY_LENGTH_MAX), nullable=False),
        Column("change_id", BigInteger, nullable=False),
        Column("epoch", BigInteger, nullable=False),
        Column("body", mysql.MEDIUMBLOB, nullable=False),
        Column("status", String(16), nullable=False),
        Column("sends", Integer, nullable=False, server_default=text("0")),
        stamp("created_at"),
        Column("sent_at", UtcDateTime),
        Column("completed_at", UtcDateTime),
        Column("answer", String(limits.TEXT_LENGTH_MAX)),
        # The status of a complete answer that did not end the operation; its words are in `answer`. `said_send`: to
        # which of its sends it was given; 0: to one that does not count.
        Column("said_status", Integer),
        Column("said_send", Integer),
        # Some answer to one of its sends said that the nonce is used: it is never sent with it again.
        Column("said_used", Boolean, nullable=False, server_default=text("0")),
        # How many answers refused this operation without using the nonce, as far as they told.
        Column("refused", Integer, nullable=False, server_default=text("0")),
    ]


nonce_requests = table(
    "nonce_requests",
    by_host(),
    Column("nonce", BigInteger, primary_key=True, autoincrement=False),
    *_request_columns(),
    UniqueConstraint("host", "idempotency_key", name="uq_nonce_requests_idempotency_key"),
    one_of("ck_nonce_requests_status", "status", "RESERVED", "SENT", "APPLIED", "FAILED", "UNSURE"),
    Index("ix_nonce_requests_status", "host", "status", "nonce"),
    Index("ix_nonce_requests_change", "host", "change_id"),
    # Operations that ended on a day (settlement).
    Index("ix_nonce_requests_completed", "host", "completed_at", "nonce"),
)

# Evidence: rows that no longer bind their nonce (rejected without consuming it, or undone by an operator), and rows
# whose change is old enough to be deleted (retention).
nonce_requests_archive = table(
    "nonce_requests_archive",
    Column("id", BigInteger, primary_key=True, autoincrement=True),
    of_host(),
    Column("nonce", BigInteger, nullable=False),
    *_request_columns(),
    stamp("archived_at"),
    Column("reason", String(limits.TEXT_LENGTH_MAX), nullable=False),
    Index("ix_nonce_requests_archive_change", "host", "change_id"),
    # The operations that a nonce had before the present one.
    Index("ix_nonce_requests_archive_nonce", "host", "nonce"),
    # Operations that ended on a day, or were archived on it without an answer (settlement, retention).
    Index("ix_nonce_requests_archive_completed", "host", "completed_at", "nonce"),
    Index("ix_nonce_requests_archive_archived", "host", "archived_at", "nonce"),
)

# The days whose settlement file was written, without a gap. `sha256`: of the whole file, also in the next day's file.
# `released_at`: when the file was found to agree with the ledger, so that retention may delete those rows.
settled_days = table(
    "settled_days",
    by_host(),
    Column("day", Date, primary_key=True),
    Column("sha256", mysql.BINARY(32), nullable=False),
    Column("records", BigInteger, nullable=False),
    stamp("settled_at"),
    Column("released_at", UtcDateTime),
)
