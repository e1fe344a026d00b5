"""Doors: ways to authenticate other than a bearer token, each for the paths below its prefix (the console: people with
a session).

Behind a door bearer tokens are ignored, and the API ignores a door's session, so that no web page can trick a browser
into calling the API.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastapi import Request
from starlette.responses import Response

from oldhost_sync.api.access.auth import Caller
from oldhost_sync.api.problems import Problem

PROBLEM_KEY = "oldhost_sync.problem"


class Door(Protocol):
    """Authentication for every path from `prefix` on, whether a route exists for it or not."""

    @property
    def prefix(self) -> str: ...

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """For all answers of this application."""

    async def admit(self, request: Request) -> Caller | Response | None:
        """The caller; None if the path needs no caller; or the refusal. May raise a Problem."""

    def tell(self, request: Request, problem: Problem) -> Response:
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
    return problem.response() if door is None else door.tell(request, problem)
