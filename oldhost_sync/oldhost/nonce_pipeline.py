"""Coordinates the threads of one session: which of them may reserve, mark, write and record. Waits, but does no IO.

A nonce passes four points, each in strict order: reserved (a send claims it) → marked SENT → on the wire → recorded.
While OldHost works on N, one transaction records N-1 and marks N+1. So at most two rows are in doubt (I6).

Ordinary sends reserve in the order of their sequence, and so do urgent ones, which have a sequence of their own. An
urgent one is sent before everything ordinary that is not on the wire:
the thread that holds the wire releases all later nonces, during its operation if another one can still be marked,
else after it. The urgent send reserves them, and the other sends reserve again. Operations bound when the session
began keep their nonces (up to `bound_through`).

A session ends in one of two ways. *closed*: nothing more is written. *draining*: the operation on the wire finishes,
one more that is already marked SENT may follow, and all other nonces are released.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import TracebackType
from typing import Protocol

from oldhost_sync.oldhost.connection import Clock, Heartbeat
from oldhost_sync.oldhost.errors import check
from oldhost_sync.oldhost.session_limits import SessionLimits


class SendStep(Enum):
    """What a waiting send may do now."""

    SEND = auto()  # it holds the wire
    MARK = auto()  # the operation before its first one is on the wire: mark its first one now
    RESERVE = auto()  # its nonces were released: reserve again
    OVER = auto()  # the session ended


@dataclass(slots=True, eq=False)
class QueuedSend:
    """A send's place among the others. `sequence`: its position among the ordinary ones, or among the urgent ones (0:
    none, at once). `until`: it sends nothing after this. `reserved`: everything that it still has to send has a nonce.
    """

    sequence: int = 0
    urgent: bool = False
    until: float = math.inf
    reserved: bool = False


class Condition(Protocol):
    """A condition variable, such as `threading.Condition`."""

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object: ...

    def wait(self, timeout: float | None = None) -> object: ...

    def notify_all(self) -> None: ...


class NoncePipeline:
    """The nonces of one session. `condition` guards all state; `next_nonce` is what OldHost expects at the start."""

    def __init__(
        self, condition: Condition, clock: Clock, limits: SessionLimits, next_nonce: int, bound_through: int = 0
    ) -> None:
        self._condition = condition
        self._clock = clock
        self._limits = limits
        self._next = next_nonce  # the next one on the wire
        self._bound_through = bound_through
        self._marked = next_nonce - 1  # marked SENT by this session up to here
        self._recorded = next_nonce - 1  # recorded up to here
        self._on_wire = 0  # the nonce that OldHost is working on, or 0
        self._mark_from = 0.0  # not before this the one after it is marked
        self._taken = False  # a thread holds the wire
        self._nonces_locked = False  # a thread is changing, in the ledger, the nonces ahead of the wire
        self._claimed: dict[int, tuple[QueuedSend, int]] = {}  # by nonce: the send that owns it, and its change
        self._sends: dict[QueuedSend, None] = {}
        self._came = {False: 0, True: 0}  # by urgency: all such sends up to this sequence have arrived
        self._early: set[tuple[bool, int]] = set()  # those that arrived before their predecessor
        self._records_awaited = 0  # threads that wait for an answer's record, or to reserve
        self._records_lost = False  # an answer could not be recorded, so no later one can be
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
        """Write nothing more. True: no thread holds the wire, so the caller closes the socket; else its holder does."""
        with self._condition:
            self._closed = self._closed or reason
            self._condition.notify_all()
            return not self._taken

    def drain(self, reason: str) -> None:
        with self._condition:
            self._draining = self._draining or reason
            self._condition.notify_all()

    @property
    def is_idle(self) -> bool:
        """Whether no send is running and the wire is free."""
        return not self._taken and not self._sends

    def wait_idle(self, timeout_seconds: float, heartbeat: Heartbeat) -> bool:
        """Wait until it is idle; False on timeout."""
        until = self._clock() + timeout_seconds
        while True:
            with self._condition:
                if self.is_idle:
                    return True
                if self._clock() >= until:
                    return False
                self._condition.wait(self._limits.look_up_seconds)
            heartbeat()

    # --------------------------------------------------------------------------------------------------- sends

    def enter(self, send: QueuedSend) -> None:
        with self._condition:
            self._sends[send] = None
            self._early.add((send.urgent, send.sequence))
            while (send.urgent, self._came[send.urgent] + 1) in self._early:
                self._came[send.urgent] += 1
                self._early.remove((send.urgent, self._came[send.urgent]))
            self._condition.notify_all()

    def leave(self, send: QueuedSend) -> None:
        """End a send: remove its send and its claims."""
        with self._condition:
            self._sends.pop(send, None)
            self._claimed = {nonce: claim for nonce, claim in self._claimed.items() if claim[0] is not send}
            self._condition.notify_all()

    def stop(self) -> None:
        """End the present sends after the operation on the wire; the session goes on."""
        with self._condition:
            for send in self._sends:
                send.until = min(send.until, self._clock())
            self._condition.notify_all()

    def lock_to_reserve(self, send: QueuedSend, change_ids: Container[int], heartbeat: Heartbeat) -> bool:
        """Wait until this send may reserve for these changes, and keep the others from reserving. False when it never
        may: the session ended, its time is over, or the send before it did not arrive.
        """
        since = self._clock()
        while True:
            with self._condition:
                if not self.is_open or self._is_over(send):
                    return False
                if self._may_reserve(send, change_ids):
                    self._nonces_locked = True
                    return True
                if self._misses_one_before(send) and self._clock() - since >= self._limits.predecessor_seconds:
                    return False
                self._wait_for_a_record()
            heartbeat()

    def lock_nonces(self, heartbeat: Heartbeat) -> None:
        """Wait until no other thread changes the nonces ahead of the wire, and keep the others from it."""
        while True:
            with self._condition:
                if not self._nonces_locked:
                    self._nonces_locked = True
                    return
                self._condition.wait(self._limits.look_up_seconds)
            heartbeat()

    def unlock_nonces(self) -> None:
        with self._condition:
            self._nonces_locked = False
            self._condition.notify_all()

    def claim(self, send: QueuedSend, changes: Mapping[int, int]) -> None:
        """Note all nonces that a send has reserved, in order and without a gap, each for one change."""
        nonces = list(changes)
        with self._condition:
            for before, nonce in zip([None, *nonces], nonces, strict=False):
                check(nonce not in self._claimed, f"nonce {nonce} is claimed already")
                check(before is None or before + 1 == nonce, f"a missing nonce before {nonce}")
            self._claimed.update({nonce: (send, change_id) for nonce, change_id in changes.items()})
            send.reserved = True
            self._condition.notify_all()

    def holds(self, send: QueuedSend, nonce: int) -> bool:
        """Whether the nonce still belongs to this send."""
        with self._condition:
            return self._holds(send, nonce)

    def _holds(self, send: QueuedSend, nonce: int) -> bool:
        return nonce in self._claimed and self._claimed[nonce][0] is send

    def _is_over(self, send: QueuedSend) -> bool:
        return self._clock() >= send.until

    def _may_reserve(self, send: QueuedSend, change_ids: Container[int]) -> bool:
        """Not while another send still has a claim for one of these changes whose result is not recorded."""
        if self._nonces_locked or any(
            nonce > self._recorded and change_id in change_ids for nonce, (_, change_id) in self._claimed.items()
        ):
            return False
        peers = [other for other in self._sends if other.urgent is send.urgent]
        if self._misses_one_before(send) or any(
            other.sequence < send.sequence and not other.reserved for other in peers
        ):
            return False
        if send.urgent:
            return not self._in_the_way and self._bound_are_claimed
        return not (self._urgent_waits and self._bound_are_claimed)

    def _misses_one_before(self, send: QueuedSend) -> bool:
        return send.sequence > self._came[send.urgent]

    # ------------------------------------------------------------------------------------------------- giving way

    @property
    def _urgent_waits(self) -> bool:
        return any(send.urgent and not send.reserved for send in self._sends)

    @property
    def _fixed(self) -> int:
        """The last nonce that can't be released."""
        return max(self._on_wire, self._next - 1, self._bound_through)

    @property
    def _bound_are_claimed(self) -> bool:
        """Whether the bound operations, which are next, have claimed their nonces; without that an urgent send would
        leave a gap.
        """
        return self._bound_through <= max([self._recorded, *self._claimed])

    @property
    def _in_the_way(self) -> list[int]:
        """Nonces of ordinary sends that an urgent one needs."""
        return [nonce for nonce, (send, _) in self._claimed.items() if nonce > self._fixed and not send.urgent]

    @property
    def gives_way(self) -> bool:
        """An urgent send waits for nonces that ordinary ones have reserved."""
        with self._condition:
            return self._urgent_waits and bool(self._in_the_way)

    def to_release(self, *, rejected: bool) -> int | None:
        """Which nonces the holder of the wire must release: all beyond the one returned; None if there are none.

        After a rejection all of them, so that the ledger decides again: a change reserved behind it may now be held.
        """
        with self._condition:
            urgent_waits, draining = self._urgent_waits, bool(self._draining)
            if not (rejected or urgent_waits or draining or any(self._is_over(send) for send in self._sends)):
                return None
            beyond = self._fixed
            owners = [send for nonce, (send, _) in self._claimed.items() if nonce > beyond]
            gives_way = urgent_waits and not all(send.urgent for send in owners)
            ends = draining or any(self._is_over(send) for send in owners)
            return beyond if owners and (rejected or gives_way or ends) else None

    def released(self, beyond: int) -> None:
        """The ledger has released all nonces beyond this one: their sends reserve again, in the same order."""
        with self._condition:
            for nonce, (send, _) in list(self._claimed.items()):
                if nonce > beyond:
                    send.reserved = False
                    del self._claimed[nonce]
            self._marked = min(self._marked, beyond)
            self._condition.notify_all()

    # -------------------------------------------------------------------------------------------------- the wire

    def wait(self, send: QueuedSend, nonce: int, heartbeat: Heartbeat, *, marked: bool) -> SendStep:
        """Wait until a send, whose first nonce is `nonce`, may act; `marked`: that one is already SENT. With MARK the
        caller also holds the nonces (see `unlock_nonces`).

        Raises TimeoutError when the wire is free and no send claims the nonces before it.
        """
        free_since: float | None = None
        while True:
            with self._condition:
                if self._closed or (self._draining and not marked):
                    return SendStep.OVER
                if not self._holds(send, nonce):
                    return SendStep.RESERVE
                check(self._next <= nonce, f"the ledger bound {nonce}, but {self._next} is next: MariaDB lost commits")
                if self._next == nonce and not self._taken:
                    self._taken = True
                    return SendStep.SEND
                if not marked and self._may_mark(nonce):
                    self._nonces_locked = True
                    return SendStep.MARK
                if self._taken or self._next == nonce or self._next in self._claimed:
                    free_since = None
                elif free_since is None:
                    free_since = self._clock()
                elif self._clock() - free_since >= self._limits.predecessor_seconds:
                    raise TimeoutError(f"nonce {self._next} is bound and must be sent before {nonce}")
                self._condition.wait(self._pause_before_mark(nonce))
            heartbeat()

    def _may_mark(self, nonce: int) -> bool:
        may = not self._nonces_locked and self._on_wire == nonce - 1 == self._marked and self._recorded >= nonce - 2
        return may and self._clock() >= self._mark_from

    def _pause_before_mark(self, nonce: int) -> float:
        """How long to wait for a turn to mark `nonce`, if nobody calls."""
        left = self._mark_from - self._clock() if self._on_wire == nonce - 1 else 0.0
        return min(left, self._limits.look_up_seconds) if left > 0 else self._limits.look_up_seconds

    def try_wire(self) -> bool:
        with self._condition:
            if self._taken:
                return False
            self._taken = True
            return True

    def release_wire(self) -> None:
        with self._condition:
            self._taken = False
            self._on_wire = 0
            self._condition.notify_all()

    # ----------------------------------------------------------------------------------------- points of a nonce

    def marked(self, nonce: int) -> None:
        with self._condition:
            self._marked = max(self._marked, nonce)

    def on_wire(self, nonce: int, mark_after_seconds: float = 0.0) -> None:
        """An operation is about to be written; the next one is to be marked so long after that."""
        with self._condition:
            check(nonce == self._next, f"{nonce} is about to be sent, but {self._next} is next")
            check(nonce <= self._marked, f"{nonce} is about to be sent without being marked SENT")
            self._on_wire, self._mark_from = nonce, self._clock() + mark_after_seconds
            if self._ends_a_claim(nonce):
                self._condition.notify_all()

    def _ends_a_claim(self, nonce: int) -> bool:
        """Whether the next nonce is another send's, or nobody's: another send may act now. Else each operation would
        wake the waiting sends, just when the answer before it has arrived.
        """
        owner = self._claimed[nonce][0] if nonce in self._claimed else None
        return owner is None or not self._holds(owner, nonce + 1)

    def used(self, nonce: int) -> None:
        """OldHost has used up this nonce."""
        with self._condition:
            self._next = nonce + 1

    def recorded(self, nonce: int) -> None:
        with self._condition:
            self._recorded = nonce
            if self._records_awaited or self._ends_a_claim(nonce + 1):
                self._condition.notify_all()

    def record_lost(self) -> None:
        with self._condition:
            self._records_lost = True
            self._condition.notify_all()

    def wait_recorded(self, nonce: int, heartbeat: Heartbeat) -> bool:
        """Wait until all answers up to `nonce` are recorded; False when they never will be."""
        while True:
            with self._condition:
                if self._recorded >= nonce:
                    return True
                recorder_left = all(missing in self._claimed for missing in range(self._recorded + 1, nonce + 1))
                if self._records_lost or not recorder_left:
                    return False
                self._wait_for_a_record()
            heartbeat()

    def _wait_for_a_record(self) -> None:
        self._records_awaited += 1
        try:
            self._condition.wait(self._limits.look_up_seconds)
        finally:
            self._records_awaited -= 1

    def rest(self, seconds: float, heartbeat: Heartbeat) -> None:
        """Sleep, but no longer than until the session is closed."""
        until = self._clock() + seconds
        while True:
            with self._condition:
                left = until - self._clock()
                if left <= 0 or self._closed:
                    return
                self._condition.wait(min(left, self._limits.look_up_seconds))
            heartbeat()
