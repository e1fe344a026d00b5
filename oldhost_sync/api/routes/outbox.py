"""The outbox for people: lists of changes with filters, one change by its id, and its payload for operators."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import Depends, FastAPI, Path, Request

from oldhost_sync.api import limits, view_schemas
from oldhost_sync.api.access.auth import OPERATORS, READERS, WATCHERS, adder, caller_of
from oldhost_sync.api.access.ownership import may_see
from oldhost_sync.api.access.words import refuse_search_in_words, seen_by
from oldhost_sync.api.change_query import ChangeQuery
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.field_types import RowId
from oldhost_sync.api.keys import Cursor, Limit, read_number_cursor, read_scheduled_cursor, scheduled_cursor
from oldhost_sync.api.problems import unknown_change
from oldhost_sync.api.schemas import Fate
from oldhost_sync.store.views import change_status
from oldhost_sync.store.views.change_list import list_changes
from oldhost_sync.store.views.payloads import payload_of
from oldhost_sync.store.views.scheduled_list import list_scheduled

_CHANGE = "/api/outbox/{change_id}"
ChangeId = Annotated[RowId, Path(description="The change's id")]


class OutboxRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "outbox")
        summary = "Changes, newest first, with filters"
        add("GET", "/api/outbox", self.list, view_schemas.ChangePage, summary, WATCHERS, (405, 422))
        summary = "Scheduled changes, in due order"
        add("GET", "/api/scheduled", self.scheduled, view_schemas.ScheduledPage, summary, WATCHERS, (405, 422))
        add("GET", _CHANGE, self.change, Fate, "A change's fate by id, with all its steps", READERS, (404, 405, 422))
        summary = "A change's payload; each reading is recorded in the audit"
        add("GET", f"{_CHANGE}/payload", self.payload, view_schemas.Payload, summary, OPERATORS, (404, 405, 422))

    async def list(
        self,
        request: Request,
        wanted: Annotated[ChangeQuery, Depends()],
        cursor: Cursor = None,
        limit: Limit = limits.PAGE_DEFAULT,
    ) -> view_schemas.ChangePage:
        """Each page reads a bounded part of the outbox: with a filter that few changes match it may hold fewer changes
        than `limit`, even none, before the list ends. Continue while there is a `next_cursor`. OldHost's words may
        repeat a payload: a viewer gets them without quoted text, numbers and ids, and can't use `answer`.
        """
        before_id = read_number_cursor(cursor)
        host, chosen, caller = self._dependencies.host, wanted.filter(), caller_of(request)
        refuse_search_in_words(caller, chosen.answer)
        found = await self._dependencies.database.run(
            lambda connection: list_changes(connection, host, chosen, before_id=before_id, limit=limit)
        )
        changes = [view_schemas.ListedChange(**asdict(seen_by(caller, each))) for each in found.changes]
        next_cursor = None if found.next_before is None else str(found.next_before)
        return view_schemas.ChangePage(changes=changes, next_cursor=next_cursor)

    async def scheduled(self, cursor: Cursor = None, limit: Limit = limits.PAGE_DEFAULT) -> view_schemas.ScheduledPage:
        """Changes that are neither recorded nor cancelled yet; `DELETE /api/changes/{idempotency_key}` cancels one."""
        host, after = self._dependencies.host, read_scheduled_cursor(cursor)
        found, end = await self._dependencies.database.run(
            lambda connection: list_scheduled(connection, host, limit=limit, after=after)
        )
        return view_schemas.ScheduledPage(
            scheduled=[view_schemas.ScheduledChange(**each) for each in found],
            next_cursor=None if end is None else scheduled_cursor(end),
        )

    async def change(self, request: Request, change_id: ChangeId) -> Fate:
        """Like `GET /api/changes/{idempotency_key}`."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(
            lambda connection: change_status.find_fate_of_id(connection, host, change_id)
        )
        if found is None or not may_see(caller_of(request), found.source):
            raise _unknown(change_id)
        return Fate.model_validate(asdict(seen_by(caller_of(request), found)))

    async def payload(self, request: Request, change_id: ChangeId) -> view_schemas.Payload:
        """The same transaction records who read it and when."""
        host, operator = self._dependencies.host, caller_of(request).operator
        found = await self._dependencies.database.run(
            lambda connection: payload_of(connection, host, change_id, operator=operator)
        )
        if found is None:
            raise _unknown(change_id)
        return view_schemas.Payload(change_id=change_id, payload=found)


def _unknown(change_id: int) -> Exception:
    return unknown_change(f"No change has the id {change_id}, or it is too old and has been deleted.")
