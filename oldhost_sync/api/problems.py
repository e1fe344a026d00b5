"""Errors as answers: problem+json (RFC 9457) that says what is wrong and what to do.

Problem
├── the caller's, not again as it is:  BadRequest 400 · Unauthenticated 401 · Forbidden 403 · Unknown 404 ·
│                                      Conflict 409 · Gone 410 · TooLarge 413 · WrongMediaType 415 · Invalid 422
└── ours, again later:                 Unavailable 503 (database, Temporal, too busy)

A problem never repeats the payload that it is about: it names the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from oldhost_sync.store.errors import (
    CommitUncertain,
    DatabaseUnavailable,
    IdempotencyConflict,
    InvalidChange,
    StoreError,
    TransactionContended,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:oldhost-sync:problem:"


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
    action: str = Field(examples=["Check the id; PUT /api/units/{id} makes a unit."])
    errors: list[FieldError] | None = Field(
        default=None, description="The fields that are wrong, where it is about fields."
    )


class Problem(Exception):  # noqa: N818 - the standard's word
    """An error answer. `kind` is the last part of its type URI."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(
        self,
        kind: str,
        title: str,
        detail: str,
        action: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] | None = None,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(title)
        self.headers = dict(headers or {})
        self.content: dict[str, object] = {
            "type": TYPE_PREFIX + kind,
            "title": title,
            "status": int(self.status),
            "detail": detail,
            "action": action,
        }
        if errors is not None:
            self.content["errors"] = list(errors)
        self.content.update(more or {})

    def response(self) -> Response:
        return JSONResponse(self.content, self.status, headers=self.headers, media_type=MEDIA_TYPE)


class BadRequest(Problem):
    status = HTTPStatus.BAD_REQUEST


class Unauthenticated(Problem):
    status = HTTPStatus.UNAUTHORIZED

    def __init__(self) -> None:
        super().__init__(
            "unauthenticated",
            "A bearer token is needed",
            "The request has no bearer token that this server knows.",
            "Send 'Authorization: Bearer <token>'; `oldhost-sync tokens new` makes one.",
            headers={"WWW-Authenticate": 'Bearer realm="oldhost-sync"'},
        )


class Forbidden(Problem):
    status = HTTPStatus.FORBIDDEN

    def __init__(self, role: str, allowed: Sequence[str]) -> None:
        super().__init__(
            "forbidden",
            "This token may not do that",
            f"The token's role is {role}; this needs {' or '.join(allowed)}.",
            "Use a token of that role.",
            headers={"WWW-Authenticate": 'Bearer realm="oldhost-sync", error="insufficient_scope"'},
        )


class Unknown(Problem):
    status = HTTPStatus.NOT_FOUND


class MethodNotAllowed(Problem):
    status = HTTPStatus.METHOD_NOT_ALLOWED


class Conflict(Problem):
    status = HTTPStatus.CONFLICT


class Gone(Problem):
    status = HTTPStatus.GONE


class TooLarge(Problem):
    status = HTTPStatus.CONTENT_TOO_LARGE if hasattr(HTTPStatus, "CONTENT_TOO_LARGE") else HTTPStatus(413)


class WrongMediaType(Problem):
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class Invalid(Problem):
    status = HTTPStatus.UNPROCESSABLE_ENTITY


class Unavailable(Problem):
    status = HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(
        self,
        kind: str,
        title: str,
        detail: str,
        action: str,
        *,
        retry_after: int = 1,
        more: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(kind, title, detail, action, headers={"Retry-After": str(retry_after)}, more=more)


class Broken(Problem):
    """Our own mistake; `incident` is in the log beside the traceback."""

    def __init__(self, incident: str) -> None:
        super().__init__(
            "internal",
            "This is our fault",
            "The server met an error that it did not expect.",
            f"Report it with the incident {incident}; a write may be repeated with the same Idempotency-Key.",
            more={"incident": incident},
        )


# ----------------------------------------------------------------------------------------------------- common problems


def method_not_allowed(method: str, allowed: str) -> MethodNotAllowed:
    return MethodNotAllowed(
        "method-not-allowed",
        "This path does not take that method",
        f"{method[:20]} is not possible here.",
        f"Use {allowed}; see GET /openapi.json.",
        headers={"Allow": allowed},
    )


def cursor_gone(detail: str, *, oldest: str) -> Gone:
    return Gone(
        "cursor-gone",
        "The feed no longer reaches back to this cursor",
        detail,
        "Read the present state of what you follow (GET /api/units, GET /api/changes/{idempotency_key}), "
        "then go on from `oldest_cursor`.",
        more={"oldest_cursor": oldest},
    )


def database_away(reason: str) -> Unavailable:
    return Unavailable(
        "database-away",
        "The database is away",
        f"Nothing was recorded: {reason}.",
        "Repeat the request a little later, with the same Idempotency-Key.",
    )


def database_unsuitable(reason: str) -> Unavailable:
    return Unavailable(
        "database-unsuitable",
        "The database is not set up as it must be",
        f"Nothing was recorded: {reason}.",
        "Tell who runs the database; then repeat the request, with the same Idempotency-Key.",
    )


def commit_uncertain(idempotency_key: str | None = None) -> Unavailable:
    return Unavailable(
        "commit-uncertain",
        "It is not known whether this was recorded",
        "The connection to the database was lost in the middle of the commit.",
        "Ask GET /api/changes/{idempotency_key}, or repeat the request with that key as its Idempotency-Key: "
        "the same change is never recorded twice under one key.",
        more=None if idempotency_key is None else {"idempotency_key": idempotency_key},
    )


def too_busy() -> Unavailable:
    return Unavailable(
        "too-busy",
        "Too many requests are waiting",
        "Nothing was recorded: the queue before the database is full.",
        "Repeat the request a little later, with the same Idempotency-Key, and slow down.",
    )


def field_invalid(field: str, message: str) -> Invalid:
    return Invalid(
        "invalid",
        "The request has a mistake",
        f"{field}: {message}",
        "Correct the field and send it again; GET /openapi.json describes it.",
        errors=[{"field": field, "message": message}],
    )


def fields_invalid(errors: Sequence[ErrorDetails] | Sequence[Any], place: str | None = None) -> Invalid:
    """Pydantic's findings without the input, which may be personal."""
    found = [
        {
            "field": ".".join(str(part) for part in ([place] if place else []) + list(error["loc"])),
            "message": error["msg"],
        }
        for error in errors[:20]
    ]
    first = found[0]
    return Invalid(
        "invalid",
        "The request has a mistake",
        f"{first['field']}: {first['message']}",
        "Correct the fields listed in `errors` and send it again; GET /openapi.json describes them.",
        errors=found,
    )


def of_store_error(error: StoreError, idempotency_key: str | None = None) -> Problem:
    """The answer for an error of the store."""
    if isinstance(error, IdempotencyConflict):
        return Invalid(
            "idempotency-key-reused",
            "This Idempotency-Key belongs to another request",
            str(error) or "The key was used before, with another body.",
            "Use a new key for a new change; repeat a request only with its own body.",
        )
    if isinstance(error, InvalidChange):
        return field_invalid(str(error).split(" ", 1)[0], str(error))
    if isinstance(error, CommitUncertain):
        return commit_uncertain(idempotency_key)
    if isinstance(error, TransactionContended):
        return Unavailable(
            "contended",
            "Others are changing the same thing",
            "Nothing was recorded: the row stayed locked by other requests.",
            "Repeat the request a little later, with the same Idempotency-Key.",
        )
    if isinstance(error, DatabaseUnavailable):
        return database_away(str(error))
    return database_unsuitable(str(error))


def of_http_exception(request: Request, error: HTTPException) -> Problem:
    """The framework's own errors as problems."""
    path = request.url.path[:200]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return Unknown("unknown-path", "There is nothing here", f"No route matches {path!r}.", "See GET /openapi.json.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return method_not_allowed(request.method, ", ".join(_methods_of(request)))
    problem = BadRequest("bad-request", "The request can't be read", str(error.detail), "See GET /openapi.json.")
    problem.status = HTTPStatus(error.status_code)
    problem.content["status"] = error.status_code
    return problem


def _methods_of(request: Request) -> list[str]:
    """All methods of the path: several routes may share it, and the framework names only those of the first."""
    found = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE
        for method in route.methods or ()
    }
    return sorted(found)


def install(app: FastAPI) -> None:
    """Make every error of `app` a problem."""

    async def on_problem(_request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return of_http_exception(request, error).response()

    async def on_validation(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return fields_invalid(error.errors()).response()

    async def on_store(request: Request, error: Exception) -> Response:
        assert isinstance(error, StoreError)
        if isinstance(error, CommitUncertain) and request.method == "GET":
            return database_away(str(error)).response()  # a read leaves nothing behind that could be uncertain
        return of_store_error(error).response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(StoreError, on_store)
