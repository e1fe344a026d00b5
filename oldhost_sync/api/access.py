"""Who calls, and what they may do and see.

A caller has one of three roles, and whatever a role does not allow is refused. Every route states its roles
(:func:`access`); the application can't be built with a route that states none. A token says who calls; for paths behind
a door the door does.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol, TypeVar

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel
from sqlalchemy.exc import SQLAlchemyError
from starlette.responses import Response

from oldhost_sync.api.database import Database
from oldhost_sync.api.error_answers import as_response
from oldhost_sync.api.problems import Problem, forbidden, unauthenticated
from oldhost_sync.credentials import ApiToken, all_tokens, check_names
from oldhost_sync.policy.limits import SOURCE_LENGTH_MAX
from oldhost_sync.policy.rules.alert_cause import REASON_LENGTH_MAX, cause_of
from oldhost_sync.policy.rules.operator_act import Actor, Channel
from oldhost_sync.probes.health import running_during
from oldhost_sync.settings import Role
from oldhost_sync.store.access import note_uses
from oldhost_sync.store.errors import StoreError
from oldhost_sync.watched_file import WatchedFile
from workflows.messages import OperatorAct

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


def operator_request(request: Request, **fields: Any) -> OperatorAct:
    """A request to the writer in the caller's name."""
    caller = caller_of(request)
    return OperatorAct(operator=caller.name, channel=caller.channel, **fields)


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
    :func:`oldhost_sync.api.requests.json_body`. A route without roles needs no token.
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
    paths: list[str] = []
    for route in app.routes:
        roles = (route.openapi_extra or {}).get(ROLES_KEY) if isinstance(route, APIRoute) else None
        if roles is None:
            raise ValueError(f"{route!r} does not say who may call it: use access(…) or public()")
        if not roles:
            assert isinstance(route, APIRoute)
            paths.append(route.path)
    return frozenset(paths)


# ---------------------------------------------------------------------------------------------------------------- doors

PROBLEM_KEY = "oldhost_sync.problem"


class Door(Protocol):
    """A way to authenticate other than a bearer token (the console: people with a session), for every path from
    `prefix` on, whether a route exists for it or not.

    Behind a door bearer tokens are ignored, and the API ignores a door's session, so that no web page can trick a
    browser into calling the API.
    """

    @property
    def prefix(self) -> str: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """For all answers of this application."""

    async def admit(self, request: Request) -> Caller | Response | None:
        """The caller; None if the path needs no caller; or the refusal. May raise a Problem."""

    def as_response(self, request: Request, problem: Problem) -> Response:
        """The answer for a problem, in the form that the door's users read (the console: a page)."""

    async def close(self) -> None:
        """Called when the process ends: stop all streams."""


def door_to(doors: Sequence[Door], path: str) -> Door | None:
    """The door that `path` is behind."""
    return next((door for door in doors if path == door.prefix or path.startswith(f"{door.prefix}/")), None)


def rendered(doors: Sequence[Door], request: Request, problem: Problem) -> Response:
    """`problem` as an answer: JSON, unless the request came through a door. The scope keeps it for the middleware."""
    request.scope[PROBLEM_KEY] = problem
    door = door_to(doors, request.scope["path"])
    return as_response(problem) if door is None else door.as_response(request, problem)


# --------------------------------------------------------------------------------------------------- whose change it is

# Who owns a change: the token that made it, identified by its name, so that a renewed token still owns its changes.
#
# Operators and viewers see every change. An application sees its own changes, and those that no token made (by
# `record_change`, a signal, the command line), because their idempotency key is the only way to ask for them. Another
# token's change is answered as if it did not exist. An application can only cancel its own changes.

_TOKENS_SOURCE = "api:"
# Long enough that no two names share a digest.
_NAME_DIGEST_LENGTH = 16


def source_of(request: Request) -> str:
    """The outbox's `source` for a change that the caller makes."""
    return source_of_token(caller_of(request).name)


def source_of_token(name: str) -> str:
    """The outbox's `source` for a token: its name. A name that is too long is cut and ends in a digest of the whole."""
    source = f"{_TOKENS_SOURCE}{name}"
    if len(source) <= SOURCE_LENGTH_MAX:
        return source
    digest = hashlib.sha256(name.encode()).hexdigest()[:_NAME_DIGEST_LENGTH]
    return f"{source[: SOURCE_LENGTH_MAX - _NAME_DIGEST_LENGTH - 1]}~{digest}"  # a token's name can't contain "~"


def may_see(caller: Caller, source: str) -> bool:
    """Whether `caller` may see a change with this source."""
    return owns(caller, source) or not source.startswith(_TOKENS_SOURCE) or caller.role is not Role.APP


def owns(caller: Caller, source: str) -> bool:
    """Whether the caller's token made the change."""
    return source == source_of_token(caller.name)


# ------------------------------------------------------------------------------------------------------ OldHost's words

# Who may read OldHost's words. They may repeat a payload, and viewers see no payload, by no path.
#
# Operators, and the application that made the change, get them as they are. Viewers get what is left without quoted
# text, numbers and ids: what dead letters are grouped by. They can't search in the words either.

T = TypeVar("T")

# The fields that hold OldHost's words. The steps whose `detail` is ours, or an operator's; that of any other may be
# OldHost's: those of an answer, of a dead letter, and of one that was discarded.
_WORDS = frozenset({"error", "answer", "example"})
_OUR_STEPS = frozenset({
    "scheduled", "cancelled", "accepted", "relayed", "reserved", "sent", "set_aside", "applied", "superseded", "no_op",
    "stale", "retry", "discard", "confirm", "correct", "replace", "halt",
    "withdraw", "withdrawn",
})  # fmt: skip


def seen_by(caller: Caller, view: T) -> T:
    """`found` (a view or a list of views) as `caller` may see it."""
    return _reduced(view) if caller.role is Role.VIEWER else view


def refuse_search_in_words(caller: Caller, wanted: str | None) -> None:
    """Raises a Problem, 403: whoever may search in a text can find out what it says."""
    if wanted is not None and caller.role is Role.VIEWER:
        raise forbidden(caller.role, OPERATORS)


def _reduced(view: Any) -> Any:
    if isinstance(view, list | tuple):
        return type(view)(_reduced(part) for part in view)
    if isinstance(view, Mapping):
        return {name: _field(name, value, view.get("step")) for name, value in view.items()}
    if not is_dataclass(view) or isinstance(view, type):
        return view
    values = {part.name: getattr(view, part.name) for part in fields(view) if part.init}
    return replace(view, **{name: _field(name, value, values.get("step")) for name, value in values.items()})


def _field(name: str, value: Any, step: Any) -> Any:
    if isinstance(value, str) and (
        name in _WORDS or (name == "detail" and step is not None and step not in _OUR_STEPS)
    ):
        return cause_of(value, REASON_LENGTH_MAX) if value else value
    return _reduced(value)


# ----------------------------------------------------------------------------------------------------- the known tokens

# Those of the settings, and those of a file that is read again when it changes; and when each was last used.
#
# The server knows only SHA-256 digests. They are looked up by a MAC whose key only this process has: nobody can choose
# what is compared with a known one, so the time taken reveals nothing about the digests.

# As long as the MAC itself (HMAC-SHA256).
MAC_KEY_BYTES = 32


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class _Known:
    digest: bytes
    token: ApiToken
    caller: Caller


class _Index:
    """The known tokens by a MAC of their digest, and by name; a token and its successor have the same name."""

    def __init__(self, tokens: Sequence[ApiToken], host: str | None) -> None:
        check_names(tokens)
        self._key = secrets.token_bytes(MAC_KEY_BYTES)
        self._by_mac: dict[bytes, _Known] = {}
        self._by_name: dict[str, list[_Known]] = {}
        for token in tokens:
            if host is None or token.is_for(host):
                caller = Caller(token.name, token.role, fingerprint=token.fingerprint)
                known = _Known(bytes.fromhex(token.sha256_hex), token, caller)
                self._by_mac[self._mac(known.digest)] = known
                self._by_name.setdefault(token.name, []).append(known)

    def of_digest(self, digest: bytes) -> _Known | None:
        known = self._by_mac.get(self._mac(digest))
        return known if known is not None and hmac.compare_digest(known.digest, digest) else None

    def of_name(self, name: str) -> Sequence[_Known]:
        return self._by_name.get(name, ())

    def _mac(self, digest: bytes) -> bytes:
        return hmac.digest(self._key, digest, "sha256")


class Tokens:
    """`file`: a file with more tokens. `host`: tokens for other hosts are unknown here; None: all tokens are known.
    `now`: the time of day, for expiry; `clock`: seconds, monotonic.

    Raises ValueError or OSError if the file can't be used at the start.
    """

    def __init__(
        self,
        tokens: Iterable[ApiToken],
        *,
        file: Path | None = None,
        host: str | None = None,
        now: Callable[[], datetime] = _now,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        of_settings = tuple(tokens)
        self._now = now
        self._known: Callable[[], _Index]
        if file is None:
            index = _Index(of_settings, host)
            self._known = lambda: index
        else:
            watched = WatchedFile(
                file, lambda more: _Index(all_tokens(of_settings, more), host), "SYNC_API_TOKENS_FILE", clock=clock
            )
            self._known = watched.value
        self._used: dict[bytes, str] = {}

    def identify(self, authorization: bytes | None) -> Caller | None:
        """The caller for an `Authorization` header; None if it has no known and valid token."""
        known = self._find(authorization)
        if known is None or known.token.has_expired(self._now()):
            return None
        self._used[known.token.fingerprint] = known.token.name
        return known.caller

    def why_refused(self, authorization: bytes | None) -> str:
        """Why :meth:`identify` returned None; reveals nothing of a secret."""
        if not authorization:
            return "no token"
        known = self._find(authorization)
        return "an unknown token" if known is None else f"the token of {known.token.name}, which has expired"

    def owner(self, name: str, fingerprint: bytes) -> Caller | None:
        """The caller whose token has this name and fingerprint; None if it was removed, replaced, or has expired."""
        for known in self._known().of_name(name):
            same = hmac.compare_digest(known.token.fingerprint, fingerprint)
            if same and not known.token.has_expired(self._now()):
                return known.caller
        return None

    def knows(self, name: str) -> bool:
        """Whether a token of this name is known, expired or not."""
        return bool(self._known().of_name(name))

    def take_used(self) -> dict[bytes, str]:
        """The fingerprints and names of the tokens used since the last time."""
        used, self._used = self._used, {}
        return used

    def _find(self, authorization: bytes | None) -> _Known | None:
        scheme, _, token = (authorization or b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        return self._known().of_digest(hashlib.sha256(token.strip()).digest())


KEPT_EVERY_SECONDS = 60.0


class LastUses:
    """Stores the tokens' last uses in the database once a minute, so that a request costs no write; while that is away,
    keeps one entry for each token in memory.
    """

    def __init__(self, host: str, tokens: Tokens, database: Database) -> None:
        self._host = host
        self._tokens = tokens
        self._database = database
        self._waiting: dict[bytes, str] = {}

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Store uses regularly until the body ends, and then once more."""
        try:
            async with running_during(self._run):
                yield
        finally:
            await self.keep()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(KEPT_EVERY_SECONDS)
            await self.keep()

    async def keep(self) -> None:
        """Store the uses since the last time."""
        self._waiting |= self._tokens.take_used()
        uses = dict(self._waiting)
        if not uses:
            return
        try:
            await self._database.run(lambda connection: note_uses(connection, self._host, uses))
        except (Problem, StoreError, SQLAlchemyError):
            return
        self._waiting.clear()
