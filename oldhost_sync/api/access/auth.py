"""Authorization: a caller has one of three roles, and whatever a role does not allow is refused.

Every route states its roles (:func:`access`); the application can't be built with a route that states none.
`tokens.py` identifies the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel

from oldhost_sync.api.problems import forbidden, unauthenticated
from oldhost_sync.policy.actor import Actor, Channel
from oldhost_sync.settings import Role
from workflows.messages import OperatorRequest

ROLES_KEY = "x-roles"
CALLER_KEY = "oldhost_sync.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """The token's name (in the audit: the operator's name) and role, and the channel that it was presented through."""

    name: str
    role: Role
    channel: Channel = Channel.API
    # The token's fingerprint.
    fingerprint: bytes = field(default=b"", repr=False, compare=False)

    @property
    def operator(self) -> Actor:
        """The caller as the audit names it."""
        return Actor(self.name, self.channel, verified=True)


READERS = (Role.APP, Role.VIEWER, Role.OPS)
WRITERS = (Role.APP, Role.OPS)
WATCHERS = (Role.VIEWER, Role.OPS)
OPERATORS = (Role.OPS,)


def caller_of(request: Request) -> Caller:
    """The caller; the middleware has already refused unknown callers."""
    caller = request.scope.get(CALLER_KEY)
    if not isinstance(caller, Caller):
        raise unauthenticated()
    return caller


def operator_request(request: Request, **fields: Any) -> OperatorRequest:
    """A request to the writer in the caller's name."""
    caller = caller_of(request)
    return OperatorRequest(operator=caller.name, channel=caller.channel, **fields)


def access(roles: Sequence[Role], *, errors: Sequence[int] = (), **openapi_extra: Any) -> dict[str, Any]:
    """The arguments for a route that only `roles` may call; the OpenAPI document shows the roles, too.

    `errors`: the statuses that this route may answer, in addition to those of every route.
    """

    async def guard(request: Request) -> None:
        caller = caller_of(request)
        if caller.role not in roles:
            raise forbidden(caller.role, roles)

    always = (400, 401, 403, 422, 429, 500, 503)
    extra: dict[str, Any] = {ROLES_KEY: [role.value for role in roles], "security": [{"bearer": []}], **openapi_extra}
    return {"dependencies": [Depends(guard)], "responses": documented(*always, *errors), "openapi_extra": extra}


def public(*, errors: Sequence[int] = (500,)) -> dict[str, Any]:
    """The arguments for a route that needs no token."""
    return {"responses": documented(422, *errors), "openapi_extra": {ROLES_KEY: [], "security": []}}


def adder(app: FastAPI, tag: str) -> Callable[..., None]:
    """A function that adds a route with `tag`: method, path, handler, model of the answer, summary, and roles and
    errors as in :func:`access`; a route with a body also gets the result of
    :func:`oldhost_sync.api.bodies.json_body`. A route without roles needs no token.
    """

    def add(
        method: str,
        path: str,
        handler: Callable[..., Any],
        model: type[BaseModel],
        summary: str,
        roles: Sequence[Role],
        errors: Sequence[int],
        *,
        status_code: int = 200,
        **openapi_extra: Any,
    ) -> None:
        extra = access(roles, errors=errors, **openapi_extra) if roles else public(errors=errors)
        named = {"tags": [tag], "operation_id": f"{tag}_{handler.__name__}".replace(" ", "_")}
        more: dict[str, Any] = {"response_model": model, "summary": summary, "status_code": status_code, **named}
        if HTTPStatus.MULTI_STATUS in errors:
            extra["responses"][HTTPStatus.MULTI_STATUS]["model"] = model
        app.add_api_route(path, handler, methods=[method], **more, **extra)

    return add


_MEANINGS = {
    207: "Not every change was recorded; see the result of each change.",
    304: "Nothing new since the ETag; Retry-After says when to ask again.",
    400: "The request can't be read.",
    401: "No bearer token, or an unknown one.",
    403: "The token's role does not allow it.",
    404: "Not found.",
    405: "The path does not support this method.",
    409: "This is not possible in the present state.",
    410: "The feed can't continue from this cursor; `oldest_cursor` says where the feed begins.",
    413: "The body is larger than 64 KiB (a batch: 2 MiB).",
    415: "The body is not JSON.",
    422: "A field or a query parameter is wrong, or the Idempotency-Key belongs to another body.",
    429: "The token's quota of requests, changes or emergencies is used up, or it reads too much; Retry-After says "
    "when to try again.",
    500: "An error in the server.",
    503: "The database or Temporal is unavailable, or too many requests wait; nothing was done unless `detail` says "
    "otherwise.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problem answers for the OpenAPI document."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemBody"}}}
    return {
        status: {"description": _MEANINGS[status]} | ({"content": content} if status >= 400 else {})
        for status in sorted(set(statuses))
    }


def public_paths(app: FastAPI) -> frozenset[str]:
    """The paths that need no token. Raises ValueError for a route that does not state its roles."""
    found: list[str] = []
    for route in app.routes:
        roles = (route.openapi_extra or {}).get(ROLES_KEY) if isinstance(route, APIRoute) else None
        if roles is None:
            raise ValueError(f"{route!r} does not say who may call it: use access(…) or public()")
        if not roles:
            assert isinstance(route, APIRoute)
            found.append(route.path)
    return frozenset(found)
