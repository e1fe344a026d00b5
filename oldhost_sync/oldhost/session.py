"""The session: one host, one epoch, one connection, operations in strict order of their nonces.

A batch reserves all its nonces at once, while its predecessor is on the wire, then waits for its turn. On the wire goes
only what was marked SENT less than a second ago; while OldHost works on N, the answer to N-1 is recorded and N+1 is
marked, in one transaction. So the socket never waits for the database, and at most two rows are in doubt (I6).

Whatever is not a definite, consumed answer ends the session: the connection is closed, what is in doubt is BOUND, the
rest WAITING, and the one recovery path (`opening.py`) decides by OldHost's expected nonce. Nothing here retries,
reconnects or guesses.

Plain blocking code; the ledger, the connection, the clock and the waiting (`Condition`) are given to it, so that the
simulation runs this very code on its own time. No gate is held during IO.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from oldhost_sync.oldhost.batch import Batch
from oldhost_sync.oldhost.connection import Clock, Heartbeat, HostConnection
from oldhost_sync.oldhost.errors import (
    Fenced,
    HostError,
    InvariantViolated,
    LedgerError,
    LedgerUnavailable,
    NothingWritten,
    Unreadable,
)
from oldhost_sync.oldhost.expected_nonce import ask
from oldhost_sync.oldhost.ledger import Answered, Ledger, Reserved, consumed
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.nonce_pipeline import Condition, Step, Turn
from oldhost_sync.oldhost.refusal import Refusal, Unwritten, kind, refusal, why_ended, why_halted
from oldhost_sync.oldhost.wire import (
    Ambiguous,
    Answer,
    Applied,
    Banned,
    Busy,
    Expected,
    Malformed,
    Rejected,
    Replay,
    encode_sync,
    read_answer,
)
from oldhost_sync.policy.changes import BOUND, WAITING, Fate
from oldhost_sync.policy.events import Probed, SendEnded

T = TypeVar("T")


class Session:
    """One epoch's hold of the connection. `next_nonce`: what OldHost expects, by both sides, at the start."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        connection: HostConnection,
        epoch: int,
        next_nonce: int,
        gate: Condition,
        clock: Clock,
        limits: SessionLimits,
    ) -> None:
        self.epoch = epoch
        self._ledger = ledger
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._turn = Turn(gate, clock, limits, next_nonce)

    # --------------------------------------------------------------------------------------------- to the outside

    @property
    def is_open(self) -> bool:
        return self._turn.is_open

    @property
    def closed_because(self) -> str:
        return self._turn.reason

    def send(
        self,
        change_ids: Sequence[int],
        beat: Heartbeat,
        *,
        sequence: int = 0,
        accepted_at_ms: Mapping[int, int] | None = None,
    ) -> SendEnded:
        """Send these changes in order, as far as the session lasts; gives one fate for each.

        `sequence` k reserves after k-1 has: two sends reach the worker in any order (0: at once). Any error ends the
        session; what is not one of the ledger's or the host's is raised after that.
        """
        batch = Batch(change_ids, beat, accepted_at_ms)
        try:
            self._reserve(batch, sequence)
            if batch.operations and self._take_turn(batch):
                self._send_holding_the_wire(batch)
                self._record_pending(batch)
            self._take_back(batch)
        except InvariantViolated as error:
            why = batch.halted or f"invariant violated: {error}"
            # Where the ledger keeps it, the next opening finds it and asks OldHost for the count that `resolve` needs.
            batch.halted = batch.halted if self._halt(why) else why
        except LedgerError as error:
            self.close(f"{type(error).__name__}: {error}")
        except BaseException:
            self.close("unexpected error")
            raise
        finally:
            self._turn.unclaim(batch.nonces)
        return batch.ended(session_open=self.is_open, reason=self.closed_because)

    def probe(self, beat: Heartbeat) -> Probed:
        """Ask the expected nonce and compare; a difference ends the session, and recovery says what it means.

        Not asked when the wire is not free in time: a probe can wait for the next one.
        """
        expected = 0
        if self._turn.take_wire(self._limits.probe_wait_seconds, beat):
            try:
                if self._is_alive():
                    expected = self._probe(beat)
            except HostError as error:
                self.close(f"asking for the expected nonce: {error}")
            except LedgerError as error:
                self.close(f"{type(error).__name__}: {error}")
            finally:
                self._release_wire()
        return Probed(self.is_open, expected, self.closed_because)

    def watch(self) -> bool:
        """One look of the idle watch; False when the session is over. Lets go when fenced or when OldHost hung up."""
        if self._turn.is_closed:
            return False
        try:
            current = self._ledger.epoch()
            if current != self.epoch:
                self.close(f"epoch {current} took over")
        except LedgerError:
            pass  # without the database nobody else can take over either
        if self._turn.try_wire():
            try:
                self._is_alive()
            finally:
                self._release_wire()
        return not self._turn.is_closed

    def close(self, reason: str) -> None:
        """Write nothing more. The connection goes at once, or as soon as the operation on the wire has ended."""
        if self._turn.close(reason):
            self._connection.close()

    def drain(self, reason: str, timeout_seconds: float, beat: Heartbeat) -> bool:
        """Finish what is on the wire and what is marked for it, record that, then close; False when it took too long."""
        self._turn.drain(reason)
        ended = self._turn.wait_idle(timeout_seconds, beat)
        self.close(reason)
        return ended

    # -------------------------------------------------------------------------------------- reserving, the turn

    def _reserve(self, batch: Batch, sequence: int) -> None:
        if not self._turn.await_sequence(sequence, batch.beat):
            if self._turn.is_open:
                self.close(f"send {sequence} came out of turn")
            return
        reserved = self._ledger.reserve(self.epoch, batch.change_ids, batch.accepted_at_ms)
        batch.older, batch.held = reserved.older, reserved.held
        for entry in reserved:
            if isinstance(entry, Reserved):
                batch.operations.append(entry)
            else:
                batch.fates[entry.change_id] = entry
        batch.operations.sort(key=lambda operation: operation.nonce)
        self._turn.claim(batch.nonces, sequence)

    def _take_turn(self, batch: Batch) -> bool:
        """Wait until the wire is free for this batch, its first operation marked meanwhile if there is time for it."""
        first = batch.operations[0]
        try:
            step = self._turn.wait(first.nonce, batch.beat, marked=False)
            if step is Step.MARK:
                self._advance(batch, first)
                step = self._turn.wait(first.nonce, batch.beat, marked=True)
        except TimeoutError as error:
            self.close(str(error))
            return False
        return step is Step.SEND

    def _release_wire(self) -> None:
        if self._turn.is_closed:
            self._connection.close()
        self._turn.release_wire()
        if self._turn.is_closed:
            self._connection.close()

    # ------------------------------------------------------------------------------------------------- operations

    def _send_holding_the_wire(self, batch: Batch) -> None:
        """One after the other, as long as each answer is definite and used its nonce up."""
        try:
            for operation, following in zip_longest(batch.operations, batch.operations[1:]):
                if not self._mark_in_time(operation, batch):
                    return
                answer = self._exchange(operation, following, batch)
                if not isinstance(answer, Applied | Rejected | Malformed):
                    self._give_up(operation, answer, batch)
                    return
                batch.pending = Answered(operation, answer)
                if not consumed(answer):
                    self.close(f"operation {operation.nonce} was refused without its nonce being used: {answer}")
                    return
                self._turn.used(operation.nonce)
        except BaseException as error:
            self.close(f"{type(error).__name__}: {error}")  # before anybody else gets the wire
            raise
        finally:
            self._release_wire()

    def _mark_in_time(self, operation: Reserved, batch: Batch) -> bool:
        """SENT less than a second ago, and the connection alive; False when it is not to be written.

        A mark that grew too old before one byte was written is renewed: that asks the fence again (trap 2).
        """
        if batch.marked is None:
            if not self._turn.is_open or not self._wait_recorded(operation.nonce - 2, batch) or not self._is_alive():
                return False
            self._advance(batch, operation)
        elif self._turn.is_closed or not self._is_alive():
            return False
        elif self._too_old(batch):
            self._advance(batch, operation, again=True)
        return self._still_in_time(batch)

    def _too_old(self, batch: Batch) -> bool:
        return self._clock() - batch.marked_at > self._limits.send_within_seconds

    def _still_in_time(self, batch: Batch) -> bool:
        if self._too_old(batch):
            self.close("marked SENT too long ago to be sent safely")
        return not self._turn.is_closed

    def _exchange(self, operation: Reserved, following: Reserved | None, batch: Batch) -> Answer | Unwritten:
        """The operation on the wire, again and again while OldHost is busy."""
        for waits_left in range(self._limits.busy_waits_max, -1, -1):
            self._turn.on_wire(operation.nonce)
            answer = self._exchange_once(operation, following, batch)
            if not isinstance(answer, Busy) or not waits_left:
                break
            self._turn.rest(self._limits.busy_pause(answer.retry_after), batch.beat)
            if self._turn.is_closed or not self._is_alive():
                break
            if not self._renew_mark(operation, batch):
                break
        return answer

    def _renew_mark(self, operation: Reserved, batch: Batch) -> bool:
        """SENT once more, after OldHost refused the send before; what is marked already for later keeps its own second."""
        following, since = batch.marked, batch.marked_at
        self._advance(batch, operation, again=True)
        in_time = self._still_in_time(batch)
        batch.marked, batch.marked_at = following, since
        return in_time

    def _exchange_once(self, operation: Reserved, following: Reserved | None, batch: Batch) -> Answer | Unwritten:
        """Write; while OldHost works, record the answer before and mark the next; read."""
        began = self._clock()
        batch.marked = batch.marked if batch.marked is not operation else None
        try:
            self._connection.begin(
                encode_sync(operation.nonce, operation.body, self._connection.authority),
                timeout_seconds=self._limits.request_timeout_seconds,
                while_waiting=batch.beat,
            )
            self._work_meanwhile(operation, following, batch)
            response = self._connection.finish(while_waiting=batch.beat)
        except NothingWritten as error:
            return Unwritten(str(error))
        except HostError as error:
            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))
        batch.wire_seconds += self._clock() - began
        batch.exchanges += 1
        if not response.reusable:
            self.close("OldHost ended the connection after its answer")
        return read_answer(response.status, response.body, operation.nonce)

    def _work_meanwhile(self, operation: Reserved, following: Reserved | None, batch: Batch) -> None:
        if batch.marked is not None or not self._turn.is_open:
            following = None
        if batch.pending is None and following is None:
            return
        before = operation.nonce - (1 if batch.pending is None else 2)
        if self._wait_recorded(before, batch):
            self._advance(batch, following)

    def _give_up(self, operation: Reserved, answer: Answer | Unwritten, batch: Batch) -> None:
        """No answer that lets us go on: what is certainly not taken does not count as sent, recovery decides the rest."""
        self.close(why_ended(operation, answer))
        batch.refusal = kind(answer)
        follows = refusal(operation, answer)
        if follows.halts:
            batch.halted, batch.never_taken = why_halted(operation), operation.change_id
        try:
            if follows.bans:
                self._ban(operation, answer, follows, batch)
            elif follows.takes_back:
                self._retry(lambda: self._ledger.take_back(self.epoch, operation), batch.beat)
        except (Fenced, LedgerUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is: an answer that is not kept must not be forgotten
            self._halt_unkept(operation, answer, error, batch)

    def _halt_unkept(self, operation: Reserved, answer: Answer | Unwritten, error: Exception, batch: Batch) -> None:
        """OldHost refused the operation and the ledger did not keep that: without it, the next comparison may take the
        operation for applied and lose it. So nobody sends on; the writer makes the halt durable if the ledger can't.
        """
        why = f"{why_ended(operation, answer)}; that could not be recorded: {type(error).__name__}: {error}"
        batch.halted = batch.halted or f"invariant violated: {why}"
        if refusal(operation, answer).takes_back:
            batch.never_taken = None if operation.sends else operation.change_id
            with contextlib.suppress(LedgerError):
                self._ledger.take_back(self.epoch, operation)
        self._halt(batch.halted)

    def _ban(self, operation: Reserved, answer: Answer | Unwritten, follows: Refusal, batch: Batch) -> None:
        def keep() -> int:
            return self._ledger.ban(
                self.epoch,
                self._ban_seconds(answer),
                refused=operation if follows.takes_back else None,
                halt=batch.halted or None,
                expected=answer.expected if isinstance(answer, Replay) else None,
            )

        batch.banned_ms = round(self._limits.ban_seconds * 1000)
        batch.banned_ms = self._retry(keep, batch.beat)

    def _ban_seconds(self, answer: object) -> float:
        return self._limits.ban_span(answer.retry_after if isinstance(answer, Banned | Replay) else None)

    def _retry(self, keep: Callable[[], T], beat: Heartbeat) -> T:
        """What must not be forgotten is tried a few times while the database is away; done twice it is as done once."""
        for _ in range(self._limits.insist_times - 1):
            try:
                return keep()
            except LedgerUnavailable:
                beat()
        return keep()

    # ------------------------------------------------------------------------------------------------- recording

    def _advance(self, batch: Batch, sent: Reserved | None, *, again: bool = False) -> None:
        """One transaction: the pending answer recorded, `sent` marked SENT. Until it is recorded, all is in doubt."""
        answered, batch.pending = batch.pending, None
        began = self._clock()
        if sent is not None:
            batch.fates[sent.change_id] = Fate(sent.change_id, BOUND, sent.nonce)
        try:
            fate = self._ledger.advance(self.epoch, answered, sent, again=again)
        except BaseException:
            self._turn.record_lost()
            raise
        if sent is not None:
            batch.marked, batch.marked_at = sent, began
            self._turn.marked(sent.nonce)
        if answered is not None and fate is not None:
            batch.fates[fate.change_id] = fate
            self._turn.recorded(answered.operation.nonce)
            if batch.marked is not None and not consumed(answered.answer):  # released with the nonce before it
                batch.fates[batch.marked.change_id] = Fate(batch.marked.change_id, WAITING)
                batch.marked = None

    def _record_pending(self, batch: Batch) -> None:
        """The batch's last answer, while the next batch's first operation is on the wire already."""
        if batch.pending is not None and self._wait_recorded(batch.pending.operation.nonce - 1, batch):
            self._advance(batch, None)

    def _wait_recorded(self, nonce: int, batch: Batch) -> bool:
        if self._turn.wait_recorded(nonce, batch.beat):
            return True
        self.close("an earlier answer could not be recorded")
        return False

    def _take_back(self, batch: Batch) -> None:
        """What was marked but never written: it stays bound, and its next send counts as the first."""
        if batch.marked is not None:
            self._ledger.take_back(self.epoch, batch.marked)

    # ---------------------------------------------------------------------------------------------------- the rest

    def _is_alive(self) -> bool:
        alive = self._connection.is_alive()
        if not alive:
            self.close("OldHost closed the connection")
        return alive

    def _probe(self, beat: Heartbeat) -> int:
        answer = ask(self._connection, self._limits, beat)
        if isinstance(answer, Expected):
            if answer.nonce != self._turn.next_nonce:
                self.close(f"OldHost expects nonce {answer.nonce}, we expected {self._turn.next_nonce}")
            return answer.nonce
        if isinstance(answer, Banned):
            self.close("OldHost bans us")
            self._retry(lambda: self._ledger.ban(self.epoch, self._ban_seconds(answer)), beat)
        elif not isinstance(answer, Busy):
            self.close(f"asking for the expected nonce: {answer}")
        return 0

    def _halt(self, reason: str) -> bool:
        """Level L0: stop, and say so where operators look. False: fenced or without a database it can't be said."""
        self.close(reason)
        try:
            self._ledger.halt(self.epoch, reason)
        except (Fenced, LedgerUnavailable):
            return False
        return True
