"""Units: their shadow state, and the two writes that most applications need."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import Field

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import READERS, WRITERS, adder, caller_of, source_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem, method_not_allowed
from oldhost_sync.api.requests import (
    AnswerBody,
    Cursor,
    Id,
    Keyed,
    Limit,
    UnitNameText,
    UnitStatusText,
    read_body,
    read_text_cursor,
    request_key,
    text_cursor,
    traceparent_of,
    write_body,
)
from oldhost_sync.api.writes import Accepted, accepted_answer, recorded, recorded_answer
from oldhost_sync.store.intake import change_recorder
from oldhost_sync.store.read import entities as store
from oldhost_sync.store.read.entities import Unit

# `:path`, because an id may hold a slash.
_UNIT = "/api/units/{unit_id:path}"
UnitId = Annotated[Id, Path(description="The unit's id", examples=["12B"])]
SyncStatus = Literal["PENDING_SYNC", "SYNCED", "SYNC_FAILED"]

_STATUS = "/status"
# 404: a path that contains something no id can contain (a line break).
_WRITE_ERRORS = (404, 405, 413, 415, 422)


class UnitStatus(Keyed):
    """A unit's new status."""

    status: UnitStatusText = Field(examples=["Clean"])


class UnitDetails(Keyed):
    """A unit's details; a `status` is recorded as a separate change."""

    name: UnitNameText = Field(examples=["Seaview 12"])
    property_id: Id | None = Field(default=None, examples=["seaview"])
    status: UnitStatusText | None = Field(default=None, examples=["Clean"])


class UnitAccepted(Accepted):
    """Like Accepted, with one entry for each change that the request recorded."""

    EXAMPLE: ClassVar[dict[str, Any]] = {**Accepted.EXAMPLE, "changes": [Accepted.EXAMPLE]}

    changes: list[Accepted]


class UnitPage(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"units": [Unit.EXAMPLE], "next_cursor": None}

    units: list[Unit] = Field(description="At most `limit`; a page with a filter may hold fewer before the list ends")
    next_cursor: str | None = Field(description="Pass it as `cursor` to get the next page; null after the last page")


class UnitRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "units")
        body = write_body(UnitStatus, clean={"status": "Clean"})
        add("POST", _UNIT + _STATUS, self.set_status, Accepted, "Set a unit's status", WRITERS, _WRITE_ERRORS, **body)
        example = {"name": "Seaview 12", "property_id": "seaview", "status": "Clean"}
        body = write_body(UnitDetails, details=example)
        add("PUT", _UNIT, self.put, UnitAccepted, "Create or change a unit", WRITERS, _WRITE_ERRORS, **body)
        add("GET", "/api/units", self.list, UnitPage, "List units in id order", READERS, (405, 422))
        add("GET", _UNIT, self.get, Unit, "One unit", READERS, (404, 405, 422))

    async def set_status(self, request: Request, unit_id: UnitId) -> Response:
        """Recorded at once, and sent to OldHost in its turn. A newer status replaces one that still waits."""
        body = await read_body(request, UnitStatus)
        key = request_key(request, body.idempotency_key)
        change = change_recorder.status_change(
            host=self._dependencies.host, unit_id=unit_id, status=body.status, key=key.text, source=source_of(request),
            traceparent=traceparent_of(request.headers),
        )  # fmt: skip
        self._dependencies.quotas.changes(caller_of(request), [change.event_type])
        return await recorded_answer(self._dependencies.commits, self._dependencies.expected, change, key)

    async def put(self, request: Request, unit_id: UnitId) -> Response:
        """Records the unit's details and, if given, its status: both changes or neither."""
        if unit_id.endswith(_STATUS):
            # The caller means the other route; this must not create a unit with such an id.
            raise method_not_allowed("PUT", "POST")
        body = await read_body(request, UnitDetails)
        key = request_key(request, body.idempotency_key)
        host, source, traceparent = self._dependencies.host, source_of(request), traceparent_of(request.headers)
        details = change_recorder.details_change(
            host=host, unit_id=unit_id, name=body.name, property_id=body.property_id, key=key.text, source=source,
            traceparent=traceparent,
        )  # fmt: skip
        status = None
        if body.status is not None:
            status_key = key.text + change_recorder.STATUS_KEY_SUFFIX
            status = change_recorder.status_change(
                host=host, unit_id=unit_id, status=body.status, key=status_key, source=source, traceparent=traceparent
            )
        made = [change.event_type for change in (details, status) if change is not None]
        self._dependencies.quotas.changes(caller_of(request), made)
        fn = partial(change_recorder.record_details, details=details, status=status)
        recording = self._dependencies.database.run_for_entity(fn, host, details.entity_type, unit_id)
        expected = self._dependencies.expected
        changes = await recorded(expected, recording, key)
        return accepted_answer(expected, changes[0], changes)

    async def list(
        self,
        sync_status: Annotated[SyncStatus | None, Query(description="Only units in this state")] = None,
        property_id: Annotated[Id | None, Query(description="Only units of this property")] = None,
        name: Annotated[UnitNameText | None, Query(description="Only units with this name")] = None,
        cursor: Cursor = None,
        limit: Limit = http_limits.PAGE_DEFAULT,
    ) -> UnitPage:
        """A page of units; a cursor stays valid for ever.

        A page may hold fewer units than `limit`, even none, before the list ends: continue while `next_cursor` is set.
        """
        after_id = read_text_cursor(cursor)
        host = self._dependencies.host
        wanted = store.UnitFilter(sync_status, property_id, name)
        page = await self._dependencies.database.run(
            lambda connection: store.list_units(connection, host, wanted, after_id=after_id, limit=limit)
        )
        next_cursor = None if page.next_after is None else text_cursor(page.next_after)
        return UnitPage(units=page.units, next_cursor=next_cursor)

    async def get(self, unit_id: UnitId) -> Unit:
        """The newest accepted state, and whether OldHost has it."""
        host = self._dependencies.host
        unit = await self._dependencies.database.run(lambda connection: store.find_unit(connection, host, unit_id))
        if unit is None:
            raise Problem(
                404,
                "unknown-unit",
                "There is no such unit",
                "No change was ever accepted for a unit with that id.",
                "Check the id; PUT /api/units/{id} creates a unit.",
            )
        return unit
