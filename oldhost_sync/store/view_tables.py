"""Tables that no operation depends on (see `tables`): sign-ins to the console, the history of load and sessions, which
workers are at work, what the relay has counted.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, SmallInteger, String, text
from sqlalchemy.dialects import mysql

from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.store.columns import UtcDateTime, by_host, stamp, table, text_id


def _token_columns() -> list[Any]:
    """The token that it was made with: its name, and the SHA-256 of the token's SHA-256 in the settings."""
    return [
        Column("token_name", String(64), nullable=False),
        Column("token_fingerprint", mysql.BINARY(32), nullable=False),
        stamp("created_at"),
        Column("expires_at", UtcDateTime, nullable=False),
    ]


# Who is signed in to the console, by the SHA-256 of the cookie; signing out deletes the row.
console_sessions = table(
    "console_sessions",
    by_host(),
    Column("digest", mysql.BINARY(32), primary_key=True),
    *_token_columns(),
    stamp("seen_at"),
    Index("ix_console_sessions_expires", "host", "expires_at"),
)

# Links that sign in once (development), by the SHA-256 of their secret; using one deletes the row.
sign_in_links = table(
    "sign_in_links",
    by_host(),
    Column("digest", mysql.BINARY(32), primary_key=True),
    *_token_columns(),
    Index("ix_sign_in_links_expires", "host", "expires_at"),
)

# Three ring buffers of samples (store/views/load_series.py): buckets of `step_s` seconds, overwritten in turn. The next
# sample counts from `waiting` and `sequence` of the last one.
load_samples = table(
    "load_samples",
    by_host(),
    Column("step_s", Integer, primary_key=True, autoincrement=False),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    Column("at", UtcDateTime, nullable=False),
    *(Column(name, Integer, nullable=False) for name in ("emergency", "txn", "lww", "accepted", "applied")),
    Column("emergency_ms", BigInteger, nullable=False),
    Column("stopped", String(16)),
    Column("waiting", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
)

# Each session with OldHost, as its worker recorded it (store/session_recorder.py).
host_sessions = table(
    "host_sessions",
    by_host(),
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("owner", String(255), nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    Column("opened_at_nonce", BigInteger, nullable=False),
    Column("ended_at", UtcDateTime),
    Column("ended_because", String(TEXT_LENGTH_MAX)),
    Column("lost_replies", Integer, nullable=False, server_default=text("0")),
)

# Workers, each as it reports itself (store/worker_presence.py); those not seen for a day are deleted. `knows_release`:
# the newest release of the writer's decisions that it can begin a run with. `round_trip_us`: the shortest of a few
# round trips to MariaDB at its last report.
workers = table(
    "workers",
    by_host(),
    Column("name", text_id(255), primary_key=True),
    stamp("began_at"),
    stamp("seen_at"),
    Column("left_at", UtcDateTime),
    Column("knows_release", SmallInteger, nullable=False),
    Column("round_trip_us", Integer),
)

# What each token used in each of the last 60 minutes (store/token_usage.py): a ring buffer; `minute`: since 1970.
token_usage = table(
    "token_usage",
    by_host(),
    Column("token_name", text_id(64), primary_key=True),
    Column("slot", Integer, primary_key=True, autoincrement=False),
    *(Column(name, BigInteger, nullable=False) for name in ("minute", "requests", "changes", "emergencies", "refused")),
)

# From accepted to applied: how many changes of each class took up to `upto_ms` (and more than the bound before).
applied_waits = table(
    "applied_waits",
    by_host(),
    Column("priority_class", String(16), primary_key=True),
    Column("upto_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),
    Column("total_ms", BigInteger, nullable=False),
)

# Up to which fate the relay has counted; and how many changes had final fates by then (store/outbox/books.py):
# `booked_sequence` and `resolved_epoch` say whether these numbers can be used.
counted_fates = table(
    "counted_fates",
    by_host(),
    Column("sequence", BigInteger, nullable=False),
    Column("booked_sequence", BigInteger),
    Column("resolved_epoch", BigInteger),
    *(
        Column(name, BigInteger, nullable=False, server_default=text("0"))
        for name in ("applied", "superseded", "no_op", "stale", "discarded", "refused")
    ),
)
