"""OldHost's expected nonce: after an ambiguous end only this decides (docs/protocol.md). How it is asked for, what it
adds to an answer that leaves its nonce open, and since when it is certain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from oldhost_sync.drivers.ambiguity import Counts, plan
from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.drivers.events import (
    Answer,
    Applied,
    Expected,
    NoService,
    OutcomeTold,
    OutOfRange,
    Rejected,
    Reply,
    Told,
    ToldFate,
    Unlisted,
)
from oldhost_sync.oldhost.answer_times import ReplyTimeout
from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import HostError
from oldhost_sync.oldhost.numbers import IDENTITY, Numbering
from oldhost_sync.oldhost.session_limits import SessionLimits

# For so long a smaller expected nonce than one that was told is taken for an older answer; later, OldHost went back.
STALE_SECONDS_MAX = 60.0


NOT_ASKED = NoService("unreadable", "an answer to something that was not asked")


@dataclass(frozen=True, slots=True)
class Questions:
    """Asks a host each question once, with the full request timeout; raises HostErrors. An answer's time counts for the
    reply timeout.
    """

    capabilities: Capabilities
    limits: SessionLimits
    clock: Clock
    reply_timeout: ReplyTimeout
    numbering: Numbering = IDENTITY

    def expected(self, connection: HostConnection, heartbeat: Heartbeat, near: int | None) -> Told:
        """Which nonce it wants next. `near`: the one that the ledger would say."""
        return self.numbering.told(self._expected(connection, heartbeat), near)

    def _expected(self, connection: HostConnection, heartbeat: Heartbeat) -> Told:
        if plan(self.capabilities).counts is Counts.LAST:
            last = self._outcome(connection, self.capabilities.lowest, "", heartbeat)
            return self._after(last, first=connection.ready.expected)
        told = self._ask(connection, connection.wire.ask_expected(connection.at_ms()), heartbeat)
        return NOT_ASKED if isinstance(told, OutcomeTold) else told

    def outcome(self, connection: HostConnection, nonce: int, key: str, heartbeat: Heartbeat) -> OutcomeTold | Told:
        """What became of the operation with this nonce and idempotency key, or of the last one that it took."""
        told = self._outcome(connection, self.numbering.number(nonce), key, heartbeat)
        return self.numbering.told(told, nonce)

    def _outcome(self, connection: HostConnection, number: int, key: str, heartbeat: Heartbeat) -> OutcomeTold | Told:
        told = self._ask(connection, connection.wire.ask_outcome(number, key, connection.at_ms()), heartbeat)
        return NOT_ASKED if isinstance(told, Expected | OutOfRange) else told

    def _after(self, last: OutcomeTold | Told, first: int | None) -> Told:
        """The number after that of the last operation. `first`: the one that the host begins with, as it says."""
        if not isinstance(last, OutcomeTold):
            return last
        if last.number is not None:
            return Expected(self._following(last.number) if last.consumed else last.number)
        if last.fate is ToldFate.NOT_TAKEN:
            return Expected(self.capabilities.lowest if first is None else first)
        return NoService("unreadable", "an outcome without a number")

    def _following(self, number: int) -> int:
        return self.capabilities.lowest if number + 1 == self.capabilities.modulus else number + 1

    def _ask(self, connection: HostConnection, question: bytes, heartbeat: Heartbeat) -> OutcomeTold | Told:
        began = self.clock()
        connection.begin(question, timeout_seconds=self.limits.request_timeout_seconds, while_waiting=heartbeat)
        told = connection.finish(while_waiting=heartbeat).event
        self.reply_timeout.answered(self.clock() - began, operation=False)
        return told if isinstance(told, OutcomeTold | Told) else NOT_ASKED


def answered_with_count(answer: Answer, reply: Reply, nonce: int, ask: Callable[[], Told]) -> Answer:
    """The answer to the operation with `nonce`, and what OldHost's count adds to it, if it leaves that open.

    OldHost answers strictly in order, so what it then expects over the same connection is its count after that answer.
    Two answers leave it open:

    - One that says yes and names no nonce, as an empty 200. With a count that has moved on by just ours, that is an
      apply (I14): the two are about the same request. Without it, nothing is proven, and the next session decides.
    - A rejection without an expected nonce uses it by the protocol. Not every host does: where the count has not moved,
      the nonce is free, and what follows would otherwise be a gap, and then look like a host that went back.
    """
    empty = isinstance(answer, Unlisted) and answer.says_yes
    open_ended = isinstance(answer, Rejected) and not answer.is_told
    if not reply.reusable or not (empty or open_ended):
        return answer
    try:
        told = ask()
    except HostError:
        return answer
    if isinstance(answer, Unlisted) and told == Expected(nonce + 1):
        return Applied(nonce + 1)
    if isinstance(answer, Rejected) and told == Expected(nonce):
        return replace(answer, consumed=False)
    return answer


@dataclass(slots=True)
class FirstContact:
    """When OldHost first answered on a new connection: after that it reads nothing more from an older one.

    OldHost has one connection, so an answer on a new one proves that the old one is gone, and that every operation
    still to be applied has already been read. Until then the network may delay bytes for longer than any settle time.

    One for each host, kept across openings. `at`: the first answer since the last operation, on the caller's clock;
    None if there was none yet, or if another process may have had a session in between. `told`: the largest expected
    nonce that OldHost has told since, first at `told_at`.
    """

    epoch: int = 0
    at: float | None = None
    told: int = 0
    told_at: float = 0.0

    def opening(self, epoch: int) -> None:
        """An opening has taken over the epoch. `at` is kept only if the previous epoch was opened here, too."""
        if epoch != self.epoch + 1:
            self.forget()
        self.epoch = epoch

    def answered(self, now: float, expected: int = 0) -> None:
        """OldHost answered; only the first answer counts. `expected`: the nonce that it told."""
        self.at = now if self.at is None else self.at
        if expected > self.told:
            self.told, self.told_at = expected, now

    def staler_than_told(self, expected: int, now: float) -> str:
        """Why this reading is not believed: OldHost told a larger one a moment ago, and it never goes back by itself. A
        cache or a replica on the way gives such readings. Empty: it is believed.
        """
        if expected >= self.told or now - self.told_at > STALE_SECONDS_MAX:
            return ""
        return f"OldHost told the expected nonce {self.told}, and now {expected}: the smaller one is an older answer"

    def late_for(self, late_seconds: float, now: float) -> float:
        """How long from now an operation may still be applied late, given `late_seconds` at most; 0: none may."""
        return late_seconds if self.at is None else max(0.0, self.at + late_seconds - now)

    def forget(self) -> None:
        """An operation is about to be written, which is later than the first contact."""
        self.at, self.told = None, 0
