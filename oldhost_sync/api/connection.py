"""One connection of a client: uvicorn's protocol with limits on everything that a client could make large or slow, and
how many connections there may be.

uvicorn limits neither the size nor the time of a header, reads a body of any length, and keeps silent connections open.
Here every wait has a timeout: for a header, for a body, for the client to read its answer, for the next request. If an
answer is still possible, it gives the reason; otherwise the connection is just closed.

One request gives one answer, also when the client ends its side of the connection after its last request. What it
offers is declined: another protocol, or to wait before it sends its body.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, MutableMapping
from functools import partial
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any, Protocol, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import (
    Problem,
    answer_bytes,
    bad_host,
    bad_version,
    header_too_large,
    no_tunnel,
    repeated_header,
    request_too_large,
    too_many_connections,
    too_many_waiting,
    too_slow,
    unknown_coding,
    unreadable,
)

# RFC 3986: a name, an IPv4 address or an IPv6 one in brackets; then a port.
_LABEL = rb"[A-Za-z0-9_~-]{1,63}"
_HOST = re.compile(
    rb"(?:%b(?:\.%b)*\.?|\[(?P<version_6>[0-9A-Fa-f:.]{2,45})\])(?::(?P<port>[0-9]{1,5}))?" % (_LABEL, _LABEL)
)
_NAME_LENGTH_MAX, _PORT_MAX = 255, 65_535
# Headers that may occur only once: with two of them, the server would have to choose for the client.
_ONCE = (b"authorization", b"idempotency-key")
VERSIONS = ("1.0", "1.1")


class _RefusedError(Exception):
    """Raised in a callback of the parser, to stop parsing this request."""


def is_host(value: bytes) -> bool:
    """Whether `value` is valid in a Host header."""
    parts = _HOST.fullmatch(value)
    if not parts or len(value) > _NAME_LENGTH_MAX or int(parts["port"] or 0) > _PORT_MAX:
        return False
    try:
        return parts["version_6"] is None or IPv6Address(parts["version_6"].decode()) is not None
    except ValueError:
        return False


class BoundedConnection(HttpToolsProtocol):
    """`count`: all connections of this process.

    A message is a request as the parser sees it: its header and its body, until the next request begins.
    """

    def __init__(self, *given: Any, count: ConnectionCount, **named: Any) -> None:
        super().__init__(*given, **named)
        self._count = count
        self._application = self.app
        self._address = ""
        self._counted = False
        self._refused: Problem | None = None
        self._lingers = False
        self._thrown_away = 0
        self._client_has_ended = False
        # The message: its number, whether its header or body is still incomplete, its bytes so far.
        self._message = 0
        self._has_asked = False
        self._in_header = self._in_body = False
        self._bytes = self._header_bytes = 0
        # What the connection is waiting for (with the message's number), and its timeout.
        self._awaited: tuple[int, str] | None = None
        self._awaited_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # So that `pause_writing` is called as soon as the client does not read what is sent.
        transport.set_write_buffer_limits(high=0)
        self._address = address_of(self.client)
        full = self._count.enter(self._address, self)
        if full:
            self._refuse(too_many_connections(full))
            return
        self._counted = True
        self._await("header", http_limits.HEADER_SECONDS_MAX)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._await_nothing()
        self._stop_unread_timer()
        if self._counted:
            self._count.leave(self._address, self)
        if self._lingers:
            self._count.lingering -= 1

    @property
    def waits_for_client(self) -> bool:
        """Whether there is nothing to answer: no request is complete, or one was answered without its whole body."""
        return self._is_idle

    def give_way(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        # In pieces, so that a header that is too long is detected before more than twice the limit is in memory.
        size = http_limits.HEADER_BYTES_MAX
        for start in range(0, len(data), size):
            if self._refused:
                self._throw_away(len(data) - start)
                return
            if self.transport.is_closing():
                return
            piece = data if len(data) <= size else data[start : start + size]
            self._feed(piece)
        self._mind_the_time()

    def _feed(self, piece: bytes) -> None:
        before = self._message
        self._unset_keepalive_if_required()
        try:
            self._parse(piece)
        except httptools.HttpParserError:
            self._refuse(self._refused or unreadable())
        if self._refused or self._message != before:
            return
        self._bytes += len(piece)
        if not self._in_body and self._bytes > http_limits.HEADER_BYTES_MAX:
            self._refuse(header_too_large())
        elif self._bytes > http_limits.REQUEST_BYTES_MAX:
            self._refuse(request_too_large())

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offered:
                data = data[offered.args[0] :]
                self.parser, header = parser_without_offer(self, self.headers)
                self.parser.feed_data(header)
            else:
                return

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more. Returns whether it is still to be answered: yes, if a whole request waits for it.

        An answer in chunks is an event stream, which would go on; so it ends here.
        """
        self._client_has_ended = True
        self._await_nothing()
        if self._refused or self._is_idle or self.cycle.chunked_encoding:
            return False
        if not self._in_body:
            return True
        if not (self.pipeline and self.pipeline[0][0] is self.cycle):
            return False
        self.pipeline.popleft()  # the one that was cut short
        return True

    def on_response_complete(self) -> None:
        was_last = not self.pipeline
        super().on_response_complete()
        if was_last and self._client_has_ended:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(http_limits.UNREAD_SECONDS_MAX, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # ---------------------------------------------------------------------------------------------------- the parser

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._message += 1
        self._in_header, self._in_body = True, False
        self._bytes = self._header_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow_header(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_body:  # otherwise it is a trailer after a chunked body, which no route reads
            super().on_header(name, value.strip(b" \t"))  # blanks around a value are no part of it (RFC 9110, 5.5)
        self._grow_header(len(name) + len(value) + len(b": \r\n"))
        if len(self.headers) > http_limits.HEADERS_MAX:
            self._stop_parsing(header_too_large())

    def on_headers_complete(self) -> None:
        self._check_protocol()
        self._check_host()
        self._check_once()
        if len(self.pipeline) >= http_limits.PIPELINED_MAX:
            self._stop_parsing(too_many_waiting())
        app = cast(ASGIApp, self._application)
        waits = self.expect_100_continue
        self.app = cast(ASGI3Application, partial(ended_unless_read, app)) if waits else self._application
        super().on_headers_complete()
        self._in_header, self._in_body, self._has_asked = False, True, True

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # the header has ended; the offer in it will be declined, and the body follows
        super().on_message_complete()
        self._in_header = self._in_body = False
        self._bytes = 0

    def _grow_header(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > http_limits.HEADER_BYTES_MAX:
            self._stop_parsing(header_too_large())

    def _check_protocol(self) -> None:
        """The length of the body must be beyond doubt (RFC 9112, 6): only `chunked`, and not in HTTP/1.0."""
        version = self.parser.get_http_version()
        if version not in VERSIONS:
            self._stop_parsing(bad_version())
        if self.parser.get_method() == b"CONNECT":
            self._stop_parsing(no_tunnel())
        codings = [value.strip().lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings and (version == "1.0" or codings != [b"chunked"]):
            self._stop_parsing(unknown_coding())
        self.expect_100_continue = self.expect_100_continue and version != "1.0"

    def _check_host(self) -> None:
        """RFC 9112, 3.2: exactly one valid Host header; only HTTP/1.0 may have none."""
        given = [value for name, value in self.headers if name == b"host"]
        if len(given) > 1:
            self._stop_parsing(bad_host("There is more than one."))
        if given and not is_host(given[0]):
            self._stop_parsing(bad_host("It is not a valid host name."))
        if not given and self.parser.get_http_version() != "1.0":
            self._stop_parsing(bad_host("It is missing."))

    def _check_once(self) -> None:
        names = [name for name, _ in self.headers]
        for once in _ONCE:
            if names.count(once) > 1:
                self._stop_parsing(repeated_header(once.decode()))

    def _stop_parsing(self, problem: Problem) -> None:
        self._refused = problem
        raise _RefusedError

    # ------------------------------------------------------------------------------------------------------ the time

    def _mind_the_time(self) -> None:
        if self._refused or self.transport.is_closing():
            return
        if self._in_body:
            self._await("body", http_limits.BODY_SECONDS_MAX)
        elif self._in_header or self._is_idle:
            # Idle although data arrived: line breaks, which a request may or may not follow.
            self._await("header", http_limits.HEADER_SECONDS_MAX)
        else:
            self._await_nothing()

    @property
    def _is_idle(self) -> bool:
        return not self._has_asked or (self.cycle.response_complete and not self.pipeline)

    def _await(self, what: str, seconds: float) -> None:
        if self._awaited == (self._message, what):
            return
        self._await_nothing()
        self._awaited = self._message, what
        self._awaited_timer = self.loop.call_later(seconds, self._on_timeout, what, seconds)

    def _await_nothing(self) -> None:
        self._awaited = None
        if self._awaited_timer is not None:
            self._awaited_timer.cancel()
            self._awaited_timer = None

    def _on_timeout(self, what: str, seconds: float) -> None:
        if self._in_header or self._in_body:
            self._refuse(too_slow(what, seconds))
        else:
            self.transport.close()  # there is no request to answer

    # --------------------------------------------------------------------------------------------------- the refusal

    def _refuse(self, problem: Problem) -> None:
        """Answer with `problem` unless another answer is being sent; then close the connection."""
        self._refused = problem
        self._await_nothing()
        self._unset_keepalive_if_required()
        if self.transport.is_closing():
            return
        if not self._may_answer():
            self.transport.abort()
            return
        if self._in_body:
            # Tells the request's route that the client is gone.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(answer_bytes(problem))
        self._begin_to_linger()

    def _may_answer(self) -> bool:
        if self._in_body:
            return not (self.cycle.response_started or self.pipeline)
        return self._is_idle

    def _begin_to_linger(self) -> None:
        if self._count.lingering >= http_limits.LINGERING_MAX:
            self.transport.close()
            return
        self._count.lingering += 1
        self._lingers = True
        self.flow.resume_reading()
        self.transport.write_eof()
        self.loop.call_later(http_limits.LINGER_SECONDS, self.transport.abort)

    def _throw_away(self, size: int) -> None:
        self._thrown_away += size
        if self._thrown_away > http_limits.LINGER_BYTES_MAX:
            self.transport.abort()


# ------------------------------------------------------------------------------------------------------ declined offers

# The parser takes a request with `Connection: Upgrade` for the last one of its connection: it does not read the
# request's body, and would take it for the next request. The offer is declined (RFC 9110, 7.8), so the request goes on
# as if it had not been made: a new parser, which is told only how long the body is, reads the rest.

# The headers that tell the length of a body.
_FRAMING = (b"content-length", b"transfer-encoding")


class Callbacks(Protocol):
    """What a parser calls."""

    def on_message_begin(self) -> None: ...
    def on_url(self, url: bytes) -> None: ...
    def on_header(self, name: bytes, value: bytes) -> None: ...
    def on_headers_complete(self) -> None: ...
    def on_body(self, body: bytes) -> None: ...
    def on_message_complete(self) -> None: ...


class _AfterFirstHeader:
    """Passes on everything but the first header, which is known."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._is_known = True
        self.on_body = callbacks.on_body
        self.on_message_complete = callbacks.on_message_complete

    def on_message_begin(self) -> None:
        if not self._is_known:
            self._callbacks.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_known:
            self._callbacks.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_known:
            self._callbacks.on_header(name, value)

    def on_headers_complete(self) -> None:
        if not self._is_known:
            self._callbacks.on_headers_complete()
        self._is_known = False


def parser_without_offer(
    callbacks: Callbacks, headers: Iterable[tuple[bytes, bytes]]
) -> tuple[httptools.HttpRequestParser, bytes]:
    """A parser for the rest of a request that has these `headers`, and what to feed it first."""
    parser = httptools.HttpRequestParser(_AfterFirstHeader(callbacks))
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
    framing = [b"%b: %b" % (name, value) for name, value in headers if name in _FRAMING]
    return parser, b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""])


async def ended_unless_read(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """A client that waits for `100 Continue` gets a final answer without it when `app` does not read the body. Whether
    it then sends the body is its choice, so what follows can't be told from a request: the connection ends.
    """
    is_read = False

    async def noted_receive() -> Message:
        nonlocal is_read
        is_read = True
        return await receive()

    async def ending_send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start" and not is_read:
            message = {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}
        await send(message)

    await app(scope, noted_receive, ending_send)


# ------------------------------------------------------------------------------------------------ how many there may be

# The network that one IPv6 customer gets: one customer can use any number of single addresses in it.
IPV6_PREFIX = 64


class Connection(Protocol):
    """A connection that is counted."""

    @property
    def waits_for_client(self) -> bool:
        """Whether it has no request to answer."""

    def give_way(self) -> None:
        """End, at once."""


class ConnectionCount:
    """`at_most` connections in total, `of_one` from each address; one above that is refused.

    But a connection that asks nothing keeps nobody out: when all are taken, one that waits for its client gives way to
    the new one, the oldest of the address that has the most. Only when all are being answered is a new one refused.

    Each process counts only its own connections. `lingering`: refused ones that are not closed yet.
    `on_refused` is called with the limit that was reached, as `enter` returns it, or "idle" when one gave way.
    """

    def __init__(self, at_most: int, of_one: int, on_refused: Callable[[str], None] = lambda _full: None) -> None:
        self._at_most = at_most
        self._of_one = of_one
        self._on_refused = on_refused
        # The connections of each address, the oldest first.
        self._by_address: dict[str, dict[Connection, None]] = {}
        self.open = self.lingering = 0

    def enter(self, address: str, connection: Connection) -> str:
        """Count one more connection and return an empty text; or count nothing and return which limit is reached
        ("address", "server").
        """
        full = ""
        if len(self._by_address.get(address, ())) >= self._of_one:
            full = "address"
        elif self.open >= self._at_most and not self._make_room():
            full = "server"
        if full:
            self._on_refused(full)
            return full
        self.open += 1
        self._by_address.setdefault(address, {})[connection] = None
        return ""

    def leave(self, address: str, connection: Connection) -> None:
        """A connection that was counted has ended; or it gave way, and is not counted any more."""
        of_address = self._by_address.get(address, {})
        if connection in of_address:
            del of_address[connection]
            self.open -= 1
        if not of_address:
            self._by_address.pop(address, None)

    def _make_room(self) -> bool:
        for address, connections in sorted(self._by_address.items(), key=lambda item: -len(item[1])):
            for connection in connections:
                if connection.waits_for_client:
                    self.leave(address, connection)
                    self._on_refused("idle")
                    connection.give_way()
                    return True
        return False


def address_of(client: tuple[str, int] | None) -> str:
    """The client's address: an IPv4 address or an IPv6 network; empty for a socket in the file system. It is that of
    the socket, because any client can set `X-Forwarded-For`; so behind a proxy all connections have the proxy's.
    """
    if client is None:
        return ""
    try:
        address = ip_address(client[0].partition("%")[0])
    except ValueError:
        return client[0]
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Network((address, IPV6_PREFIX), strict=False))
    return str(address)
