"""The one connection, shared by a session and its sends: who holds the wire, and how the session ends.

A session ends in one of two ways. *closed*: nothing more is written. *draining*: the operation on the wire finishes,
and so does one that is marked and was bound when the session began; all other nonces are released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, TypeVar

from oldhost_sync.drivers.ambiguity import RecoveryPlan, plan
from oldhost_sync.drivers.capabilities import Repeats
from oldhost_sync.drivers.events import Answer, Applied, Banned, Replay, Reply, Told, Unlisted
from oldhost_sync.oldhost.answer_times import MarkTime, ReplyTimeout
from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import Fenced, LedgerUnavailable
from oldhost_sync.oldhost.expected_nonce import FirstContact, Questions, answered_with_count
from oldhost_sync.oldhost.ledger import Ledger, Reserved
from oldhost_sync.oldhost.refusals import ConnectionPace, Unwritten, kind
from oldhost_sync.oldhost.session_limits import SessionLimits

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """What a session reports to its listener: one operation, once on the wire for `seconds`. `answer`: its kind, as in
    metrics; "ambiguous" if there was none.

    `accepted_at_ms`: when the operation's change was accepted; None if the writer did not send it.
    """

    operation: Reserved
    epoch: int
    answer: str
    seconds: float
    accepted_at_ms: int | None


# Called by the thread that holds the wire: it must do no IO and raise nothing.
ExchangeListener = Callable[[Exchange], None]


class Condition(Protocol):
    """A condition variable, such as `threading.Condition`: a thread may enter it again."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> object: ...

    def notify_all(self) -> None: ...


@dataclass(slots=True)
class SharedConnection:
    """The connection of one session. `condition` guards who holds the wire, and the end."""

    epoch: int
    ledger: Ledger
    connection: HostConnection
    clock: Clock
    limits: SessionLimits
    condition: Condition
    reply_timeout: ReplyTimeout
    mark_time: MarkTime
    first_contact: FirstContact
    pace: ConnectionPace
    questions: Questions
    listener: ExchangeListener | None = None
    is_taken: bool = False  # a thread holds the wire
    _closed: str = ""
    _draining: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something new may begin."""
        return not self._closed and not self._draining

    @property
    def is_closed(self) -> bool:
        return bool(self._closed)

    @property
    def reason(self) -> str:
        return self._closed or self._draining

    def exchanged(
        self, operation: Reserved, answer: Answer | Unwritten, began: float, accepted_at_ms: int | None
    ) -> None:
        """Report to the listener: an operation was on the wire from `began` until now, with this `answer`."""
        if self.listener is not None:
            seconds = self.clock() - began
            self.listener(Exchange(operation, self.epoch, kind(answer), seconds, accepted_at_ms))

    def ask(self, heartbeat: Heartbeat, near: int) -> Told:
        """Ask for the expected nonce, by the thread that holds the wire; raises HostErrors."""
        return self.questions.expected(self.connection, heartbeat, near)

    def request(self, operation: Reserved) -> bytes:
        number = self.questions.numbering.number(operation.nonce)
        return self.connection.wire.operation(number, operation.body, self.connection.at_ms())

    @property
    def plan(self) -> RecoveryPlan:
        return plan(self.questions.capabilities)

    def read(self, reply: Reply, operation: Reserved, heartbeat: Heartbeat) -> Answer:
        """The answer to the operation, whose thread holds the wire."""
        answer = (
            reply.event if isinstance(reply.event, Answer) else Unlisted("an answer to something that was not sent")
        )
        answer = self.questions.numbering.told(answer, operation.nonce)
        if self.plan.has_count:
            answer = answered_with_count(answer, reply, operation.nonce, lambda: self.ask(heartbeat, operation.nonce))
        if isinstance(answer, Replay) and operation.sends and self.plan.replay_means_used:
            answer = Applied(None, by_earlier_send=True)
        self._keep_pace(answer)
        return answer

    def _keep_pace(self, answer: Answer) -> None:
        """Note whether OldHost refuses us, not just this operation."""
        refusal = answer.refuses if isinstance(answer, Unlisted) else None
        if refusal is not None:
            seconds_max = self.limits.ban_seconds if refusal.asks_all_to_wait else 0.0
            self.pace.refused(self.clock(), refusal, seconds_max, operation=True)
        else:
            self.pace.answered(operation=True)

    def close(self, reason: str) -> None:
        """Write nothing more. The connection is closed at once, or as soon as the operation on the wire has ended."""
        with self.condition:
            self._closed = self._closed or reason
            self.condition.notify_all()
            is_taken = self.is_taken
        if not is_taken:
            self.connection.close()

    def drain(self, reason: str) -> None:
        with self.condition:
            self._draining = self._draining or reason
            self.condition.notify_all()

    def try_wire(self) -> bool:
        with self.condition:
            is_free = not self.is_taken
            self.is_taken = True
            return is_free

    def release_wire(self) -> None:
        """A connection that must be closed is closed before another thread may believe that the session has ended."""
        with self.condition:
            if self.is_closed:
                self.connection.close()
            self.is_taken = False
            self.condition.notify_all()

    def rest(self, seconds: float, heartbeat: Heartbeat) -> None:
        """Sleep, but no longer than until the session is closed."""
        until = self.clock() + seconds
        while True:
            with self.condition:
                left = until - self.clock()
                if left <= 0 or self._closed:
                    return
                self.condition.wait(min(left, self.limits.look_up_seconds))
            heartbeat()

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

    def retry(self, keep: Callable[[], T], heartbeat: Heartbeat) -> T:
        """Try a few times while the database is away, for what must not be lost; `keep` must be idempotent."""
        for _ in range(self.limits.insist_times - 1):
            try:
                return keep()
            except LedgerUnavailable:
                heartbeat()
        return keep()

    def ban_seconds(self, answer: object) -> float:
        if isinstance(answer, Replay) and self.questions.capabilities.repeated is not Repeats.PUNISHED:
            return 0.0
        return self.limits.ban_span(answer.retry_after if isinstance(answer, Banned | Replay) else None)
