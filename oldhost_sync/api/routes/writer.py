"""The writer for operators: its state, operators' actions, its sessions with OldHost, and the load over time."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from pydantic import Field

from oldhost_sync.api import limits, schemas, view_schemas
from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, adder, operator_request
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.fields import WHOLE, Id, Name
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.requests import json_body, read_body
from oldhost_sync.api.schemas import Flush, ReasonedRequest, Resolve
from oldhost_sync.api.situation_reader import SituationReader
from oldhost_sync.api.view_schemas import Series, SeriesPoint, Sessions, WriterSituation
from oldhost_sync.store.read.figures import RINGS, read_series
from oldhost_sync.store.read.halt import read_halt
from oldhost_sync.store.read.sessions import read_sessions

_ACT_ERRORS = (405, 409, 413, 415, 422)
_SUMMARIES = {
    "pause": "Pause the writer",
    "resume": "Resume the writer",
    "flush": "Send changes that wait in the debounce now",
    "resolve": "Resolve a halt",
}


class WriterRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "writer")
        summary = "The writer's state, from the workflow and from the database"
        add("GET", "/api/writer/status", self.status, schemas.WriterStatus, summary, WATCHERS, (405,))
        summary = "Where the changes of one entity are in the writer"
        add("GET", "/api/writer/find", self.find, schemas.EntityInWriter, summary, WATCHERS, (405, 409, 422))
        summary = "What the writer sends next"
        add("GET", "/api/writer/upcoming", self.upcoming, schemas.Upcoming, summary, WATCHERS, (405, 409, 422))
        summary = "A halt, and the effects of both ways to end it"
        add("GET", "/api/writer/halt", self.halt, view_schemas.HaltState, summary, WATCHERS, (405,))
        for action, handler, model, example in (
            ("pause", self.pause, ReasonedRequest, {"reason": "OldHost's operators asked for an hour without load"}),
            ("resume", self.resume, ReasonedRequest, {"reason": "OldHost's maintenance is finished"}),
            ("flush", self.flush, Flush, {"reason": "The owner waits", "entity_type": "unit", "entity_id": "12B"}),
            ("resolve", self.resolve, Resolve, {"reason": "OldHost was restored from a backup", "mode": "resend"}),
        ):
            path, body = f"/api/writer/{action}", json_body(model, example=example)
            add("POST", path, handler, schemas.ActionResult, _SUMMARIES[action], OPERATORS, _ACT_ERRORS, **body)

    async def status(self) -> schemas.WriterStatus:
        """Complete while Temporal answers; otherwise only the values from the database, and a note that says so."""
        books, (workflow, note) = await asyncio.gather(self._dependencies.books.read(), self._ask_writer())
        return schemas.WriterStatus(
            host=self._dependencies.host, reachable=workflow is not None, note=note, workflow=workflow, **books
        )

    async def find(
        self,
        entity_id: Annotated[Id, Query()],
        entity_type: Annotated[Name, Query()] = "unit",
    ) -> schemas.EntityInWriter:
        """Changes wait in the debounce or in a lane, are in flight, or are held behind a rejected change."""
        found = await self._dependencies.writer.query("find", entity_type, entity_id)
        return schemas.EntityInWriter(entity_type=entity_type, entity_id=entity_id, workflow=found)

    async def upcoming(
        self, count: Annotated[int, Field(ge=1, le=limits.UPCOMING_MAX), WHOLE, Query()] = 20
    ) -> schemas.Upcoming:
        """In the order in which they would be sent if no further changes arrived."""
        return schemas.Upcoming(upcoming=await self._dependencies.writer.query("upcoming", count))

    async def halt(self) -> view_schemas.HaltState:
        """The ledger and OldHost side by side, and what `adopt` and `resend` would do, by the nonce that OldHost
        expected when it was last asked. `resolve` asks OldHost again, and decides nothing if its answer has changed.
        """
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: read_halt(connection, host))
        return view_schemas.HaltState(halt=None if found is None else view_schemas.Halt.model_validate(asdict(found)))

    async def pause(self, request: Request) -> schemas.ActionResult:
        """Nothing is sent until `resume`; changes are still accepted and wait in the writer."""
        return await self._act("pause", request, await read_body(request, ReasonedRequest))

    async def resume(self, request: Request) -> schemas.ActionResult:
        """Sending continues where it stopped."""
        return await self._act("resume", request, await read_body(request, ReasonedRequest))

    async def flush(self, request: Request) -> schemas.ActionResult:
        """Changes that wait in the debounce, of one entity or of all, move to their lanes now."""
        return await self._act("flush", request, await read_body(request, Flush))

    async def resolve(self, request: Request) -> schemas.ActionResult:
        """Ends a halt by an operator's decision, which no program may make."""
        return await self._act("resolve", request, await read_body(request, Resolve))

    async def _act(self, action: str, request: Request, body: ReasonedRequest) -> schemas.ActionResult:
        asked = operator_request(request, **body.model_dump())
        message = await self._dependencies.writer.update(action, asked)
        return schemas.ActionResult(action=action, operator=asked.operator, message=message)

    async def _ask_writer(self) -> tuple[dict[str, Any] | None, str | None]:
        try:
            answer = await self._dependencies.writer.query("status")
        except Problem as problem:
            return (
                None,
                f"{problem.content['detail']} The values from the database are below. Changes are still accepted.",
            )
        return answer if isinstance(answer, dict) else {"status": answer}, None


class SessionRoutes:
    """Sessions with OldHost, and the processes that were seen last."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "sessions")
        add("GET", "/api/sessions", self.list, Sessions, "The newest sessions with OldHost", WATCHERS, (405,))

    async def list(self) -> Sessions:
        """The newest 100. A worker that was killed could not report why its session ended."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: read_sessions(connection, host))
        return Sessions.model_validate(asdict(found))


class SeriesSpan(StrEnum):
    """The keys of RINGS."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class SeriesRoutes:
    """The host's situation in words, and its load over an hour, a day or a week: backlog, accepted and applied changes,
    emergencies.
    """

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._situation_reader = SituationReader(dependencies)

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "series")
        summary = "The load over time, oldest first"
        add("GET", "/api/series", self.read, Series, summary, WATCHERS, (405, 422))
        summary = "What is wrong, since when, why, and what to do about it"
        add("GET", "/api/situation", self.situation, WriterSituation, summary, WATCHERS, (405,))

    async def read(
        self,
        span: Annotated[
            SeriesSpan, Query(description="How far back; one point is 10 s, 1 min or 10 min")
        ] = SeriesSpan.HOUR,
    ) -> Series:
        """The active relay records the load every ten seconds. A bucket in which no relay was active is missing."""
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: read_series(connection, host, span.value))
        points = [SeriesPoint(**asdict(each)) for each in found]
        return Series(span=span.value, step_seconds=RINGS[span.value].step_s, points=points)

    async def situation(self) -> WriterSituation:
        """Also available while Temporal or the database is away; the answer then says so."""
        return WriterSituation(**asdict((await self._situation_reader.read()).situation))
