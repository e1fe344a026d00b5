"""The one connection, shared by a session and its sends, and how it is closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import Fenced, LedgerUnavailable
from oldhost_sync.oldhost.exchange import Exchange, ExchangeListener
from oldhost_sync.oldhost.first_contact import FirstContact
from oldhost_sync.oldhost.ledger import Ledger, Reserved
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.mark_time import MarkTime
from oldhost_sync.oldhost.nonce_pipeline import NoncePipeline
from oldhost_sync.oldhost.refusal import Unwritten, kind
from oldhost_sync.oldhost.reply_timeout import ReplyTimeout
from oldhost_sync.oldhost.wire import Answer, Banned, Replay

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedConnection:
    """The connection of one session; the pipeline decides who may write."""

    epoch: int
    ledger: Ledger
    connection: HostConnection
    clock: Clock
    limits: SessionLimits
    pipeline: NoncePipeline
    reply_timeout: ReplyTimeout
    mark_time: MarkTime
    first_contact: FirstContact
    listener: ExchangeListener | None = None

    def exchanged(
        self, operation: Reserved, answer: Answer | Unwritten, began: float, accepted_at_ms: int | None
    ) -> None:
        """Report to the listener: an operation was on the wire from `began` until now, with this `answer`."""
        if self.listener is not None:
            seconds = self.clock() - began
            self.listener(Exchange(operation, self.epoch, kind(answer), seconds, accepted_at_ms))

    def close(self, reason: str) -> None:
        """Write nothing more. The connection is closed at once, or as soon as the operation on the wire has ended."""
        if self.pipeline.close(reason):
            self.connection.close()

    def release_wire(self) -> None:
        if self.pipeline.is_closed:
            self.connection.close()
        self.pipeline.release_wire()
        if self.pipeline.is_closed:
            self.connection.close()

    def is_alive(self) -> bool:
        alive = self.connection.is_alive()
        if not alive:
            self.close("OldHost closed the connection")
        return alive

    def halt(self, reason: str) -> bool:
        """Halt, and record the reason for operators. False: it can't be recorded (fenced, or no database)."""
        self.close(reason)
        try:
            self.ledger.halt(self.epoch, reason)
        except (Fenced, LedgerUnavailable):
            return False
        return True

    def retry(self, keep: Callable[[], T], beat: Heartbeat) -> T:
        """Try a few times while the database is away, for what must not be lost; `keep` must be idempotent."""
        for _ in range(self.limits.insist_times - 1):
            try:
                return keep()
            except LedgerUnavailable:
                beat()
        return keep()

    def ban_seconds(self, answer: object) -> float:
        return self.limits.ban_span(answer.retry_after if isinstance(answer, Banned | Replay) else None)
