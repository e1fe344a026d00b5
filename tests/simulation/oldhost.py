"""The other company's OldHost, as its own simulator has it (rules, faults, one connection), on
virtual time and wires."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oldhost_simulator.behaviour import OLDHOST, Behaviour
from oldhost_simulator.call_handler import CallHandler, Counters
from oldhost_simulator.dialects.dialect import Dialect
from oldhost_simulator.dialects.http import HTTP
from oldhost_simulator.faults import Switchboard
from oldhost_simulator.host import Entry, Fact, Host
from oldhost_simulator.server import Pace, Server
from tests.simulation.hub import Hub
from tests.simulation.network import End


class WatchedHost(Host):
    """Tells of every fact as it becomes one."""

    on_fact: Callable[[Fact], None] = staticmethod(lambda fact: None)

    def apply(self, fact: Fact) -> None:
        super().apply(fact)
        self.on_fact(fact)


class _Clock:
    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def now(self) -> float:
        return self._hub.now


class _Timers:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def at(self, due: float, callback: Callable[[], None]) -> None:
        self._loop.hub.at(due, lambda: None if self._loop.ended else callback())


class Loop:
    """The simulator's loop, turned by the hub. `ended`: the machine went down, and what was due with it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.clock = _Clock(hub)
        self.timers = _Timers(self)
        self.ended = False
        self._watched: dict[End, Callable[[], None]] = {}

    def watch(self, sock: End, readable: Callable[[], None]) -> None:
        self._watched[sock] = readable
        sock.readable = lambda: self._look(sock)
        self._look(sock)

    def unwatch(self, sock: End) -> None:
        self._watched.pop(sock, None)
        sock.readable = lambda: None

    def _look(self, sock: End) -> None:
        self.hub.soon(lambda: self._turn(sock))

    def _turn(self, sock: End) -> None:
        readable = self._watched.get(sock)
        if not self.ended and readable is not None and sock.has_news:
            readable()
            if sock in self._watched and sock.has_news:
                self._look(sock)


class _Listener:
    def __init__(self) -> None:
        self.waiting: list[End] = []

    def accept(self) -> tuple[End, Any]:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0), None


class OldHost:
    """`host` and its records outlive a restart; `faults` is its switchboard."""

    def __init__(
        self,
        hub: Hub,
        *,
        seed: int,
        latency_ms: float,
        ban_seconds: float,
        first_nonce: int,
        dialect: Dialect = HTTP,
        behaviour: Behaviour = OLDHOST,
    ) -> None:
        self.hub = hub
        self.dialect = dialect
        self.host = WatchedHost(first_nonce=first_nonce, ban_seconds=ban_seconds, behaviour=behaviour)
        self.faults = Switchboard(seed)
        self.counters = Counters(hub.now)
        self.pace = Pace(latency_ms=latency_ms, jitter_ms=latency_ms / 4, seed=seed)
        self.up = True
        self._ends: list[End] = []
        self._start()

    def _start(self) -> None:
        self.host.started(self.hub.now)
        self.loop = Loop(self.hub)
        self.call_handler = CallHandler(self.host, self.faults, self.counters, None)
        self.server = Server(
            self.loop,  # type: ignore[arg-type]
            self.call_handler,
            self.faults,
            self.pace,
            self.counters,
            check_operations=True,
            dialect=self.dialect,
        )
        self._listener = _Listener()
        self.server._listener = self._listener  # type: ignore[assignment]

    def accept(self, end: End) -> int:
        """A connection comes in; its number, or 0 when it was not taken."""
        before = self.counters.connections
        self._ends.append(end)
        self._listener.waiting.append(end)
        self.server._accept()
        return self.counters.connections if self.counters.connections > before else 0

    def go_down(self) -> None:
        """The machine stops: what is in process dies with it, the records stay."""
        self.up = False
        self.loop.ended = True
        for end in self._ends:
            if not end.closed:
                end._reset_on_close = True
                end.close()
        self._ends.clear()

    def come_up(self) -> None:
        if not self.up:
            self.up = True
            self._start()

    def hang_up(self) -> None:
        """Its keep-alive finds that the client is gone."""
        self.server.close_connection()

    def ban_now(self, seconds: float) -> None:
        self.call_handler.record([self.host.ban(self.hub.now, seconds)])

    def foreign_write(self) -> None:
        self.call_handler.record([self.host.foreign_write(self.hub.now)])

    def restore(self, nonce: int) -> None:
        self.call_handler.record([self.host.restore(self.hub.now, nonce)])

    def has(self) -> set[int]:
        """The changes that it has applied and that no restored backup has undone."""
        return {entry.body["event_id"] for entry in self.host._standing if entry.body and entry.outcome == "applied"}

    def has_used(self, nonce: int, change_id: int) -> bool:
        """Whether this change has used this nonce."""
        return any(
            entry.nonce == nonce < entry.expected_nonce and (entry.body or {}).get("event_id") == change_id
            for entry in self.host._standing
        )

    def applied(self) -> list[Entry]:
        return [entry for entry in self.host.journal if entry.outcome == "applied"]
