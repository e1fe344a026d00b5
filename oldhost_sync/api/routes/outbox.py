"""What people look at: lists of changes with filters, one change by its id, its payload (for operators), one entity,
and a search for whatever they have at hand.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, ClassVar

from fastapi import Depends, FastAPI, Path, Query, Request
from pydantic import Field
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import (
    OPERATORS,
    READERS,
    WATCHERS,
    adder,
    caller_of,
    may_see,
    refuse_search_in_words,
    seen_by,
)
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem, forbidden, unknown_change
from oldhost_sync.api.requests import (
    FLAG,
    AnswerBody,
    ChangeQuery,
    Cursor,
    Id,
    Limit,
    Name,
    RowId,
    read_number_cursor,
    read_scheduled_cursor,
    scheduled_cursor,
)
from oldhost_sync.policy.limits import UNIT_NAME_LENGTH_MAX
from oldhost_sync.store.read import change_status
from oldhost_sync.store.read.change_list import ListedChange, list_changes, list_scheduled
from oldhost_sync.store.read.change_status import Fate, note_entity_read, payload_of
from oldhost_sync.store.read.entities import Entity, compare_entity
from oldhost_sync.store.read.search import SearchHit, search
from oldhost_sync.store.record import KEY

_CHANGE = "/api/outbox/{change_id}"
ChangeId = Annotated[RowId, Path(description="The change's id")]


class ChangePage(AnswerBody):
    """Newest first. A page may hold fewer changes than `limit`, even none, before the list ends."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"changes": [ListedChange.EXAMPLE], "next_cursor": "4712"}

    changes: list[ListedChange]
    next_cursor: str | None = Field(description="Pass it as `cursor` to get the next page; null after the last page")


class Payload(AnswerBody):
    """A change's payload; it may hold personal data."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"change_id": 4712, "payload": {"guest": "g-77"}}

    change_id: int
    payload: dict[str, Any]


class ScheduledChange(AnswerBody):
    """A change that is kept until its `not_before`."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "idempotency_key": KEY,
        "entity_type": "unit",
        "entity_id": "12B",
        "event_type": "door_code_changed",
        "source": "api:shop",
        "not_before": "2026-12-24T14:00:00Z",
        "created_at": "2026-05-01T12:00:50Z",
    }

    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    source: str
    not_before: datetime
    created_at: datetime


class ScheduledPage(AnswerBody):
    """Scheduled changes in the order in which they become due."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"scheduled": [ScheduledChange.EXAMPLE], "next_cursor": None}

    scheduled: list[ScheduledChange]
    next_cursor: str | None


class OutboxRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "outbox")
        summary = "Changes, newest first, with filters"
        add("GET", "/api/outbox", self.list, ChangePage, summary, WATCHERS, (405, 422))
        summary = "Scheduled changes, in due order"
        add("GET", "/api/scheduled", self.scheduled, ScheduledPage, summary, WATCHERS, (405, 422))
        add("GET", _CHANGE, self.change, Fate, "A change's fate by id, with all its steps", READERS, (404, 405, 422))
        summary = "A change's payload; each reading is recorded in the audit"
        add("GET", f"{_CHANGE}/payload", self.payload, Payload, summary, OPERATORS, (404, 405, 422))

    async def list(
        self,
        request: Request,
        wanted: Annotated[ChangeQuery, Depends()],
        cursor: Cursor = None,
        limit: Limit = http_limits.PAGE_DEFAULT,
    ) -> ChangePage:
        """Each page reads a bounded part of the outbox: with a filter that few changes match it may hold fewer changes
        than `limit`, even none, before the list ends. Continue while there is a `next_cursor`. OldHost's words may
        repeat a payload: a viewer gets them without quoted text, numbers and ids, and can't use `answer`.
        """
        before_id = read_number_cursor(cursor)
        host, chosen, caller = self._dependencies.host, wanted.filter(), caller_of(request)
        refuse_search_in_words(caller, chosen.answer)
        page = await self._dependencies.database.run(
            lambda connection: list_changes(connection, host, chosen, before_id=before_id, limit=limit)
        )
        next_cursor = None if page.next_before is None else str(page.next_before)
        return ChangePage(changes=seen_by(caller, page.changes), next_cursor=next_cursor)

    async def scheduled(self, cursor: Cursor = None, limit: Limit = http_limits.PAGE_DEFAULT) -> ScheduledPage:
        """Changes that are neither recorded nor cancelled yet; `DELETE /api/changes/{idempotency_key}` cancels one."""
        host, after = self._dependencies.host, read_scheduled_cursor(cursor)
        changes, end = await self._dependencies.database.run(
            lambda connection: list_scheduled(connection, host, limit=limit, after=after)
        )
        return ScheduledPage(
            scheduled=[ScheduledChange(**change) for change in changes],
            next_cursor=None if end is None else scheduled_cursor(end),
        )

    async def change(self, request: Request, change_id: ChangeId) -> Fate:
        """Like `GET /api/changes/{idempotency_key}`."""
        host = self._dependencies.host
        fate = await self._dependencies.database.run(
            lambda connection: change_status.find_fate_of_id(connection, host, change_id)
        )
        if fate is None or not may_see(caller_of(request), fate.source):
            raise _unknown(change_id)
        return seen_by(caller_of(request), fate)

    async def payload(self, request: Request, change_id: ChangeId) -> Payload:
        """The same transaction records who read it and when."""
        host, operator = self._dependencies.host, caller_of(request).operator
        payload = await self._dependencies.database.run(
            lambda connection: payload_of(connection, host, change_id, operator=operator)
        )
        if payload is None:
            raise _unknown(change_id)
        return Payload(change_id=change_id, payload=payload)


def _unknown(change_id: int) -> Exception:
    return unknown_change(f"No change has the id {change_id}, or it is too old and has been deleted.")


EntityType = Annotated[Name, Path(examples=["unit"])]
EntityId = Annotated[Id, Path(examples=["12B"])]
Payloads = Annotated[
    bool, FLAG, Query(description="Include the payloads; only for role ops, and recorded in the audit")
]


class EntityRoutes:
    """What the application shows of an entity, what OldHost has, and where its changes are."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "entities")
        summary = "One entity: its state here and at OldHost, and its outstanding, held, dead and scheduled changes"
        path = "/api/entities/{entity_type}/{entity_id:path}"
        add("GET", path, self.get, Entity, summary, WATCHERS, (404, 405, 422))

    async def get(
        self, request: Request, entity_type: EntityType, entity_id: EntityId, payloads: Payloads = False
    ) -> Entity:
        """States are compared key by key. If the writer does not answer, `writer` is null and `note` says why."""
        caller, host = caller_of(request), self._dependencies.host
        if payloads and caller.role not in OPERATORS:
            raise forbidden(caller.role, OPERATORS)

        def read(connection: Connection) -> Entity | None:
            entity = compare_entity(connection, host, entity_type, entity_id, payloads=payloads)
            if payloads and entity is not None:
                note_entity_read(connection, host, entity_type, entity_id, operator=caller.operator)
            return entity

        entity = await self._dependencies.database.run(read)
        if entity is None:
            raise Problem(
                404,
                "unknown-entity",
                "There is no such entity",
                "No change was ever accepted for an entity of that type and id.",
                "Check the type and the id; GET /api/search?q= finds ids of every type.",
            )
        writer, note = await self._ask_writer(entity_type, entity_id)
        return replace(seen_by(caller, entity), writer=writer, note=note)

    async def _ask_writer(self, entity_type: str, entity_id: str) -> tuple[dict[str, Any] | None, str | None]:
        try:
            place: dict[str, Any] = await self._dependencies.writer.query("find", entity_type, entity_id)
        except Problem as problem:
            return None, str(problem.content["detail"])
        return place, None


Wanted = Annotated[
    str,
    Query(
        min_length=1,
        max_length=UNIT_NAME_LENGTH_MAX,
        description="A key, a change's id, an entity's id or type/id, a unit's name or its beginning, a property",
    ),
]


class SearchHits(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"hits": [SearchHit.EXAMPLE]}

    hits: list[SearchHit]


class SearchRoutes:
    """One search for keys, ids, names and properties."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "search")
        add("GET", "/api/search", self.search, SearchHits, "Find by key, id, name or property", WATCHERS, (405, 422))

    async def search(self, q: Wanted) -> SearchHits:
        """Exact matches come first; at most ten results of each kind."""
        host, wanted = self._dependencies.host, q.strip()
        hits = await self._dependencies.database.run(lambda connection: search(connection, host, wanted))
        return SearchHits(hits=hits)
