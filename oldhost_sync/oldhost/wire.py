"""OldHost's protocol (docs/protocol.md) as a pure codec: bytes out, answers in. No socket, no clock.

The client relies only on what that page says. An answer is one of a closed set of values. One that arrived whole and
that the page does not list, or that is about another nonce than ours, is :class:`Unlisted`; none, or a part of one, is
:class:`Ambiguous`. After both the request may have been applied or not, or may still be applied. Neither ever becomes
:class:`Applied`.

The second half reads the HTTP response that holds an answer, piece by piece: httptools has the grammar, this file the
limits. A response that is invalid, too large or truncated raises :class:`NotAResponse`, and bytes after it are
reported, so that the connection is not used again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, TypeVar

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

# No ban and no pause is longer; a larger number is garbage. We ask far more often anyway.
RETRY_AFTER_SECONDS_MAX = 86_400.0
# The ledger stores nonces as BIGINT (up to 2^63 - 1) and must be able to continue counting from OldHost's number. A
# counter that began at 0 never gets this far: a larger number is garbage, or a counter that overflowed.
NONCE_MAX = 2**62
# A number that is out of range may have thousands of digits.
SAID_LENGTH_MAX = 40
REASON_LENGTH_MAX = 512
# Head and body of a response, with what comes before them. The protocol's longest answer has some hundred bytes; a
# proxy's HTML error page still fits.
RESPONSE_BYTES_MAX = 64 * 1024
HTTP_VERSIONS = ("1.1", "1.0")

T = TypeVar("T")


# --------------------------------------------------------------------------------------------------------- answers


@dataclass(frozen=True, slots=True)
class Said:
    """A complete answer as OldHost gave it. `words`: its body, shortened, with what can't be printed escaped.
    `used`: it says that our nonce is used, whatever else it says. `refuses`: it is about this operation, and not about
    the connection or all of them.
    """

    status: int
    words: str
    used: bool = False
    refuses: bool = False

    def __str__(self) -> str:
        return f"status {self.status}: {self.words}" if self.words else f"status {self.status}, without a body"


@dataclass(frozen=True, slots=True)
class Applied:
    """200, or another 2xx, for our own nonce: consumed, applied. `surprise`: what else it says contradicts that, if
    anything does.
    """

    expected: int | None
    surprise: str = ""

    def names_earlier_than(self, nonce: int) -> bool:
        """Whether it names a next nonce that is not beyond ours (or out of range), though it calls ours applied."""
        return bool(self.surprise) and (self.expected is None or self.expected <= nonce)


@dataclass(frozen=True, slots=True)
class Rejected:
    """422: refused for its content; `consumed` says whether the nonce is used up, `is_told`: by OldHost's own words."""

    reason: str
    consumed: bool
    is_told: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Gap:
    """400 nonce_gap: not consumed, no other harm."""

    expected: int


@dataclass(frozen=True, slots=True)
class Replay:
    """400 nonce_replay: our nonce was used before; a ban begins. `retry_after` in seconds, None if not given."""

    expected: int | None
    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Banned:
    """403 banned: not consumed. `retry_after` in seconds, None if not given."""

    retry_after: float | None


@dataclass(frozen=True, slots=True)
class Busy:
    """503 busy: not consumed; send the same bytes again after `retry_after` seconds."""

    retry_after: float


@dataclass(frozen=True, slots=True)
class ConnectionInUse:
    """503 connection_in_use: another connection is open; this one is closed by OldHost."""


@dataclass(frozen=True, slots=True)
class Malformed:
    """400 malformed: not consumed."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expected:
    """The answer to an ask: the nonce that OldHost wants next."""

    nonce: int


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """The answer to an ask has a nonce that the ledger can't count from; `said`: that number, shortened."""

    said: str


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A complete answer that the protocol does not have. It never proves an apply (I14): the expected nonce tells
    whether the nonce was used, and the status what that means.
    """

    why: str


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """No complete answer: only the expected nonce decides. `unreadable`: bytes arrived that are not an answer."""

    why: str
    unreadable: bool = False


Answer = Applied | Rejected | Gap | Replay | Banned | Busy | ConnectionInUse | Malformed | Unlisted | Ambiguous
AskAnswer = Expected | OutOfRange | Banned | Busy | ConnectionInUse | Ambiguous


# -------------------------------------------------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Target:
    """To whom requests are addressed. `authority`: for the Host header; `base`: before each path; `authorization`: the
    header's value, a secret, empty: none.
    """

    authority: str = "oldhost"
    base: str = ""
    authorization: str = field(default="", repr=False)

    @property
    def fields(self) -> str:
        """The header fields of each request."""
        credentials = f"Authorization: {self.authorization}\r\n" if self.authorization else ""
        return f"Host: {self.authority}\r\n{credentials}"


OLDHOST = Target()


def encode_sync(nonce: int, body: bytes, target: Target = OLDHOST) -> bytes:
    """The complete request for one operation, the same bytes for the same arguments."""
    return (
        f"POST {target.base}/oldhost/sync HTTP/1.1\r\n{target.fields}X-Nonce: {nonce}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode("ascii") + body


def encode_ask(target: Target = OLDHOST) -> bytes:
    """The request for the expected nonce; it consumes none."""
    return (
        f"GET {target.base}/oldhost/expected-nonce HTTP/1.1\r\n{target.fields}Accept: application/json\r\n"
        "Cache-Control: no-cache\r\n\r\n"  # an answer from a cache would be too old to decide on
    ).encode("ascii")


# --------------------------------------------------------------------------------------------------------- reading


def read_answer(status: int, body: bytes, nonce: int) -> Answer:
    """What `status` and `body` say about the operation sent with `nonce`."""
    fields = _json_object(body)
    if fields is None:
        return Unlisted(f"status {status} without a JSON object")
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return _read_applied(fields, nonce)
    error = fields.get("error")
    if status == 422 and error == "rejected":
        return _read_rejected(fields, nonce)
    if status == 400 and error == "nonce_gap":
        expected = _nonce(fields.get("expected_nonce"))
        return Unlisted("a gap without the expected nonce") if expected is None else Gap(expected)
    if status == 400 and error == "nonce_replay":
        return Replay(_nonce(fields.get("expected_nonce")), _seconds(fields.get("retry_after")))
    if status == 400 and error == "malformed":
        return Malformed(_text(fields.get("reason")))
    return _read_refusal(status, fields) or Unlisted(f"status {status}, not in the protocol")


def said_by(status: int, body: bytes, nonce: int) -> Said:
    """The answer to the operation with `nonce` in its own words, for people: they are data from outside."""
    fields = _json_object(body) or {}
    answer = read_answer(status, body, nonce)
    is_replay = isinstance(answer, Replay)
    is_ours = fields.get("nonce", nonce) == nonce
    is_used = is_replay or (is_ours and (_nonce(fields.get("expected_nonce")) or 0) > nonce)
    text = body[: 4 * REASON_LENGTH_MAX].decode(errors="backslashreplace")
    escaped = "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text)
    return Said(status, escaped[:REASON_LENGTH_MAX].strip(), is_used, isinstance(answer, Busy | Unlisted))


def read_ask(status: int, body: bytes) -> AskAnswer:
    """What `status` and `body` answer to an ask for the expected nonce."""
    fields = _json_object(body)
    if fields is None:
        return _unreadable(f"status {status} without a JSON object")
    if status == 200:
        said = fields.get("expected_nonce")
        # An answer to a sync request has a nonce beside the expected one: it does not belong to this ask.
        if not _is_whole(said) or "nonce" in fields:
            return _unreadable("status 200 without an expected nonce")
        expected = _nonce(said)
        return OutOfRange(str(said)[:SAID_LENGTH_MAX]) if expected is None else Expected(expected)
    return _read_refusal(status, fields) or _unreadable(f"status {status}, not in the protocol")


def told_by_header(answer: T, seconds: float | None) -> T:
    """The answer, with what its header says where its body says nothing."""
    if seconds is None:
        return answer
    if (isinstance(answer, Banned | Replay) and answer.retry_after is None) or (
        isinstance(answer, Busy) and not answer.retry_after
    ):
        return replace(answer, retry_after=seconds)
    return answer


def _read_applied(fields: Mapping[str, Any], nonce: int) -> Answer:
    answered, expected = _nonce(fields.get("nonce")), _nonce(fields.get("expected_nonce"))
    if answered != nonce:
        return Unlisted(f"the answer is for nonce {answered}, not {nonce}")
    named = fields.get("expected_nonce")
    if named is None or expected == nonce + 1:
        return Applied(expected)
    # The sentence is shown to viewers and stored in Temporal: no word of OldHost's is in it (I9).
    shown = str(named)[:SAID_LENGTH_MAX] if _is_whole(named) else "what is no number"
    return Applied(expected, f"OldHost says that nonce {nonce} is applied, and then expects {shown}, not {nonce + 1}")


def _read_rejected(fields: Mapping[str, Any], nonce: int) -> Answer:
    """By the protocol: consumed, unless `expected_nonce` says otherwise."""
    expected = _nonce(fields.get("expected_nonce"))
    if expected is None and "expected_nonce" in fields:
        return Unlisted("rejected, with an invalid expected nonce")
    if expected not in {None, nonce, nonce + 1}:
        return Unlisted(f"rejected {nonce}, but expects {expected}")
    return Rejected(_text(fields.get("reason")), consumed=expected != nonce, is_told=expected is not None)


def _read_refusal(status: int, fields: Mapping[str, Any]) -> Banned | Busy | ConnectionInUse | None:
    match status, fields.get("error"):
        case 403, "banned":
            return Banned(_seconds(fields.get("retry_after")))
        case 503, "busy":
            return Busy(_seconds(fields.get("retry_after")) or 0.0)
        case 503, "connection_in_use":
            return ConnectionInUse()
    return None


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_whole(value: object) -> bool:
    """A whole number, and neither True nor 501.0: a lax check would accept garbage as an answer."""
    return isinstance(value, int) and not isinstance(value, bool)


def _nonce(value: object) -> int | None:
    """A nonce that the ledger can store and count from."""
    return value if isinstance(value, int) and _is_whole(value) and 0 <= value <= NONCE_MAX else None


def _unreadable(why: str) -> Ambiguous:
    return Ambiguous(why, unreadable=True)


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return min(max(0, value), RETRY_AFTER_SECONDS_MAX) * 1.0


def _text(value: object) -> str:
    said = value if isinstance(value, str) else "no reason given"
    return "".join(mark if mark.isprintable() else " " for mark in said[:REASON_LENGTH_MAX])


# --------------------------------------------------------------------------------------------------- the HTTP response


class NotAResponse(Exception):  # noqa: N818 - says what came
    """The bytes are not an HTTP response within the limits; the connection can't be used again."""


class ConnectionEnd(StrEnum):
    """Why OldHost's connection carries nothing more, each cause apart: what to do about them has nothing in common."""

    NONE = ""
    STRAY = "bytes came behind its answer"
    OLD_VERSION = "it speaks HTTP/1.0"
    ANNOUNCED = "its answer says 'Connection: close'"
    WITH_ANSWER = "its answer ends with the connection"
    QUIET = "without announcing it"


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
    """Feed it the bytes from the socket (b"" for the end); it returns None until the response is complete.

    The parser calls the methods that begin with `on_`.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.has_begun = False  # its first byte has arrived
        self._bytes = 0
        self._begin()

    def _begin(self) -> None:
        self._ends_with_connection = True
        self._has_head = False
        self._body = b""
        self._retry_after = self._date = ""
        self._response: Response | None = None

    def feed(self, data: bytes) -> Response | None:
        self._bytes += len(data)
        if self._bytes > RESPONSE_BYTES_MAX:
            raise NotAResponse(f"the answer is longer than {RESPONSE_BYTES_MAX} bytes")
        if not data:
            return self._ended()
        # The parser would pass over empty lines, and read other protocols.
        if not self.has_begun and data[:1] != b"H":
            raise NotAResponse(f"an answer can't begin with {data[:1]!r}")
        self.has_begun = True
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
                raise NotAResponse(str(error.__context__ or error)) from error

    def _ended(self) -> Response:
        if not (self._has_head and self._ends_with_connection):
            raise NotAResponse("closed before the answer was complete")
        return self._complete(ConnectionEnd.OLD_VERSION if self._is_old else ConnectionEnd.WITH_ANSWER)

    @property
    def _is_old(self) -> bool:
        return bool(self._parser.get_http_version() != "1.1")

    def _complete(self, ending: ConnectionEnd) -> Response:
        reusable = ending is ConnectionEnd.NONE
        return Response(self._parser.get_status_code(), self._body, reusable, ending, self._retry_after, self._date)

    def on_message_begin(self) -> None:
        if self._response is not None:
            raise NotAResponse("bytes behind the response")

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"retry-after":
            self._retry_after = value.decode("latin-1").strip()
        elif name == b"date":
            self._date = value.decode("latin-1").strip()
        if name not in {b"transfer-encoding", b"content-length"}:
            return
        if not self._ends_with_connection:
            raise NotAResponse("its length is given twice")
        if name == b"transfer-encoding" and value.lower() != b"chunked":
            raise NotAResponse("a transfer coding other than chunked")
        self._ends_with_connection = False

    def on_headers_complete(self) -> None:
        if self._parser.get_http_version() not in HTTP_VERSIONS:
            raise NotAResponse(f"HTTP/{self._parser.get_http_version()}")
        if self._parser.get_status_code() < 100:
            raise NotAResponse(f"status {self._parser.get_status_code()}")
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim response: the final one follows
            if not self._ends_with_connection:
                raise NotAResponse("an interim response with a body")
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
