"""Whose turn it is: the bookkeeping between the threads of one session. It waits, but does no IO.

Batches are known by the nonces they claim. A nonce goes through four points, each in strict order: reserved (a batch
claims it) → marked SENT → on the wire → recorded. Marking runs one ahead of the wire, and recording one behind it: the
ledger's work is done while OldHost works, and at most two rows are in doubt at any moment (I6).

Two ways to end: *closed*, nothing more is written; *draining*, nothing more is marked, what is marked is still sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from types import TracebackType
from typing import Protocol

from oldhost_sync.oldhost.connection import Clock, Heartbeat
from oldhost_sync.oldhost.errors import InvariantViolated
from oldhost_sync.oldhost.limits import SessionLimits


class Condition(Protocol):
    """A condition to wait at, as `threading.Condition` is one."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> object: ...

    def notify_all(self) -> None: ...


class Step(Enum):
    """What a waiting batch may do now."""

    SEND = auto()  # it holds the wire
    MARK = auto()  # the operation before its first is on the wire: mark that one meanwhile
    OVER = auto()  # the session ended


class NoncePipeline:
    """The nonces of one session. Guarded by its gate; `next_nonce` is what OldHost expects at the start."""

    def __init__(self, gate: Condition, clock: Clock, limits: SessionLimits, next_nonce: int) -> None:
        self._gate = gate
        self._clock = clock
        self._limits = limits
        self._next = next_nonce  # to go on the wire next
        self._marked = next_nonce - 1  # marked SENT by this session up to here
        self._recorded = next_nonce - 1  # recorded up to here
        self._on_wire = 0  # the nonce that OldHost works on, or 0
        self._taken = False  # somebody holds the wire
        self._claimed: set[int] = set()
        self._sequence = 0  # of the last batch that reserved
        self._records_lost = False  # an answer could not be recorded: none after it can
        self._draining = ""
        self._closed = ""

    # --------------------------------------------------------------------------------------------------- the end

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

    @property
    def next_nonce(self) -> int:
        return self._next

    def close(self, reason: str) -> bool:
        """Nothing more is written. True: nobody holds the wire, so the caller hangs up; else its holder does."""
        with self._gate:
            self._closed = self._closed or reason
            self._gate.notify_all()
            return not self._taken

    def drain(self, reason: str) -> None:
        with self._gate:
            self._draining = self._draining or reason
            self._gate.notify_all()

    def wait_idle(self, timeout_seconds: float, beat: Heartbeat) -> bool:
        """Wait until no batch is under way and the wire is free; False when that took too long."""
        until = self._clock() + timeout_seconds
        while True:
            with self._gate:
                if not self._taken and not self._claimed:
                    return True
                if self._clock() >= until:
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    # --------------------------------------------------------------------------------------------------- batches

    def await_sequence(self, sequence: int, beat: Heartbeat) -> bool:
        """Wait for the batch before this one to reserve; False when the session ended, or that one never came."""
        until = self._clock() + self._limits.predecessor_seconds
        while True:
            with self._gate:
                if not self.is_open:
                    return False
                if sequence in {0, self._sequence + 1}:
                    return True
                if sequence <= self._sequence or self._clock() >= until:
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def claim(self, nonces: Sequence[int], sequence: int) -> None:
        """A batch reserved these, in order and without a hole."""
        with self._gate:
            for before, nonce in zip([None, *nonces], nonces, strict=False):
                check(nonce not in self._claimed, f"nonce {nonce} is on its way already")
                check(before is None or before + 1 == nonce, f"a hole before nonce {nonce}")
            self._claimed.update(nonces)
            self._sequence = max(self._sequence, sequence)
            self._gate.notify_all()

    def unclaim(self, nonces: Sequence[int]) -> None:
        with self._gate:
            self._claimed.difference_update(nonces)
            self._gate.notify_all()

    # -------------------------------------------------------------------------------------------------- the wire

    def wait(self, nonce: int, beat: Heartbeat, *, marked: bool) -> Step:
        """Wait for the turn of a batch whose first is `nonce`; `marked`: that one is SENT already.

        Raises TimeoutError when the wire is free and nobody comes for the nonces before it.
        """
        free_since: float | None = None
        while True:
            with self._gate:
                if self._closed or (self._draining and not marked):
                    return Step.OVER
                check(self._next <= nonce, f"{nonce} was to be sent, but {self._next} is next")
                if self._next == nonce and not self._taken:
                    self._taken = True
                    return Step.SEND
                if not marked and self._on_wire == nonce - 1 == self._marked and self._recorded >= nonce - 2:
                    return Step.MARK
                if self._taken or self._next == nonce or self._next in self._claimed:
                    free_since = None
                elif free_since is None:
                    free_since = self._clock()
                elif self._clock() - free_since >= self._limits.predecessor_seconds:
                    raise TimeoutError(f"nonce {self._next} is bound and must go before {nonce}")
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def take_wire(self, timeout_seconds: float, beat: Heartbeat) -> bool:
        """Wait until the wire is free, whatever is next, and hold it; False on timeout or when the session ended."""
        until = self._clock() + timeout_seconds
        while True:
            with self._gate:
                if not self.is_open:
                    return False
                if not self._taken:
                    self._taken = True
                    return True
                if self._clock() >= until:
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def try_wire(self) -> bool:
        with self._gate:
            if self._taken:
                return False
            self._taken = True
            return True

    def release_wire(self) -> None:
        with self._gate:
            self._taken = False
            self._on_wire = 0
            self._gate.notify_all()

    # ----------------------------------------------------------------------------------------- points of a nonce

    def marked(self, nonce: int) -> None:
        with self._gate:
            self._marked = max(self._marked, nonce)

    def on_wire(self, nonce: int) -> None:
        with self._gate:
            check(nonce == self._next, f"{nonce} is about to be sent, but {self._next} is next")
            check(nonce <= self._marked, f"{nonce} is about to be sent without being marked SENT")
            self._on_wire = nonce
            self._gate.notify_all()

    def used(self, nonce: int) -> None:
        """OldHost has used it up."""
        with self._gate:
            self._next = nonce + 1

    def recorded(self, nonce: int) -> None:
        with self._gate:
            self._recorded = nonce
            self._gate.notify_all()

    def record_lost(self) -> None:
        with self._gate:
            self._records_lost = True
            self._gate.notify_all()

    def wait_recorded(self, nonce: int, beat: Heartbeat) -> bool:
        """Wait until all up to `nonce` are recorded; False when that will never be."""
        while True:
            with self._gate:
                if self._recorded >= nonce:
                    return True
                recorder_left = all(missing in self._claimed for missing in range(self._recorded + 1, nonce + 1))
                if self._records_lost or not recorder_left:
                    return False
                self._gate.wait(self._limits.look_up_seconds)
            beat()

    def rest(self, seconds: float, beat: Heartbeat) -> None:
        """Let time pass, until the session is closed at the latest."""
        until = self._clock() + seconds
        while True:
            with self._gate:
                left = until - self._clock()
                if left <= 0 or self._closed:
                    return
                self._gate.wait(min(left, self._limits.look_up_seconds))
            beat()


def check(holds: bool, otherwise: str) -> None:
    """An invariant of the session; the check stays on in production."""
    if not holds:
        raise InvariantViolated(otherwise)
