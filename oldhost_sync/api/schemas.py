"""The models of requests and answers, with examples; the OpenAPI document is built from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from oldhost_sync.api import limits
from oldhost_sync.api.fields import JSON_WHOLE, OWN_WORDS, Id, Key, Moment, Name, UnitNameText, UnitStatusText
from oldhost_sync.api.problems import ProblemBody
from oldhost_sync.fields.change import FLUSH_ONE_OR_ALL
from oldhost_sync.policy.limits import BATCH_CHANGES_MAX, INTEGER_MAX, TEXT_LENGTH_MAX

KEY = "3f6c2b1e-0a57-4f0e-9a5e-0d1f6f2f7a11"

Reason = Annotated[str, Field(min_length=1, max_length=TEXT_LENGTH_MAX, description="Why; recorded in the audit.")]


class Request(BaseModel):
    """Unknown fields are refused: a misspelt `not_before` must not cause a change to be sent at once."""

    model_config = ConfigDict(extra="forbid")


class Keyed(Request):
    """A request that records something, under an idempotency key that the caller may choose."""

    idempotency_key: Key | None = Field(
        default=None,
        description="Your name for this request, like the Idempotency-Key header; if both are given they must be "
        "equal. If neither is given, the server creates one.",
        examples=[KEY],
    )


# ------------------------------------------------------------------------------------------------------------ requests


class UnitStatus(Keyed):
    """A unit's new status."""

    status: UnitStatusText = Field(examples=["Clean"])


class UnitDetails(Keyed):
    """A unit's details; a `status` is recorded as a separate change."""

    name: UnitNameText = Field(examples=["Seaview 12"])
    property_id: Id | None = Field(default=None, examples=["seaview"])
    status: UnitStatusText | None = Field(default=None, examples=["Clean"])


class NewChange(Keyed):
    """A change of any entity. The server's rules decide its class (EMERGENCY, TXN, LWW) by `event_type`."""

    entity_type: Name = Field(examples=["unit"])
    entity_id: Id = Field(examples=["12B"])
    event_type: Name = Field(examples=["door_code_changed"])
    payload: dict[str, Any] = Field(examples=[{"door_code": "4711"}], description="At most 30 KiB of JSON, 16 levels.")
    occurred_at: Moment | None = Field(
        default=None, description="When it happened in your application. For information: it does not affect the order."
    )
    not_before: Moment | None = Field(default=None, description="Record the change at this time, not earlier.")


class BatchChange(NewChange):
    """One change of a batch, with its own idempotency key."""

    idempotency_key: Key | None = Field(
        default=None,
        description="Your name for this change. If it is missing, it is built from the batch's key and the item's "
        "position (`key:0`); if the batch has no key either, the server creates one.",
        examples=[KEY],
    )


class NewChanges(Keyed):
    """Up to 500 changes. The changes of one entity are recorded in this order, all of them or none."""

    changes: list[BatchChange] = Field(min_length=1, max_length=BATCH_CHANGES_MAX)


class ReasonedRequest(Request):
    """An operator's reason."""

    reason: Reason = Field(examples=["Corrected the guest's record at OldHost."])


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


# ------------------------------------------------------------------------------------------------------------- answers


class Accepted(BaseModel):
    """The change is recorded and will reach OldHost. The same Idempotency-Key and body give this answer again."""

    sync_status: str = Field(examples=["PENDING_SYNC"], description="PENDING_SYNC, or SCHEDULED until `not_before`")
    change_id: int | None = Field(examples=[4711], description="The order token; null while scheduled")
    idempotency_key: str = Field(examples=[KEY], description="Ask GET /api/changes/{idempotency_key} for its fate")


class UnitAccepted(Accepted):
    """Like Accepted, with one entry for each change that the request recorded."""

    changes: list[Accepted]


class BatchResult(BaseModel):
    """The result for one change of a batch, as the route for a single change would have answered."""

    status: int = Field(
        examples=[202],
        description="202: recorded · 422: refused, see `problem` · 424: not recorded, because another change of its "
        "entity was refused · 503: not recorded now (`commit-uncertain`: it may have been recorded); repeat it with "
        "its key",
    )
    sync_status: str | None = Field(examples=["PENDING_SYNC"], description="PENDING_SYNC or SCHEDULED when recorded")
    change_id: int | None = Field(examples=[4711], description="The order token; null while scheduled")
    idempotency_key: str | None = Field(examples=[KEY])
    replayed: bool = Field(description="It was recorded earlier under this key; this is the first answer")
    problem: ProblemBody | None = Field(description="Why it was not recorded")


class BatchAccepted(BaseModel):
    """One result for each change, in the order of the request. Every recorded change is durable."""

    recorded: int = Field(description="How many changes are recorded, by this request or an earlier one")
    refused: int = Field(description="How many changes are not recorded")
    results: list[BatchResult]


class Cancelled(BaseModel):
    idempotency_key: str = Field(examples=[KEY])
    cancelled_at: datetime


class Unit(BaseModel):
    """A unit as applications show it: the newest accepted state, and whether OldHost has it."""

    id: str = Field(examples=["12B"])
    name: str | None = Field(examples=["Seaview 12"])
    property_id: str | None = Field(examples=["seaview"])
    status: str | None = Field(examples=["Clean"])
    sync_status: str = Field(examples=["SYNCED"], description="PENDING_SYNC, SYNCED or SYNC_FAILED")
    synced_at: datetime | None = Field(description="When OldHost last applied a state of this unit")
    newest_change_id: int | None
    synced_change_id: int | None = Field(description="The newest change whose state OldHost has")
    updated_at: datetime


class UnitPage(BaseModel):
    units: list[Unit] = Field(description="At most `limit`; a page with a filter may hold fewer before the list ends")
    next_cursor: str | None = Field(description="Pass it as `cursor` to get the next page; null after the last page")


class Step(BaseModel):
    """One step in a change's history."""

    step: str = Field(
        examples=["accepted"],
        description="scheduled, cancelled, accepted, relayed, reserved, sent, answered, set_aside, "
        "an operator's action, or the fate's name in lower case",
    )
    at: datetime | None
    detail: str | None = None
    nonce: int | None = None


class Fate(BaseModel):
    """Everything that happened to one change, in order, and what it is waiting for."""

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
    answer: str | None = Field(description="OldHost's answer, word for word")
    error: str | None
    unconfirmed: bool = Field(
        description="APPLIED, but no answer of OldHost says so: only its nonce was used, or an operator confirmed it"
    )
    unsure: bool = Field(
        description="DEAD, and OldHost's answer says neither applied nor rejected: an operator decides"
    )
    waits_apart: bool = Field(
        description="OldHost refused it without using its nonce (`answer`): the others go first. "
        "It is tried again after a pause, and can be retried or discarded meanwhile"
    )
    waiting_for: list[str] = Field(description="Why it has no fate yet, most important first")
    steps: list[Step]


class FeedItem(BaseModel):
    """A change that has reached its fate."""

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
    unconfirmed: bool = Field(
        description="APPLIED, but no answer of OldHost says so: only its nonce was used, or an operator confirmed it"
    )
    unsure: bool = Field(
        description="DEAD, and OldHost's answer says neither applied nor rejected: an operator decides"
    )


class Feed(BaseModel):
    """Fates in the order in which they were decided; a change that is retried appears again with its new fate."""

    changes: list[FeedItem]
    next_cursor: str = Field(description="Pass it as `since` in the next request")
    more: bool = Field(description="More fates are available already: request the next page at once")
    next_poll: int = Field(description="Seconds to wait before asking again", examples=[5])


class EmergencyBreaches(BaseModel):
    """How well the promise for emergencies was kept in the last 30 days."""

    incidents: int = Field(
        description="How often emergencies were late, that is, took more than half of the promised 30 s"
    )
    breaches: int = Field(description="Emergencies that took longer than promised")
    worst_ms: int = Field(description="The longest wait of a late emergency")


class WriterStatus(BaseModel):
    """The writer's status, from the workflow and from the database."""

    host: str
    reachable: bool = Field(description="Whether the workflow answered")
    note: str | None = Field(description="Why `workflow` is missing, and what this means")
    workflow: dict[str, Any] | None = Field(description="Lanes, breaker, session, rates, forecast")
    books: dict[str, int] = Field(description="`accepted` equals the sum of all other counts (invariant I5)")
    ledger: dict[str, Any] | None = Field(description="Nonces, epoch, ban and halt")
    oldest_waiting_at: datetime | None
    open_alerts: int
    emergency_breaches: EmergencyBreaches
    usual_service_ms: float | None = Field(
        description="How long OldHost takes for one operation: the median of a sample of the last 20,000; null: there "
        "are too few"
    )


class EntityInWriter(BaseModel):
    """Where an entity's changes are in the writer."""

    entity_type: str
    entity_id: str
    workflow: dict[str, Any]


class Upcoming(BaseModel):
    """The next operations, in order."""

    upcoming: list[Any]


class ActionResult(BaseModel):
    """An operator's action was carried out."""

    action: str = Field(examples=["pause"])
    operator: str = Field(examples=["anna"])
    message: str


class DeadLetter(BaseModel):
    """A change that OldHost rejected, or that is unsure; `held`: how many later TXN changes of its entity wait behind
    it; at most 1,000 are counted.
    """

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
    unsure: bool = Field(description="OldHost's answer says neither applied nor rejected")
    held: int


class DeadLetterPage(BaseModel):
    dead_letters: list[DeadLetter]
    next_cursor: str | None


class Alert(BaseModel):
    """One alert for one cause. `closed_by` is null when the product closed the alert because its cause was gone."""

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
    may_close: bool = Field(description="Whether a person may close it: it is open and informational.")
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
    channel: str = Field(examples=["api"], description="api, console, command-line, temporal or writer")
    verified: bool | None = Field(
        default=None, description="true: the name is that of a token; false: it is only what the sender claims"
    )


class AuditPage(BaseModel):
    entries: list[AuditEntry]
    next_cursor: str | None


class Health(BaseModel):
    status: str = Field(examples=["ok"])


assert limits.PAGE_DEFAULT <= limits.PAGE_MAX
