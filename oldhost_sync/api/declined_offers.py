"""What a client offers and the server declines: another protocol, or to wait before it sends its body.

The parser takes a request with `Connection: Upgrade` for the last one of its connection: it does not read the request's
body, and would take it for the next request. The offer is declined (RFC 9110, 7.8), so the request goes on as if it had
not been made: a new parser, which is told only how long the body is, reads the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any, Protocol

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
