"""Sessions as far as the ledger's newest operations tell of them, and which processes were seen last.

A session's own row is not kept: an epoch is known by the operations that it bound, so one without any is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime

NONCES_LOOKED_AT = 5_000
SESSIONS_SHOWN = 100

_EPOCHS = text(
    "SELECT epoch, COUNT(*) AS operations, MIN(nonce) AS first_nonce, MAX(nonce) AS last_nonce, "
    "MIN(created_at) AS began_at, MAX(COALESCE(completed_at, sent_at, created_at)) AS last_at, "
    "CAST(SUM(sends > 1) AS SIGNED) AS sent_again, CAST(SUM(status = 'SENT') AS SIGNED) AS in_doubt FROM ("
    "SELECT nonce, epoch, status, sends, created_at, sent_at, completed_at FROM nonce_requests FORCE INDEX (PRIMARY) "
    "WHERE host = :host ORDER BY nonce DESC LIMIT :looked_at) newest GROUP BY epoch ORDER BY epoch DESC LIMIT :limit"
).columns(began_at=UtcDateTime(), last_at=UtcDateTime())
_LEDGER = text(
    "SELECT epoch, owner, banned_at, banned_until, halted, updated_at FROM nonce_ledger WHERE host = :host"
).columns(banned_at=UtcDateTime(), banned_until=UtcDateTime(), updated_at=UtcDateTime())
_RELAY = text("SELECT owner, expires_at FROM relay_lease WHERE host = :host").columns(expires_at=UtcDateTime())
_MACHINES = text(
    "SELECT machine, seen_at FROM machine_clocks WHERE host = :host ORDER BY seen_at DESC LIMIT 20"
).columns(seen_at=UtcDateTime())


@dataclass(frozen=True, slots=True)
class SessionView:
    """One epoch. `sent_again`: operations that were sent more than once, as after a lost reply."""

    epoch: int
    operations: int
    first_nonce: int
    last_nonce: int
    began_at: datetime
    last_at: datetime
    sent_again: int
    in_doubt: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A process or machine, and when it was there last (a relay: until when its lease holds)."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SessionList:
    """The newest epoch first. `epoch`, `owner`: of the ledger; the ban is the last one that there was."""

    epoch: int | None = None
    owner: str | None = None
    banned_at: datetime | None = None
    banned_until: datetime | None = None
    halted: str | None = None
    updated_at: datetime | None = None
    relay: Seen | None = None
    machines: list[Seen] = field(default_factory=list)
    sessions: list[SessionView] = field(default_factory=list)


def read_sessions(connection: Connection, host: str) -> SessionList:
    """Of the ledger's newest NONCES_LOOKED_AT operations."""
    values = {"host": host}
    ledger = connection.execute(_LEDGER, values).one_or_none()
    relay = connection.execute(_RELAY, values).one_or_none()
    bounds = {"looked_at": NONCES_LOOKED_AT, "limit": SESSIONS_SHOWN}
    found = connection.execute(_EPOCHS, values | bounds)
    return SessionList(
        **({} if ledger is None else dict(ledger._mapping)),  # noqa: SLF001 - a row by name
        relay=None if relay is None else Seen(*relay),
        machines=[Seen(*row) for row in connection.execute(_MACHINES, values)],
        sessions=[SessionView(**row._mapping) for row in found],  # noqa: SLF001
    )
