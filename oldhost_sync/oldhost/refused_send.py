"""What a send does about an answer that ends the session, and what it then reports to the writer.

An operation that was certainly not taken counts as not sent; recovery decides about any other. What OldHost said is
recorded first: without it, a rejection whose form we don't know would later look like a lost answer.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.errors import Fenced, LedgerError, LedgerUnavailable
from oldhost_sync.oldhost.ledger import Reserved
from oldhost_sync.oldhost.refusal import Refusal, Unwritten, kind, refusal, why_ended, why_halted
from oldhost_sync.oldhost.shared_connection import SharedConnection
from oldhost_sync.oldhost.wire import Answer, Applied, Replay, Said, Unlisted


@dataclass(slots=True)
class RefusedSend:
    """The end of one send, if an answer ended it. `refusal`: the answer's kind; `halted`: why, for operators;
    `never_taken`: the change that OldHost called a replay though it was never sent before.
    """

    shared: SharedConnection
    beat: Heartbeat
    banned_ms: int = 0
    refusal: str = ""
    halted: str = ""
    never_taken: int | None = None

    def ended_by(self, operation: Reserved, answer: Answer | Unwritten, said: Said | None) -> None:
        """Close the session; record the answer and what follows from it. Raises Fenced or LedgerUnavailable."""
        self.shared.close(why_ended(operation, answer))
        self.refusal = kind(answer)
        follows = refusal(operation, answer)
        if follows.halts:
            expected = answer.expected if isinstance(answer, Replay) else None
            self.halted, self.never_taken = why_halted(operation, expected), operation.change_id
        try:
            if follows.bans:
                self._ban(operation, answer, follows, said)
            elif follows.takes_back:
                self.shared.retry(lambda: self.shared.ledger.take_back(self.shared.epoch, operation, said), self.beat)
            elif isinstance(answer, Unlisted) and said is not None:
                self.shared.retry(lambda: self.shared.ledger.note_answer(self.shared.epoch, operation, said), self.beat)
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
        if refusal(operation, answer).takes_back:
            self.never_taken = None if operation.sends else operation.change_id
            with contextlib.suppress(LedgerError):
                self.shared.ledger.take_back(self.shared.epoch, operation)
        self.shared.halt(self.halted)

    def _ban(self, operation: Reserved, answer: Answer | Unwritten, follows: Refusal, said: Said | None) -> None:
        def keep() -> int:
            return self.shared.ledger.ban(
                self.shared.epoch,
                self.shared.ban_seconds(answer),
                refused=operation if follows.takes_back else None,
                said=said,
                halt=self.halted or None,
                expected=answer.expected if isinstance(answer, Replay) else None,
            )

        self.banned_ms = round(self.shared.limits.ban_seconds * 1000)
        self.banned_ms = self.shared.retry(keep, self.beat)
