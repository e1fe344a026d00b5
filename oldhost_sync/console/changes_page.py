"""Changes: newest first, with filters; the search box; what is scheduled, and its cancellation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, caller_of, refuse_search_in_words, seen_by
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import checked, read_number_cursor, read_scheduled_cursor, scheduled_cursor
from oldhost_sync.console.act_form import KeyedAct
from oldhost_sync.console.change_form import ChangeForm, FilledForm
from oldhost_sync.console.forms import read_fields
from oldhost_sync.console.page import Adder, Page
from oldhost_sync.console.paths import PREFIX
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.intake.schedule import cancel_by_operator
from oldhost_sync.store.read.change_list import OUTSTANDING, ChangeFilter, list_changes, list_scheduled
from oldhost_sync.store.read.search import Hit, search

CHANGES = f"{PREFIX}/changes"
SCHEDULED = f"{PREFIX}/scheduled"
SHOWN = 50
OUTCOMES = (OUTSTANDING, "APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "REFUSED")
Text = Annotated[str, Query(max_length=UNIT_NAME_LENGTH_MAX)]
Cursor = Annotated[str | None, Query(max_length=1024)]


class ChangesPage(Page):
    title = "Changes"
    path = CHANGES

    def mount(self, add: Adder) -> None:
        add("GET", CHANGES, self.list, WATCHERS)
        add("GET", f"{PREFIX}/search", self.search, WATCHERS)
        add("GET", SCHEDULED, self.scheduled, WATCHERS)
        add("POST", f"{SCHEDULED}/cancel", self.cancel, OPERATORS)

    async def list(self, request: Request, form: Annotated[ChangeForm, Depends()], cursor: Cursor = None) -> Response:
        """A page of changes; empty filters are ignored."""
        wanted = checked(form.given(), FilledForm, "query")
        before_id, host = read_number_cursor(cursor), self.console.dependencies.host
        chosen, caller = _filter(wanted), caller_of(request)
        refuse_search_in_words(caller, chosen.answer)
        found = await self.console.dependencies.database.run(
            lambda connection: list_changes(connection, host, chosen, before_id=before_id, limit=SHOWN)
        )
        given, shown = form.given(), seen_by(caller, found.changes)
        older = None if found.next_before is None else f"{CHANGES}?{urlencode({**given, 'cursor': found.next_before})}"
        return self.page(
            request, "changes.html", changes=shown, given=given, older=older, later=cursor is not None,
            outcomes=OUTCOMES, classes=[each.value for each in PriorityClass],
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
        act = checked(await read_fields(request, *KeyedAct.model_fields), KeyedAct, "form")
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


def _filter(wanted: FilledForm) -> ChangeFilter:
    now = datetime.now(UTC)
    values: dict[str, Any] = wanted.model_dump(exclude={"newer_hours", "older_hours"})
    if wanted.newer_hours is not None:
        values["accepted_from"] = now - timedelta(hours=wanted.newer_hours)
    if wanted.older_hours is not None:
        values["accepted_before"] = now - timedelta(hours=wanted.older_hours)
    if wanted.entity_id is not None and wanted.entity_type is None:
        values["entity_type"] = "unit"
    return ChangeFilter(**values)


def address_of(hit: Hit) -> str:
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
