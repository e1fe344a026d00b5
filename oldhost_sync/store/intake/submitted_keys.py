"""Which keys are in the database already; and, to recover signals, whether this host's writer has sent before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.engine import Connection

from oldhost_sync.store.tables import outbox_events, scheduled_changes

# Keys looked up in one statement.
KEYS_AT_ONCE = 500
_FIRST_OPERATION = "SELECT created_at FROM nonce_requests WHERE host = %s ORDER BY nonce LIMIT 1"


def wrote_before(connection: Connection, host: str, moment: datetime) -> bool:
    """Whether an operation of this host was reserved before `moment` (aware)."""
    first = connection.exec_driver_sql(_FIRST_OPERATION, (host,)).scalar()
    return first is not None and first.replace(tzinfo=UTC) < moment


def known_hashes(connection: Connection, host: str, keys: Sequence[str]) -> dict[str, bytes]:
    """Those of `keys` under which something was recorded, refused or scheduled; of each the hash of its request."""
    known: dict[str, bytes] = {}
    for start in range(0, len(keys), KEYS_AT_ONCE):
        for table in (outbox_events, scheduled_changes):
            query = select(table.c.idempotency_key, table.c.request_hash).where(
                table.c.host == host, table.c.idempotency_key.in_(keys[start : start + KEYS_AT_ONCE])
            )
            known.update({row.idempotency_key: bytes(row.request_hash) for row in connection.execute(query)})
    return known
