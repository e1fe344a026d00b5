"""One process for many hosts: one application for each host, all with the same routes and database connections.

`/api/hosts/{host}/changes` is `/api/changes` of that host, and `/console/hosts/{host}` is its console. A path without a
host belongs to SYNC_HOST. Each route knows only its own host, so no route can mix up hosts.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

# The host's name follows one of these prefixes and HOSTS in a path.
_PREFIXES = ("/api", "/console")
HOSTS = "hosts"


class HostApps:
    """A middleware in front of the application of `home` (SYNC_HOST) and those of the `others`."""

    def __init__(self, app: ASGIApp, *, home: str, others: Mapping[str, FastAPI]) -> None:
        self._home = app
        self._served = {home: app} | dict(others)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")  # a lifespan has none
        app = self._home
        while (named := host_in(path)) is not None and named[0] in self._served:
            app, path = self._served[named[0]], named[1]
        if path != scope.get("path", ""):
            scope = dict(scope) | {"path": path, "raw_path": path.encode()}
        await app(scope, receive, send)


def host_in(path: str) -> tuple[str, str] | None:
    """The host that a path names, and the path without it; None when it names none.

    The result may name a host again: a link to one host's pages, followed from another host. The last one counts.
    """
    for prefix in _PREFIXES:
        start = f"{prefix}/{HOSTS}/"
        if path.startswith(start):
            host, _, rest = path.removeprefix(start).partition("/")
            return host, f"{prefix}/{rest}" if rest else prefix
    return None
