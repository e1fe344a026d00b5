"""Which processes of a host are at work, as each reports itself: workers every ten seconds, the relay by its lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Boolean, Float, text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.worker_presence import HEARD, SILENT_SECONDS_MAX

WORKERS_SHOWN = 20

_WORKERS = text(
    f"SELECT name, seen_at, left_at IS NULL AND {HEARD} AS at_work, "
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
    """`seen_at`: its last report; for a relay, when its lease ends. `has_left`: it reported that it stops; without
    that, a process that is not at work was killed, is frozen, or can't reach the database. `knows_release`: the newest
    release of the writer's decisions that a worker can begin; None: of a relay.
    `round_trip_ms`: to MariaDB, as a worker measured it last.
    """

    name: str
    seen_at: datetime
    at_work: bool
    has_left: bool = False
    knows_release: int | None = None
    round_trip_ms: float | None = None


def read_workers(connection: Connection, host: str) -> list[Process]:
    """The workers of the last day, at most WORKERS_SHOWN: those at work first, then those seen last."""
    values = {"host": host, "silent_s": SILENT_SECONDS_MAX, "limit": WORKERS_SHOWN}
    return [Process(*row) for row in connection.execute(_WORKERS, values)]


def read_relay(connection: Connection, host: str) -> Process | None:
    """The relay that holds the lease, or held it last."""
    row = connection.execute(_RELAY, {"host": host}).one_or_none()
    return None if row is None else Process(*row)
