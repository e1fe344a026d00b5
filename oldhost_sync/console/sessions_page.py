"""Sessions with OldHost, and the processes that were seen last."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.auth import WATCHERS
from oldhost_sync.console.layout import PREFIX
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.store.views.session_list import NONCES_LOOKED_AT, read_sessions


class SessionsPage(Page):
    title = "Sessions"
    path = f"{PREFIX}/sessions"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        host = self.console.parts.host
        found = await self.console.parts.database.run(lambda connection: read_sessions(connection, host))
        return self.page(request, "sessions.html", found=found, looked_at=NONCES_LOOKED_AT)
