"""The shapes of requests and answers, with examples; the OpenAPI document is made of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from oldhost_sync.api import limits
from oldhost_sync.api.problems import ProblemBody
from oldhost_sync.policy.limits import (
    BATCH_CHANGES_MAX,
    ID_LENGTH_MAX,
    NAME_PATTERN,
    TEXT_LENGTH_MAX,
    UNIT_NAME_LENGTH_MAX,
    UNIT_STATUS_LENGTH_MAX,
)

_NAME = f"^{NAME_PATTERN}$"
KEY = "3f6c2b1e-0a57-4f0e-9a5e-0d1f6f2f7a11"


def _time_as_text(value: object) -> object:
    if isinstance(value, str) or value is None or isinstance(value, datetime):
        return value
    raise ValueError("a time is text such as 2026-05-01T12:00:00Z")


Instant = Annotated[AwareDatetime, BeforeValidator(_time_as_text)]
Name = Annotated[str, Field(pattern=_NAME)]
EntityId = Annotated[str, Field(min_length=1, max_length=ID_LENGTH_MAX, description="Printable characters.")]
Reason = Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH_MAX, description="Why; kept in the audit.")]


class Request(BaseModel):
    """Unknown fields are refused: a misspelt `not_before` must not mean "at once"."""

    model_config = ConfigDict(extra="forbid")


class Keyed(Request):
    """A request that records, under the caller's name for it."""

    idempotency_key: str | None = Field(
        default=None,
        pattern="^[!-~]+$",
        max_length=limits.REQUEST_KEY_LENGTH_MAX,
        description="Your name for this request, as the Idempotency-Key header; if both are given they must be equal. "
        "None: the server makes one.",
        examples=[KEY],
    )


# ------------------------------------------------------------------------------------------------------------ requests


class UnitStatus(Keyed):
    """A unit's new status."""

    status: str = Field(min_length=1, max_length=UNIT_STATUS_LENGTH_MAX, examples=["Clean"])


class UnitDetails(Keyed):
    """What a unit is; a `status` becomes a change of its own."""

    name: str = Field(min_length=1, max_length=UNIT_NAME_LENGTH_MAX, examples=["Seaview 12"])
    property_id: str | None = Field(default=None, min_length=1, max_length=ID_LENGTH_MAX, examples=["seaview"])
    status: str | None = Field(default=None, min_length=1, max_length=UNIT_STATUS_LENGTH_MAX, examples=["Clean"])


class NewChange(Keyed):
    """A change of any entity. Its class (EMERGENCY, TXN, LWW) follows from `event_type` by the server's rules."""

    entity_type: Name = Field(examples=["unit"])
    entity_id: EntityId = Field(examples=["12B"])
    event_type: Name = Field(examples=["door_code_changed"])
    payload: dict[str, Any] = Field(examples=[{"door_code": "4711"}], description="At most 30 KiB of JSON, 16 levels.")
    occurred_at: Instant | None = Field(
        default=None, description="When it happened for you. Data only: it orders nothing."
    )
    not_before: Instant | None = Field(default=None, description="Record it then and not earlier.")


class BatchChange(NewChange):
    """A change of a batch, with a key of its own."""

    idempotency_key: str | None = Field(
        default=None,
        pattern="^[!-~]+$",
        max_length=limits.REQUEST_KEY_LENGTH_MAX,
        description="Your name for this change. None: made of the batch's key and the item's place "
        "(`key:0`), or, if that has none, by the server.",
        examples=[KEY],
    )


class NewChanges(Keyed):
    """Up to 500 changes. Those of one entity are recorded in this order, and all of them or none."""

    changes: list[BatchChange] = Field(min_length=1, max_length=BATCH_CHANGES_MAX)


class Because(Request):
    """An operator's reason."""

    reason: Reason = Field(examples=["Corrected the guest's record at OldHost."])


class Resolve(Because):
    """How to end a halt."""

    mode: str = Field(
        pattern="^(resend|adopt)$",
        description="resend: send the ledger's operations again · adopt: take OldHost's count as the truth",
        examples=["resend"],
    )


class Flush(Because):
    """Send what is held back by the debounce now: of one entity, or (neither given) of all."""

    entity_type: Name | None = Field(default=None, examples=["unit"])
    entity_id: EntityId | None = Field(default=None, examples=["12B"])


# ------------------------------------------------------------------------------------------------------------- answers


class Accepted(BaseModel):
    """It is recorded, and will reach OldHost. The same Idempotency-Key and body give this answer again."""

    sync_status: str = Field(examples=["PENDING_SYNC"], description="PENDING_SYNC, or SCHEDULED until `not_before`")
    change_id: int | None = Field(examples=[4711], description="The order token; null while scheduled")
    idempotency_key: str = Field(examples=[KEY], description="Ask GET /api/changes/{idempotency_key} for its fate")


class UnitAccepted(Accepted):
    """As Accepted, for each change that came of it."""

    changes: list[Accepted]


class BatchResult(BaseModel):
    """One change of a batch: as the route for one change would have answered it."""

    status: int = Field(
        examples=[202],
        description="202: recorded · 422: refused, see `problem` · 424: not recorded, because another change of its "
        "entity was refused · 503: not recorded now (`commit-uncertain`: perhaps), repeat it with its key",
    )
    sync_status: str | None = Field(examples=["PENDING_SYNC"], description="PENDING_SYNC or SCHEDULED when recorded")
    change_id: int | None = Field(examples=[4711], description="The order token; null while scheduled")
    idempotency_key: str | None = Field(examples=[KEY])
    replayed: bool = Field(description="It was recorded before, under this key; this is the first answer")
    problem: ProblemBody | None = Field(description="Why it is not recorded")


class BatchAccepted(BaseModel):
    """One result for each change, in the order of the request. Each `recorded` one is durable."""

    recorded: int = Field(description="How many are recorded, now or before")
    refused: int = Field(description="How many are not")
    results: list[BatchResult]


class Cancelled(BaseModel):
    idempotency_key: str = Field(examples=[KEY])
    cancelled_at: datetime


class Unit(BaseModel):
    """What the application shows of a unit: the newest accepted state, and whether OldHost has it."""

    id: str = Field(examples=["12B"])
    name: str | None = Field(examples=["Seaview 12"])
    property_id: str | None = Field(examples=["seaview"])
    status: str | None = Field(examples=["Clean"])
    sync_status: str = Field(examples=["SYNCED"], description="PENDING_SYNC, SYNCED or SYNC_FAILED")
    synced_at: datetime | None = Field(description="When OldHost last took a state of it")
    newest_change_id: int | None
    synced_change_id: int | None = Field(description="The newest change of which OldHost has the state")
    updated_at: datetime


class UnitPage(BaseModel):
    units: list[Unit] = Field(description="At most `limit`; a page with a filter may hold fewer before the list ends")
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null after the last")


class Step(BaseModel):
    """One step of a change's way."""

    step: str = Field(
        examples=["accepted"],
        description="scheduled, cancelled, accepted, relayed, reserved, sent, answered, set_aside, "
        "an operator's act, or the fate's name in lower case",
    )
    at: datetime | None
    detail: str | None = None
    nonce: int | None = None


class Fate(BaseModel):
    """Everything that happened to one change, in order, and what it waits for."""

    idempotency_key: str = Field(examples=[KEY])
    change_id: int | None
    entity_type: str = Field(examples=["unit"])
    entity_id: str = Field(examples=["12B"])
    event_type: str = Field(examples=["unit_status_changed"])
    priority_class: str | None = Field(examples=["LWW"])
    state: str = Field(
        examples=["APPLIED"],
        description="SCHEDULED, CANCELLED, ACCEPTED, WAITING, IN_FLIGHT, or its fate: "
        "APPLIED, SUPERSEDED, NO_OP, STALE, DEAD, DISCARDED, REFUSED",
    )
    outcome: str | None
    occurred_at: datetime | None
    not_before: datetime | None
    accepted_at: datetime | None
    processed_at: datetime | None
    nonce: int | None
    superseded_by: int | None
    supersedes: list[int] = Field(description="The older changes that it replaced, newest first")
    answer: str | None = Field(description="OldHost's own words")
    error: str | None
    waiting_for: list[str] = Field(description="Why it has no fate yet, most important first")
    steps: list[Step]


class FeedItem(BaseModel):
    """A change that got its fate."""

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str
    outcome: str
    accepted_at: datetime
    processed_at: datetime
    nonce: int | None
    superseded_by: int | None
    error: str | None


class Feed(BaseModel):
    """Fates in the order in which they were decided; a change that is retried comes again with its next fate."""

    changes: list[FeedItem]
    next_cursor: str = Field(description="Give it as `since` next time")
    more: bool = Field(description="There are more already: ask at once")
    next_poll: int = Field(description="Seconds to wait before asking again", examples=[5])


class EmergencyBreaches(BaseModel):
    """The promise to emergencies in the last 30 days."""

    incidents: int = Field(description="Times that emergencies were late: more than half of the promised 30 s")
    breaches: int = Field(description="Emergencies that took longer than promised")
    worst_ms: int = Field(description="The longest wait of a late one")


class WriterStatus(BaseModel):
    """The writer, as the workflow and as the database see it."""

    host: str
    reachable: bool = Field(description="Whether the workflow answered")
    note: str | None = Field(description="Why `workflow` is missing, and what that means")
    workflow: dict[str, Any] | None = Field(description="Lanes, breaker, session, rates, forecast")
    books: dict[str, int] = Field(description="Accepted = the sum of all others (invariant I5)")
    ledger: dict[str, Any] | None = Field(description="Nonces, epoch, ban and halt")
    oldest_waiting_at: datetime | None
    open_alerts: int
    emergency_breaches: EmergencyBreaches
    usual_service_ms: float | None = Field(
        description="How long OldHost takes for an operation: the median of some of the last 20,000; null: too few"
    )


class Found(BaseModel):
    """Where the writer holds an entity's changes."""

    entity_type: str
    entity_id: str
    workflow: dict[str, Any]


class Upcoming(BaseModel):
    """The next operations, in order."""

    upcoming: list[Any]


class Done(BaseModel):
    """An operator's act was carried out."""

    action: str = Field(examples=["pause"])
    operator: str = Field(examples=["anna"])
    message: str


class DeadLetter(BaseModel):
    """A change that OldHost rejected; `held` later TXN changes of its entity wait behind it."""

    change_id: int
    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    priority_class: str
    accepted_at: datetime
    processed_at: datetime
    nonce: int | None
    error: str | None
    held: int


class DeadLetterPage(BaseModel):
    dead_letters: list[DeadLetter]
    next_cursor: str | None


class Alert(BaseModel):
    """One alert of one cause. `closed_by`: null when the product saw that its cause was gone."""

    id: int
    kind: str
    cause: str
    severity: str
    message: str
    count: int
    change_id: int | None
    created_at: datetime
    updated_at: datetime | None
    delivered_at: datetime | None
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    acknowledge_reason: str | None
    closed_at: datetime | None
    closed_by: str | None
    close_reason: str | None
    may_close: bool = Field(description="Whether a person may close it: it is open, and informational.")
    runbook: str


class AlertPage(BaseModel):
    alerts: list[Alert]
    next_cursor: str | None


class AuditEntry(BaseModel):
    id: int
    action: str
    operator: str
    reason: str
    change_id: int | None
    detail: dict[str, Any] | None
    created_at: datetime
    channel: str | None = Field(
        default=None, examples=["api"], description="api, console, command-line, temporal or writer; none before 0.2"
    )
    verified: bool | None = Field(
        default=None, description="The name is that of a token; false: it is only what the sender says"
    )


class AuditPage(BaseModel):
    entries: list[AuditEntry]
    next_cursor: str | None


class Health(BaseModel):
    status: str = Field(examples=["ok"])


assert limits.PAGE_DEFAULT <= limits.PAGE_MAX
