"""A send: changes that wait for their operations, and its report to the writer."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from oldhost_sync.drivers.events import Answer, Applied, Replay, Said, Unlisted
from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.errors import Fenced, LedgerError, LedgerUnavailable
from oldhost_sync.oldhost.ledger import Reservation, Reserved
from oldhost_sync.oldhost.refusals import Refusal, Unwritten, expected_by, kind, refusal, why_ended, why_halted
from oldhost_sync.oldhost.shared_connection import SharedConnection
from oldhost_sync.policy.changes import WAITING, ChangeResult, to_wire
from oldhost_sync.policy.machine.events import SendEnded

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class QueuedSend:
    """A send in the queue of its session. `sequence`: its position among the ordinary ones, or among the urgent ones
    (0: none, at once). `until`: it sends nothing after this.

    `unreserved`: changes without a nonce or a fate, in order; `claims`: how many have a nonce and no recorded answer.
    """

    change_ids: Sequence[int]
    heartbeat: Heartbeat
    refused: RefusedSend
    accepted_at_ms: Mapping[int, int] = field(default_factory=dict)
    sequence: int = 0
    urgent: bool = False
    since: float = 0.0
    until: float = math.inf
    unreserved: list[int] = field(default_factory=list)
    claims: int = 0
    is_over: bool = False
    fates: dict[int, ChangeResult] = field(default_factory=dict)
    reservations: list[Reservation] = field(default_factory=list)
    wire_seconds: float = 0.0
    held_seconds: float = 0.0
    exchanges: int = 0

    def __post_init__(self) -> None:
        self.unreserved = list(self.change_ids)

    def reserved(self, reservation: Reservation) -> list[Reserved]:
        """Keep the fates; returns the operations in the order of their nonces."""
        self.unreserved = []
        self.reservations.append(reservation)
        self.fates |= {entry.change_id: entry for entry in reservation if isinstance(entry, ChangeResult)}
        operations = (entry for entry in reservation if isinstance(entry, Reserved))
        return sorted(operations, key=lambda operation: operation.nonce)

    def recorded(self, fate: ChangeResult) -> None:
        self.claims -= 1
        self.fates[fate.change_id] = fate

    def released(self, change_id: int) -> None:
        """The last of its changes with a nonce has lost it."""
        self.claims -= 1
        self.fates.pop(change_id, None)
        self.unreserved.insert(0, change_id)

    def ended(self, shared: SharedConnection) -> SendEnded:
        """Its report: a change without a fate is WAITING."""
        return SendEnded(
            [self.fates.get(change_id) or ChangeResult(change_id, WAITING) for change_id in self.change_ids],
            session_open=shared.is_open,
            service_ms=1000 * self.wire_seconds / self.exchanges if self.exchanges else 0.0,
            pace_ms=1000 * self.held_seconds / self.exchanges if self.exchanges else 0.0,
            banned_ms=self.refused.banned_ms,
            reason=shared.reason,
            halted=self.refused.halted,
            never_taken=self.refused.never_taken,
            older=[to_wire(ref) for each in self.reservations for ref in each.older],
            held=[[*entity, dead] for each in self.reservations for entity, dead in each.held],
            refusal=self.refused.refusal,
            apart=[apart for each in self.reservations for apart in each.apart],
        )


@dataclass(slots=True)
class RefusedSend:
    """The end of a send, if an answer ended it: what it does then, and what it reports to the writer.

    An operation that was certainly not taken counts as not sent; recovery decides about any other. What OldHost said is
    recorded first: without it, a rejection whose form we don't know would later look like a lost answer.

    `refusal`: the answer's kind; `halted`: why, for operators;
    `never_taken`: the change that OldHost called a replay though it was never sent before.
    """

    shared: SharedConnection
    heartbeat: Heartbeat
    banned_ms: int = 0
    refusal: str = ""
    halted: str = ""
    never_taken: int | None = None

    def ended_by(self, operation: Reserved, answer: Answer | Unwritten, said: Said | None) -> None:
        """Close the session; record the answer and what follows from it. Raises Fenced or LedgerUnavailable."""
        self.shared.close(why_ended(operation, answer))
        self.refusal = kind(answer)
        follows = refusal(operation, answer, self.shared.questions.capabilities)
        if follows.halts:
            self.halted, self.never_taken = why_halted(operation, answer), operation.change_id
        try:
            if follows.bans or (follows.halts and isinstance(answer, Replay)):
                self._ban(operation, answer, follows, said)
            elif follows.halts:
                self._retry(lambda: self.shared.ledger.uncount_send(self.shared.epoch, operation, said))
                self._retry(lambda: self.shared.ledger.halt(self.shared.epoch, self.halted, expected_by(answer)))
            elif follows.uncounts:
                self._retry(lambda: self.shared.ledger.uncount_send(self.shared.epoch, operation, said))
            elif isinstance(answer, Unlisted) and said is not None:
                self._retry(lambda: self.shared.ledger.note_answer(self.shared.epoch, operation, said))
        except (Fenced, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, an answer that was not recorded must not be lost
            self._halt_unkept(operation, answer, error)

    def surprised(self, answer: Applied) -> None:
        """The operation is applied, and its answer contradicts our count: halt. What OldHost expects is asked later."""
        self.halted = f"{answer.surprise}. Decide by `resolve`."
        self.shared.halt(self.halted)

    def violated(self, error: Exception) -> None:
        """An invariant does not hold: halt. If the ledger has recorded the halt, the next opening asks OldHost for the
        count that `resolve` needs, so it is not reported here.
        """
        why = self.halted or f"invariant violated: {error}"
        self.halted = self.halted if self.shared.halt(why) else why

    def _halt_unkept(self, operation: Reserved, answer: Answer | Unwritten, error: Exception) -> None:
        """OldHost refused the operation and the ledger could not record that: the next comparison might take it for
        applied and lose it. So halt; the writer makes the halt durable if the ledger can't.
        """
        why = f"{why_ended(operation, answer)}; that could not be recorded: {type(error).__name__}: {error}"
        self.halted = self.halted or f"invariant violated: {why}"
        if refusal(operation, answer, self.shared.questions.capabilities).uncounts:
            self.never_taken = None if operation.sends else operation.change_id
            with contextlib.suppress(LedgerError):
                self.shared.ledger.uncount_send(self.shared.epoch, operation)
        self.shared.halt(self.halted)

    def _ban(self, operation: Reserved, answer: Answer | Unwritten, follows: Refusal, said: Said | None) -> None:
        def keep() -> int:
            return self.shared.ledger.ban(
                self.shared.epoch,
                self.shared.ban_seconds(answer),
                refused=operation if follows.uncounts else None,
                said=said,
                halt=self.halted or None,
                expected=expected_by(answer),
            )

        self.banned_ms = round(self.shared.limits.ban_seconds * 1000) if follows.bans else 0
        left_ms = self._retry(keep)
        self.banned_ms = left_ms if follows.bans else 0

    def _retry(self, keep: Callable[[], T]) -> T:
        return self.shared.retry(keep, self.heartbeat)
