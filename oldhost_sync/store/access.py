"""Who uses the product: sign-ins to the console, and when and how much each API token was used.

Sign-ins are opened by a token or by a link that works once, and ended by signing out, by an operator, by expiry, or
after a time without a use. Of secrets only the SHA-256 is stored; a token's fingerprint does not reveal it. Times are
the database's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import bindparam, select, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.tables import token_uses

# ---------------------------------------------------------------------------------------------- sign-ins to the console

# Each sign-in deletes up to this many expired rows.
FORGOTTEN_MAX = 100

# How exactly the last use of a session is stored: a page makes many requests, and one write is enough.
SEEN_EVERY_SECONDS = 60

_OPEN = (
    "INSERT INTO {table} (host, digest, token_name, token_fingerprint, created_at, expires_at) VALUES "
    "(:host, :digest, :name, :fingerprint, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL :seconds SECOND)"
)
_END = "DELETE FROM {table} WHERE host = :host AND digest = :digest"
_FORGET = "DELETE FROM {table} WHERE host = :host AND expires_at <= UTC_TIMESTAMP(6) ORDER BY expires_at LIMIT :most"
_FIND_LINK = (
    "SELECT token_name, token_fingerprint, "
    "TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), expires_at) / 1000000 AS seconds_left "
    "FROM sign_in_links WHERE host = :host AND digest = :digest AND expires_at > UTC_TIMESTAMP(6)"
)
# Those that last: neither their time nor the time without a use is over.
_LASTING = (
    "FROM console_sessions WHERE host = :host AND expires_at > UTC_TIMESTAMP(6) "
    "AND seen_at > UTC_TIMESTAMP(6) - INTERVAL :idle SECOND"
)
_END_OF = "DELETE FROM console_sessions WHERE host = :host AND token_name = :name"
_FIND = (
    "SELECT token_name, token_fingerprint, TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), "
    "LEAST(expires_at, seen_at + INTERVAL :idle SECOND)) / 1000000 AS seconds_left, "
    f"seen_at < UTC_TIMESTAMP(6) - INTERVAL {SEEN_EVERY_SECONDS} SECOND AS is_due {_LASTING} AND digest = :digest"
)
_SEEN = "UPDATE console_sessions SET seen_at = UTC_TIMESTAMP(6) WHERE host = :host AND digest = :digest"
_SESSIONS, _LINKS = "console_sessions", "sign_in_links"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Whose session or link it is. `fingerprint`: 32 bytes, of the token. `seconds_left`: until it expires. `is_due`:
    whether its use is to be stored.
    """

    name: str
    fingerprint: bytes
    seconds_left: float
    is_due: bool = False


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """One sign-in to the console, as operators see it."""

    name: str
    since: datetime
    seen_at: datetime
    until: datetime


def open_session(connection: Connection, host: str, digest: bytes, holder: TokenHolder) -> None:
    """Store a session that lasts for `holder.seconds_left`; delete some expired ones."""
    _keep(connection, _SESSIONS, host, digest, holder)


def find_session(connection: Connection, host: str, digest: bytes, idle_seconds: float) -> TokenHolder | None:
    """Whose session it is; None if there is none, or it has expired, or was not used for `idle_seconds`."""
    return _holder(connection, _FIND, {"host": host, "digest": digest, "idle": idle_seconds})


def use_session(connection: Connection, host: str, digest: bytes) -> None:
    """It is used now."""
    connection.execute(text(_SEEN), {"host": host, "digest": digest})


def lasting_sessions(
    connection: Connection, host: str, digests: Collection[bytes], idle_seconds: float
) -> frozenset[bytes]:
    """Those of `digests` that have not ended."""
    statement = text(f"SELECT digest {_LASTING} AND digest IN :digests")
    statement = statement.bindparams(bindparam("digests", expanding=True))
    given = {"host": host, "digests": list(digests), "idle": idle_seconds}
    return frozenset(bytes(row.digest) for row in connection.execute(statement, given))


def open_sessions(connection: Connection, host: str, idle_seconds: float) -> list[ConsoleSession]:
    """Who is signed in, by name, the newest first."""
    statement = f"SELECT token_name, created_at, seen_at, expires_at {_LASTING} ORDER BY token_name, created_at DESC"
    rows = connection.execute(text(statement), {"host": host, "idle": idle_seconds})
    return [ConsoleSession(name, *(time.replace(tzinfo=UTC) for time in times)) for name, *times in rows]


def end_sessions_of(connection: Connection, host: str, name: str) -> int:
    """Sign this token's holder out everywhere; returns from how many sessions."""
    return connection.execute(text(_END_OF), {"host": host, "name": name}).rowcount


def end_session(connection: Connection, host: str, digest: bytes) -> None:
    connection.execute(text(_END.format(table=_SESSIONS)), {"host": host, "digest": digest})


def offer_link(connection: Connection, host: str, digest: bytes, holder: TokenHolder) -> None:
    """Store a link that signs in once, within `holder.seconds_left`."""
    _keep(connection, _LINKS, host, digest, holder)


def use_link(connection: Connection, host: str, digest: bytes) -> TokenHolder | None:
    """Whose link it was; None if there is none, it has expired, or was used before. It can't be used again."""
    holder = _holder(connection, _FIND_LINK, {"host": host, "digest": digest})
    ended = connection.execute(text(_END.format(table=_LINKS)), {"host": host, "digest": digest})
    return holder if ended.rowcount == 1 else None


def _keep(connection: Connection, table: str, host: str, digest: bytes, holder: TokenHolder) -> None:
    connection.execute(text(_FORGET.format(table=table)), {"host": host, "most": FORGOTTEN_MAX})
    values = {"host": host, "digest": digest, "name": holder.name, "fingerprint": holder.fingerprint}
    connection.execute(text(_OPEN.format(table=table)), values | {"seconds": holder.seconds_left})


def _holder(connection: Connection, statement: str, given: dict[str, object]) -> TokenHolder | None:
    row = connection.execute(text(statement), given).one_or_none()
    if row is None:
        return None
    is_due = bool(getattr(row, "is_due", False))
    return TokenHolder(row.token_name, bytes(row.token_fingerprint), float(row.seconds_left), is_due)


# ------------------------------------------------------------------------------------------- the last use of each token

# After this many days without a use, a token's row is deleted.
KEPT_DAYS = 400
TOKENS_FORGOTTEN_MAX = 100
_NOTE = text(
    "INSERT INTO token_uses (host, fingerprint, name, last_used_at) VALUES (:host, :fingerprint, :name, "
    "UTC_TIMESTAMP(6)) ON DUPLICATE KEY UPDATE last_used_at = UTC_TIMESTAMP(6)"
)
_FORGET_USES = text(
    f"DELETE FROM token_uses WHERE host = :host AND last_used_at < UTC_TIMESTAMP(6) - INTERVAL {KEPT_DAYS} DAY "
    f"LIMIT {TOKENS_FORGOTTEN_MAX}"
)


def note_uses(connection: Connection, host: str, uses: Mapping[bytes, str]) -> None:
    """Record that these tokens (fingerprint and name) were used now; in a fixed order, to avoid deadlocks."""
    for fingerprint, name in sorted(uses.items()):
        connection.execute(_NOTE, {"host": host, "fingerprint": fingerprint, "name": name})
    connection.execute(_FORGET_USES, {"host": host})


def last_uses(connection: Connection, host: str) -> dict[bytes, datetime]:
    """When each fingerprint was last used."""
    uses = token_uses.c
    rows = connection.execute(select(uses.fingerprint, uses.last_used_at).where(uses.host == host))
    return {bytes(row.fingerprint): row.last_used_at for row in rows}


# --------------------------------------------------------------------------------------------- how much each token used

# Minute by minute, for an hour: the API's processes add what they counted, and read the sum. A ring buffer: a minute's
# row is overwritten an hour later. The minutes are by the database's clock, the same for all processes.

MINUTES_KEPT = 60
_MINUTE = "UNIX_TIMESTAMP() DIV 60"
_COUNTED = ("requests", "changes", "emergencies", "refused")
_ADDED = ", ".join(f"{name} = IF(minute = VALUES(minute), {name}, 0) + VALUES({name})" for name in _COUNTED)
# `minute` is assigned last: the other assignments compare its old value.
_ADD = (
    f"INSERT INTO token_usage (host, token_name, slot, minute, {', '.join(_COUNTED)}) VALUES {{rows}} "
    f"ON DUPLICATE KEY UPDATE {_ADDED}, minute = VALUES(minute) RETURNING token_name, minute, {', '.join(_COUNTED)}"
)
_ROW = f"(%s, %s, ({_MINUTE}) MOD {MINUTES_KEPT}, {_MINUTE}, %s, %s, %s, %s)"
_SINCE = text(
    "SELECT token_name, CAST(SUM(requests) AS SIGNED), CAST(SUM(changes) AS SIGNED), CAST(SUM(emergencies) AS SIGNED), "
    "CAST(SUM(refused) AS SIGNED) FROM token_usage "
    f"WHERE host = :host AND minute > {_MINUTE} - :minutes GROUP BY token_name "
    "ORDER BY 5 DESC, 4 DESC, 3 DESC, 2 DESC, 1"
)
# Old rows stay only of tokens that are no longer used.
_FORGET_USAGE = text(f"DELETE FROM token_usage WHERE host = :host AND minute <= {_MINUTE} - 1440")


@dataclass(frozen=True, slots=True)
class Usage:
    """The number of each. `refused`: requests that were answered 429."""

    requests: int = 0
    changes: int = 0
    emergencies: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What one token used."""

    token: str
    usage: Usage


def add_usage(connection: Connection, host: str, used: Mapping[str, Usage]) -> dict[str, tuple[int, Usage]]:
    """Add what each token used; returns for each the current minute (a number), and what all processes added in it."""
    rows = [(host, token, *_counts(usage)) for token, usage in sorted(used.items())]
    if not rows:
        return {}
    values = tuple(value for row in rows for value in row)
    added = connection.exec_driver_sql(_ADD.format(rows=", ".join([_ROW] * len(rows))), values)
    return {token: (int(minute), Usage(*counts)) for token, minute, *counts in added}


def usage_of_tokens(connection: Connection, host: str, minutes: int) -> list[TokenUsage]:
    """The usage in the last `minutes`, including the current one: most refusals first, then most used."""
    rows = connection.execute(_SINCE, {"host": host, "minutes": minutes})
    return [TokenUsage(token, Usage(*counts)) for token, *counts in rows]


def forget_old_usage(connection: Connection, host: str) -> None:
    """Delete rows that are a day old and were not overwritten."""
    connection.execute(_FORGET_USAGE, {"host": host})


def _counts(usage: Usage) -> tuple[int, int, int, int]:
    return usage.requests, usage.changes, usage.emergencies, usage.refused


# --------------------------------------------------------------------------------------------- accounts of the database

# The rights of each; docs/operations.md and docker-compose.yml have the same.

APP_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"
MIGRATION_RIGHTS = f"{APP_RIGHTS}, CREATE, ALTER, DROP, INDEX, REFERENCES, CREATE ROUTINE, ALTER ROUTINE, EXECUTE"
