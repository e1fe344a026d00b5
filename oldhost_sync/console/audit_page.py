"""The audit: who did what and why, newest first."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import WATCHERS
from oldhost_sync.api.fields import BLANK_IS_NONE, RowId
from oldhost_sync.api.requests import read_number_cursor
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.store.audit import ACTION_LENGTH_MAX, list_acts

AUDIT = f"{PREFIX}/audit"
ACTS_SHOWN = 100
# Offered by the filter; acts of other kinds are listed, too.
ACTIONS = (
    "pause", "resume", "flush", "resolve", "halt", "retry", "discard", "confirm", "replace", "correct", "set-rule",
    "cancel-scheduled", "read-payload", "acknowledge-alert", "close-alert", "decode-payloads", "sign-in", "sign-out",
    "end-sign-ins",
)  # fmt: skip
Action = Annotated[str, Query(max_length=ACTION_LENGTH_MAX)]
Cursor = Annotated[str, Query(max_length=20)]
ChangeId = Annotated[RowId | None, BLANK_IS_NONE, Query()]


class AuditPage(Page):
    title = "Audit"
    path = AUDIT

    def mount(self, add: Adder) -> None:
        add("GET", AUDIT, self.show, WATCHERS)

    async def show(
        self, request: Request, action: Action = "", change_id: ChangeId = None, cursor: Cursor = ""
    ) -> Response:
        before_id, host = read_number_cursor(cursor or None), self.console.dependencies.host
        found = await self.console.dependencies.database.run(
            lambda connection: list_acts(
                connection, host, limit=ACTS_SHOWN + 1, before_id=before_id, action=action or None, change_id=change_id
            )
        )
        acts = found[:ACTS_SHOWN]
        given = {"action": action, "change_id": "" if change_id is None else change_id}
        older = f"{AUDIT}?{urlencode(given | {'cursor': acts[-1].act_id})}" if len(found) > ACTS_SHOWN else None
        return self.page(request, "audit.html", acts=acts, given=given, older=older, actions=ACTIONS)
