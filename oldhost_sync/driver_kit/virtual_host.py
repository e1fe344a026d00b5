"""A host in virtual time: the author's model of it, behind a network that does what networks do, and a process that can
be killed at each step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import StrEnum
from heapq import heappop, heappush
from typing import Protocol

# How long an answer is on its way, and how late an operation is applied whose connection is gone: within the time that
# a session grants it.
ANSWER_SECONDS = 0.02
LATE_SECONDS = 3.0
# Longer than a request's timeout.
SILENT_SECONDS = 6.0


class VirtualHost(Protocol):
    """A host without faults."""

    @property
    def done(self) -> Sequence[bytes]:
        """The bodies of the operations that it has carried out, in order."""

    def connected(self) -> bytes:
        """A new connection: half a request of the last one is forgotten. What it says at once, mostly nothing."""

    def received(self, data: bytes) -> bytes:
        """What it answers to these bytes, which may be a part of a request, or several."""


class NetworkFault(StrEnum):
    """What happens to one request or its answer."""

    NONE = "no fault"
    REQUEST_LOST = "its request is lost, with the connection"
    REQUEST_SWALLOWED = "its request is lost, and nobody says so"
    ANSWER_LOST = "its answer is lost, with the connection"
    ANSWER_SWALLOWED = "its answer is lost, and nobody says so"
    ANSWER_LATE = "its answer comes after the timeout"
    ANSWER_CUT = "its answer is cut in the middle"
    ANSWER_UNREADABLE = "its answer can't be read"
    DONE_LATE = "its connection is lost, and it is done later"


class Killed(BaseException):
    """The process is gone: nothing of it does anything any more."""


class VirtualClock:
    """Seconds; what is due happens while somebody waits."""

    def __init__(self) -> None:
        self.now = 1_750_000_000.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def __call__(self) -> float:
        return self.now

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heappush(self._due, (self.now + seconds, next(self._count), act))

    def advance(self, seconds: float) -> None:
        until = self.now + seconds
        while self._due and self._due[0][0] <= until:
            self.now, _, act = heappop(self._due)
            act()
        self.now = until

    def wait_for(self, is_true: Callable[[], bool], seconds: float) -> bool:
        """Wait until something that is due makes it true, or for so long."""
        until = self.now + seconds
        while not is_true() and self._due and self._due[0][0] <= until:
            self.advance(self._due[0][0] - self.now)
        if is_true():
            return True
        self.advance(until - self.now)
        return False


class VirtualProcess:
    """One life of a worker. `kill_at`: the step at which it is killed; 0: none."""

    def __init__(self, kill_at: int = 0) -> None:
        self.steps = 0
        self._kill_at = kill_at
        self._is_dead = False

    def step(self) -> None:
        """Before and after whatever others see. Raises Killed."""
        self.steps += not self._is_dead
        self._is_dead = self._is_dead or self.steps == self._kill_at
        if self._is_dead:
            raise Killed


class VirtualNetwork:
    """The way to the host. `fault`: what happens to the request with number `faulty`, from 1."""

    def __init__(self, model: VirtualHost, clock: VirtualClock, fault: NetworkFault, faulty: int) -> None:
        self.model = model
        self.clock = clock
        self.requests = 0
        self._fault, self._faulty = fault, faulty

    def connect(self, process: VirtualProcess) -> VirtualSocket:
        sock = VirtualSocket(self, process)
        sock.arrives(self.model.connected(), ANSWER_SECONDS)
        return sock

    def carry(self, sock: VirtualSocket, data: bytes) -> None:
        """A request is on its way."""
        self.requests += 1
        fault = self._fault if self.requests == self._faulty else NetworkFault.NONE
        match fault:
            case NetworkFault.REQUEST_SWALLOWED:
                return
            case NetworkFault.REQUEST_LOST:
                sock.breaks()
                return
            case NetworkFault.DONE_LATE:
                sock.breaks()
                self.clock.after(LATE_SECONDS, lambda: void(self.model.received(data)))
                return
        answer = self.model.received(data)
        match fault:
            case NetworkFault.NONE:
                sock.arrives(answer, ANSWER_SECONDS)
            case NetworkFault.ANSWER_LOST:
                sock.breaks()
            case NetworkFault.ANSWER_LATE:
                sock.arrives(answer, SILENT_SECONDS)
            case NetworkFault.ANSWER_CUT:
                sock.arrives(answer[: len(answer) // 2], ANSWER_SECONDS)
                sock.ends()
            case NetworkFault.ANSWER_UNREADABLE:
                sock.arrives(b"\0" * max(1, len(answer)), ANSWER_SECONDS)
                sock.ends()


class VirtualSocket:
    """As much of a socket as the connection uses."""

    def __init__(self, network: VirtualNetwork, process: VirtualProcess) -> None:
        self._network = network
        self._process = process
        self._inbox = b""
        self._has_ended = self._is_broken = False

    # ------------------------------------------------------------------------------------------------- the host's side

    def arrives(self, data: bytes, seconds: float) -> None:
        def arrive() -> None:
            self._inbox += data

        if data:
            self._network.clock.after(seconds, arrive)

    def ends(self) -> None:
        self._network.clock.after(2 * ANSWER_SECONDS, self._end)

    def breaks(self) -> None:
        self._is_broken = True

    def _end(self) -> None:
        self._has_ended = True

    # ------------------------------------------------------------------------------------------------------- our side

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def setsockopt(self, *_: object) -> None:
        """There is nothing to set."""

    def send(self, data: bytes) -> int:
        self._process.step()
        if self._is_broken:
            raise BrokenPipeError("the connection is gone")
        self._network.carry(self, bytes(data))
        self._process.step()
        return len(data)

    def recv(self, size: int) -> bytes:
        self._process.step()
        if self._is_broken:
            raise ConnectionResetError("reset by peer")
        if not self._inbox and not self._has_ended:
            raise BlockingIOError
        data, self._inbox = self._inbox[:size], self._inbox[size:]
        return data

    def close(self) -> None:
        self._has_ended = True

    def wait_ready(self, seconds: float) -> bool:
        """Whether there is something to read within so many seconds."""
        self._process.step()
        has_news = lambda: bool(self._inbox) or self._has_ended or self._is_broken  # noqa: E731
        return self._network.clock.wait_for(has_news, seconds)


def void(_: object) -> None:
    """An answer that nobody hears."""
