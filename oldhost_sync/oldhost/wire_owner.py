"""The owner of a session's wire: one thread at a time, which alone reserves, marks, writes, reads and records.

Sends queue up. The thread of the send whose operation is next owns the wire until that changes; the others wait. The
owner works for all sends, one step after the other, and `_step` says which is due:

    write N · one transaction: record the answer to N-1, mark N+1 · reserve for the next send · read the answer to N

So nothing is shared but the list of sends, the socket never waits for the database (an early answer waits in the
socket), and at most two rows are in doubt (I6). N+1 is marked shortly before N's answer is expected
(`answer_times.py`), and written only if that was less than a second ago. Until then the owner has time to reserve.

Ordinary sends reserve in the order of their sequence, and so do urgent ones, which have a sequence of their own. Urgent
ones are sent before everything ordinary that is not on the wire: the nonces of that are released and reserved again.
So they are after a rejection, and when a send's time is over. Operations bound when the session began keep their nonces
(up to `bound_through`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from oldhost_sync.drivers.events import Ambiguous, Answer, Applied, Busy, Malformed, Rejected, Said
from oldhost_sync.oldhost.answer_times import AnswerTime
from oldhost_sync.oldhost.connection import Heartbeat
from oldhost_sync.oldhost.errors import (
    HostError,
    InvariantViolated,
    LedgerError,
    NothingWritten,
    Silent,
    Unreadable,
    check,
)
from oldhost_sync.oldhost.ledger import Answered, Reserved, consumed
from oldhost_sync.oldhost.refusals import Unwritten
from oldhost_sync.oldhost.send import QueuedSend
from oldhost_sync.oldhost.shared_connection import SharedConnection
from oldhost_sync.policy.changes import BOUND, WAITING, ChangeResult

# How often the owner looks for new sends while OldHost works.
LOOK_SECONDS = 0.05

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """An operation with a nonce, and the send that it belongs to."""

    operation: Reserved
    send: QueuedSend


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """An answer to an operation of `send`, which came at `at` and is not recorded."""

    send: QueuedSend
    answered: Answered
    at: float


class WireOwner:
    """What the owner knows. The condition guards the sends; all else is touched by the thread that holds the wire.

    `next_nonce`: what OldHost expects next. `_queue`: reserved, not written, in the order of the nonces; the first one
    was marked SENT at `_marked_at`, if that is not None. `_pending`: the last answer, until it is recorded.
    """

    def __init__(self, shared: SharedConnection, next_nonce: int, bound_through: int = 0) -> None:
        self._shared = shared
        self._ledger, self._connection = shared.ledger, shared.connection
        self._clock, self._limits, self._reply_timeout = shared.clock, shared.limits, shared.reply_timeout
        self.next_nonce = next_nonce
        self._bound_through = bound_through
        self._sends: list[QueuedSend] = []
        self._came = {False: 0, True: 0}  # by urgency: all such sends up to this sequence have arrived
        self._early: set[tuple[bool, int]] = set()  # those that arrived before their predecessor
        self._queue: deque[Claim] = deque()
        self._marked_at: float | None = None
        self._mark_from = 0.0  # not before this the operation behind the one on the wire is marked
        self._on_wire: Claim | None = None
        self._pending: Unrecorded | None = None
        self._free_since = 0.0  # when the last answer came
        self._said: Said | None = None  # the last complete answer

    # ------------------------------------------------------------------------------------------------- the sends

    @property
    def is_idle(self) -> bool:
        """Whether no send is running and the wire is free."""
        return not self._shared.is_taken and not self._sends

    def wait_idle(self, timeout_seconds: float, heartbeat: Heartbeat) -> bool:
        """Wait until it is idle; False on timeout."""
        until = self._clock() + timeout_seconds
        while True:
            with self._shared.condition:
                if self.is_idle:
                    return True
                if self._clock() >= until:
                    return False
                self._shared.condition.wait(self._limits.look_up_seconds)
            heartbeat()

    def stop(self) -> None:
        """End the present sends after the operation on the wire; the session goes on."""
        with self._shared.condition:
            for send in self._sends:
                send.until = min(send.until, self._clock())
            self._shared.condition.notify_all()

    def run(self, send: QueuedSend) -> None:
        """Wait until this send is over, and own the wire whenever its operation is next."""
        self._enter(send)
        try:
            while not send.is_over:
                if self._takes_wire(send):
                    self._own(send)
                send.heartbeat()
        finally:
            self._leave(send)

    def _enter(self, send: QueuedSend) -> None:
        with self._shared.condition:
            self._sends = [*self._sends, send]
            self._early.add((send.urgent, send.sequence))
            while (send.urgent, self._came[send.urgent] + 1) in self._early:
                self._came[send.urgent] += 1
                self._early.remove((send.urgent, self._came[send.urgent]))
            self._shared.condition.notify_all()

    def _leave(self, send: QueuedSend) -> None:
        with self._shared.condition:
            self._sends = [other for other in self._sends if other is not send]
            self._shared.condition.notify_all()
        if not send.is_over:
            self._shared.close("unexpected error")

    def _takes_wire(self, send: QueuedSend) -> bool:
        """Take the wire if it is free and this send's thread has something to do; else wait a while."""
        with self._shared.condition:
            if not self._shared.is_taken and self._is_next(send):
                self._shared.is_taken = self._due() is not None and not send.is_over
                if self._shared.is_taken:
                    return True
            if not send.is_over:
                self._shared.condition.wait(self._limits.look_up_seconds)
            return False

    def _is_next(self, send: QueuedSend) -> bool:
        return not self._queue or self._queue[0].send is send or self._shared.is_closed

    def _own(self, send: QueuedSend) -> None:
        began, exchanges = self._clock(), send.exchanges
        try:
            with self._errors_close(send):
                while not send.is_over and self._is_next(send) and (step := self._due()) is not None:
                    step()
                    send.heartbeat()  # waits call it when they wake up, and each answer may come sooner
        finally:
            send.held_seconds += self._clock() - began if send.exchanges > exchanges else 0.0
            self._shared.release_wire()

    @contextmanager
    def _errors_close(self, send: QueuedSend) -> Iterator[None]:
        """Any error ends the session; one that is no LedgerError is then raised."""
        try:
            yield
        except InvariantViolated as error:
            send.refused.violated(error)
        except BaseException as error:
            self._shared.close(f"{type(error).__name__}: {error}")
            if not isinstance(error, LedgerError):
                raise

    # ------------------------------------------------------------------------------------------------- what is due

    def _due(self) -> Step | None:
        """The next step; None: nothing is due. Sends that have nothing left, or no time, are over."""
        with self._shared.condition:
            self._end_sends([send for send in self._sends if self._is_done(send)])
            step = self._step()
            if step is None and self._on_wire is None and self._sends:
                return self._end if not self._shared.is_open or self._why_stuck() else None
            return step

    def _step(self) -> Step | None:
        """What is due most in a session that is not closed. It changes nothing."""
        is_free, is_open = self._on_wire is None, self._shared.is_open
        if self._shared.is_closed:
            return None
        if (beyond := self._to_release()) is not None:
            return partial(self._release, beyond)
        if is_open and self._is_mark_due():
            return self._mark
        if is_free and self._marked_at is not None:
            return self._write
        if self._is_record_due():
            return self._record
        if is_open and (send := self._next_to_reserve()) is not None:
            return partial(self._reserve, send)
        return None

    def _to_release(self) -> int | None:
        """All nonces beyond the one returned must be released; None: none.

        After a rejection all of them, so that the ledger decides again: a change reserved behind it may now be held.
        While OldHost works only for an urgent send, as long as it can still be marked in time.
        """
        loose = self._loose
        gives_way = self._urgent_waits and not all(send.urgent for send in loose)
        if self._on_wire is not None:
            must = gives_way and self._marked_at is None and self._shared.is_open
        else:
            is_over = not self._shared.is_open or any(self._has_no_time(send) for send in loose)
            must = gives_way or is_over or self._is_rejection_pending
        return max(self._last_written, self._bound_through) if loose and must else None

    def _is_mark_due(self) -> bool:
        """A rejection is recorded at once, and with it the next operation is marked: after a kill it would be taken for
        an apply. Any other answer can wait: OldHost's expected nonce would say that it was applied.
        """
        if self._marked_at is not None or not self._queue or self._queue[0].operation.nonce != self._last_written + 1:
            return False
        if self._on_wire is not None and self._shared.plan.one_in_doubt:
            return False
        return self._on_wire is None or self._is_rejection_pending or self._clock() >= self._mark_from

    def _is_record_due(self) -> bool:
        """An answer that is not recorded with the next mark: its send waits for it, or has ended."""
        return self._pending is not None and not (self._queue and self._queue[0].send is self._pending.send)

    def _next_to_reserve(self) -> QueuedSend | None:
        """Whose turn it is, if it has come. What is bound goes first: without it an urgent send would leave a gap."""
        last_reserved = self._queue[-1].operation.nonce if self._queue else self._last_written
        urgent = self._urgent_waits and last_reserved >= self._bound_through
        waiting = [send for send in self._sends if send.urgent is urgent and send.unreserved]
        if not waiting or (urgent and not all(send.urgent for send in self._loose)):
            return None
        send = min(waiting, key=lambda send: send.sequence)
        is_blocked = self._misses_one_before(send) or self._has_no_time(send) or self._is_unrecorded(send.unreserved)
        return None if is_blocked else send

    def _why_stuck(self) -> str:
        """Why the session ends: something that must come first has not come for too long; empty: it has."""
        now, patience = self._clock(), self._limits.predecessor_seconds
        for send in self._sends:
            if self._misses_one_before(send) and now - send.since >= patience and not self._has_no_time(send):
                return f"send {send.sequence} arrived, but the one before it did not"
        if self._queue and now - max(self._queue[0].send.since, self._free_since) >= patience:
            return f"nonce {self.next_nonce} is bound and must be sent before {self._queue[0].operation.nonce}"
        return ""

    @property
    def _last_written(self) -> int:
        return self.next_nonce - 1 if self._on_wire is None else self.next_nonce

    @property
    def _loose(self) -> list[QueuedSend]:
        """Whose the nonces are that may be released."""
        return [claim.send for claim in self._queue if claim.operation.nonce > self._bound_through]

    @property
    def _urgent_waits(self) -> bool:
        return any(send.urgent and send.unreserved for send in self._sends)

    @property
    def _is_rejection_pending(self) -> bool:
        return self._pending is not None and isinstance(self._pending.answered.answer, Rejected)

    def _is_done(self, send: QueuedSend) -> bool:
        return not send.claims and (not send.unreserved or self._has_no_time(send))

    def _has_no_time(self, send: QueuedSend) -> bool:
        return self._clock() >= send.until

    def _misses_one_before(self, send: QueuedSend) -> bool:
        return send.sequence > self._came[send.urgent]

    def _is_unrecorded(self, change_ids: list[int]) -> bool:
        """Whether one of these changes has a nonce whose result is not recorded."""
        operations = [claim.operation for claim in self._queue]
        operations += [self._on_wire.operation] if self._on_wire is not None else []
        operations += [self._pending.answered.operation] if self._pending is not None else []
        return any(operation.change_id in change_ids for operation in operations)

    # ----------------------------------------------------------------------------------------------------- the steps

    def _end(self) -> None:
        """The session is over. An operation that was marked and not written stays bound, but does not count as sent."""
        try:
            if self._shared.is_open:
                self._shared.close(self._why_stuck())
            self._record()
            if self._marked_at is not None:
                self._marked_at = None
                self._ledger.uncount_send(self._shared.epoch, self._queue[0].operation)
        finally:
            self._end_sends(self._sends)

    def _end_sends(self, over: list[QueuedSend]) -> None:
        if over:
            with self._shared.condition:
                for send in over:
                    send.is_over = True
                self._sends = [send for send in self._sends if not send.is_over]
                self._shared.condition.notify_all()

    def _reserve(self, send: QueuedSend) -> None:
        """An error ends the session, but not the wait for the answer to what is on the wire."""
        with self._errors_close(send):
            reservation = self._ledger.reserve(self._shared.epoch, send.unreserved, send.accepted_at_ms)
            for operation in send.reserved(reservation):
                nonce = operation.nonce
                next_one = self._last_written + 1
                check(nonce >= next_one, f"the ledger bound {nonce}, but {next_one} is next: MariaDB lost commits")
                check(all(nonce != claim.operation.nonce for claim in self._queue), f"nonce {nonce} is claimed already")
                self._queue.append(Claim(operation, send))
                send.claims += 1
            self._queue = deque(sorted(self._queue, key=lambda claim: claim.operation.nonce))

    def _release(self, beyond: int) -> None:
        self._transact(lambda answered: self._ledger.release_nonces(self._shared.epoch, answered, beyond))
        while self._queue and self._queue[-1].operation.nonce > beyond:
            claim = self._queue.pop()
            claim.send.released(claim.operation.change_id)
        self._marked_at = self._marked_at if self._queue else None

    def _mark(self) -> None:
        if self._on_wire is not None or self._shared.is_alive():
            self._advance(self._queue[0])

    def _record(self) -> None:
        if self._pending is not None:
            self._advance(None)

    def _advance(self, marked: Claim | None, *, again: bool = False) -> None:
        """In one transaction, record the pending answer and mark `marked` SENT. Until it commits, both are in doubt."""
        began, sent = self._clock(), None if marked is None else marked.operation
        if marked is not None:
            change_id = marked.operation.change_id
            marked.send.fates[change_id] = ChangeResult(change_id, BOUND, marked.operation.nonce)
        self._transact(lambda answered: self._ledger.advance(self._shared.epoch, answered, sent, again=again))
        if marked is not None:
            self._marked_at = began
            self._shared.mark_time.marked(self._clock() - began)

    def _transact(self, transaction: Callable[[Answered | None], ChangeResult | None]) -> None:
        """Let the transaction record the pending answer, if there is one."""
        pending, self._pending = self._pending, None
        if pending is None:
            transaction(None)
            return
        answered = replace(pending.answered, ago_us=round(1_000_000 * (self._clock() - pending.at)))
        fate = transaction(answered)
        if fate is not None:
            pending.send.recorded(fate)
        if self._marked_at is not None and not consumed(answered.answer):  # released with the one before
            claim, self._marked_at = self._queue[0], None
            claim.send.fates[claim.operation.change_id] = ChangeResult(claim.operation.change_id, WAITING)

    # ------------------------------------------------------------------------------------------------ operations

    def _write(self) -> None:
        """Write the marked operation and read its answer; it, or the lack of one, may end the session."""
        if not self._is_in_time():
            return
        claim, self._marked_at = self._queue.popleft(), None
        self._on_wire = claim
        try:
            answer = self._exchange(claim)
        finally:
            self._on_wire = None
        if not isinstance(answer, Applied | Rejected | Malformed):
            claim.send.refused.ended_by(claim.operation, answer, self._said)
            return
        self._pending = Unrecorded(claim.send, Answered(claim.operation, answer), self._free_since)
        if not consumed(answer):
            nonce = claim.operation.nonce
            self._shared.close(f"operation {nonce} was refused without its nonce being used: {answer}")
            return
        self.next_nonce = claim.operation.nonce + 1
        if isinstance(answer, Applied) and answer.surprise:
            self._record()  # first: what OldHost called applied is applied, whatever is decided later
            claim.send.refused.surprised(answer)

    def _is_in_time(self) -> bool:
        """Whether the first operation was marked less than a second ago, so that it may be written.

        A mark that is too old before a byte was written is renewed: that checks the fence again (trap 2). So is one
        whose own transaction took too long. That one also recorded an answer; a renewal is shorter.
        """
        if self._shared.is_closed or not self._shared.is_alive():
            return False
        first = self._queue[0]
        for _ in range(self._limits.renewals_max):
            if not self._is_too_old(self._marked_at) or self._shared.is_closed:
                break
            first.send.heartbeat()
            self._advance(first, again=True)
        return self._is_safe(self._marked_at)

    def _is_too_old(self, marked_at: float | None) -> bool:
        return marked_at is None or self._clock() - marked_at > self._limits.send_within_seconds

    def _is_safe(self, marked_at: float | None) -> bool:
        if self._is_too_old(marked_at):
            self._shared.close("marked SENT too long ago to be sent safely")
        return not self._shared.is_closed

    def _exchange(self, claim: Claim) -> Answer | Unwritten:
        """Write the operation and read its answer; repeat while OldHost is busy."""
        operation, send = claim.operation, claim.send
        for waits_left in range(self._limits.busy_waits_max, -1, -1):
            began = self._clock()
            answer = self._exchange_once(claim)
            self._shared.exchanged(operation, answer, began, send.accepted_at_ms.get(operation.change_id))
            if not isinstance(answer, Busy) or not waits_left:
                break
            self._shared.rest(self._limits.busy_pause(answer.retry_after), send.heartbeat)
            if self._shared.is_closed or not self._shared.is_alive():
                break
            marked_at = self._clock()
            self._ledger.advance(self._shared.epoch, None, operation, again=True)
            if not self._is_safe(marked_at):
                break
        return answer

    def _exchange_once(self, claim: Claim) -> Answer | Unwritten:
        heartbeat = claim.send.heartbeat
        began = self._clock()
        self._said = None
        self._shared.first_contact.forget()
        try:
            self._connection.begin(
                self._shared.request(claim.operation),
                timeout_seconds=self._limits.request_timeout_seconds,
                while_waiting=heartbeat,
            )
            reply_timeout = self._reply_timeout.wait_seconds(self._limits.request_timeout_seconds)
            listened, worked, came = self._work_meanwhile(began + reply_timeout, heartbeat)
            reply = self._connection.finish(while_waiting=heartbeat, reply_seconds=reply_timeout)
        except NothingWritten as error:
            return Unwritten(str(error))
        except HostError as error:
            if isinstance(error, Silent):
                self._reply_timeout.gave_up(began)
            return Ambiguous(str(error), unreadable=isinstance(error, Unreadable))
        time = AnswerTime(began, listened, worked, self._clock(), came)
        if not reply.reusable:
            self._shared.close(f"OldHost ended the connection after its answer: {reply.ending}")
        answer, self._said = self._shared.read(reply, claim.operation, heartbeat), reply.said
        self._learn(claim.send, answer, time)
        return answer

    def _work_meanwhile(self, until: float, heartbeat: Heartbeat) -> tuple[float | None, float, bool]:
        """While OldHost works: do what is due, and listen until the next operation is marked. Returns when it listened
        last, when it worked last, and whether the answer came while it listened: see `AnswerTime`.
        """
        listened, came = None, False
        self._mark_from = self._clock() + self._shared.mark_time.wait_seconds
        while not came:
            while (step := self._due()) is not None:
                step()
            if self._marked_at is not None or not self._shared.is_open or self._clock() >= until:
                break
            came = self._connection.await_answer(self._seconds_to_listen(until), heartbeat)
            listened = self._clock()
        self._record()
        return listened, self._clock(), came

    def _seconds_to_listen(self, until: float) -> float:
        """Until the mark is due, or a new send may have arrived."""
        now = self._clock()
        is_mark_ahead = self._queue and self._mark_from > now
        return max(0.0, min(LOOK_SECONDS, until - now, self._mark_from - now if is_mark_ahead else LOOK_SECONDS))

    def _learn(self, send: QueuedSend, answer: Answer, time: AnswerTime) -> None:
        """Note how quick OldHost is: for the reply timeout, the time of the next mark, and the send's report."""
        self._free_since = time.at
        send.wire_seconds += time.heard - time.began
        send.exchanges += 1
        is_operation = isinstance(answer, Applied | Rejected)
        self._reply_timeout.answered(time.seconds or 0.0, operation=is_operation)
        if is_operation and time.seconds_at_least is not None:
            self._shared.mark_time.answered(time.seconds_at_least)
