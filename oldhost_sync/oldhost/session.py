"""The session: one host, one epoch, one connection, operations in strict order of their nonces.

A batch reserves all its nonces at once, while its predecessor is still on the wire, then waits for its turn. Each
operation: is the connection alive? → one transaction {record the answer before, mark this one SENT} → on the wire →
read the answer. The answer to N is recorded while N+1 is on the wire, so at most two rows are ever in doubt (I6).

Whatever is not a definite, consumed answer ends the session: the connection is closed, what is in doubt is BOUND, the
rest WAITING, and the one recovery path (`opening.open_session`) decides by OldHost's expected nonce. Nothing here
retries, reconnects or guesses.

Plain blocking code; the ledger, the connection, the clock and the waiting (`Gate`) are given to it, so that the
simulation runs this very code on its own time. Two or more threads may send; one at a time holds the wire.
No gate is held during IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, TypeVar

from oldhost_sync.oldhost.connection import Beat, Clock, HostConnection
from oldhost_sync.oldhost.errors import (
    ConnectionClosed,
    ExchangeCut,
    Fenced,
    HostError,
    InvariantViolated,
    LedgerError,
    LedgerUnavailable,
    NothingWritten,
)
from oldhost_sync.oldhost.ledger import Answered, Ledger, Reserved, consumed
from oldhost_sync.oldhost.limits import SessionLimits
from oldhost_sync.oldhost.wire import (
    Ambiguous,
    Answer,
    Applied,
    AskAnswer,
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    Gap,
    Malformed,
    Rejected,
    Replay,
    encode_ask,
    encode_sync,
    read_answer,
    read_ask,
)
from oldhost_sync.policy.changes import BOUND, WAITING, Fate

T = TypeVar("T")


class Gate(Protocol):
    """A condition to wait at, as `threading.Condition` is one."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> object: ...

    def notify_all(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a batch: one fate per change id, and how the session stands after it."""

    fates: list[Fate]
    session_open: bool
    service_ms: float = 0.0
    banned_ms: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """OldHost's expected nonce, 0 when it could not be asked."""

    session_open: bool
    expected_nonce: int = 0
    reason: str = ""


@dataclass(slots=True)
class _Batch:
    """A batch on its way. `pending`: answered, but not yet recorded."""

    change_ids: Sequence[int]
    beat: Beat
    fates: dict[int, Fate] = field(default_factory=dict)
    pending: Answered | None = None
    wire_seconds: float = 0.0
    exchanges: int = 0
    banned_ms: int = 0

    def in_doubt(self, operation: Reserved) -> None:
        self.fates[operation.change_id] = Fate(operation.change_id, BOUND, operation.nonce)


class Session:
    """One epoch's hold of the connection. `next_nonce`: what OldHost expects, by both sides, at the start."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        connection: HostConnection,
        epoch: int,
        next_nonce: int,
        gate: Gate,
        clock: Clock,
        limits: SessionLimits,
    ) -> None:
        self.epoch = epoch
        self._ledger = ledger
        self._connection = connection
        self._gate = gate
        self._clock = clock
        self._limits = limits
        self._next = next_nonce  # the nonce that may go on the wire next
        self._recorded = next_nonce - 1  # all up to it are recorded
        self._wire_taken = False
        self._claimed: set[int] = set()  # nonces of batches under way
        self._sequence = 0  # of the last send that reserved
        self._records_lost = False  # an answer could not be recorded: none after it can
        self._closed_because: str | None = None

    # --------------------------------------------------------------------------------------------- to the outside

    @property
    def is_open(self) -> bool:
        return self._closed_because is None

    @property
    def closed_because(self) -> str:
        return self._closed_because or ""

    def send(self, change_ids: Sequence[int], beat: Beat, *, sequence: int = 0) -> Sent:
        """Send these changes in order, as far as the session lasts; gives one fate for each.

        `sequence` k reserves after k-1 has: two sends reach the worker in any order (0: at once). Any error ends the session; what is not one of the ledger's or the host's is raised after that.
        """
        batch = _Batch(change_ids, beat)
        operations: list[Reserved] = []
        try:
            if self._await_sequence(sequence, beat):
                operations = self._reserve(batch)
                self._reserved(sequence)
            if operations and self._take_turn(operations[0].nonce, beat):
                try:
                    self._send_all(operations, batch)
                finally:
                    self._release_turn()
                self._record_pending(batch)
        except InvariantViolated as error:
            self._halt(f"invariant violated: {error}")
        except LedgerError as error:
            self.close(f"{type(error).__name__}: {error}")
        except BaseException:
            self.close("an error nobody foresaw")
            raise
        finally:
            self._end_batch(operations, batch)
        return self._report(batch)

    def probe(self, beat: Beat) -> Probed:
        """Ask the expected nonce and compare; a difference ends the session, and recovery says what it means."""
        if not self._take_wire(beat):
            return Probed(False, 0, self.closed_because)
        expected = 0
        try:
            if self._connection.is_alive():
                expected = self._probe(beat)
            else:
                self.close("OldHost closed the connection")
        except HostError as error:
            self.close(f"asking for the expected nonce: {error}")
        except LedgerError as error:
            self.close(f"{type(error).__name__}: {error}")
        finally:
            self._release_turn()
        return Probed(self.is_open, expected, self.closed_because)

    def watch(self) -> bool:
        """One look of the idle watch; False when the session is over. Lets go when fenced or when OldHost hung up."""
        if not self.is_open:
            return False
        try:
            current = self._ledger.epoch()
            if current != self.epoch:
                self.close(f"epoch {current} took over")
        except LedgerError:
            pass  # without the database nobody else can take over either
        if self._try_wire():
            try:
                if not self._connection.is_alive():
                    self.close("OldHost closed the idle connection")
            finally:
                self._release_turn()
        return self.is_open

    def close(self, reason: str) -> None:
        """Begin nothing more. The connection goes at once, or as soon as the operation on the wire has ended."""
        with self._gate:
            if self._closed_because is None:
                self._closed_because = reason
            hang_up = not self._wire_taken
            self._gate.notify_all()
        if hang_up:
            self._connection.close()

    def drain(self, reason: str, timeout_seconds: float, beat: Beat) -> bool:
        """Close, and wait until the operation on the wire has ended and is recorded; False when that took too long."""
        self.close(reason)
        until = self._clock() + timeout_seconds
        while True:
            with self._gate:
                if not self._wire_taken and not self._claimed:
                    return True
                if self._clock() >= until:
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    # ----------------------------------------------------------------------------------------------- reservation

    def _await_sequence(self, sequence: int, beat: Beat) -> bool:
        """Wait for the send before this one to reserve; False when the session is over, or that one never came."""
        until = self._clock() + self._limits.predecessor_seconds
        while True:
            with self._gate:
                if not self.is_open:
                    return False
                if sequence in {0, self._sequence + 1}:
                    return True
                if sequence <= self._sequence or self._clock() >= until:
                    break
                self._gate.wait(self._limits.look_up_seconds)
            beat()
        self.close(f"send {sequence} came, {self._sequence + 1} was to come")
        return False

    def _reserved(self, sequence: int) -> None:
        with self._gate:
            self._sequence = max(self._sequence, sequence)
            self._gate.notify_all()

    def _reserve(self, batch: _Batch) -> list[Reserved]:
        operations: list[Reserved] = []
        for entry in self._ledger.reserve(self.epoch, batch.change_ids):
            if isinstance(entry, Reserved):
                operations.append(entry)
            else:
                batch.fates[entry.change_id] = entry
        operations.sort(key=lambda operation: operation.nonce)
        with self._gate:
            for before, operation in zip([None, *operations], operations, strict=False):
                _check(operation.nonce not in self._claimed, f"nonce {operation.nonce} is on its way already")
                _check(before is None or before.nonce + 1 == operation.nonce, f"a hole before {operation.nonce}")
            self._claimed.update(operation.nonce for operation in operations)
        return operations

    def _end_batch(self, operations: Sequence[Reserved], batch: _Batch) -> None:
        if batch.pending is not None:
            batch.in_doubt(batch.pending.operation)
        with self._gate:
            self._claimed.difference_update(operation.nonce for operation in operations)
            self._gate.notify_all()

    def _report(self, batch: _Batch) -> Sent:
        fates = [batch.fates.get(change_id) or Fate(change_id, WAITING) for change_id in batch.change_ids]
        mean_ms = 1000 * batch.wire_seconds / batch.exchanges if batch.exchanges else 0.0
        return Sent(fates, self.is_open, mean_ms, batch.banned_ms, self.closed_because)

    # ---------------------------------------------------------------------------------------------------- the turn

    def _take_turn(self, nonce: int, beat: Beat) -> bool:
        """Wait until the wire is free for `nonce`; False when the session ended before that."""
        free_since: float | None = None
        while True:
            with self._gate:
                if not self.is_open:
                    return False
                _check(self._next <= nonce, f"{nonce} was to be sent, but {self._next} is next")
                if self._next == nonce and not self._wire_taken:
                    self._wire_taken = True
                    return True
                if self._wire_taken or self._predecessors_claimed(nonce):
                    free_since = None
                elif free_since is None:
                    free_since = self._clock()
                if free_since is None or self._clock() - free_since < self._limits.predecessor_seconds:
                    self._gate.wait(self._limits.look_up_seconds)
                    stranded = False
                else:
                    stranded = True
            if stranded:
                self.close(f"nonce {self._next} is bound and must go before {nonce}")
                return False
            beat()

    def _predecessors_claimed(self, nonce: int) -> bool:
        return self._next in self._claimed and self._next != nonce

    def _take_wire(self, beat: Beat) -> bool:
        """Wait until nothing is on the wire, whatever is next."""
        while True:
            with self._gate:
                if not self.is_open:
                    return False
                if not self._wire_taken:
                    self._wire_taken = True
                    return True
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def _try_wire(self) -> bool:
        with self._gate:
            if self._wire_taken:
                return False
            self._wire_taken = True
            return True

    def _release_turn(self) -> None:
        with self._gate:
            hang_up = not self.is_open
        if hang_up:
            self._connection.close()
        with self._gate:
            self._wire_taken = False
            self._gate.notify_all()

    # ------------------------------------------------------------------------------------------------- operations

    def _send_all(self, operations: Sequence[Reserved], batch: _Batch) -> None:
        """Holding the wire: one after the other, as long as each answer is definite and consumed its nonce."""
        for operation in operations:
            if not self._wait_recorded(operation.nonce - 2, batch.beat):
                self.close("an earlier answer could not be recorded")
            if not self.is_open:
                return
            if not self._connection.is_alive():
                self.close("OldHost closed the connection")
                return
            began = self._clock()
            self._advance(batch, operation)
            answer = self._exchange(operation, began, batch)
            if not isinstance(answer, Applied | Rejected | Malformed):
                self._give_up(operation, answer, batch)
                return
            batch.pending = Answered(operation, answer)
            if not consumed(answer):
                self.close(f"operation {operation.nonce} was refused without its nonce being used: {answer}")
                return
            with self._gate:
                self._next = operation.nonce + 1

    def _exchange(self, operation: Reserved, began: float, batch: _Batch) -> Answer:
        """The operation on the wire, again and again while OldHost is busy. `began`: before it was marked SENT."""
        answer: Answer = Ambiguous("never sent")
        for wait in range(self._limits.busy_waits_max + 1):
            if self._clock() - began > self._limits.send_within_seconds:
                return Ambiguous("marked SENT too long ago to be sent safely")
            answer = self._exchange_once(operation, batch)
            if not isinstance(answer, Busy) or wait == self._limits.busy_waits_max:
                break
            if not self._pause(answer.retry_after, batch.beat) or not self._connection.is_alive():
                break
            began = self._clock()
            self._ledger.advance(self.epoch, None, operation, again=True)
        return answer

    def _exchange_once(self, operation: Reserved, batch: _Batch) -> Answer:
        began = self._clock()
        try:
            response = self._connection.exchange(
                encode_sync(operation.nonce, operation.body),
                timeout_seconds=self._limits.request_timeout_seconds,
                while_waiting=batch.beat,
            )
        except (NothingWritten, ExchangeCut, ConnectionClosed) as error:
            return Ambiguous(str(error))
        batch.wire_seconds += self._clock() - began
        batch.exchanges += 1
        answer = read_answer(response.status, response.body, operation.nonce)
        if not response.reusable:
            self.close("OldHost ended the connection after its answer")
        return answer

    def _give_up(self, operation: Reserved, answer: Answer, batch: _Batch) -> None:
        """No definite answer, or none that lets us go on: the operation stays bound, recovery decides."""
        batch.in_doubt(operation)
        self.close(_why(operation, answer))
        if isinstance(answer, Banned):
            self._ban(batch, lambda: self._ledger.ban(self.epoch, self._ban_seconds(answer), refused=operation))
        elif isinstance(answer, Replay) and operation.sends:
            self._ban(batch, lambda: self._ledger.ban(self.epoch, self._ban_seconds(answer)))
        elif isinstance(answer, Replay):
            self._ban(
                batch,
                lambda: self._ledger.ban(
                    self.epoch,
                    self._ban_seconds(answer),
                    refused=operation,
                    halt=f"OldHost calls nonce {operation.nonce} a replay, though we never sent it before: "
                    "somebody else wrote to OldHost. Decide by `resolve`.",
                    expected=answer.expected,
                ),
            )

    def _ban(self, batch: _Batch, keep: Callable[[], int]) -> None:
        batch.banned_ms = round(self._limits.ban_seconds * 1000)
        batch.banned_ms = self._insist(keep, batch.beat)

    def _ban_seconds(self, answer: Banned | Replay) -> float:
        return self._limits.ban_seconds if answer.retry_after is None else answer.retry_after

    def _insist(self, act: Callable[[], T], beat: Beat) -> T:
        """What must not be forgotten is tried a few times while the database is away."""
        for left in range(self._limits.insist_times - 1, -1, -1):
            try:
                return act()
            except LedgerUnavailable:
                if left == 0:
                    raise
            self._rest(self._limits.look_up_seconds, beat)
        raise AssertionError("insist_times must be at least 1")

    # ------------------------------------------------------------------------------------------------- recording

    def _advance(self, batch: _Batch, sent: Reserved | None) -> None:
        """One transaction: the pending answer recorded, `sent` marked SENT. On any error both are in doubt."""
        answered, batch.pending = batch.pending, None
        try:
            fate = self._ledger.advance(self.epoch, answered, sent)
        except BaseException:
            with self._gate:
                self._records_lost = True
                self._gate.notify_all()
            for operation in (answered.operation if answered else None, sent):
                if operation is not None:
                    batch.in_doubt(operation)
            raise
        if answered is not None and fate is not None:
            batch.fates[fate.change_id] = fate
            with self._gate:
                self._recorded = answered.operation.nonce
                self._gate.notify_all()

    def _record_pending(self, batch: _Batch) -> None:
        """The batch's last answer, while the next batch's first operation is on the wire already."""
        if batch.pending is not None and self._wait_recorded(batch.pending.operation.nonce - 1, batch.beat):
            self._advance(batch, None)

    def _wait_recorded(self, nonce: int, beat: Beat) -> bool:
        """Wait until all up to `nonce` are recorded; False when that will never be."""
        while True:
            with self._gate:
                if self._recorded >= nonce:
                    return True
                if self._records_lost or not self._recorder_left(nonce):
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def _recorder_left(self, nonce: int) -> bool:
        """Whether a batch under way can still record what is missing up to `nonce`."""
        return all(missing in self._claimed for missing in range(self._recorded + 1, nonce + 1))

    # ---------------------------------------------------------------------------------------------------- the rest

    def _probe(self, beat: Beat) -> int:
        answer = ask(self._connection, self._limits, beat)
        if isinstance(answer, Expected):
            if answer.nonce != self._next:
                self.close(f"OldHost expects nonce {answer.nonce}, we expected {self._next}")
            return answer.nonce
        if isinstance(answer, Banned):
            self.close("OldHost bans us")
            self._insist(lambda: self._ledger.ban(self.epoch, self._ban_seconds(answer)), beat)
        elif not isinstance(answer, Busy):
            self.close(f"asking for the expected nonce: {answer}")
        return 0

    def _halt(self, reason: str) -> None:
        """Level L0: stop, and say so where operators look. Unrecorded means fenced or without a database: closed too."""
        self.close(reason)
        try:
            self._ledger.halt(self.epoch, reason)
        except (Fenced, LedgerUnavailable):
            return

    def _pause(self, seconds: float, beat: Beat) -> bool:
        """Wait as OldHost asks, within bounds; False when the session ended meanwhile."""
        self._rest(self._limits.busy_pause(seconds), beat)
        return self.is_open

    def _rest(self, seconds: float, beat: Beat) -> None:
        until = self._clock() + seconds
        closed_before = not self.is_open
        while True:
            with self._gate:
                left = until - self._clock()
                if left <= 0 or (not self.is_open and not closed_before):
                    return
                self._gate.wait(min(left, self._limits.look_up_seconds))
            beat()


def ask(connection: HostConnection, limits: SessionLimits, beat: Beat) -> AskAnswer:
    """Ask for the expected nonce once; raises what the exchange raises."""
    response = connection.exchange(encode_ask(), timeout_seconds=limits.request_timeout_seconds, while_waiting=beat)
    return read_ask(response.status, response.body)


def _why(operation: Reserved, answer: Answer) -> str:
    nonce = operation.nonce
    match answer:
        case Gap(expected):
            return f"OldHost calls nonce {nonce} a gap: it expects {expected}"
        case Replay():
            return f"OldHost calls nonce {nonce} a replay and bans us"
        case Banned():
            return "OldHost bans us"
        case Busy():
            return "OldHost stays busy"
        case ConnectionInUse():
            return "OldHost serves another connection"
        case Ambiguous(why):
            return f"nonce {nonce} is in doubt: {why}"
    return f"nonce {nonce}: {answer}"


def _check(holds: bool, otherwise: str) -> None:
    """An invariant of the session (level L0: it stays on in production)."""
    if not holds:
        raise InvariantViolated(otherwise)
