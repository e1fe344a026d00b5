"""The writer for operators: its state, operators' actions, its sessions with OldHost, and the load over time."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from fastapi import FastAPI, Query, Request
from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, WATCHERS, adder, operator_request
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import OWN_WORDS, Problem
from oldhost_sync.api.requests import (
    JSON_WHOLE,
    WHOLE,
    AnswerBody,
    Id,
    Name,
    ReasonedRequest,
    json_body,
    read_body,
)
from oldhost_sync.api.situation_reader import SituationReader
from oldhost_sync.fields.change import FLUSH_ONE_OR_ALL
from oldhost_sync.policy.limits import INTEGER_MAX, PAUSE_SECONDS_MAX
from oldhost_sync.store.read.figures import RINGS, SeriesPoint, read_series
from oldhost_sync.store.read.halt import Halt, read_halt
from oldhost_sync.store.read.sessions import Sessions, read_sessions

_ACT_ERRORS = (405, 409, 413, 415, 422)
_SUMMARIES = {
    "pause": "Pause the writer",
    "resume": "Resume the writer",
    "flush": "Send changes that wait in the debounce now",
    "resolve": "Resolve a halt",
}


class EmergencyBreaches(AnswerBody):
    """How well the promise for emergencies was kept in the last 30 days."""

    incidents: int = Field(
        description="How often emergencies were late, that is, took more than half of the promised time"
    )
    breaches: int = Field(description="Emergencies that took longer than promised")
    worst_ms: int = Field(description="The longest wait of a late emergency")


class WriterStatus(AnswerBody):
    """The writer's status, from the workflow and from the database."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "host": "oldhost",
        "reachable": True,
        "note": None,
        "workflow": {
            "host": "oldhost",
            "state": "SENDING",
            "release": 1,
            "paused": None,
            "breaker": {"state": "CLOSED", "reason": "", "remaining_ms": 0},
            "session": {
                "phase": "open",
                "epoch": 3,
                "task_queue": "oldhost-sync-session-worker-1",
                "opened_at_nonce": 481,
                "waiting_for": "",
            },
            "lanes": {
                "EMERGENCY": {"depth": 1, "oldest_age_ms": 200},
                "TXN": {"depth": 0, "oldest_age_ms": 0},
                "LWW": {"depth": 0, "oldest_age_ms": 0},
            },
            "debounced": 0,
            "waiting": 2,
            "held": 1,
            "apart": 0,
            "dead_letters": 1,
            "in_flight": 0,
            "in_doubt": 0,
            "rates": {"arrivals_per_s": 0.4, "applied_per_s": 0.4, "service_ms": 410.0},
            "forecast": {
                "drain_ms": 957,
                "oldest_age_ms": 30000,
                "emergency_ms": 410,
                "breaks_consistency": False,
                "breaks_emergency": False,
                "emergencies": 0,
                "late_emergencies": 0,
            },
            "counters": {
                "received": 4,
                "applied": 1,
                "superseded": 0,
                "no_op": 0,
                "stale": 0,
                "dead": 1,
                "withdrawn": 0,
                "sessions": 1,
                "bans": 0,
            },
        },
        "books": {
            "accepted": 4,
            "waiting": 2,
            "in_flight": 0,
            "applied": 1,
            "superseded": 0,
            "no_op": 0,
            "stale": 0,
            "dead": 1,
            "discarded": 0,
            "withdrawn": 0,
            "refused": 0,
        },
        "ledger": {
            "next_nonce": 503,
            "last_applied_nonce": 502,
            "epoch": 3,
            "owner": "worker-1",
            "banned_until": None,
            "ban_is_over": True,
            "halted": None,
            "halted_expected_nonce": None,
            "updated_at": "2026-05-01T12:01:03Z",
        },
        "oldest_waiting_at": "2026-05-01T12:00:45Z",
        "open_alerts": 1,
        "emergency_breaches": {"incidents": 1, "breaches": 2, "worst_ms": 41200},
        "usual_service_ms": 402.5,
        "mapping": "rooms/3",
        "states_of_other_mappings": 0,
    }

    host: str
    reachable: bool = Field(description="Whether the workflow answered")
    note: str | None = Field(description="Why `workflow` is missing, and what this means")
    workflow: dict[str, Any] | None = Field(description="Lanes, breaker, session, rates, forecast")
    books: dict[str, int] = Field(description="`accepted` equals the sum of all other counts")
    ledger: dict[str, Any] | None = Field(description="Nonces, epoch, ban and halt")
    oldest_waiting_at: datetime | None
    open_alerts: int
    emergency_breaches: EmergencyBreaches
    usual_service_ms: float | None = Field(
        description="How long OldHost takes for one operation: the median of a sample of the last 20,000; null: there "
        "are too few"
    )
    mapping: str = Field(description="Name and version of what makes the bodies of new operations")
    states_of_other_mappings: int = Field(
        description="How many of OldHost's states another mapping made; a resync sends them in the form of now"
    )


class EntityInWriter(AnswerBody):
    """Where an entity's changes are in the writer."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "entity_type": "unit",
        "entity_id": "12B",
        "workflow": {
            "entity_type": "unit",
            "entity_id": "12B",
            "changes": [
                {
                    "change_id": 4713,
                    "priority_class": "TXN",
                    "entity_type": "unit",
                    "entity_id": "12B",
                    "event_type": "checked_out",
                    "place": "held behind a dead letter",
                    "waits_for": "an operator to decide on the dead letter",
                    "due_in_ms": 0,
                }
            ],
            "dead_letters": [4712],
        },
    }

    entity_type: str
    entity_id: str
    workflow: dict[str, Any]


class Upcoming(AnswerBody):
    """The next operations, in order."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "upcoming": [
            {
                "change_id": 4714,
                "priority_class": "EMERGENCY",
                "entity_type": "unit",
                "entity_id": "7A",
                "event_type": "guest_locked_out",
            }
        ]
    }

    upcoming: list[Any]


class HaltState(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"halt": Halt.EXAMPLE}

    halt: Halt | None = Field(description="null: sending is not halted")


class Resolve(ReasonedRequest):
    """How to end a halt."""

    mode: str = Field(
        pattern="^(resend|adopt)$",
        description="resend: send the ledger's operations again · adopt: accept OldHost's count as correct",
        examples=["resend"],
    )
    epoch: Annotated[int, JSON_WHOLE] = Field(
        default=0,
        ge=0,
        le=INTEGER_MAX,
        description="That of the halt which the operator was shown (GET /api/writer/halt). If somebody has "
        "decided about that one since, nothing is decided. 0: whatever the halt is",
        examples=[7],
    )
    expected: Annotated[int, Field(ge=0, le=INTEGER_MAX), JSON_WHOLE] | None = Field(
        default=None,
        description="To adopt: the nonce that a host expects which can't be asked. OldHost can be",
        examples=[507],
    )


class PauseRequest(ReasonedRequest):
    """Why, and for how long."""

    for_seconds: Annotated[int, JSON_WHOLE] = Field(
        default=0,
        ge=0,
        le=PAUSE_SECONDS_MAX,
        description="It ends by itself after this long. 0: when somebody resumes",
        examples=[2400],
    )


class Flush(ReasonedRequest):
    """Send changes that wait in the debounce now: those of one entity, or of all entities if neither field is given."""

    # For the OpenAPI document; `_both_or_neither` checks it.
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["entity_type", "entity_id"],
                    "properties": {"entity_type": {"type": "string"}, "entity_id": {"type": "string"}},
                },
                {"properties": {"entity_type": {"type": "null"}, "entity_id": {"type": "null"}}},
            ]
        }
    )

    entity_type: Name | None = Field(default=None, examples=["unit"])
    entity_id: Id | None = Field(default=None, examples=["12B"])

    @model_validator(mode="after")
    def _both_or_neither(self) -> Self:
        if (self.entity_type is None) != (self.entity_id is None):
            raise PydanticCustomError(OWN_WORDS, FLUSH_ONE_OR_ALL)
        return self


class ActionResult(AnswerBody):
    """An operator's action was carried out."""

    EXAMPLE: ClassVar[dict[str, Any]] = {"action": "pause", "operator": "anna", "message": "paused"}

    action: str
    operator: str
    message: str


class WriterRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "writer")
        summary = "The writer's state, from the workflow and from the database"
        add("GET", "/api/writer/status", self.status, WriterStatus, summary, WATCHERS, (405,))
        summary = "Where the changes of one entity are in the writer"
        add("GET", "/api/writer/find", self.find, EntityInWriter, summary, WATCHERS, (405, 409, 422))
        summary = "What the writer sends next"
        add("GET", "/api/writer/upcoming", self.upcoming, Upcoming, summary, WATCHERS, (405, 409, 422))
        summary = "A halt, and the effects of both ways to end it"
        add("GET", "/api/writer/halt", self.halt, HaltState, summary, WATCHERS, (405,))
        for action, handler, model, example in (
            (
                "pause",
                self.pause,
                PauseRequest,
                {"reason": "OldHost's maintenance", "for_seconds": 3600},
            ),
            ("resume", self.resume, ReasonedRequest, {"reason": "OldHost's maintenance is finished"}),
            ("flush", self.flush, Flush, {"reason": "The owner waits", "entity_type": "unit", "entity_id": "12B"}),
            ("resolve", self.resolve, Resolve, {"reason": "OldHost was restored from a backup", "mode": "resend"}),
        ):
            path, body = f"/api/writer/{action}", json_body(model, example=example)
            add("POST", path, handler, ActionResult, _SUMMARIES[action], OPERATORS, _ACT_ERRORS, **body)

    async def status(self) -> WriterStatus:
        """Complete while Temporal answers; otherwise only the values from the database, and a note that says so."""
        books, (workflow, note) = await asyncio.gather(self._dependencies.books.read(), self._ask_writer())
        return WriterStatus(
            host=self._dependencies.host, reachable=workflow is not None, note=note, workflow=workflow, **books
        )

    async def find(
        self,
        entity_id: Annotated[Id, Query()],
        entity_type: Annotated[Name, Query()] = "unit",
    ) -> EntityInWriter:
        """Changes wait in the debounce or in a lane, are in flight, or are held behind a rejected change."""
        place = await self._dependencies.writer.query("find", entity_type, entity_id)
        return EntityInWriter(entity_type=entity_type, entity_id=entity_id, workflow=place)

    async def upcoming(
        self, count: Annotated[int, Field(ge=1, le=http_limits.UPCOMING_MAX), WHOLE, Query()] = 20
    ) -> Upcoming:
        """In the order in which they would be sent if no further changes arrived."""
        return Upcoming(upcoming=await self._dependencies.writer.query("upcoming", count))

    async def halt(self) -> HaltState:
        """The ledger and OldHost side by side, and what `adopt` and `resend` would do, by the nonce that OldHost
        expected when it was last asked. `resolve` asks OldHost again, and decides nothing if its answer has changed.
        """
        host = self._dependencies.host
        halt = await self._dependencies.database.run(lambda connection: read_halt(connection, host))
        return HaltState(halt=halt)

    async def pause(self, request: Request) -> ActionResult:
        """Nothing is sent until `resume` or the given end; changes are still accepted and wait in the writer."""
        return await self._act("pause", request, await read_body(request, PauseRequest))

    async def resume(self, request: Request) -> ActionResult:
        """Sending continues where it stopped."""
        return await self._act("resume", request, await read_body(request, ReasonedRequest))

    async def flush(self, request: Request) -> ActionResult:
        """Changes that wait in the debounce, of one entity or of all, move to their lanes now."""
        return await self._act("flush", request, await read_body(request, Flush))

    async def resolve(self, request: Request) -> ActionResult:
        """Ends a halt by an operator's decision, which no program may make."""
        return await self._act("resolve", request, await read_body(request, Resolve))

    async def _act(self, action: str, request: Request, body: ReasonedRequest) -> ActionResult:
        asked = operator_request(request, **body.model_dump())
        message = await self._dependencies.writer.update(action, asked)
        return ActionResult(action=action, operator=asked.operator, message=message)

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
        return await self._dependencies.database.run(lambda connection: read_sessions(connection, host))


class SeriesSpan(StrEnum):
    """The keys of RINGS."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"


class Series(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"span": "1h", "step_seconds": 10, "points": [SeriesPoint.EXAMPLE]}

    span: str
    step_seconds: int = Field(description="The length of a bucket")
    points: list[SeriesPoint]


class Stop(AnswerBody):
    """What keeps the writer from sending."""

    word: str = Field(description="PAUSED, BANNED or HALTED", examples=["BANNED"])
    why: str
    since: datetime | None
    until: datetime | None


class WriterSituation(AnswerBody):
    """The state in one word, with its reason and the next step."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "word": "PAUSED",
        "tone": "warning",
        "why": "anna paused it: OldHost's operators asked for an hour without load.",
        "next_step": "Resume when the reason no longer applies. Changes are still accepted.",
        "since": "2026-05-01T11:58:00Z",
        "until": None,
        "also": [],
    }

    word: str = Field(description="SENDING, AT RISK, WAITING, BANNED, PAUSED, HALTED or NO WRITER")
    tone: str = Field(description="good, calm (it resolves itself), warning or bad")
    why: str
    next_step: str
    since: datetime | None = Field(description="When this state began; null if that is not known")
    until: datetime | None = Field(description="When it ends by itself, if that is known")
    also: list[Stop] = Field(description="What else keeps the writer from sending")


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
        points = await self._dependencies.database.run(lambda connection: read_series(connection, host, span.value))
        return Series(span=span.value, step_seconds=RINGS[span.value].step_s, points=points)

    async def situation(self) -> WriterSituation:
        """Also available while Temporal or the database is away; the answer then says so."""
        return WriterSituation(**asdict((await self._situation_reader.read()).situation))
