"""The HTTP response that holds an answer, piece by piece: httptools has the grammar, this file the limits.

A response that is invalid, too large or truncated raises :class:`Garbled`, and bytes after it are reported, so that the
connection is not used again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from oldhost_sync.drivers.contract import Garbled
from oldhost_sync.drivers.events import RETRY_AFTER_SECONDS_MAX, ConnectionEnd

HTTP_VERSIONS = ("1.1", "1.0")


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. `reusable`: the connection may carry the next request; `ending`: why it may not.

    `retry_after`, `date`: these headers, empty if they are absent.
    """

    status: int
    body: bytes
    reusable: bool
    ending: ConnectionEnd = field(default=ConnectionEnd.NONE, compare=False)
    retry_after: str = field(default="", compare=False)
    date: str = field(default="", compare=False)

    @property
    def seconds_asked(self) -> float | None:
        """How long we are asked to wait; None: nothing readable is said."""
        return retry_after_seconds(self.retry_after, self.date)


class ResponseReader:
    """Feed it the bytes from the socket; it returns None until the response is complete. Raises Garbled.

    The parser calls the methods that begin with `on_`.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._has_begun = False  # its first byte has arrived
        self._begin()

    def _begin(self) -> None:
        self._ends_with_connection = True
        self._has_head = False
        self._body = b""
        self._retry_after = self._date = ""
        self._response: Response | None = None

    def feed(self, data: bytes) -> Response | None:
        # The parser would pass over empty lines, and read other protocols.
        if not self._has_begun and data[:1] != b"H":
            raise Garbled(f"an answer can't begin with {data[:1]!r}")
        self._has_begun = True
        # The parser does not tell where a response ends: one that is whole before the last byte has bytes behind it.
        self._parse(data[:-1])
        if self._response is not None:
            return replace(self._response, reusable=False, ending=ConnectionEnd.STRAY)
        self._parse(data[-1:])
        return self._response

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if self._response is None:  # else these are bytes behind it
                raise Garbled(str(error.__context__ or error)) from error

    def end(self) -> Response:
        """The connection has ended."""
        if not (self._has_head and self._ends_with_connection):
            raise Garbled("closed before the answer was complete")
        return self._complete(ConnectionEnd.OLD_VERSION if self._is_old else ConnectionEnd.WITH_ANSWER)

    @property
    def _is_old(self) -> bool:
        return bool(self._parser.get_http_version() != "1.1")

    def _complete(self, ending: ConnectionEnd) -> Response:
        reusable = ending is ConnectionEnd.NONE
        return Response(self._parser.get_status_code(), self._body, reusable, ending, self._retry_after, self._date)

    def on_message_begin(self) -> None:
        if self._response is not None:
            raise Garbled("bytes behind the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1").strip()
        elif name == b"date":
            self._date = value.decode("latin-1").strip()
        if name not in {b"transfer-encoding", b"content-length"}:
            return
        if not self._ends_with_connection:
            raise Garbled("its length is given twice")
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise Garbled("a transfer coding other than chunked")
        self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        if self._parser.get_http_version() not in HTTP_VERSIONS:
            raise Garbled(f"HTTP/{self._parser.get_http_version()}")
        if self._parser.get_status_code() < 100:
            raise Garbled(f"status {self._parser.get_status_code()}")
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim response: the final one follows
            if not self._ends_with_connection:
                raise Garbled("an interim response with a body")
            self._begin()
        else:
            keeps = ConnectionEnd.NONE if self._parser.should_keep_alive() else ConnectionEnd.ANNOUNCED
            self._response = self._complete(ConnectionEnd.OLD_VERSION if self._is_old else keeps)


def retry_after_seconds(value: str, date: str) -> float | None:
    """How long the header Retry-After asks us to wait, at most a day: seconds, or a date. None: nothing readable.

    `date`: the answer's own header Date, which a date is compared with, so that no clock of ours matters.
    """
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), RETRY_AFTER_SECONDS_MAX)
    then, now = _instant(value), _instant(date)
    if then is None or now is None:
        return None
    return min(max(0.0, (then - now).total_seconds()), RETRY_AFTER_SECONDS_MAX)


def _instant(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
