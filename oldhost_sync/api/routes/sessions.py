"""Sessions with OldHost, and the processes that were seen last."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import FastAPI

from oldhost_sync.api.access.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.view_schemas import Sessions
from oldhost_sync.store.views.session_list import read_sessions


class SessionRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "sessions")
        add("GET", "/api/sessions", self.list, Sessions, "The newest sessions with OldHost", WATCHERS, (405,))

    async def list(self) -> Sessions:
        """The newest 100. A worker that was killed could not report why its session ended."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: read_sessions(connection, host))
        return Sessions.model_validate(asdict(found))
