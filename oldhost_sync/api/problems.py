"""Error answers: problem+json (RFC 9457) that says what is wrong and what to do.

The caller's error, do not repeat:  400 can't be read · 401 no known token · 403 wrong role · 404 unknown · 405 method
                                    409 conflict · 410 gone · 413 too large · 415 media type · 422 a wrong field
                                    424 (in a batch) another change of the entity was refused · 429 the token's quota
The server's error, repeat later:   503 unavailable (database, Temporal, too busy) · 500 an error in the server

A problem never repeats the payload that it is about: it names the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails

from oldhost_sync.api import http_limits
from oldhost_sync.store.errors import (
    AccessRefused,
    CommitUncertain,
    DatabaseUnavailable,
    EntityRefused,
    IdempotencyConflict,
    InvalidChange,
    StatementRefused,
    StoreError,
    TransactionContended,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:oldhost-sync:problem:"
# The kind of error whose words are the parser's; `FIELD` in them stands for the field's name.
OWN_WORDS = "field"
FIELD = "{field}"


class FieldError(BaseModel):
    """One field that is wrong."""

    field: str = Field(examples=["body.payload"])
    message: str = Field(examples=["Input should be an object"])


class ProblemBody(BaseModel):
    """An error: what is wrong (`detail`) and what to do (`action`)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=[TYPE_PREFIX + "unknown-unit"])
    title: str = Field(examples=["There is no such unit"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["No unit has the id '12B'."])
    action: str = Field(examples=["Check the id; PUT /api/units/{id} creates a unit."])
    errors: list[FieldError] | None = Field(
        default=None, description="The fields that are wrong, if the error is about fields."
    )


class Problem(Exception):  # noqa: N818 - the standard's word
    """An error answer. `kind` is the last part of its type URI; `more` holds further fields. `cure`: what mends the
    cause itself, where that is known; `action` says what the caller does.
    """

    cure = ""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        action: str,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(title)
        self.status = status
        self.kind = kind
        self.headers = dict(headers or {})
        content = {"type": TYPE_PREFIX + kind, "title": title, "status": status, "detail": detail, "action": action}
        self.content: dict[str, object] = content | more


def unavailable(kind: str, title: str, detail: str, action: str, *, retry_after: int = 1, **more: object) -> Problem:
    return Problem(503, kind, title, detail, action, {"Retry-After": str(retry_after)}, **more)


# ----------------------------------------------------------------------------------------------------- common problems


def unauthenticated() -> Problem:
    return Problem(
        401,
        "unauthenticated",
        "A bearer token is needed",
        "The request has no bearer token that this server knows.",
        "Send 'Authorization: Bearer <token>'; `oldhost-sync tokens new` creates one.",
        {"WWW-Authenticate": 'Bearer realm="oldhost-sync"'},
    )


def forbidden(role: str, allowed: Sequence[str]) -> Problem:
    detail = f"The token's role is {role}; this needs {' or '.join(allowed)}."
    headers = {"WWW-Authenticate": 'Bearer realm="oldhost-sync", error="insufficient_scope"'}
    return Problem(403, "forbidden", "This token may not do that", detail, "Use a token of that role.", headers)


def internal(error_id: str) -> Problem:
    """An error in the server; the log has `error_id` and the traceback. Clients know the id as `incident`, in the
    answer's field and in its words and the log's: not an incident of late emergencies (`policy/rules/promise.py`).
    """
    detail = "An unexpected error occurred in the server."
    action = f"Report the incident {error_id}; a write may be repeated with the same Idempotency-Key."
    return Problem(500, "internal", "An error in the server", detail, action, incident=error_id)


def method_not_allowed(method: str, allowed: str) -> Problem:
    detail, action = f"{method[:20]} is not possible here.", f"Use {allowed}; see GET /openapi.json."
    title = "This path does not support that method"
    return Problem(405, "method-not-allowed", title, detail, action, {"Allow": allowed})


def cursor_gone(detail: str, *, oldest: str) -> Problem:
    return Problem(
        410,
        "cursor-gone",
        "The feed no longer reaches back to this cursor",
        detail,
        "Read the present state of what you follow (GET /api/units, GET /api/changes/{idempotency_key}), "
        "then continue from `oldest_cursor`.",
        oldest_cursor=oldest,
    )


def cursor_unknown(*, oldest: str, latest: str) -> Problem:
    return Problem(
        410,
        "cursor-unknown",
        "This cursor is not from this database",
        "The last fate that you saw is not in this database, or was taken back: the database was restored from a "
        "backup, a replica that was behind took over, or an operator resolved a halt. Fates that you saw may be "
        "missing, and the feed may hold others in their places.",
        "Submit what you sent since the backup again, with the same keys. Keep `latest_cursor`, read the present state "
        "of what you follow (GET /api/units, GET /api/changes/{idempotency_key}), then continue from `latest_cursor`; "
        "or read all fates that are kept again, from `oldest_cursor`.",
        oldest_cursor=oldest,
        latest_cursor=latest,
    )


def unknown_change(detail: str) -> Problem:
    return Problem(
        404,
        "unknown-change",
        "There is no such change",
        detail,
        "Check the key: it is `idempotency_key` in the answer to the write; GET /api/search also finds changes by id.",
    )


_AGAIN = "Repeat the request a little later, with the same Idempotency-Key"


def database_away(reason: str) -> Problem:
    return unavailable("database-away", "The database is unavailable", f"Nothing was recorded: {reason}.", f"{_AGAIN}.")


def database_unsuitable(reason: str) -> Problem:
    detail = f"Nothing was recorded: {reason}."
    action = "Tell the database's administrator; then repeat the request with the same Idempotency-Key."
    return unavailable("database-unsuitable", "The database is not set up correctly", detail, action)


def commit_uncertain(idempotency_key: str | None = None, reason: str = "", **more: Any) -> Problem:
    """`idempotency_key`: the key to ask with, and to repeat the request with."""
    if idempotency_key is not None:
        more["idempotency_key"] = idempotency_key
    return unavailable(
        "commit-uncertain",
        "It is not known whether this was recorded",
        f"The database did not confirm the commit{f' ({reason})' if reason else ''}.",
        "Ask GET /api/changes/{idempotency_key}, or repeat the request with that key as its Idempotency-Key: "
        "the same change is never recorded twice under one key.",
        **more,
    )


def too_busy() -> Problem:
    detail = "Nothing was recorded: the queue for the database is full."
    return unavailable("too-busy", "Too many requests are waiting", detail, f"{_AGAIN}, and slow down.")


def too_many_streams() -> Problem:
    detail = "This token, or all of this process together, already has as many streams open as it may."
    return unavailable("too-many-streams", "Too many streams are open", detail, "Close one.", retry_after=30)


def field_invalid(field: str, message: str) -> Problem:
    action = "Correct the field and send it again; GET /openapi.json describes it."
    return _invalid([{"field": field, "message": message}], action)


def _invalid(errors: Sequence[Mapping[str, str]], action: str) -> Problem:
    detail = "{field}: {message}".format(**errors[0])
    return Problem(422, "invalid", "The request has a mistake", detail, action, errors=errors)


def fields_invalid(errors: Sequence[ErrorDetails] | Sequence[Any], place: str | None = None) -> Problem:
    """Pydantic's errors without the input, which may hold personal data."""
    faults = [
        {"field": ".".join(map(str, ([place] if place else []) + list(error["loc"]))), "message": _message(error)}
        for error in errors[:20]
    ]
    return _invalid(
        faults, "Correct the fields listed in `errors` and send it again; GET /openapi.json describes them."
    )


def _message(error: Any) -> str:
    """The parsers' words name the field."""
    if error.get("type") != OWN_WORDS:
        return str(error["msg"])
    name = str(error["loc"][-1]) if error["loc"] else "it"
    return str(error["msg"]).replace(FIELD, name)


def invalid_change(error: InvalidChange, place: str = "") -> Problem:
    """`place`: where in the request the change is."""
    return field_invalid(".".join(part for part in (place, error.field) if part) or "change", str(error))


def of_store_error(error: StoreError, idempotency_key: str | None = None) -> Problem:
    """The answer for an error of the store."""
    if isinstance(error, IdempotencyConflict):
        return Problem(
            422,
            "idempotency-key-reused",
            "This Idempotency-Key belongs to another request",
            str(error) or "The key was used before, with another body.",
            "Use a new key for a new change; repeat a request only with its own body.",
        )
    if isinstance(error, EntityRefused):
        return Problem(
            424,
            "entity-refused",
            "Another change of the same entity was refused",
            f"Not recorded, because changes.{error.because_of} was refused: an entity's changes are recorded together.",
            "Correct or leave out the other change, and send this one again.",
            because_of=error.because_of,
        )
    if isinstance(error, InvalidChange):
        return invalid_change(error)
    if isinstance(error, CommitUncertain):
        return commit_uncertain(idempotency_key, error.reason)
    if isinstance(error, TransactionContended):
        detail = "Nothing was recorded: the row stayed locked by other requests."
        return unavailable("contended", "Other requests are changing the same entity", detail, f"{_AGAIN}.")
    if isinstance(error, DatabaseUnavailable) and not isinstance(error, AccessRefused | StatementRefused):
        return database_away(str(error))
    return database_unsuitable(str(error))


# ------------------------------------------------------------- refused before a route; then the connection is closed

_LIMIT_REACHED = {
    "server": "This server has reached its limit of open connections.",
    "address": "This address has reached its limit of open connections.",
}


def too_many_connections(full: str) -> Problem:
    """`full`: as :meth:`ConnectionCount.enter` returns it."""
    action = "Use fewer connections, each for many requests, and try again later."
    return unavailable("too-many-connections", "Too many connections", _LIMIT_REACHED[full], action)


def unreadable() -> Problem:
    detail = "The data that was sent is not an HTTP request."
    return Problem(400, "not-http", "The request can't be read", detail, "Send HTTP/1.1.")


def bad_host(detail: str) -> Problem:
    return Problem(400, "bad-host", "The Host header is wrong", detail, "Send one header: Host: name, or name:port.")


def bad_version() -> Problem:
    detail = "The request is of another version of HTTP."
    return Problem(505, "bad-version", "The version of HTTP is not supported", detail, "Send HTTP/1.1.")


def no_tunnel() -> Problem:
    detail = "The method CONNECT is for proxies, and this is none."
    return Problem(501, "no-tunnel", "The method is not supported", detail, "Send the request to this server itself.")


def unknown_coding() -> Problem:
    detail = "A body may be chunked, in HTTP/1.1, and not coded otherwise."
    action = "Send a Content-Length, or Transfer-Encoding: chunked."
    return Problem(501, "unknown-coding", "The body's transfer coding is not supported", detail, action)


def repeated_header(name: str) -> Problem:
    detail = f"The header {name} occurs more than once."
    return Problem(400, "repeated-header", "A header is repeated", detail, "Send it only once.")


def too_many_waiting() -> Problem:
    detail = f"More than {http_limits.PIPELINED_MAX} requests wait in this connection."
    action = "Wait for answers before you send more requests."
    return Problem(400, "too-many-pipelined", "Too many requests at once", detail, action)


def header_too_large() -> Problem:
    detail = f"At most {http_limits.HEADER_BYTES_MAX} bytes and {http_limits.HEADERS_MAX} headers are accepted."
    return Problem(431, "header-too-large", "The request's header is too large", detail, "Send fewer, shorter headers.")


def request_too_large() -> Problem:
    detail = f"One request may have at most {http_limits.REQUEST_BYTES_MAX} bytes."
    return Problem(413, "too-large", "The request is too large", detail, "Send less in one request.")


def too_slow(what: str, seconds: float) -> Problem:
    """`what`: header or body."""
    detail = f"The {what} did not arrive within {seconds:g} s."
    return Problem(408, "too-slow", "The request did not arrive in time", detail, "Send it again, without a pause.")


def answer_bytes(problem: Problem) -> bytes:
    """The complete answer as bytes; the connection is closed after it."""
    body = json.dumps(problem.content, separators=(",", ":")).encode()
    headers = {
        **problem.headers,
        "Content-Type": MEDIA_TYPE,
        "Content-Length": str(len(body)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body
