"""What a recovery of signals asks of the database: which keys are there, and whether this host's writer has worked before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.engine import Connection

_FIRST_OPERATION = "SELECT created_at FROM nonce_requests WHERE host = %s ORDER BY nonce LIMIT 1"


def recorded_keys(connection: Connection, host: str, keys: Sequence[str]) -> set[str]:
    """Those of `keys` under which something was recorded, refused or scheduled."""
    found: set[str] = set()
    places = ", ".join(["%s"] * len(keys))
    for table in ("outbox_events", "scheduled_changes") if keys else ():
        statement = f"SELECT idempotency_key FROM {table} WHERE host = %s AND idempotency_key IN ({places})"
        found.update(connection.exec_driver_sql(statement, (host, *keys)).scalars())
    return found


def wrote_before(connection: Connection, host: str, moment: datetime) -> bool:
    """Whether an operation of this host was reserved before `moment` (aware)."""
    first = connection.exec_driver_sql(_FIRST_OPERATION, (host,)).scalar()
    return first is not None and first.replace(tzinfo=UTC) < moment
