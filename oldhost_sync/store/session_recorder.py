"""A worker's record of its sessions, for people: when each began and why it ended. Nothing depends on it.

Sessions only note it in memory; :meth:`SessionRecorder.write` stores it later, so that no operation waits for it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy import TextClause, text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import DBAPIError

from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.store.errors import CommitUncertain, StoreError
from oldhost_sync.store.text import storable
from oldhost_sync.store.transactions import run_in_transaction

logger = logging.getLogger(__name__)

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
_FORGET = text("DELETE FROM host_sessions WHERE host = :host AND epoch < :epoch - :kept")


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
        self._note(_FORGET, host=host, epoch=epoch, kept=SESSIONS_KEPT)

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
