"""Which processes of a host are at work, as each reports itself, and the sessions with OldHost.

Workers report every ten seconds, the relay by its lease. Sessions come from the workers' records and the ledger's
newest operations. A worker that is killed records no end: then its session ended, at the latest, when the next one
began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import Boolean, Float, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.plain_text import instant
from oldhost_sync.policy.rules.alert_kinds import Severity
from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.record import HIDDEN, RECORD, described
from oldhost_sync.store.workers import IS_AT_WORK, SESSIONS_KEPT, SILENT_SECONDS_MAX

# ------------------------------------------------------------------------------------------------------------ processes

WORKERS_SHOWN = 20

_WORKERS = text(
    f"SELECT name, seen_at, left_at IS NULL AND {IS_AT_WORK} AS at_work, "
    "left_at IS NOT NULL AS has_left, knows_release, round_trip_us / 1000 AS round_trip_ms "
    "FROM workers WHERE host = :host "
    "ORDER BY at_work DESC, seen_at DESC LIMIT :limit"
).columns(seen_at=UtcDateTime(), at_work=Boolean(), has_left=Boolean(), round_trip_ms=Float())
_RELAY = text(
    "SELECT owner AS name, expires_at AS seen_at, expires_at > UTC_TIMESTAMP(6) AS at_work FROM relay_lease "
    "WHERE host = :host"
).columns(seen_at=UtcDateTime(), at_work=Boolean())


@dataclass(frozen=True, slots=True)
class Process:
    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "name": "worker-1",
        "seen_at": "2026-05-01T12:01:00Z",
        "at_work": True,
        "has_left": False,
        "knows_release": 1,
    }

    name: str
    seen_at: datetime = field(
        metadata=described("When a worker last reported; for a relay, until when its lease is valid")
    )
    at_work: bool
    has_left: bool = field(
        default=False,
        metadata=described(
            "Whether it reported a normal exit; a process that is neither at work nor has left was killed, is "
            "frozen, or is cut off"
        ),
    )
    knows_release: int | None = field(
        default=None,
        metadata=described("For a worker: the newest release of the writer's decisions with which it begins a run"),
    )
    round_trip_ms: float | None = field(default=None, metadata=HIDDEN)


def read_workers(connection: Connection, host: str) -> list[Process]:
    """The workers of the last day, at most WORKERS_SHOWN: those at work first, then those seen last."""
    values = {"host": host, "silent_s": SILENT_SECONDS_MAX, "limit": WORKERS_SHOWN}
    return [Process(*row) for row in connection.execute(_WORKERS, values)]


def read_relay(connection: Connection, host: str) -> Process | None:
    """The relay that holds the lease, or held it last."""
    row = connection.execute(_RELAY, {"host": host}).one_or_none()
    return None if row is None else Process(*row)


# ------------------------------------------------------------------------------------------------------------- sessions

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
class SessionOperations:
    """What the ledger's newest operations show about a session."""

    __pydantic_config__ = RECORD

    operations: int
    first_nonce: int
    last_nonce: int
    began_at: datetime
    last_at: datetime
    sent_again: int = field(metadata=described("Operations sent more than once, for example after a lost reply"))
    in_doubt: int


@dataclass(frozen=True, slots=True)
class HostSession:
    """One session. A field is null if its worker did not report the value."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "epoch": 3,
        "owner": "worker-1",
        "opened_at": "2026-05-01T11:40:00Z",
        "opened_at_nonce": 480,
        "ended_at": None,
        "ended_because": None,
        "lost_replies": 0,
        "successor_at": None,
        "operations": None,
    }

    epoch: int
    owner: str | None = field(default=None, metadata=described("The worker that held it"))
    opened_at: datetime | None = None
    opened_at_nonce: int | None = None
    ended_at: datetime | None = None
    ended_because: str | None = None
    lost_replies: int | None = None
    successor_at: datetime | None = field(
        default=None, metadata=described("When the next session began; this one had ended by then")
    )
    operations: SessionOperations | None = field(
        default=None, metadata=described("null: none of the newest 5,000 operations belong to it")
    )

    @property
    def began_at(self) -> datetime | None:
        return self.opened_at or (self.operations.began_at if self.operations else None)


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions, newest first. `epoch` and `owner` are from the ledger; the ban is the most recent one."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "epoch": 3,
        "owner": "worker-1",
        "banned_at": None,
        "banned_until": None,
        "halted": None,
        "updated_at": "2026-05-01T12:01:03Z",
        "relay": {
            "name": "relay-1",
            "seen_at": "2026-05-01T12:01:20Z",
            "at_work": True,
            "has_left": False,
            "knows_release": None,
        },
        "workers": [Process.EXAMPLE],
        "sessions": [HostSession.EXAMPLE],
        "sessions_of_a_day": 3,
        "lost_replies_of_a_day": 2,
    }

    epoch: int | None = None
    owner: str | None = None
    banned_at: datetime | None = None
    banned_until: datetime | None = None
    halted: str | None = None
    updated_at: datetime | None = None
    relay: Process | None = None
    workers: list[Process] = field(
        default_factory=list, metadata=described("The workers of the last day, at most 20; those at work first")
    )
    sessions: list[HostSession] = field(default_factory=list)
    sessions_of_a_day: int = 0
    lost_replies_of_a_day: int = 0


def read_newest_session(connection: Connection, host: str) -> HostSession | None:
    """The newest session, as its worker recorded it; None if there is no record yet."""
    row = connection.execute(_RECORDED, {"host": host, "limit": 1}).one_or_none()
    return None if row is None else HostSession(**row._mapping)  # noqa: SLF001


def read_sessions(connection: Connection, host: str) -> Sessions:
    """The sessions, with the ledger's newest NONCES_LOOKED_AT operations."""
    values = {"host": host}
    ledger = connection.execute(_LEDGER, values).one_or_none()
    day = connection.execute(_LAST_DAY, values).one()
    return Sessions(
        **({} if ledger is None else dict(ledger._mapping)),  # noqa: SLF001 - a row by name
        relay=read_relay(connection, host),
        workers=read_workers(connection, host),
        sessions=_sessions(connection, values),
        sessions_of_a_day=day.sessions,
        lost_replies_of_a_day=day.lost_replies,
    )


def _sessions(connection: Connection, values: dict[str, str]) -> list[HostSession]:
    """The workers' records and the ledger's operations, joined by the epoch; the newest first."""
    bounds = {"looked_at": NONCES_LOOKED_AT, "limit": SESSIONS_SHOWN}
    operations: dict[int, SessionOperations] = {}
    for row in connection.execute(_EPOCHS, values | bounds):
        epoch, *rest = row
        operations[epoch] = SessionOperations(*rest)
    recorded = {row.epoch: row for row in connection.execute(_RECORDED, values | {"limit": SESSIONS_SHOWN})}
    sessions: list[HostSession] = []
    successor_at: datetime | None = None
    for epoch in sorted(recorded.keys() | operations.keys(), reverse=True)[:SESSIONS_SHOWN]:
        own: dict[str, Any] = dict(recorded[epoch]._mapping) if epoch in recorded else {"epoch": epoch}  # noqa: SLF001
        view = HostSession(**own, successor_at=successor_at, operations=operations.get(epoch))
        sessions.append(view)
        successor_at = view.began_at or successor_at
    return sessions


# -------------------------------------------------------------------------------------------- a worker far from MariaDB

# Each operation waits for a round trip, so a distance that nobody notices elsewhere costs OldHost's time, and a large
# one lets each mark become too old to send.

# Beside MariaDB a round trip takes less than 1 ms. At 50 ms OldHost was busy for 99 % of the time where an operation
# takes 400 ms, and for 96 % at 100 ms; at 300 ms for 94 % at 400 ms. At 400 ms hardly anything was sent: an operation
# must be written within a second of the beginning of its mark.
FAR_MS, OUT_OF_REACH_MS = 40.0, 350.0
# A distance that was told counts until it is shorter than this.
NEAR_MS = 30.0


@dataclass(frozen=True, slots=True)
class FarWorker:
    severity: Severity
    message: str


def far_worker(workers: Sequence[Process], *, was_far: bool) -> FarWorker | None:
    """None if all workers at work are near. `was_far`: at the last look."""
    at_work = [worker for worker in workers if worker.at_work and worker.round_trip_ms is not None]
    farthest = max(at_work, key=lambda worker: worker.round_trip_ms or 0.0, default=None)
    if farthest is None or farthest.round_trip_ms is None:
        return None
    distance_ms = farthest.round_trip_ms
    if distance_ms < (NEAR_MS if was_far else FAR_MS):
        return None
    where = f"Worker {farthest.name} is {distance_ms:.0f} ms from MariaDB (one round trip)"
    if distance_ms >= OUT_OF_REACH_MS:
        return FarWorker("critical", f"{where}: too far to write an operation within a second of its mark.")
    return FarWorker("warning", f"{where}. Operations wait for it, so a quick OldHost gets fewer than it could take.")


# ---------------------------------------------------------------------------------------------------- no worker at work


@dataclass(frozen=True, slots=True)
class WorkerSilence:
    """Sentences. `since`: the last report of the last worker."""

    why: str
    step: str
    since: datetime


def worker_silence(workers: Sequence[Process]) -> WorkerSilence | None:
    """None while a worker is at work, and if none has ever reported."""
    if not workers or any(worker.at_work for worker in workers):
        return None
    last = max(workers, key=lambda worker: worker.seen_at)
    if last.has_left:
        why = f"No worker is at work: {last.name} left at {instant(last.seen_at)}."
        return WorkerSilence(why, "Start a worker: `oldhost-sync worker`.", last.seen_at)
    why = (
        f"Worker {last.name} is silent since {instant(last.seen_at)}, and no other is at work: "
        "it was killed, is frozen, or can't reach the database."
    )
    return WorkerSilence(why, f"Restart worker {last.name}; kill it first if it still runs.", last.seen_at)
