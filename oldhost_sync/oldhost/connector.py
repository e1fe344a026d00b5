"""Connects to OldHost: looks its name up and opens the socket under one deadline, with heartbeats throughout.

A slow name server blocks a thread of its own, never the caller, which would otherwise miss its heartbeats and be given
up each time. A look-up that outlasts the deadline continues, and the next try uses its result. While the name server is
slow or away, the addresses that it gave before are tried.

Of several addresses, one that gave no good answer the last time comes after the others: that it takes connections
proves little.
"""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress

from oldhost_sync.drivers.capabilities import Capabilities
from oldhost_sync.drivers.contract import Driver, Peer
from oldhost_sync.oldhost.access import Access, no_trust
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connection import SLICE_SECONDS, AnswerLimit, Clock, Heartbeat, OldHostConnection, ready
from oldhost_sync.oldhost.errors import NoAccess, NoConnection
from oldhost_sync.oldhost.proxy import open_tunnel

# Look-up and connect together; a resolver's own timeout is usually 5 s a server, twice.
REACH_SECONDS_MAX = 12.0
# For each address: OldHost's machine answers at once, or it is away.
CONNECT_SECONDS_MAX = 2.0
# For a proxy that looks the name up and connects in its turn.
TUNNEL_SECONDS_MAX = 8.0
# For the TLS handshake: a few round trips.
HANDSHAKE_SECONDS_MAX = 5.0
# How long to wait for the look-up if there is an address that worked before.
LOOK_UP_SECONDS = 1.0
# How often the name of an open connection's address is looked up.
NAME_WATCH_SECONDS = 20.0
# Look-ups in a row with the same addresses, all of them others than the connection's: a minute.
LOOK_UPS_TO_MOVE = 3

SockAddress = tuple[socket.AddressFamily, tuple[object, ...]]
Resolve = Callable[[str, int], list[SockAddress]]


def resolve(name: str, port: int) -> list[SockAddress]:
    """The system's answer; raises OSError. May take long."""
    found = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class LookUp:
    """A query to the name server, in a thread of its own: a slow one blocks nobody who must heartbeat.

    It is a daemon thread, so that it does not delay the process's end.
    """

    def __init__(self, ask: Callable[[], list[SockAddress]]) -> None:
        self.ended = threading.Event()
        self.found: list[SockAddress] = []
        self.error: OSError | None = None
        self._ask = ask
        threading.Thread(target=self._run, name="look-up", daemon=True).start()

    def _run(self) -> None:
        try:
            self.found = self._ask()
        except (OSError, UnicodeError) as error:  # a label that is too long raises UnicodeError
            self.error = error if isinstance(error, OSError) else OSError(str(error))
        finally:
            self.ended.set()


class NameWatch:
    """Notices that OldHost's name leads elsewhere while the connection to the old address still lives.

    An open connection shows nothing of that: a session could go on for weeks with a machine that OldHost's operators
    have replaced. So the name is looked up now and then, and it has moved once several look-ups in a row found the same
    other addresses. A name server that gives a different part of a longer list each time does not look like that.

    `has_moved` never waits, and one thread calls it. `clock`: monotonic seconds.
    """

    def __init__(self, name: str, port: int, clock: Clock, resolve: Resolve) -> None:
        self._name = name
        self._port = port
        self._clock = clock
        self._resolve = resolve
        self._next_at = 0.0
        self._look_up: LookUp | None = None
        self._in_use: SockAddress | None = None
        self._found: frozenset[SockAddress] = frozenset()
        self._times = 0

    def has_moved(self, in_use: SockAddress) -> bool:
        """Whether the name does not lead to `in_use`, the connection's address, any more."""
        if in_use[1][0] == self._name:  # an address, not a name
            return False
        if in_use != self._in_use:
            self._in_use, self._times = in_use, 0
        if self._look_up is None:
            if self._clock() >= self._next_at:
                self._next_at = self._clock() + NAME_WATCH_SECONDS
                self._look_up = LookUp(lambda: self._resolve(self._name, self._port))
        elif self._look_up.ended.is_set():
            self._note(self._look_up)
            self._look_up = None
        return self._times >= LOOK_UPS_TO_MOVE

    def _note(self, look_up: LookUp) -> None:
        found = frozenset(look_up.found)
        if not found:  # the name server is away, which proves nothing
            return
        is_same, self._found = found == self._found, found
        self._times = 0 if self._in_use in found else self._times + 1 if is_same else 1


class Connector:
    """Connects to the host at `address`, for one opening at a time. `clock`: monotonic seconds.

    Behind a proxy, the name that is looked up and watched is the proxy's.
    """

    def __init__(
        self, address: Address, driver: Driver, clock: Clock, resolve: Resolve = resolve, access: Access | None = None
    ) -> None:
        self._address = address
        self._access = access or Access()
        self._first = self._access.proxy or address  # where the connection itself leads
        self._clock = clock
        self._resolve = resolve
        self._look_up: LookUp | None = None
        self._known: list[SockAddress] = []  # what the name server gave before
        self._in_vain: list[SockAddress] = []  # they gave no good answer; the last one last
        self._last: tuple[SockAddress, OldHostConnection] | None = None
        self._driver = driver
        self._peer = Peer(address.authority, address.base)
        self._proxy_authorization = ""
        self._context: ssl.SSLContext | None = None
        self._stamp: tuple[tuple[int, ...], ...] = ()
        self._watch = NameWatch(self._first.name, self._first.port, clock, resolve)
        self._limit = AnswerLimit()

    @property
    def capabilities(self) -> Capabilities:
        """What the host can do, as its driver declares."""
        return self._driver.capabilities

    def connect(self, heartbeat: Heartbeat) -> OldHostConnection:
        """Open a connection; raises NoConnection, and NoAccess where certificates or credentials are the cause.
        `heartbeat` is called at least every half second.
        """
        secrets = self._access.authorization(), self._access.signing()
        self._peer = Peer(self._address.authority, self._address.base, *secrets)
        self._proxy_authorization = self._access.proxy_authorization()
        self._context = self._tls_context() if self._address.tls else None
        try:
            return self._connect(self._clock() + REACH_SECONDS_MAX, heartbeat)
        except OSError as error:
            proxy = "the proxy " if self._access.proxy else ""
            raise NoConnection(f"{proxy}{self._first.name}:{self._first.port}: {error}") from error

    def _connect(self, until: float, heartbeat: Heartbeat) -> OldHostConnection:
        self._judge_last()
        if self._known and not self._found(self._clock() + LOOK_UP_SECONDS, heartbeat):
            with suppress(OSError):
                return self._connect_to(self._known, until, heartbeat)
        if not self._found(until, heartbeat):
            raise OSError(f"the name server gave no address within {REACH_SECONDS_MAX:g} s")
        self._known = self._take()
        return self._connect_to(self._known, until, heartbeat)

    def _tls_context(self) -> ssl.SSLContext:
        """Made anew when one of its files has changed: the system's authorities alone take 20 ms and more."""
        stamp = self._access.stamp()
        if self._context is None or stamp != self._stamp:
            self._context, self._stamp = self._access.context(), stamp
        return self._context

    def has_moved(self) -> bool:
        """Whether the name does not lead to the last connection's address any more. Never waits."""
        return self._last is not None and self._watch.has_moved(self._last[0])

    def _judge_last(self) -> None:
        """Whether the last connection's address keeps its place."""
        if self._last is not None:
            address, connection = self._last
            self._note(address, in_vain=not connection.has_served)

    def _note(self, address: SockAddress, *, in_vain: bool) -> None:
        self._in_vain = [other for other in self._in_vain if other != address and other in self._known]
        self._in_vain += [address] if in_vain else []

    def _found(self, until: float, heartbeat: Heartbeat) -> bool:
        """Whether the name server has answered; waits for a running look-up, even one from an earlier try."""
        if self._look_up is None:
            self._look_up = LookUp(lambda: self._resolve(self._first.name, self._first.port))
        while not self._look_up.ended.wait(max(0.0, min(SLICE_SECONDS, until - self._clock()))):
            if self._clock() >= until:
                return False
            heartbeat()
        return True

    def _take(self) -> list[SockAddress]:
        look_up, self._look_up = self._look_up, None
        if look_up is None or look_up.error is not None:
            raise look_up.error if look_up is not None and look_up.error is not None else OSError("not looked up")
        return look_up.found

    def _connect_to(self, addresses: list[SockAddress], until: float, heartbeat: Heartbeat) -> OldHostConnection:
        last: OSError | NoAccess = OSError("the name has no address")
        places = {address: place for place, address in enumerate(self._in_vain)}
        for family, address in sorted(addresses, key=lambda address: places.get(address, -1)):
            try:
                until_here = min(until, self._clock() + CONNECT_SECONDS_MAX)
                sock = _connected(family, address, until_here, self._clock, heartbeat)
                if self._access.proxy is not None:
                    self._tunnel(sock, self._access.proxy, until, heartbeat)
                if self._context is not None:
                    sock = self._secured(sock, self._context, heartbeat)
            except (OSError, NoAccess) as error:
                last = error
                self._note((family, address), in_vain=True)
                continue
            connection = OldHostConnection(sock, self._clock, self._driver, self._peer, self._limit)
            self._last = (family, address), connection
            return connection
        raise last

    def _tunnel(self, sock: socket.socket, proxy: Address, until: float, heartbeat: Heartbeat) -> None:
        """Through the proxy at its other end `sock` leads to OldHost from now on."""
        until = min(until, self._clock() + TUNNEL_SECONDS_MAX)

        def wait(writing: bool) -> None:
            _wait(sock, until, self._clock, heartbeat, "it gave no whole answer in time", writing=writing)

        try:
            open_tunnel(sock, proxy, self._address, self._proxy_authorization, wait)
        except BaseException:
            sock.close()
            raise

    def _secured(self, sock: socket.socket, context: ssl.SSLContext, heartbeat: Heartbeat) -> ssl.SSLSocket:
        """The same connection as TLS, with OldHost's certificate and name verified."""
        name = self._address.name.rstrip(".")
        # An end without TLS's own close is no end: what was read so far may be a part of an answer.
        secured = context.wrap_socket(
            sock, server_hostname=name, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )
        try:
            self._shake_hands(secured, self._clock() + HANDSHAKE_SECONDS_MAX, heartbeat)
        except BaseException as error:
            secured.close()
            if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                raise ConnectionAbortedError("closed during the TLS handshake") from None
            if isinstance(error, ssl.SSLError):
                raise no_trust(error, self._address.authority) from None
            raise
        return secured

    def _shake_hands(self, sock: ssl.SSLSocket, until: float, heartbeat: Heartbeat) -> None:
        late = f"no TLS within {HANDSHAKE_SECONDS_MAX:g} s: frozen, or it speaks none"
        while True:
            try:
                sock.do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
                writing = isinstance(error, ssl.SSLWantWriteError)
                _wait(sock, until, self._clock, heartbeat, late, writing=writing)
            else:
                return


def _connected(
    family: socket.AddressFamily, address: tuple[object, ...], until: float, clock: Clock, heartbeat: Heartbeat
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        _reach(sock, address, until, clock, heartbeat)
    except BaseException:
        sock.close()
        raise
    return sock


def _reach(sock: socket.socket, address: tuple[object, ...], until: float, clock: Clock, heartbeat: Heartbeat) -> None:
    sock.setblocking(False)
    with suppress(BlockingIOError):
        sock.connect(address)
    _wait(sock, until, clock, heartbeat, "timed out", writing=True)
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code:
        raise OSError(code, os.strerror(code))


def _wait(sock: socket.socket, until: float, clock: Clock, heartbeat: Heartbeat, late: str, *, writing: bool) -> None:
    """Until the socket is ready. Raises TimeoutError when it is late, and says so: bytes that trickle are late, too."""
    while (left := until - clock()) > 0:
        if ready(sock, min(SLICE_SECONDS, left), writing=writing):
            return
        heartbeat()
    raise TimeoutError(late)
