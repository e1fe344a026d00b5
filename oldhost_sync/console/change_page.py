"""One change: its fate as a timeline, what it waits for, what replaced it; for operators its payload and decisions."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, caller_of, seen_by, source_of
from oldhost_sync.api.fields import RowId
from oldhost_sync.api.problems import field_invalid, unknown_change
from oldhost_sync.api.requests import checked, parse_json
from oldhost_sync.api.routes.dead_letters import decide_one, replace_letter
from oldhost_sync.api.schemas import ReasonedRequest
from oldhost_sync.console.act_form import CorrectionAct
from oldhost_sync.console.changes_page import CHANGES
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.store.intake.replacement import Correction
from oldhost_sync.store.read.change_status import find_fate_of_id, payload_of

_CHANGE = CHANGES + "/{change_id}"
ChangeId = Annotated[RowId, Path()]


class ChangePage(Page):
    def mount(self, add: Adder) -> None:
        add("GET", _CHANGE, self.show, WATCHERS)
        add("POST", f"{_CHANGE}/payload", self.show_payload, OPERATORS)
        for action, handler in (
            ("retry", self.retry),
            ("discard", self.discard),
            ("confirm", self.confirm),
            ("replace", self.replace),
        ):
            add("POST", f"{_CHANGE}/{action}", handler, OPERATORS)

    async def show(self, request: Request, change_id: ChangeId) -> Response:
        return await self._shown(request, change_id, None)

    async def show_payload(self, request: Request, change_id: ChangeId) -> Response:
        """With the payload; the audit records that it was read."""
        host, operator = self.console.dependencies.host, caller_of(request).operator
        payload = await self.console.dependencies.database.run(
            lambda connection: payload_of(connection, host, change_id, operator=operator)
        )
        if payload is None:
            raise unknown_change(f"No change has the id {change_id}.")
        return await self._shown(request, change_id, json.dumps(payload, indent=2, ensure_ascii=False))

    async def retry(self, request: Request, change_id: ChangeId) -> Response:
        return await self._decide(request, change_id, "retry")

    async def discard(self, request: Request, change_id: ChangeId) -> Response:
        return await self._decide(request, change_id, "discard")

    async def confirm(self, request: Request, change_id: ChangeId) -> Response:
        return await self._decide(request, change_id, "confirm")

    async def replace(self, request: Request, change_id: ChangeId) -> Response:
        """A corrected copy is sent, and this one discarded."""
        act = checked(await read_fields(request, *CorrectionAct.model_fields), CorrectionAct, "form")
        payload: Any = parse_json(act.payload.encode())
        if not isinstance(payload, dict):
            raise field_invalid("form.payload", "must be a JSON object")
        correction = Correction(change_id, payload, caller_of(request).operator, source_of(request), act.reason)
        copy, _, message = await replace_letter(self.console.dependencies, correction)
        return self.console.layout.redirect(f"{CHANGES}/{copy.change_id}", message)

    async def _shown(self, request: Request, change_id: int, payload: str | None) -> Response:
        host = self.console.dependencies.host
        fate = await self.console.dependencies.database.run(
            lambda connection: find_fate_of_id(connection, host, change_id)
        )
        if fate is None:
            raise unknown_change(f"No change has the id {change_id}; it may also have been pruned.")
        seen = seen_by(caller_of(request), fate)
        return self.page(request, "change.html", title=f"Change {change_id}", fate=seen, payload=payload)

    async def _decide(self, request: Request, change_id: int, action: str) -> Response:
        because = checked(await read_fields(request, *ReasonedRequest.model_fields), ReasonedRequest, "form")
        operator = caller_of(request).operator
        message = await decide_one(
            self.console.dependencies, operator, action, change_id=change_id, reason=because.reason
        )
        return self.console.layout.redirect(f"{CHANGES}/{change_id}", message)
