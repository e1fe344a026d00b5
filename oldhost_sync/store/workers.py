"""What workers report about themselves: a lock while they live, that they are at work, and their sessions with OldHost.

**The lock** shows at once that a process has ended: the kernel closes a killed process's connections, and MariaDB then
releases the locks of its sessions. When a machine lost its network or its power, MariaDB ends the silent session after
a time. The lock is only a hint: a living worker can lose it with its connection, and a cluster's nodes do not share it.

**Presence** is reported every ten seconds, and when a worker stops. A run of the writer begins with the newest release
that all workers at work know (`oldhost_sync/worker/release_watch.py`).

**Sessions** are recorded for people, later than they happen, so that no operation waits; nothing depends on them.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import TextClause, bindparam, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.store.columns import storable
from oldhost_sync.store.engine import require_primary
from oldhost_sync.store.errors import CommitUncertain, StoreError, is_passing
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

# Lock names are server-wide and have at most 64 characters; a worker's name is unique.
LOCK_NAME = "CONCAT('oldhost-sync-worker:', MD5({}))"
_TAKE = f"SELECT GET_LOCK({LOCK_NAME.format('%s')}, %s)"
_RELEASE = f"DO RELEASE_LOCK({LOCK_NAME.format('%s')})"
# A holder that is silent for longer than the second is disconnected; it says something after the first.
LOCK_POLL_SECONDS, LOCK_SILENT_SECONDS_MAX = 4, 10
TAKE_SECONDS = 2
AGAIN_SECONDS_MIN, AGAIN_SECONDS_MAX = 0.05, 2.0


def hold(engine: Engine, worker: str, until: threading.Event) -> None:
    """Hold the lock of `worker` until the event is set; take it again after a lost connection.

    Raises errors that do not pass by themselves.
    `engine` must be in autocommit mode, and have a connection that nothing else needs.
    """
    pause = AGAIN_SECONDS_MIN
    while not until.is_set():
        try:
            with _closed_at_the_end(engine) as connection:
                connection.exec_driver_sql(f"SET SESSION wait_timeout = {LOCK_SILENT_SECONDS_MAX}")
                if connection.exec_driver_sql(_TAKE, (worker, TAKE_SECONDS)).scalar_one() == 1:
                    pause = AGAIN_SECONDS_MIN
                    _stay(connection, until)
        except (StoreError, DBAPIError, PoolTimeout) as error:
            if not is_passing(error):
                raise
            logger.debug("the lock of worker %s is lost: %s", worker, error)
            until.wait(pause)
            pause = min(2 * pause, AGAIN_SECONDS_MAX)


@contextmanager
def _closed_at_the_end(engine: Engine) -> Iterator[Connection]:
    """A connection that does not go back to the pool, since closing it releases the lock."""
    with engine.connect() as connection:
        try:
            yield connection
        finally:
            connection.invalidate()


def _stay(connection: Connection, until: threading.Event) -> None:
    """Returns once the event is set; raises as soon as the connection is lost.

    Between two statements MariaDB waits for the next one, and so notices at once that the connection is closed; during
    a `SLEEP` it would not.
    """
    socket: Any = connection.connection.dbapi_connection
    poll = select.poll()  # `select` refuses descriptors from 1024 on
    poll.register(socket, select.POLLIN)
    while not until.is_set():
        poll.poll(1000 * LOCK_POLL_SECONDS)
        require_primary(connection)


def is_free(connection: Connection, worker: str, within_seconds: float) -> bool:
    """Whether nobody holds the lock of `worker`, now or within that time. It is not kept."""
    if connection.exec_driver_sql(_TAKE, (worker, within_seconds)).scalar_one() != 1:
        return False
    connection.exec_driver_sql(_RELEASE, (worker,))
    return True


# ------------------------------------------------------------------------------------------------------------- presence

REPORT_SECONDS = 10.0
# A worker that is silent for longer is not at work: it was killed, is frozen, or can't reach the database.
SILENT_SECONDS_MAX = 25
NAME_LENGTH_MAX = 255
# The shortest of so many counts: one may wait for the processor.
ROUND_TRIPS_MEASURED = 5

# A time in the future is from before the database's clock was set back: who is at work says so again in seconds.
IS_AT_WORK = (
    "seen_at > UTC_TIMESTAMP(6) - INTERVAL :silent_s SECOND AND seen_at <= UTC_TIMESTAMP(6) + INTERVAL :silent_s SECOND"
)
_REPORT = text(
    "INSERT INTO workers (host, name, knows_release, round_trip_us) VALUES (:host, :name, :release, :us) "
    "ON DUPLICATE KEY UPDATE seen_at = UTC_TIMESTAMP(6), left_at = NULL, round_trip_us = VALUES(round_trip_us)"
)
_KNOWN = text(
    "SELECT host, MIN(knows_release) AS smallest, MAX(knows_release) AS newest FROM workers "
    f"WHERE host IN :hosts AND left_at IS NULL AND {IS_AT_WORK} GROUP BY host "
    "HAVING SUM(name = :name) > 0"
).bindparams(bindparam("hosts", expanding=True))
_OTHERS = text(
    f"SELECT name, host, IS_USED_LOCK({LOCK_NAME.format('name')}) IS NOT NULL AS holds_lock FROM workers "
    f"WHERE host IN :hosts AND left_at IS NULL AND {IS_AT_WORK} "
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
    """Another worker at work: the hosts that both serve, and whether it holds its lock (`store/workers.py`)."""

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
        self.report()

    def report(self) -> None:
        """Report that the worker is at work, and how far MariaDB is."""

        def write(connection: Connection) -> None:
            values = {"name": self._name, "release": self.release, "us": _round_trip_us(connection)}
            connection.execute(_REPORT, [{"host": host, **values} for host in sorted(self.hosts)])

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
        others = dict[str, Other]()
        for name, host, holds_lock in connection.execute(_OTHERS, values):
            others.setdefault(name, Other([], bool(holds_lock))).hosts.append(host)
        return others

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


# ------------------------------------------------------------------------------------------------------------- sessions

# How many of each host's newest sessions are kept.
SESSIONS_KEPT = 10_000
# The most lines that wait while the database is away; above it the oldest are dropped.
_LINES_MAX = 1_000

_AT = "UTC_TIMESTAMP(6) - INTERVAL :ago_us MICROSECOND"
_OPENED = text(
    "INSERT INTO host_sessions (host, epoch, owner, opened_at, opened_at_nonce) "
    f"VALUES (:host, :epoch, :owner, {_AT}, :nonce) ON DUPLICATE KEY UPDATE epoch = VALUES(epoch)"
)
_LOST_REPLY = text("UPDATE host_sessions SET lost_replies = lost_replies + 1 WHERE host = :host AND epoch = :epoch")
_ENDED = text(
    f"UPDATE host_sessions SET ended_at = {_AT}, ended_because = :because "
    "WHERE host = :host AND epoch = :epoch AND ended_at IS NULL"
)
_FORGET_SESSIONS = text("DELETE FROM host_sessions WHERE host = :host AND epoch < :epoch - :kept")


@dataclass(frozen=True, slots=True)
class _Line:
    statement: TextClause
    at: float
    values: dict[str, object]


@dataclass(frozen=True, slots=True)
class SessionRecorder:
    """Safe to use from several threads. `clock`: returns a monotonic clock's seconds."""

    engine: Engine
    clock: Callable[[], float]
    _lines: deque[_Line] = field(default_factory=lambda: deque(maxlen=_LINES_MAX))
    _writing: threading.Lock = field(default_factory=threading.Lock)

    def opened(self, host: str, epoch: int, owner: str, nonce: int) -> None:
        """`nonce`: the one that OldHost expects when the session begins."""
        self._note(_OPENED, host=host, epoch=epoch, owner=storable(owner, 255), nonce=nonce)
        self._note(_FORGET_SESSIONS, host=host, epoch=epoch, kept=SESSIONS_KEPT)

    def lost_reply(self, host: str, epoch: int) -> None:
        self._note(_LOST_REPLY, host=host, epoch=epoch)

    def ended(self, host: str, epoch: int, because: str) -> None:
        """If it is called again, the first reason is kept."""
        self._note(_ENDED, host=host, epoch=epoch, because=storable(because, TEXT_LENGTH_MAX))

    def write(self) -> None:
        """Write what was noted, in order; what can't be written now is tried at the next call.

        Only one thread writes at a time. Another one does not wait for it (the database may be slow): its lines are
        written by the thread that is writing.
        """
        taken = True
        while taken and self._lines and self._writing.acquire(blocking=False):
            try:
                taken = self._write_lines()
            finally:
                self._writing.release()

    def _write_lines(self) -> bool:
        """False: the database can't be written now."""
        while self._lines:
            line = self._lines.popleft()
            try:
                self._write(line)
            except CommitUncertain:
                continue
            except StoreError as error:
                logger.debug("a session's record is not written yet: %s", error)
                self._lines.appendleft(line)
                return False
            except DBAPIError:
                logger.exception("a session's record can't be written")
        return True

    def _note(self, statement: TextClause, **values: object) -> None:
        self._lines.append(_Line(statement, self.clock(), values))

    def _write(self, line: _Line) -> None:
        values = dict(line.values)
        if ":ago_us" in line.statement.text:
            values["ago_us"] = max(0, round((self.clock() - line.at) * 1_000_000))
        run_in_transaction(self.engine, lambda connection: connection.execute(line.statement, values), attempts=1)
