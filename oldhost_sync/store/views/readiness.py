"""Whether the database works for a role: its tables can be read, and the one that it needs most accepts writes."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

# Of the other indexes it would read all entries that a long transaction (a `resolve` of many) has not committed.
_READ = text("SELECT 1 FROM outbox_events FORCE INDEX (PRIMARY) LIMIT 1")
# They change no row, but are blocked or refused as a write to that table is (a locked table, a read-only server). Only
# the commit of a changed row would show that none can be committed; the writes that are refused then tell of it.
_WRITES = {
    "api": "UPDATE outbox_events SET source = source WHERE id = 0",
    "relay": "UPDATE relay_lease SET owner = owner WHERE host = ''",
    "worker": "UPDATE nonce_ledger SET owner = owner WHERE host = ''",
}


def check_reads(connection: Connection) -> None:
    """Raises if the database is away, or its tables are missing."""
    connection.execute(_READ)


def check_writes(connection: Connection, role: str) -> None:
    """Raises if the database accepts no writes of this role."""
    connection.execute(text(f"SET STATEMENT max_statement_time = 1 FOR {_WRITES[role]}"))
