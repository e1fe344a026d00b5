"""Sessions of the console: opened by a token or by a link that works once, ended by signing out or by expiry.

Of secrets only the SHA-256 is stored. Times are the database's.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.engine import Connection

# Each sign-in deletes up to this many expired rows.
FORGOTTEN_MAX = 100

_OPEN = (
    "INSERT INTO {table} (host, digest, token_name, token_fingerprint, created_at, expires_at) VALUES "
    "(:host, :digest, :name, :fingerprint, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL :seconds SECOND)"
)
_FIND = (
    "SELECT token_name, token_fingerprint, "
    "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) / 1000000 AS seconds_left "
    "FROM {table} WHERE host = :host AND digest = :digest AND expires_at > UTC_TIMESTAMP(6)"
)
_END = "DELETE FROM {table} WHERE host = :host AND digest = :digest"
_FORGET = "DELETE FROM {table} WHERE host = :host AND expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT :most"
_SESSIONS, _LINKS = "console_sessions", "sign_in_links"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whose session or link it is. `fingerprint`: 32 bytes, of the token. `seconds_left`: until it expires."""

    name: str
    fingerprint: bytes
    seconds_left: float


def open_session(connection: Connection, host: str, digest: bytes, holder: TokenHolder) -> None:
    """Store a session that lasts for `holder.seconds_left`; delete some expired ones."""
    _keep(connection, _SESSIONS, host, digest, holder)


def find_session(connection: Connection, host: str, digest: bytes) -> TokenHolder | None:
    """Whose session it is; None if there is none, or it has expired."""
    return _find(connection, _SESSIONS, host, digest)


def end_session(connection: Connection, host: str, digest: bytes) -> None:
    connection.execute(text(_END.format(table=_SESSIONS)), {"host": host, "digest": digest})


def offer_link(connection: Connection, host: str, digest: bytes, holder: TokenHolder) -> None:
    """Store a link that signs in once, within `holder.seconds_left`."""
    _keep(connection, _LINKS, host, digest, holder)


def use_link(connection: Connection, host: str, digest: bytes) -> TokenHolder | None:
    """Whose link it was; None if there is none, it has expired, or was used before. It can't be used again."""
    found = _find(connection, _LINKS, host, digest)
    ended = connection.execute(text(_END.format(table=_LINKS)), {"host": host, "digest": digest})
    return found if ended.rowcount == 1 else None


def _keep(connection: Connection, table: str, host: str, digest: bytes, holder: TokenHolder) -> None:
    connection.execute(text(_FORGET.format(table=table)), {"host": host, "most": FORGOTTEN_MAX})
    values = {"host": host, "digest": digest, "name": holder.name, "fingerprint": holder.fingerprint}
    connection.execute(text(_OPEN.format(table=table)), values | {"seconds": holder.seconds_left})


def _find(connection: Connection, table: str, host: str, digest: bytes) -> TokenHolder | None:
    row = connection.execute(text(_FIND.format(table=table)), {"host": host, "digest": digest}).one_or_none()
    return None if row is None else TokenHolder(row.token_name, bytes(row.token_fingerprint), float(row.seconds_left))
