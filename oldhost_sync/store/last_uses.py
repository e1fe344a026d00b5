"""When each API token was last used. A token is identified by its fingerprint, which does not reveal it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import select, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.tables import token_uses

# After this many days without a use, a token's row is deleted.
KEPT_DAYS = 400
TOKENS_FORGOTTEN_MAX = 100
_NOTE = text(
    "INSERT INTO token_uses (host, fingerprint, name, last_used_at) VALUES (:host, :fingerprint, :name, "
    "UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE last_used_at = UTC_TIMESTAMP(6)"
)
_FORGET = text(
    f"DELETE FROM token_uses WHERE host = :host AND last_used_at < UTC_TIMESTAMP(6) - INTERVAL {KEPT_DAYS} DAY "
    f"LIMIT {TOKENS_FORGOTTEN_MAX}"
)


def note_uses(connection: Connection, host: str, uses: Mapping[bytes, str]) -> None:
    """Record that these tokens (fingerprint and name) were used now; in a fixed order, to avoid deadlocks."""
    for fingerprint, name in sorted(uses.items()):
        connection.execute(_NOTE, {"host": host, "fingerprint": fingerprint, "name": name})
    connection.execute(_FORGET, {"host": host})


def last_uses(connection: Connection, host: str) -> dict[bytes, datetime]:
    """When each fingerprint was last used."""
    uses = token_uses.c
    rows = connection.execute(select(uses.fingerprint, uses.last_used_at).where(uses.host == host))
    return {bytes(row.fingerprint): row.last_used_at for row in rows}
