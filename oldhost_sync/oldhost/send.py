"""A send: operations of one session, sent one after the other, from their reservation to their recorded answers.

It reserves all its nonces at once, while its predecessor is on the wire, and then waits for the wire. An operation is
written only if it was marked SENT less than a second ago. While OldHost works on N, one transaction records the answer
to N-1 and marks N+1, shortly before N's answer is expected (`answer_times.py`). So the socket never waits for the
database, and at most two rows are in doubt (I6).

For an urgent send, after a rejection, and when its time is over, operations that are not on the wire release their
nonces, in a transaction that records an answer: the last one, or (for an urgent send that came in time to be marked
before it) the one before. The send then waits until it may reserve again.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from oldhost_sync.drivers.events import Ambiguous, Answer, Applied, Busy, Malformed, Rejected, Replay, Said, Unlisted
from oldhost_sync.oldhost.answer_times import AnswerTime
from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.errors import (
    Fenced,
    HostError,
    InvariantViolated,
    LedgerError,
    LedgerUnavailable,
    NothingWritten,
    Silent,
    Unreadable,
)
from oldhost_sync.oldhost.ledger import Answered, Reservation, Reserved, consumed
from oldhost_sync.oldhost.nonce_pipeline import QueuedSend, SendStep
from oldhost_sync.oldhost.refusals import Refusal, Unwritten, kind, refusal, why_ended, why_halted
from oldhost_sync.oldhost.shared_connection import SharedConnection
from oldhost_sync.policy.changes import BOUND, WAITING, ChangeRef, ChangeResult, EntityKey, to_wire
from oldhost_sync.policy.machine.events import SendEnded

T = TypeVar("T")


class RunningSend:
    """Runs once. `_unreserved`: changes without a nonce or a fate, in order; `_operations`: reserved, not used up.

    `_marked`: marked SENT at `_marked_at`, not one byte written; `_pending`: answered, not recorded.
    """

    def __init__(
        self,
        shared: SharedConnection,
        change_ids: Sequence[int],
        heartbeat: Heartbeat,
        accepted_at_ms: Mapping[int, int] | None = None,
    ) -> None:
        self._shared = shared
        self._ledger, self._connection, self._pipeline = shared.ledger, shared.connection, shared.pipeline
        self._clock, self._limits, self._reply_timeout = shared.clock, shared.limits, shared.reply_timeout
        self._change_ids, self._heartbeat, self._accepted_at_ms = change_ids, heartbeat, accepted_at_ms
        self._queued = QueuedSend()
        self._unreserved = list(change_ids)
        self._operations: deque[Reserved] = deque()
        self._fates: dict[int, ChangeResult] = {}
        self._marked: Reserved | None = None
        self._marked_at = 0.0
        self._pending: Answered | None = None
        self._answered_at = 0.0  # the pending one
        self._said: Said | None = None  # the last complete answer
        self._wire_seconds, self._held_seconds, self._exchanges = 0.0, 0.0, 0
        self._refused = RefusedSend(shared, heartbeat)
        self._older: list[ChangeRef] = []
        self._held: list[tuple[EntityKey, list[int]]] = []
        self._apart: list[list[int]] = []

    def run(self, sequence: int, *, urgent: bool = False) -> SendEnded:
        """Reserve, send until the session ends, record. Any error ends the session; one that is neither a LedgerError
        nor a HostError is then raised.
        """
        self._queued = QueuedSend(sequence, urgent, self._clock() + self._limits.send_seconds)
        self._pipeline.enter(self._queued)
        try:
            while self._reserve() and (step := self._take_turn()) is not SendStep.OVER:
                if step is SendStep.SEND:
                    self._send_holding_the_wire()
                    self._record_pending()
                self._lose_nonces()
            self._uncount_send()
        except InvariantViolated as error:
            self._refused.violated(error)
        except LedgerError as error:
            self._shared.close(f"{type(error).__name__}: {error}")
        except BaseException:
            self._shared.close("unexpected error")
            raise
        finally:
            self._pipeline.leave(self._queued)
        return self._ended()

    def _ended(self) -> SendEnded:
        """The result of the send: a change without a fate is WAITING."""
        return SendEnded(
            [self._fates.get(change_id) or ChangeResult(change_id, WAITING) for change_id in self._change_ids],
            session_open=self._pipeline.is_open,
            service_ms=1000 * self._wire_seconds / self._exchanges if self._exchanges else 0.0,
            pace_ms=1000 * self._held_seconds / self._exchanges if self._exchanges else 0.0,
            banned_ms=self._refused.banned_ms,
            reason=self._pipeline.reason,
            halted=self._refused.halted,
            never_taken=self._refused.never_taken,
            older=[to_wire(ref) for ref in self._older],
            held=[[*entity, dead] for entity, dead in self._held],
            refusal=self._refused.refusal,
            apart=self._apart,
        )

    # ---------------------------------------------------------------------------------------------- reserving, the turn

    def _reserve(self) -> bool:
        """Reserve nonces, when this send may, for changes without one or a fate; False if there is nothing to send."""
        if not self._unreserved:
            return False
        if not self._pipeline.lock_to_reserve(self._queued, self._unreserved, self._heartbeat):
            if self._pipeline.is_open and self._clock() < self._queued.until:
                self._shared.close(f"send {self._queued.sequence} arrived, but the one before it did not")
            return False
        try:
            reserved = self._ledger.reserve(self._shared.epoch, self._unreserved, self._accepted_at_ms)
            self._take_over(reserved)
        finally:
            self._pipeline.unlock_nonces()
        return bool(self._operations)

    def _take_over(self, reserved: Reservation) -> None:
        self._unreserved = []
        self._older += reserved.older
        self._held += reserved.held
        self._apart += reserved.apart
        for entry in reserved:
            if isinstance(entry, ChangeResult):
                self._fates[entry.change_id] = entry
        operations = (entry for entry in reserved if isinstance(entry, Reserved))
        self._operations.extend(sorted(operations, key=lambda operation: operation.nonce))
        self._pipeline.claim(self._queued, {one.nonce: one.change_id for one in self._operations})

    def _take_turn(self) -> SendStep:
        """Wait until the wire is free for this send; mark its first operation while waiting, if there is time."""
        first = self._operations[0]
        try:
            step = self._pipeline.wait(self._queued, first.nonce, self._heartbeat, marked=False)
            if step is SendStep.MARK:
                try:
                    self._advance(first)
                finally:
                    self._pipeline.unlock_nonces()
                step = self._pipeline.wait(self._queued, first.nonce, self._heartbeat, marked=True)
        except TimeoutError as error:
            self._shared.close(str(error))
            return SendStep.OVER
        return step

    def _lose_nonces(self) -> None:
        """Queue the changes whose nonces were released for new ones, in the same order."""
        while self._operations and not self._pipeline.holds(self._queued, self._operations[-1].nonce):
            lost = self._operations.pop()
            self._fates.pop(lost.change_id, None)
            self._unreserved.insert(0, lost.change_id)
            if self._marked is lost:
                self._marked = None

    # ------------------------------------------------------------------------------------------------------- operations

    def _send_holding_the_wire(self) -> None:
        """Send one after the other while each answer is definite and uses up its nonce and no other send goes first."""
        began = self._clock()
        try:
            self._lose_nonces()
            while not self._release_nonces() and self._operations and self._send_next():
                self._heartbeat()  # waits call it when they wake up, and each answer may come sooner
        except BaseException as error:
            self._shared.close(f"{type(error).__name__}: {error}")  # before another thread gets the wire
            raise
        finally:
            self._held_seconds += self._clock() - began
            self._shared.release_wire()

    def _send_next(self) -> bool:
        """False when the answer, or the lack of one, ends the session."""
        operation = self._operations[0]
        if not self._mark_in_time(operation):
            return False
        answer = self._exchange(operation)
        self._operations.popleft()
        if not isinstance(answer, Applied | Rejected | Malformed):
            self._refused.ended_by(operation, answer, self._said)
            return False
        self._pending = Answered(operation, answer)
        if not consumed(answer):
            self._shared.close(f"operation {operation.nonce} was refused without its nonce being used: {answer}")
            return False
        self._pipeline.used(operation.nonce)
        if isinstance(answer, Applied) and answer.surprise:
            self._record_pending()  # first: what OldHost called applied is applied, whatever is decided later
            self._refused.surprised(answer)
            return False
        return True

    def _release_nonces(self) -> bool:
        """Release the nonces of what is not on the wire if another send goes first. True: this send has none left."""
        rejected = self._pending is not None and isinstance(self._pending.answer, Rejected)
        if self._pipeline.to_release(rejected=rejected) is None:
            return False
        self._pipeline.lock_nonces(self._heartbeat)
        try:
            beyond = self._pipeline.to_release(rejected=rejected)
            if beyond is None or not (self._pending is None or self._wait_recorded(self._pending.operation.nonce - 1)):
                return False
            answered = self._take_pending()
            self._record(answered, lambda: self._ledger.release_nonces(self._shared.epoch, answered, beyond))
            self._pipeline.released(beyond)
        finally:
            self._pipeline.unlock_nonces()
        self._lose_nonces()
        return not self._operations

    def _mark_in_time(self, operation: Reserved) -> bool:
        """Mark the operation SENT, unless it was less than a second ago; False when it must not be written.

        A mark that is too old before a byte was written is renewed: that checks the fence again (trap 2). So is one
        whose own transaction took too long. That one also recorded an answer, or waited for a reservation to end; a
        renewal is shorter.
        """
        if self._marked is None:
            if not (self._pipeline.is_open and self._wait_recorded(operation.nonce - 2) and self._shared.is_alive()):
                return False
            self._advance(operation)
        elif self._pipeline.is_closed or not self._shared.is_alive():
            return False
        for _ in range(self._limits.renewals_max):
            if not self._too_old() or self._pipeline.is_closed:
                break
            self._heartbeat()
            self._advance(operation, again=True)
        return self._still_in_time()

    def _too_old(self) -> bool:
        return self._clock() - self._marked_at > self._limits.send_within_seconds

    def _still_in_time(self) -> bool:
        if self._too_old():
            self._shared.close("marked SENT too long ago to be sent safely")
        return not self._pipeline.is_closed

    def _exchange(self, operation: Reserved) -> Answer | Unwritten:
        """Write the operation and read its answer; repeat while OldHost is busy."""
        for waits_left in range(self._limits.busy_waits_max, -1, -1):
            self._pipeline.on_wire(operation.nonce, self._shared.mark_time.wait_seconds)
            began, accepted_at_ms = self._clock(), (self._accepted_at_ms or {}).get(operation.change_id)
            answer = self._exchange_once(operation)
            self._shared.exchanged(operation, answer, began, accepted_at_ms)
            if not isinstance(answer, Busy) or not waits_left:
                break
            self._pipeline.rest(self._limits.busy_pause(answer.retry_after), self._heartbeat)
            if self._pipeline.is_closed or not self._shared.is_alive():
                break
            if not self._renew_mark(operation):
                break
        return answer

    def _renew_mark(self, operation: Reserved) -> bool:
        """Mark SENT again after OldHost refused the send; the following operation's mark keeps its own deadline."""
        following, since = self._marked, self._marked_at
        self._advance(operation, again=True)
        in_time = self._still_in_time()
        self._marked, self._marked_at = following, since
        return in_time

    def _exchange_once(self, operation: Reserved) -> Answer | Unwritten:
        """Write; while OldHost works, record the previous answer and mark the next operation; read."""
        following = self._operations[1] if len(self._operations) > 1 else None
        began = self._clock()
        self._said = None
        self._marked = self._marked if self._marked is not operation else None
        self._shared.first_contact.forget()
        try:
            self._connection.begin(
                self._connection.wire.operation(operation.nonce, operation.body, self._connection.at_ms()),
                timeout_seconds=self._limits.request_timeout_seconds,
                while_waiting=self._heartbeat,
            )
            wait = self._seconds_before_mark(following)
            came = wait > 0 and self._connection.await_answer(wait, self._heartbeat)
            listened = self._clock() if wait > 0 else None
            self._work_meanwhile(operation, None if came else following)
            worked = self._clock()
            reply_timeout = self._reply_timeout.wait_seconds(self._limits.request_timeout_seconds)
            reply = self._connection.finish(while_waiting=self._heartbeat, reply_seconds=reply_timeout)
        except NothingWritten as error:
            return Unwritten(str(error))
        except HostError as error:
            if isinstance(error, Silent):
                self._reply_timeout.gave_up(began)
            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))
        time = AnswerTime(began, listened, worked, self._clock(), came)
        if not reply.reusable:
            self._shared.close(f"OldHost ended the connection after its answer: {reply.ending}")
        answer, self._said = self._shared.read(reply, operation.nonce, self._heartbeat), reply.said
        self._learn(answer, time)
        return answer

    def _learn(self, answer: Answer, time: AnswerTime) -> None:
        """Note how quick OldHost is: for the reply timeout, the time of the next mark, and the send's report."""
        self._answered_at = time.at
        self._wire_seconds += time.heard - time.began
        self._exchanges += 1
        is_operation = isinstance(answer, Applied | Rejected)
        self._reply_timeout.answered(time.seconds or 0.0, operation=is_operation)
        if is_operation and time.seconds_at_least is not None:
            self._shared.mark_time.answered(time.seconds_at_least)

    def _seconds_before_mark(self, following: Reserved | None) -> float:
        """How long the mark of the next operation waits, and with it the record of the previous answer.

        Only if that was Applied, which OldHost's expected nonce would say, too. A rejection is recorded at once: after
        a kill it would be taken for an apply.
        """
        rejected = self._pending is not None and isinstance(self._pending.answer, Rejected)
        if following is None or rejected or self._marked is not None:
            return 0.0
        return self._shared.mark_time.wait_seconds

    def _work_meanwhile(self, operation: Reserved, following: Reserved | None) -> None:
        if self._marked is not None or not self._pipeline.is_open:
            following = None
        if following is not None and self._pipeline.gives_way:
            self._release_nonces()  # so that the urgent operation is marked when the answer arrives
            following = None
        if self._pending is None and following is None:
            return
        before = operation.nonce - (1 if self._pending is None else 2)
        if self._wait_recorded(before):
            self._advance(following)

    # -------------------------------------------------------------------------------------------------------- recording

    def _advance(self, sent: Reserved | None, *, again: bool = False) -> None:
        """In one transaction, record the pending answer and mark `sent` SENT. Until it commits, both are in doubt."""
        answered = self._take_pending()
        began = self._clock()
        if sent is not None:
            self._fates[sent.change_id] = ChangeResult(sent.change_id, BOUND, sent.nonce)
        self._record(answered, lambda: self._ledger.advance(self._shared.epoch, answered, sent, again=again))
        if sent is not None:
            self._marked, self._marked_at = sent, began
            self._shared.mark_time.marked(self._clock() - began)
            self._pipeline.marked(sent.nonce)
        if answered is not None and self._marked is not None and not consumed(answered.answer):
            change_id = self._marked.change_id  # released with the one before
            self._fates[change_id] = ChangeResult(change_id, WAITING)
            self._marked = None

    def _take_pending(self) -> Answered | None:
        answered, self._pending = self._pending, None
        return answered and replace(answered, ago_us=round(1_000_000 * (self._clock() - self._answered_at)))

    def _record(self, answered: Answered | None, transaction: Callable[[], ChangeResult | None]) -> None:
        try:
            fate = transaction()
        except BaseException:
            self._pipeline.record_lost()
            raise
        if answered is not None and fate is not None:
            self._fates[fate.change_id] = fate
            self._pipeline.recorded(answered.operation.nonce)

    def _record_pending(self) -> None:
        """Record the send's last answer, while the next send's first operation is already on the wire."""
        if self._pending is not None and self._wait_recorded(self._pending.operation.nonce - 1):
            self._advance(None)

    def _wait_recorded(self, nonce: int) -> bool:
        if self._pipeline.wait_recorded(nonce, self._heartbeat):
            return True
        self._shared.close("an earlier answer could not be recorded")
        return False

    def _uncount_send(self) -> None:
        """An operation that was marked but not written stays bound; its next send counts as the first."""
        if self._marked is not None:
            self._ledger.uncount_send(self._shared.epoch, self._marked)


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
        follows = refusal(operation, answer)
        if follows.halts:
            expected = answer.expected if isinstance(answer, Replay) else None
            self.halted, self.never_taken = why_halted(operation, expected), operation.change_id
        try:
            if follows.bans:
                self._ban(operation, answer, follows, said)
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
        if refusal(operation, answer).uncounts:
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
                expected=answer.expected if isinstance(answer, Replay) else None,
            )

        self.banned_ms = round(self.shared.limits.ban_seconds * 1000)
        self.banned_ms = self._retry(keep)

    def _retry(self, keep: Callable[[], T]) -> T:
        return self.shared.retry(keep, self.heartbeat)
