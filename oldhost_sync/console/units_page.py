"""Units: by property, name and sync status."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import WATCHERS
from oldhost_sync.api.problems import field_invalid
from oldhost_sync.api.requests import read_text_cursor, text_cursor
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.read.entities import PENDING_SYNC, SYNC_FAILED, SYNCED, UnitFilter, list_units

STATUSES = (PENDING_SYNC, SYNCED, SYNC_FAILED)
UNITS = f"{PREFIX}/units"
UNITS_SHOWN = 100
Text = Annotated[str, Query(max_length=UNIT_NAME_LENGTH_MAX)]
Cursor = Annotated[str | None, Query(max_length=1024)]


class UnitsPage(Page):
    title = "Units"
    path = UNITS

    def mount(self, add: Adder) -> None:
        add("GET", UNITS, self.show, WATCHERS)

    async def show(
        self, request: Request, property_id: Text = "", name: Text = "", sync_status: Text = "", cursor: Cursor = None
    ) -> Response:
        given = {"property_id": property_id.strip(), "name": name.strip(), "sync_status": sync_status}
        given = {each: value for each, value in given.items() if value}
        if sync_status and sync_status not in STATUSES:
            raise field_invalid("query.sync_status", f"must be one of {', '.join(STATUSES)}")
        after, host = read_text_cursor(cursor), self.console.dependencies.host
        found = await self.console.dependencies.database.run(
            lambda connection: list_units(connection, host, UnitFilter(**given), after_id=after, limit=UNITS_SHOWN)
        )
        more = None
        if found.next_after is not None:
            more = f"{UNITS}?{urlencode(given | {'cursor': text_cursor(found.next_after)})}"
        return self.page(
            request, "units.html", units=found.units, given=given, more=more, statuses=STATUSES,
            later=cursor is not None,
        )  # fmt: skip
