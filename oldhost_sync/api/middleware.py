"""The middleware in front of all routes: authentication, common headers, metrics, and uncaught errors.

Plain ASGI, because every write passes through it. It refuses by default: every path that is not public needs a known
token, even a path that does not exist; for paths behind a door (`access.py`) the door decides. It logs the
method, route and status of failures, never a body, a query or an error's text.
"""

from __future__ import annotations

import logging
import time
import traceback
import uuid
from collections.abc import Collection, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from oldhost_sync.api.access import CALLER_KEY, PROBLEM_KEY, Caller, Door, door_to, rendered
from oldhost_sync.api.connection import address_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.error_answers import as_response
from oldhost_sync.api.problems import Problem, internal, of_store_error, unauthenticated
from oldhost_sync.api.quotas import AnonymousRateLimit, ReadingPace
from oldhost_sync.api.telemetry import RequestTracer
from oldhost_sync.store.errors import StoreError, error_code

logger = logging.getLogger("oldhost_sync.api")

# The default for the API's answers; pages (the console) set their own policy.
_CONTENT_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
_ALWAYS = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"), (b"x-frame-options", b"DENY")]
_NO_STORE = (b"cache-control", b"no-store")


class ApiMiddleware:
    """Authenticates callers, measures requests, adds headers, and turns an uncaught error into a problem."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        dependencies: Dependencies,
        public_paths: Collection[str],
        doors: Sequence[Door] = (),
        requests: RequestTracer | None = None,
    ) -> None:
        self._app = app
        self._requests = requests
        self._doors = doors
        self._tokens = dependencies.tokens
        self._public_paths = public_paths
        self._metrics = dependencies.metrics
        self._refused = dependencies.refused
        self._refused_writes = dependencies.refused_writes
        self._last_refusal = dependencies.last_refusal
        self._clock = dependencies.clock
        self._quotas = dependencies.quotas
        self._strangers = AnonymousRateLimit()
        self._reading = ReadingPace()
        self._headers = (*_ALWAYS, _NO_STORE, _CONTENT_POLICY, *(header for door in doors for header in door.headers))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        if scope["method"] == "HEAD":
            scope, receive, send = as_get(scope, receive, send)
        started = time.perf_counter()
        traced = self._requests.begin() if self._requests else None
        status = 0

        async def send_out(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._note_write(scope, status)
                _complete_headers(message, self._headers)
            await send(message)

        try:
            await self._answer(scope, receive, send_out)
        except Exception as error:
            error_id = _report(scope, error)
            if status:
                raise
            await rendered(self._doors, Request(scope), internal(error_id))(scope, receive, send_out)
        finally:
            self._metrics.observe(scope, status, time.perf_counter() - started)
            if self._requests and traced:
                self._requests.end(traced, scope, status)

    def _note_write(self, scope: Scope, status: int) -> None:
        if scope["method"] == "GET":
            return
        if PROBLEM_KEY in scope:
            self._refused_writes.note(scope[PROBLEM_KEY])
            self._last_refusal.note(scope[PROBLEM_KEY], self._clock())
        elif status < HTTPStatus.BAD_REQUEST:
            self._refused_writes.recorded()
            self._last_refusal.recorded()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        door = door_to(self._doors, scope["path"])
        if door is not None:
            admitted = await _admitted(door, Request(scope))
            if not isinstance(admitted, Caller):
                await self._strangers.turn(address_of(scope["client"]))
            if isinstance(admitted, Response):
                await admitted(scope, receive, send)
                return
            scope[CALLER_KEY] = admitted
        elif scope["path"] in self._public_paths:
            await self._strangers.turn(address_of(scope["client"]))
        else:
            given = _authorization(scope)
            caller = self._tokens.identify(given)
            if caller is None:
                self._refused.note(address_of(scope["client"]), self._tokens.why_refused(given))
                await self._strangers.turn(address_of(scope["client"]))
                await as_response(unauthenticated())(scope, receive, send)
                return
            problem = self._quotas.request(caller)
            if problem is not None:
                await as_response(problem)(scope, receive, send)
                return
            scope[CALLER_KEY] = caller
        await self._known(scope, receive, send)

    async def _known(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller, path = scope.get(CALLER_KEY), scope["path"]
        if not isinstance(caller, Caller) or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        try:
            reserved = await self._reading.turn(caller.name, path)
        except Problem as problem:
            await rendered(self._doors, Request(scope), problem)(scope, receive, send)
            return
        size = 0

        async def counting_send(message: Message) -> None:
            nonlocal size
            if message["type"] == "http.response.start":
                size = _length(message)
            await send(message)

        try:
            await self._app(scope, receive, counting_send)
        finally:
            self._reading.answered(caller.name, path, reserved, size)


def as_get(scope: Scope, receive: Receive, send: Send) -> tuple[Scope, Receive, Send]:
    """A HEAD request as a GET whose answer ends with its header (RFC 9110, 9.3.2); a stream is told that its reader is
    gone.
    """
    ended = False

    async def send_header(message: Message) -> None:
        nonlocal ended
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            ended = True
        elif not ended:
            await send(message)

    async def receive_until_ended() -> Message:
        return {"type": "http.disconnect"} if ended else await receive()

    return {**scope, "method": "GET"}, receive_until_ended, send_header


async def _admitted(door: Door, request: Request) -> Caller | Response | None:
    try:
        return await door.admit(request)
    except (Problem, StoreError) as error:
        problem = error if isinstance(error, Problem) else of_store_error(error)
        request.scope[PROBLEM_KEY] = problem
        return door.as_response(request, problem)


def _authorization(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            return bytes(value)
    return None


def _complete_headers(message: MutableMapping[str, Any], more: Sequence[tuple[bytes, bytes]]) -> None:
    headers = message["headers"] = list(message.get("headers", ()))
    present = {name.lower() for name, _ in headers}
    headers.extend(header for header in more if header[0] not in present)


def _length(message: Message) -> int:
    """The length of an answer; 0 for a stream."""
    return next((int(value) for name, value in message.get("headers", ()) if name == b"content-length"), 0)


def _report(scope: Scope, error: Exception) -> str:
    """Log the place and the type of an error, but not its text, which may hold a payload. Returns the error's id."""
    error_id = uuid.uuid4().hex
    code = error_code(error)
    number = f" (MariaDB {code})" if isinstance(error, DBAPIError) and code is not None else ""
    path = getattr(scope.get("route"), "path", "(no route)")
    frames = traceback.extract_tb(error.__traceback__)[-12:]
    places = "".join(f"\n  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    what = f"{type(error).__name__}{number}{places}"
    logger.error("incident %s: %s %s ended with %s", error_id, scope["method"], path, what)
    return error_id
