"""Which workers are at work, and which release each knows: a worker reports it every ten seconds, and when it stops.

A run of the writer begins with the newest release that all of them know (`oldhost_sync/worker/release_watch.py`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.store.errors import StoreError
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.store.worker_locks import LOCK_NAME

logger = logging.getLogger(__name__)

SAID_EVERY_SECONDS = 10.0
# A worker that is silent for longer is not at work: it was killed, is frozen, or can't reach the database.
SILENT_SECONDS_MAX = 25
NAME_LENGTH_MAX = 255
# The shortest of so many counts: one may wait for the processor.
ROUND_TRIPS_MEASURED = 5

# A time in the future is from before the database's clock was set back: who is at work says so again in seconds.
HEARD = (
    "seen_at > UTC_TIMESTAMP(6) - INTERVAL :silent_s SECOND AND seen_at <= UTC_TIMESTAMP(6) + INTERVAL :silent_s SECOND"
)
_SAY = text(
    "INSERT INTO workers (host, name, knows_release, round_trip_us) VALUES (:host, :name, :release, :us) "
    "ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6), left_at = NULL, round_trip_us = VALUES(round_trip_us)"
)
_KNOWN = text(
    "SELECT host, MIN(knows_release) AS smallest, MAX(knows_release) AS newest FROM workers "
    f"WHERE host IN :hosts AND left_at IS NULL AND {HEARD} GROUP BY host "
    "HAVING SUM(name = :name) > 0"
).bindparams(bindparam("hosts", expanding=True))
_OTHERS = text(
    f"SELECT name, host, IS_USED_LOCK({LOCK_NAME.format('name')}) IS NOT NULL AS holds_lock FROM workers "
    f"WHERE host IN :hosts AND left_at IS NULL AND {HEARD} "
    "AND name <> :name ORDER BY name, host"
).bindparams(bindparam("hosts", expanding=True))
_TAKEN = text("SELECT host FROM nonce_ledger WHERE host IN :hosts AND owner = :name ORDER BY host").bindparams(
    bindparam("hosts", expanding=True)
)
_LEAVE = text(
    "UPDATE workers SET seen_at = UTC_TIMESTAMP(6), left_at = UTC_TIMESTAMP(6) WHERE host IN :hosts AND name = :name"
).bindparams(bindparam("hosts", expanding=True))
# Workers not seen for a day are deleted.
_FORGET = text("DELETE FROM workers WHERE host IN :hosts AND seen_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY").bindparams(
    bindparam("hosts", expanding=True)
)


@dataclass(frozen=True, slots=True)
class Known:
    """The releases that one host's workers at work know: the smallest and the newest."""

    smallest: int
    newest: int


@dataclass(frozen=True, slots=True)
class Other:
    """Another worker at work: the hosts that both serve, and whether it holds its lock (`store/worker_locks.py`)."""

    hosts: list[str]
    holds_lock: bool


@dataclass(frozen=True, slots=True)
class WorkerPresence:
    """The reports of the worker `name` for the hosts that it serves. If the database is away, the next report counts.

    `release`: the newest one that it can begin a run with.
    """

    engine: Engine
    hosts: Sequence[str]
    name: str
    release: int = RELEASE

    def begin(self) -> None:
        """Report that the worker begins, and delete those not seen for a day."""
        self._write(lambda connection: connection.execute(_FORGET, {"hosts": self.hosts}))
        self.say()

    def say(self) -> None:
        """Report that the worker is at work, and how far MariaDB is."""

        def write(connection: Connection) -> None:
            values = {"name": self._name, "release": self.release, "us": _round_trip_us(connection)}
            connection.execute(_SAY, [{"host": host, **values} for host in sorted(self.hosts)])

        self._write(write)

    def leave(self) -> None:
        """Report that the worker stops."""
        values = {"hosts": self.hosts, "name": self._name}
        self._write(lambda connection: connection.execute(_LEAVE, values))

    def known(self) -> dict[str, Known]:
        """By host, only where this worker itself is recorded as at work; otherwise the others may not count it yet.

        Raises the store's errors.
        """
        values = {"hosts": self.hosts, "name": self._name, "silent_s": SILENT_SECONDS_MAX}

        def read(connection: Connection) -> dict[str, Known]:
            return {row[0]: Known(row[1], row[2]) for row in connection.execute(_KNOWN, values)}

        return run_in_transaction(self.engine, read, attempts=1)

    def others(self, connection: Connection) -> dict[str, Other]:
        """The other workers at work, by name."""
        values = {"hosts": self.hosts, "name": self._name, "silent_s": SILENT_SECONDS_MAX}
        found = dict[str, Other]()
        for name, host, holds_lock in connection.execute(_OTHERS, values):
            found.setdefault(name, Other([], bool(holds_lock))).hosts.append(host)
        return found

    def taken_by(self, connection: Connection, worker: str) -> list[str]:
        """The hosts, among those that this worker serves, whose session `worker` was the last to open."""
        return list(connection.scalars(_TAKEN, {"hosts": self.hosts, "name": worker}))

    @property
    def _name(self) -> str:
        return storable(self.name, NAME_LENGTH_MAX)

    def _write(self, write: Callable[[Connection], object]) -> None:
        try:
            run_in_transaction(self.engine, write, attempts=1)
        except StoreError as error:
            logger.debug("can't record that worker %s is at work: %s", self.name, error)
        except DBAPIError:
            logger.exception("can't record that worker %s is at work", self.name)


def _round_trip_us(connection: Connection) -> int:
    """How long MariaDB takes to answer the shortest question, in microseconds."""
    shortest = float("inf")
    for _ in range(ROUND_TRIPS_MEASURED):
        began = time.perf_counter()
        connection.exec_driver_sql("SELECT 1")
        shortest = min(shortest, time.perf_counter() - began)
    return round(1_000_000 * shortest)
