"""The pages about changes: the lists, the search, what is scheduled, and one change."""

from __future__ import annotations

import json
from typing import Annotated, Any, get_args
from urllib.parse import quote, urlencode

from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access import OPERATORS, WATCHERS, caller_of, refuse_search_in_words, seen_by, source_of
from oldhost_sync.api.problems import Problem, field_invalid, unknown_change
from oldhost_sync.api.requests import (
    Outcome,
    ReasonedRequest,
    RowId,
    parse_json,
    read_number_cursor,
    read_scheduled_cursor,
    scheduled_cursor,
)
from oldhost_sync.api.routes.dead_letters import decide_one, replace_letter
from oldhost_sync.console.forms import ChangeForm, CorrectionAct, KeyedAct, read_act
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.intake.change_recorder import Correction
from oldhost_sync.store.intake.schedule import cancel_by_operator
from oldhost_sync.store.read.change_list import list_changes, list_scheduled
from oldhost_sync.store.read.change_status import find_fate_of_id, payload_of
from oldhost_sync.store.read.search import SearchHit, search

CHANGES = f"{PREFIX}/changes"
SCHEDULED = f"{PREFIX}/scheduled"
SHOWN = 50
Text = Annotated[str, Query(max_length=UNIT_NAME_LENGTH_MAX)]
Cursor = Annotated[str | None, Query(max_length=1024)]


class ChangesPage(Page):
    """Changes, newest first, with filters; the search box; what is scheduled, and its cancellation."""

    title = "Changes"
    path = CHANGES

    def mount(self, add: Adder) -> None:
        add("GET", CHANGES, self.list, WATCHERS)
        add("GET", f"{PREFIX}/search", self.search, WATCHERS)
        add("GET", SCHEDULED, self.scheduled, WATCHERS)
        add("POST", f"{SCHEDULED}/cancel", self.cancel, OPERATORS)

    async def list(self, request: Request, form: Annotated[ChangeForm, Depends()], cursor: Cursor = None) -> Response:
        """A page of changes; empty filters are ignored."""
        before_id, host = read_number_cursor(cursor), self.console.dependencies.host
        chosen, caller = form.filter(), caller_of(request)
        refuse_search_in_words(caller, chosen.answer)
        found = await self.console.dependencies.database.run(
            lambda connection: list_changes(connection, host, chosen, before_id=before_id, limit=SHOWN)
        )
        given = {name: text.strip() for name, text in request.query_params.items() if name != "cursor" and text.strip()}
        shown = seen_by(caller, found.changes)
        older = None if found.next_before is None else f"{CHANGES}?{urlencode({**given, 'cursor': found.next_before})}"
        return self.page(
            request, "changes.html", changes=shown, given=given, older=older, later=cursor is not None,
            outcomes=get_args(Outcome), classes=[cls.value for cls in PriorityClass],
        )  # fmt: skip

    async def search(self, request: Request, q: Text = "") -> Response:
        """The hits; a single hit is opened directly."""
        text, host = q.strip(), self.console.dependencies.host
        hits = await self.console.dependencies.database.run(
            lambda connection: search(connection, host, text) if text else []
        )
        if len(hits) == 1:
            return self.console.layout.redirect(address_of(hits[0]))
        found = [(hit, address_of(hit)) for hit in hits]
        return self.page(request, "search.html", title="Search", hits=found, text=text)

    async def scheduled(self, request: Request, cursor: Cursor = None) -> Response:
        after, host = read_scheduled_cursor(cursor), self.console.dependencies.host
        found, end = await self.console.dependencies.database.run(
            lambda connection: list_scheduled(connection, host, limit=SHOWN, after=after)
        )
        later = None if end is None else f"{SCHEDULED}?cursor={scheduled_cursor(end)}"
        return self.page(request, "scheduled.html", title="Scheduled changes", scheduled=found, later=later)

    async def cancel(self, request: Request) -> Response:
        """Cancel a scheduled change, until it is due."""
        act = await read_act(request, KeyedAct)
        operator, host = caller_of(request).operator, self.console.dependencies.host
        done = await self.console.dependencies.database.run(
            lambda connection: cancel_by_operator(connection, host, act.key, operator=operator, reason=act.reason)
        )
        if not done:
            detail = "It was recorded or cancelled already, or was never scheduled."
            raise Problem(
                409, "already-recorded", "It is too late to cancel this change", detail, "Search for its key."
            )
        return self.console.layout.redirect(SCHEDULED, f"{act.key} is cancelled.")


def address_of(hit: SearchHit) -> str:
    """The page of a hit."""
    if hit.change_id is not None:
        return f"{CHANGES}/{hit.change_id}"
    if hit.kind == "scheduled":
        return SCHEDULED
    if hit.kind == "property":
        return f"{PREFIX}/units?{urlencode({'property_id': hit.property_id or ''})}"
    return entity_address(hit.entity_type or "", hit.entity_id or "")


def entity_address(entity_type: str, entity_id: str) -> str:
    return f"{PREFIX}/entities/{quote(entity_type)}/{quote(entity_id)}"


_CHANGE = CHANGES + "/{change_id}"
ChangeId = Annotated[RowId, Path()]


class ChangePage(Page):
    """A change's fate as a timeline, what it waits for, what replaced it; for operators its payload and decisions."""

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
        act = await read_act(request, CorrectionAct)
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
        shown = seen_by(caller_of(request), fate)
        return self.page(request, "change.html", title=f"Change {change_id}", fate=shown, payload=payload)

    async def _decide(self, request: Request, change_id: int, action: str) -> Response:
        because = await read_act(request, ReasonedRequest)
        operator = caller_of(request).operator
        message = await decide_one(
            self.console.dependencies, operator, action, change_id=change_id, reason=because.reason
        )
        return self.console.layout.redirect(f"{CHANGES}/{change_id}", message)
