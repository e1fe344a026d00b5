"""The feed as server-sent events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import Response, StreamingResponse

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import READERS, Caller, access, caller_of, may_see, seen_by
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.fate_streams import Page
from oldhost_sync.api.problems import too_many_streams
from oldhost_sync.api.requests import read_feed_cursor
from oldhost_sync.api.routes.changes import FeedItem, Since, feed_start, read_page

PATH = "/api/events"
_HEADERS = {"X-Accel-Buffering": "no", "Cache-Control": "no-store"}


class EventRoutes:
    """Not in the OpenAPI document, which can't describe an answer without end; docs/fates.md does."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        app.add_api_route(PATH, self.stream, methods=["GET"], include_in_schema=False, **access(READERS))

    async def stream(self, request: Request, since: Since = None) -> Response:
        """The fates from `Last-Event-ID` on, or `since`, as the feed has it."""
        caller, streams = caller_of(request), self._dependencies.streams
        database, host = self._dependencies.database, self._dependencies.host
        if streams.is_full_for(caller.name):
            raise too_many_streams()
        start = await feed_start(database, host, request.headers.get("last-event-id") or since)
        await read_page(database, host, start, 1)  # so that 410 is an answer

        async def read(cursor: str) -> Page:
            page = await read_page(database, host, read_feed_cursor(cursor), http_limits.PAGE_DEFAULT)
            seen = [_event(caller, row) for row in page.rows if may_see(caller, row.pop("source"))]
            after = page.cursor.text
            if page.rows and seen:
                seen[-1] = f"id: {after}\n{seen[-1]}"
            elif page.rows:
                seen = [f"id: {after}\n\n"]
            return "".join(seen), after, page.more

        events = streams.events(caller.name, start.text, read)
        return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


def _event(caller: Caller, row: Mapping[str, Any]) -> str:
    return f"event: fate\ndata: {FeedItem(**seen_by(caller, row)).model_dump_json()}\n\n"
