"""TCP as far as it matters here: two ends, bytes in order after a delay, FIN, RST, and a link that may be cut off.

The client's end is what the product's own `OldHostConnection` reads and writes; the host's end is what the simulator's
own `Server` does.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from oldhost_sync.oldhost import connection as product
from tests.simulation.hub import Hub, Process, Timer

DELAY_S = 0.0005
# After this OldHost notices that the other end of a connection is gone without a word.
KEEP_ALIVE_S = 30.0
# How long a kernel goes on sending what nobody acknowledges, unless the socket says otherwise (TCP_USER_TIMEOUT).
TCP_PATIENCE_S = 900.0


class Link:
    """The way between one process and OldHost. While it is `parted`, what is sent arrives after the parting."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.parted_until = 0.0

    def arrival(self) -> float:
        return max(self._hub.now, self.parted_until) + DELAY_S

    @property
    def parted(self) -> bool:
        return self._hub.now < self.parted_until


class End:
    """One end of a connection; nobody reads from it and writes to it at once."""

    peer: End

    def __init__(self, hub: Hub, link: Link) -> None:
        self.hub = hub
        self.link = link
        self.inbox = bytearray()
        self.ended = False
        self.broken = False
        self.closed = False
        self.readable: Callable[[], None] = lambda: None
        self.patience_s = TCP_PATIENCE_S
        self._last_arrival = 0.0
        self._on_the_way: list[tuple[float, Timer]] = []
        self._reset_on_close = False

    # ----------------------------------------------------------------------------------------- as a socket is spoken to

    def setblocking(self, _: bool) -> None:
        return None

    def setsockopt(self, _level: int, option: int, _value: Any) -> None:
        if option == socket.SO_LINGER:
            self._reset_on_close = True
        elif option == socket.TCP_USER_TIMEOUT:
            self.patience_s = _value / 1000

    def recv(self, size: int, flags: int = 0) -> bytes:
        if self.closed:
            raise OSError("closed here")
        if self.broken:
            raise ConnectionResetError("reset by peer")
        if not self.inbox:
            if self.ended:
                return b""
            raise BlockingIOError
        data = bytes(self.inbox[:size])
        if not flags & socket.MSG_PEEK:
            del self.inbox[: len(data)]
        return data

    def send(self, data: bytes, _flags: int = 0) -> int:
        if self.closed or self.broken:
            raise BrokenPipeError("the connection is gone")
        self._deliver(lambda: self.peer._arrived(bytes(data)))
        return len(data)

    def shutdown(self, _: int) -> None:
        if self.broken:
            raise OSError("the connection is gone")
        self._deliver(self.peer._ended)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self._reset_on_close:
                self._take_back()
            self._deliver(self.peer._reset if self._reset_on_close or self.inbox else self.peer._ended)

    def _take_back(self) -> None:
        """A reset throws away what the other machine has not acknowledged."""
        for arrival, timer in self._on_the_way:
            if arrival > self.hub.now + DELAY_S:
                timer.cancel()

    def vanish(self) -> None:
        """The machine lost its power: the peer hears nothing."""
        self.closed = True

    # ------------------------------------------------------------------------------------------------------- deliveries

    def _deliver(self, act: Callable[[], None]) -> None:
        self._last_arrival = max(self.link.arrival(), self._last_arrival)
        # A hair later each time, so that order is kept among equals.
        self._last_arrival += 1e-7
        if self._last_arrival > self.hub.now + self.patience_s:
            return  # the kernel gave it up; whoever still listens hears nothing
        self._on_the_way = [(arrival, timer) for arrival, timer in self._on_the_way if arrival >= self.hub.now]
        self._on_the_way.append((self._last_arrival, self.hub.at(self._last_arrival, act)))

    def _arrived(self, data: bytes) -> None:
        if self.closed:
            self._deliver(self.peer._reset)
        elif not self.broken:
            self.inbox += data
            self.readable()

    def _ended(self) -> None:
        if not self.closed:
            self.ended = True
            self.readable()

    def _reset(self) -> None:
        if not self.closed:
            self.broken = True
            self.inbox.clear()
            self.readable()

    @property
    def has_news(self) -> bool:
        return bool(self.inbox) or self.ended or self.broken


class ClientEnd(End):
    """The product's end, with the points at which it may fail."""

    def __init__(self, hub: Hub, link: Link, process: Process, faults: Any) -> None:
        super().__init__(hub, link)
        self.process = process
        self.faults = faults
        self.before_write: Callable[[bytes], None] = lambda data: None
        self._waiting: list[Callable[[Any], None]] = []
        self.readable = self._wake
        self.lost = False
        process.at_death.append(self._die)

    def _die(self) -> None:
        if self.process.powerless and not self.closed:
            self.vanish()
            self.hub.after(KEEP_ALIVE_S, self.peer._reset)
        else:
            self.close()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake(True)

    def send(self, data: bytes, _flags: int = 0) -> int:
        self.process.check()
        whole = bytes(data)
        self.before_write(whole)
        match self.faults.at("write", self.process):
            case "before":
                self._break()
                raise ConnectionResetError("reset by peer")
            case "after":
                super().send(whole)
                self.hub.after(2 * DELAY_S, self._break)
                return len(whole)
            case "hang":
                self.lost = True  # nothing arrives, nothing comes back
                return len(whole)
            case "part":
                cut = self.hub.random.randrange(1, max(2, len(whole)))
                super().send(whole[:cut])
                self.hub.sleep(self.hub.random.random() * 0.2)
                return cut
            case "part-die":
                super().send(whole[: len(whole) // 2])
                self.process.kill()
                self.process.check()
            case "die":
                self.process.kill()
                self.process.check()
            case "freeze":
                self.process.stop()
                self.hub.after(self.hub.random.uniform(0.5, 60), self.process.go_on)
                self.hub.sleep(0)
        return super().send(whole)

    def _break(self) -> None:
        self.close()
        self.closed = False
        self.broken = True
        self._wake()

    def close(self) -> None:
        if self.closed:
            return
        if self.lost:  # not even the end gets through; the host's keep-alive finds out
            self.vanish()
            self.hub.after(KEEP_ALIVE_S, self.peer._reset)
        else:
            super().close()

    def wait_ready(self, seconds: float, *, writing: bool) -> bool:
        self.process.check()
        if writing:
            return True
        if not self.has_news or self.lost:
            woken = self.hub.park(seconds, self._waiting.append)
            if not woken or self.lost:
                return False
        if self.inbox:
            self._fail_reading()
        return self.has_news and not self.lost

    def _fail_reading(self) -> None:
        match self.faults.at("read", self.process):
            case "before":
                self._break()
            case "after":
                del self.inbox[len(self.inbox) // 2 :]
                self.ended = True
            case "hang":
                self.lost = True
            case "die":
                self.process.kill()
                self.process.check()


def connected(hub: Hub, link: Link, process: Process, faults: Any) -> tuple[ClientEnd, End]:
    client, host = ClientEnd(hub, link, process, faults), End(hub, link)
    client.peer, host.peer = host, client
    return client, host


_real_ready = product.ready


def _ready(sock: Any, seconds: float, *, writing: bool) -> bool:
    if isinstance(sock, ClientEnd):
        return sock.wait_ready(seconds, writing=writing)
    return _real_ready(sock, seconds, writing=writing)


def install() -> Callable[[], None]:
    """Let the product's connection wait on these ends as it does on sockets."""
    product.ready = _ready
    return lambda: setattr(product, "ready", _real_ready)
