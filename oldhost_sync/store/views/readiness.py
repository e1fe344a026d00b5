"""Whether the database can do a role's work: read its tables, and take a write."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

_READ = text("SELECT 1 FROM outbox_events LIMIT 1")
# It writes nothing, but waits or is refused like a write: a global read lock, a read-only server.
_WRITE = text("SET STATEMENT max_statement_time = 1 FOR DELETE FROM relay_lease WHERE host = ''")


def check_reads(connection: Connection) -> None:
    """Raises when the database is away, or its tables are missing."""
    connection.execute(_READ)


def check_writes(connection: Connection) -> None:
    """Raises when it takes no write."""
    connection.execute(_WRITE)
