"""One thread that waits for sockets, for timers, and for calls from other threads.

Everything that touches OldHost's state runs here, so nothing needs a lock. An exception in a callback ends the
loop: a host whose state may be wrong must not continue to answer; `crash` is then the exception.
"""

import heapq
import itertools
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from oldhost_simulator.limits import TIMER_RESOLUTION_SECONDS, WAIT_SECONDS_MAX

T = TypeVar("T")


class Clock:
    """Epoch seconds that never jump: wall time at the start, then the monotonic clock."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return self._offset + time.monotonic()


class Timers:
    """Callbacks by due time; those with the same time run in the order in which they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, due: float, callback: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (due, next(self._order), callback))

    def next_due(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> Callable[[], None] | None:
        if self._heap and self._heap[0][0] <= now:
            return heapq.heappop(self._heap)[2]
        return None


class LoopEndedError(Exception):
    """The host has stopped; a retry is useless."""


class Loop:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.timers = Timers()
        self.crash: BaseException | None = None
        self._selector = selectors.DefaultSelector()
        self._watched: dict[socket.socket, Callable[[], None]] = {}
        self._asked: deque[Callable[[], None]] = deque()
        self._waker, self._woken = socket.socketpair()
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        self._stopping = False
        self._ended = False
        self.watch(self._woken, self._drain_wakes)

    # ---------------------------------------------------------------------------------------- in the loop's thread

    def watch(self, sock: socket.socket, readable: Callable[[], None]) -> None:
        self._selector.register(sock, selectors.EVENT_READ, sock)
        self._watched[sock] = readable

    def unwatch(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        del self._watched[sock]

    def run(self) -> None:
        try:
            while not self._stopping:
                self._run_once()
        except BaseException as error:
            self.crash = error
            raise
        finally:
            self.close()

    def _run_once(self) -> None:
        ready = self._selector.select(self._span())
        # First what is due: a late apply comes before what was sent when its time was over, however busy the machine.
        self._run_due()
        for key, _ in ready:
            readable = self._watched.get(key.data)
            if readable is not None:  # an earlier callback of this round may have removed it
                readable()
        self._answer_all()
        self._run_due()

    def _run_due(self) -> None:
        while (callback := self.timers.pop_due(self.clock.now())) is not None:
            callback()

    def _span(self) -> float | None:
        """How long to wait for sockets: epoll waits in whole milliseconds and rounds up, so the rest is slept."""
        due = self.timers.next_due()
        if due is None:
            return None
        left = due - self.clock.now()
        if left <= 0:
            return 0
        if left < TIMER_RESOLUTION_SECONDS:
            time.sleep(left)
            return 0
        left = min(left, WAIT_SECONDS_MAX)
        return left - left % TIMER_RESOLUTION_SECONDS - TIMER_RESOLUTION_SECONDS / 2

    def _drain_wakes(self) -> None:
        self._woken.recv(4096)

    def close(self) -> None:
        self._selector.close()
        self._woken.close()
        self._waker.close()
        self._ended = True
        self._answer_all()

    def _answer_all(self) -> None:
        while self._asked:
            try:
                answer = self._asked.popleft()
            except IndexError:  # after the loop's end, several threads may run this
                return
            answer()

    # ------------------------------------------------------------------------------------------ from other threads

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Runs it in the loop's thread; the future gets what it raises, or LoopEndedError when the loop has ended."""
        future: Future[T] = Future()

        def answer() -> None:
            if self._ended:
                future.set_exception(LoopEndedError())
                return
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)

        self._asked.append(answer)
        if self._ended:
            self._answer_all()
        else:
            self._wake()
        return future

    def stop(self) -> None:
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        try:
            self._waker.send(b"w")
        except BlockingIOError:
            pass  # it is awake already: the pipe is full of wake-ups
        except OSError:
            if not self._stopping and self.crash is None:
                raise
