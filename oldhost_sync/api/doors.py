"""Doors: other ways in than a bearer token, each for the paths below its prefix (the console: people with a session).

Behind a door a bearer token is not looked at, and in front of it a door's session is worth nothing: what one may do to
the API no browser can be tricked into.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fastapi import Request
from starlette.responses import Response

from oldhost_sync.api.auth import Caller
from oldhost_sync.api.problems import Problem


class Door(Protocol):
    """The way in to every path from `prefix` on, known or not."""

    @property
    def prefix(self) -> str: ...

    async def admit(self, request: Request) -> Caller | Response | None:
        """Who calls; None where nobody needs to be known; or the refusal. May raise a Problem."""

    def tell(self, request: Request, problem: Problem) -> Response:
        """A problem as those who come this way read it."""

    async def close(self) -> None:
        """The process ends: nothing more is streamed."""


def door_to(doors: Sequence[Door], path: str) -> Door | None:
    """The door that `path` is behind."""
    return next((door for door in doors if path == door.prefix or path.startswith(f"{door.prefix}/")), None)


def told(doors: Sequence[Door], request: Request, problem: Problem) -> Response:
    """`problem` as an answer: JSON, unless the request came through a door."""
    door = door_to(doors, request.scope["path"])
    return problem.response() if door is None else door.tell(request, problem)
