"""One HTTP/1.1 response, read piece by piece, pure: h11 has the grammar, this file the limits.

A reader serves one exchange. It never guesses: a response that is invalid, too large or truncated raises
:class:`NotAResponse`, and bytes after the response are reported, so that the connection is not used again.
"""

from __future__ import annotations

from dataclasses import dataclass

import h11

# The protocol's longest answer has some hundred bytes; a proxy's HTML error page still fits.
HEAD_BYTES_MAX = 16 * 1024
BODY_BYTES_MAX = 64 * 1024

_ASKED = h11.Request(method=b"POST", target=b"/", headers=[(b"host", b"oldhost"), (b"content-length", b"0")])


class NotAResponse(Exception):  # noqa: N818 - says what came
    """The bytes are not an HTTP response within the limits; the connection can't be used again."""


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. `reusable`: the connection may carry the next request."""

    status: int
    body: bytes
    reusable: bool


class ResponseReader:
    """Feed it the bytes from the socket (b"" for the end); it returns None until the response is complete."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._http.send(_ASKED)
        self._http.send(h11.EndOfMessage())
        self.has_begun = False  # its first byte has arrived
        self._status: int | None = None
        self._body = bytearray()

    def feed(self, data: bytes) -> Response | None:
        self.has_begun = self.has_begun or bool(data)
        try:
            self._http.receive_data(data)
            return self._read()
        except h11.RemoteProtocolError as error:
            raise NotAResponse(str(error)) from error

    def _read(self) -> Response | None:
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                return None
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > BODY_BYTES_MAX:
                    raise NotAResponse(f"the answer is longer than {BODY_BYTES_MAX} bytes")
            elif isinstance(event, h11.EndOfMessage):
                return self._whole()
            elif not isinstance(event, h11.InformationalResponse):
                raise NotAResponse(f"unexpected {type(event).__name__}")

    def _whole(self) -> Response:
        if self._status is None:
            raise NotAResponse("the end of a response without its beginning")
        surplus, ended = self._http.trailing_data
        reusable = self._http.their_state is h11.DONE and not surplus and not ended
        return Response(self._status, bytes(self._body), reusable)
