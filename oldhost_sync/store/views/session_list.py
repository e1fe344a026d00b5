"""Sessions, from the workers' records and the ledger's newest operations, and which processes are at work.

A worker that is killed records no end: then its session ended, at the latest, when the next one began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.session_recorder import SESSIONS_KEPT
from oldhost_sync.store.views.processes import Process, read_relay, read_workers

NONCES_LOOKED_AT = 5_000
SESSIONS_SHOWN = 100

_EPOCHS = text(
    "SELECT epoch, COUNT(*) AS operations, MIN(nonce) AS first_nonce, MAX(nonce) AS last_nonce, "
    "MIN(created_at) AS began_at, MAX(COALESCE(completed_at, sent_at, created_at)) AS last_at, "
    "CAST(SUM(sends > 1) AS SIGNED) AS sent_again, CAST(SUM(status = 'SENT') AS SIGNED) AS in_doubt FROM ("
    "SELECT nonce, epoch, status, sends, created_at, sent_at, completed_at FROM nonce_requests FORCE INDEX (PRIMARY) "
    "WHERE host = :host ORDER BY nonce DESC LIMIT :looked_at) newest GROUP BY epoch ORDER BY epoch DESC LIMIT :limit"
).columns(began_at=UtcDateTime(), last_at=UtcDateTime())
_RECORDED = text(
    "SELECT epoch, owner, opened_at, opened_at_nonce, ended_at, ended_because, lost_replies FROM host_sessions "
    "WHERE host = :host ORDER BY epoch DESC LIMIT :limit"
).columns(opened_at=UtcDateTime(), ended_at=UtcDateTime())
_LAST_DAY = text(
    "SELECT COUNT(*) AS sessions, CAST(COALESCE(SUM(lost_replies), 0) AS SIGNED) AS lost_replies FROM ("
    "SELECT opened_at, lost_replies FROM host_sessions WHERE host = :host ORDER BY epoch DESC "
    f"LIMIT {SESSIONS_KEPT}) newest WHERE opened_at >= UTC_TIMESTAMP(6) - INTERVAL 1 DAY"
)
_LEDGER = text(
    "SELECT epoch, owner, banned_at, banned_until, halted, updated_at FROM nonce_ledger WHERE host = :host"
).columns(banned_at=UtcDateTime(), banned_until=UtcDateTime(), updated_at=UtcDateTime())


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of one epoch in the ledger. `sent_again`: sent more than once, as after a lost reply."""

    operations: int
    first_nonce: int
    last_nonce: int
    began_at: datetime
    last_at: datetime
    sent_again: int
    in_doubt: int


@dataclass(frozen=True, slots=True)
class SessionView:
    """One session. What its worker did not record is None. `operations` None: it bound none of the newest operations.

    `successor_at`: when the next session began; this one ended before.
    """

    epoch: int
    owner: str | None = None
    opened_at: datetime | None = None
    opened_at_nonce: int | None = None
    ended_at: datetime | None = None
    ended_because: str | None = None
    lost_replies: int | None = None
    successor_at: datetime | None = None
    operations: Operations | None = None

    @property
    def began_at(self) -> datetime | None:
        return self.opened_at or (self.operations.began_at if self.operations else None)


@dataclass(frozen=True, slots=True)
class SessionList:
    """The newest epoch first. `epoch`, `owner`: of the ledger. `banned_at`, `banned_until`: of the last ban.

    `sessions_of_a_day`, `lost_replies_of_a_day`: of the sessions that were opened in the last 24 hours.
    """

    epoch: int | None = None
    owner: str | None = None
    banned_at: datetime | None = None
    banned_until: datetime | None = None
    halted: str | None = None
    updated_at: datetime | None = None
    relay: Process | None = None
    workers: list[Process] = field(default_factory=list)
    sessions: list[SessionView] = field(default_factory=list)
    sessions_of_a_day: int = 0
    lost_replies_of_a_day: int = 0


def read_newest_session(connection: Connection, host: str) -> SessionView | None:
    """The newest session, as its worker recorded it; None if there is no record yet."""
    row = connection.execute(_RECORDED, {"host": host, "limit": 1}).one_or_none()
    return None if row is None else SessionView(**row._mapping)  # noqa: SLF001


def read_sessions(connection: Connection, host: str) -> SessionList:
    """The sessions, with the ledger's newest NONCES_LOOKED_AT operations."""
    values = {"host": host}
    ledger = connection.execute(_LEDGER, values).one_or_none()
    day = connection.execute(_LAST_DAY, values).one()
    return SessionList(
        **({} if ledger is None else dict(ledger._mapping)),  # noqa: SLF001 - a row by name
        relay=read_relay(connection, host),
        workers=read_workers(connection, host),
        sessions=_sessions(connection, values),
        sessions_of_a_day=day.sessions,
        lost_replies_of_a_day=day.lost_replies,
    )


def _sessions(connection: Connection, values: dict[str, str]) -> list[SessionView]:
    """The workers' records and the ledger's operations, joined by the epoch; the newest first."""
    bounds = {"looked_at": NONCES_LOOKED_AT, "limit": SESSIONS_SHOWN}
    operations: dict[int, Operations] = {}
    for row in connection.execute(_EPOCHS, values | bounds):
        epoch, *rest = row
        operations[epoch] = Operations(*rest)
    recorded = {row.epoch: row for row in connection.execute(_RECORDED, values | {"limit": SESSIONS_SHOWN})}
    found: list[SessionView] = []
    successor_at: datetime | None = None
    for epoch in sorted(recorded.keys() | operations.keys(), reverse=True)[:SESSIONS_SHOWN]:
        own: dict[str, Any] = dict(recorded[epoch]._mapping) if epoch in recorded else {"epoch": epoch}  # noqa: SLF001
        view = SessionView(**own, successor_at=successor_at, operations=operations.get(epoch))
        found.append(view)
        successor_at = view.began_at or successor_at
    return found
