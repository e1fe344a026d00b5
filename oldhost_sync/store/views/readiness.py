"""Whether the database works for a role: its tables can be read, and it accepts writes."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

_READ = text("SELECT 1 FROM outbox_events LIMIT 1")
# It changes no row, but is blocked or refused as a write is (a global read lock, a read-only server).
_WRITE = text("SET STATEMENT max_statement_time = 1 FOR DELETE FROM relay_lease WHERE host = ''")


def check_reads(connection: Connection) -> None:
    """Raises if the database is away, or its tables are missing."""
    connection.execute(_READ)


def check_writes(connection: Connection) -> None:
    """Raises if the database accepts no writes."""
    connection.execute(_WRITE)
