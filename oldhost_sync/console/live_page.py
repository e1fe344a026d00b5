"""The stream that keeps a page live. It ends with the sign-in that it was opened with."""

from __future__ import annotations

from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oldhost_sync.api.access.auth import WATCHERS
from oldhost_sync.api.problems import unavailable
from oldhost_sync.console.door import SESSION_COOKIE
from oldhost_sync.console.layout import PREFIX, SECURITY_HEADERS
from oldhost_sync.console.page import Adder, Page

STREAM = f"{PREFIX}/stream"
# A stream checks this often whether its sign-in has ended; signing out in the browser also closes its pages.
SIGN_IN_CHECK_SECONDS = 30.0
_HEADERS = SECURITY_HEADERS | {"X-Accel-Buffering": "no"}


class LivePage(Page):
    def mount(self, add: Adder) -> None:
        add("GET", STREAM, self.stream, WATCHERS)

    async def stream(self, request: Request) -> Response:
        if self.console.stream.is_full:
            raise unavailable(
                "too-many-streams",
                "Too many pages are live",
                "This process already keeps as many pages live as it can.",
                "Close some, or reload the page now and then.",
                retry_after=30,
            )
        return StreamingResponse(self._events(request), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, request: Request) -> AsyncIterator[str]:
        clock = self.console.dependencies.clock
        check_at = clock() + SIGN_IN_CHECK_SECONDS
        events = self.console.stream.listen()
        try:
            async for event in events:
                if clock() >= check_at:
                    check_at = clock() + SIGN_IN_CHECK_SECONDS
                    if await self.console.sign_ins.find(request.cookies.get(SESSION_COOKIE, "")) is None:
                        return
                yield event
        finally:
            await events.aclose()
