"""Sessions with OldHost: who held each, from when to when, and why it ended; the processes that were seen last."""

from __future__ import annotations

from sqlalchemy.engine import Connection
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import WATCHERS
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.store.alerts import RaisedAlert, list_alerts
from oldhost_sync.store.read.host_condition import Ban, read_ban
from oldhost_sync.store.read.sessions import NONCES_LOOKED_AT, SessionList, read_sessions

STOPS_SHOWN = 20
# The kinds of alerts that show when nothing could be sent.
_STOPS = ("ban", "halted")


class SessionsPage(Page):
    title = "Sessions"
    path = f"{PREFIX}/sessions"

    def mount(self, add: Adder) -> None:
        add("GET", self.path, self.show, WATCHERS)

    async def show(self, request: Request) -> Response:
        found, stops, ban = await self.console.dependencies.database.run(self._read)
        return self.page(request, "sessions.html", found=found, stops=stops, ban=ban, looked_at=NONCES_LOOKED_AT)

    def _read(self, connection: Connection) -> tuple[SessionList, list[RaisedAlert], Ban | None]:
        host = self.console.dependencies.host
        stops = [
            alert
            for kind in _STOPS
            for alert in list_alerts(connection, host, state="all", kind=kind, limit=STOPS_SHOWN)
        ]
        newest = sorted(stops, key=lambda alert: alert.alert_id, reverse=True)[:STOPS_SHOWN]
        return read_sessions(connection, host), newest, read_ban(connection, host)
