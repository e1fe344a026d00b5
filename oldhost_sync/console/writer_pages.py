"""The pages about the writer: the overview, its live stream, a halt, and sessions with OldHost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from sqlalchemy.engine import Connection
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from oldhost_sync.api.access import OPERATORS, WATCHERS, operator_request
from oldhost_sync.api.problems import field_invalid, unavailable
from oldhost_sync.api.routes.writer import Flush, PauseRequest, SeriesSpan
from oldhost_sync.console.door import SIGN_IN_KEY, STREAM
from oldhost_sync.console.forms import HaltAct, read_act
from oldhost_sync.console.layout import SECURITY_HEADERS
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.console.sign_ins import STREAM_LOOK_SECONDS, SignIn
from oldhost_sync.store.alerts import RaisedAlert, list_alerts
from oldhost_sync.store.read.halt import read_halt
from oldhost_sync.store.read.host_condition import Ban, read_ban
from oldhost_sync.store.read.sessions import NONCES_LOOKED_AT, Sessions, read_sessions


class OverviewPage(Page):
    """The first page: what is wrong, since when, why, and what to do about it."""

    title = "Overview"
    path = PREFIX

    def mount(self, add: Adder) -> None:
        add("GET", PREFIX, self.show, WATCHERS)
        for action, handler in (("pause", self.pause), ("resume", self.resume), ("flush", self.flush)):
            add("POST", f"{PREFIX}/{action}", handler, OPERATORS)

    async def show(self, request: Request, span: SeriesSpan = SeriesSpan.HOUR) -> Response:
        parts, charts = await asyncio.gather(self.console.overview.shown(), self.console.overview.charts(span.value))
        return self.page(request, "overview.html", parts=parts, charts=charts, span=span.value, spans=list(SeriesSpan))

    async def pause(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "pause", PauseRequest))

    async def resume(self, request: Request) -> Response:
        return self._done(await self.console.act(request, "resume"))

    async def flush(self, request: Request) -> Response:
        """Debounced changes, of one entity or of all, become due now."""
        return self._done(await self.console.act(request, "flush", Flush))

    def _done(self, message: str) -> Response:
        return self.console.layout.redirect(PREFIX, message)


_HEADERS = SECURITY_HEADERS | {"X-Accel-Buffering": "no"}


class LivePage(Page):
    """The stream that keeps a page live. It ends within a second of the sign-in that it was opened with."""

    def mount(self, add: Adder) -> None:
        add("GET", STREAM, self.stream, WATCHERS)

    async def stream(self, request: Request) -> Response:
        sign_in: SignIn = request.scope[SIGN_IN_KEY]
        if self.console.stream.is_full_for(*_owners(sign_in)):
            raise unavailable(
                "too-many-streams",
                "Too many pages are live",
                "You, or all users of this process together, already keep as many pages live as it can.",
                "Close some, or reload the page now and then.",
                retry_after=30,
            )
        return StreamingResponse(self._events(sign_in), media_type="text/event-stream", headers=_HEADERS)

    async def _events(self, sign_in: SignIn) -> AsyncIterator[str]:
        events = self.console.stream.listen(*_owners(sign_in))
        following: asyncio.Task[str] | None = None
        try:
            while await self.console.sign_ins.lasts(sign_in):
                following = following or asyncio.ensure_future(anext(events))
                await asyncio.wait({following}, timeout=STREAM_LOOK_SECONDS)
                if following.done():
                    event, following = following, None
                    yield event.result()
        except StopAsyncIteration:
            return
        finally:
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await following
            await events.aclose()


def _owners(sign_in: SignIn) -> tuple[str, str]:
    """Whose pages are counted together: those of the sign-in, and those of its token."""
    return f"sign-in {sign_in.digest.hex()}", f"token {sign_in.caller.name}"


HALT = f"{PREFIX}/halt"


class HaltPage(Page):
    """Ledger and OldHost side by side, both ways of ending a halt in numbers, and the decision."""

    title = "Halt"
    path = HALT

    def mount(self, add: Adder) -> None:
        add("GET", HALT, self.show, WATCHERS)
        add("POST", f"{HALT}/resolve", self.resolve, OPERATORS)

    async def show(self, request: Request) -> Response:
        host = self.console.dependencies.host
        found, ban = await self.console.dependencies.database.run(
            lambda connection: (read_halt(connection, host), read_ban(connection, host))
        )
        return self.page(request, "halt.html", halt=found, ban=ban)

    async def resolve(self, request: Request) -> Response:
        """The operator has to type the host's name: this prevents a decision on the wrong console."""
        host = self.console.dependencies.host
        act = await read_act(request, HaltAct)
        if act.host != host:
            raise field_invalid("form.host", f"must be this host's name, {host}; nothing was decided")
        message = await self.console.dependencies.writer.update(
            "resolve", operator_request(request, reason=act.reason, mode=act.mode, epoch=act.epoch)
        )
        return self.console.layout.redirect(HALT, message)


STOPS_SHOWN = 20
# The kinds of alerts that show when nothing could be sent.
_STOPS = ("ban", "halted")


class SessionsPage(Page):
    """Who held each session, from when to when, and why it ended; the processes that were seen last."""

    title = "Sessions"
    path = f"{PREFIX}/sessions"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        found, stops, ban = await self.console.dependencies.database.run(self._read)
        return self.page(request, "sessions.html", found=found, stops=stops, ban=ban, looked_at=NONCES_LOOKED_AT)

    def _read(self, connection: Connection) -> tuple[Sessions, list[RaisedAlert], Ban | None]:
        host = self.console.dependencies.host
        stops = [
            alert
            for kind in _STOPS
            for alert in list_alerts(connection, host, state="all", kind=kind, limit=STOPS_SHOWN)
        ]
        newest = sorted(stops, key=lambda alert: alert.alert_id, reverse=True)[:STOPS_SHOWN]
        return read_sessions(connection, host), newest, read_ban(connection, host)
