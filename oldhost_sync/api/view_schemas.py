"""The models of what people view and decide: lists of changes, an entity, a search, rules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from oldhost_sync.api import limits
from oldhost_sync.api.fields import JSON_WHOLE
from oldhost_sync.api.schemas import KEY, Keyed, ReasonedRequest
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import INTEGER_MAX, TEXT_LENGTH_MAX


class ListedChange(BaseModel):
    """One change, without its payload."""

    change_id: int = Field(examples=[4711])
    idempotency_key: str = Field(examples=[KEY])
    entity_type: str = Field(examples=["unit"])
    entity_id: str = Field(examples=["12B"])
    event_type: str
    priority_class: str
    source: str = Field(description="Who recorded it", examples=["api:shop"])
    state: str = Field(description="ACCEPTED, WAITING, IN_FLIGHT, or its fate")
    outcome: str | None
    accepted_at: datetime
    processed_at: datetime | None
    nonce: int | None = Field(description="The nonce that it was sent with, or that is reserved for it now")
    superseded_by: int | None
    error: str | None = Field(description="OldHost's reason, when it was rejected")
    unconfirmed: bool = Field(description="APPLIED, and no answer of OldHost confirms it")
    unsure: bool = Field(description="DEAD, and OldHost's answer says neither applied nor rejected")


class ChangePage(BaseModel):
    """Newest first. A page may hold fewer changes than `limit`, even none, before the list ends."""

    changes: list[ListedChange]
    next_cursor: str | None = Field(description="Pass it as `cursor` to get the next page; null after the last page")


class Payload(BaseModel):
    """A change's payload; it may hold personal data."""

    change_id: int
    payload: dict[str, Any]


class KeyComparison(BaseModel):
    """One coalescing key: what the application shows, and what OldHost has."""

    event_type: str
    is_shown: bool = Field(description="Whether the application shows a state of this key")
    change_id: int | None = Field(description="The change that OldHost applied last")
    nonce: int | None
    applied_at: datetime | None
    equal: bool | None = Field(description="Whether both are equal; null: it is not known what OldHost has")
    shown: dict[str, Any] | None = Field(description="The payload that is shown, if payloads were requested")
    at_oldhost: dict[str, Any] | None = Field(description="The payload that OldHost has, if payloads were requested")


class ScheduledOfEntity(BaseModel):
    """A change that is scheduled for later."""

    idempotency_key: str
    event_type: str
    not_before: datetime
    created_at: datetime


class ChangeOfEntity(BaseModel):
    """One of the entity's latest changes."""

    change_id: int
    idempotency_key: str
    event_type: str
    priority_class: str
    accepted_at: datetime
    outcome: str | None
    processed_at: datetime | None
    nonce: int | None
    error: str | None


class Entity(BaseModel):
    """What the application shows, what OldHost has, and which changes are still outstanding."""

    entity_type: str
    entity_id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str = Field(description="PENDING_SYNC, SYNCED or SYNC_FAILED")
    newest_change_id: int | None
    updated_at: datetime
    keys: list[KeyComparison]
    outstanding: int = Field(description="Changes without a fate; counting stops at 10,000")
    held: int = Field(description="How many of these are TXN changes behind a dead letter")
    dead_letters: list[int] = Field(description="The oldest 20 undecided dead letters")
    scheduled: list[ScheduledOfEntity]
    changes: list[ChangeOfEntity] = Field(description="The latest 20")
    writer: dict[str, Any] | None = Field(description="Where its changes are in the writer; null: see `note`")
    note: str | None = Field(description="Why `writer` is missing")


class SearchHit(BaseModel):
    """One search result. Which fields are set depends on its kind."""

    kind: str = Field(description="change, scheduled, entity or property")
    found_by: str = Field(description="id, key, name or property")
    title: str
    change_id: int | None
    idempotency_key: str | None
    entity_type: str | None
    entity_id: str | None
    property_id: str | None


class SearchHits(BaseModel):
    hits: list[SearchHit]


class Rule(BaseModel):
    """The class that changes of an event type get when they are recorded."""

    event_type: str = Field(examples=["rate_changed"])
    priority_class: PriorityClass
    default: PriorityClass = Field(description="Its class if no rule is set")


class Rules(BaseModel):
    rules: list[Rule] = Field(description="Every other event type is TXN")


class NewRule(ReasonedRequest):
    """The class of an event type from now on."""

    priority_class: PriorityClass = Field(examples=["LWW"])


class ScheduledChange(BaseModel):
    """A change that is kept until its `not_before`."""

    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    source: str
    not_before: datetime
    created_at: datetime


class ScheduledPage(BaseModel):
    """Scheduled changes in the order in which they become due."""

    scheduled: list[ScheduledChange]
    next_cursor: str | None


class LetterGroup(BaseModel):
    """Dead letters that OldHost rejected for the same reason; numbers in the reason are replaced by #."""

    reason: str = Field(examples=["no such guest #"], description="At most 200 characters")
    example: str = Field(description="OldHost's reason for the oldest of them, word for word")
    letters: int
    entities: int = Field(description="How many entities they belong to")
    held: int = Field(description="How many TXN changes wait behind them")
    oldest_at: datetime | None = Field(description="When the oldest was rejected")
    newest_id: int = Field(description="Pass it as `up_to`, so that a decision covers only the letters that were shown")
    event_types: list[str]
    sources: list[str] = Field(description="The applications that sent them")
    change_ids: list[int] = Field(description="The oldest 20")


class LetterGroups(BaseModel):
    groups: list[LetterGroup] = Field(description="The 50 largest")
    other_reasons: int = Field(description="How many groups are not among them")
    other_letters: int = Field(description="The dead letters of those groups")
    more: bool = Field(description="There are more dead letters than the 5,000 that were read")


class Letters(ReasonedRequest):
    """Which dead letters: either `change_ids`, or a `group` (only its letters up to the id `up_to`)."""

    # For the OpenAPI document; the route checks it.
    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {
                    "required": ["change_ids"],
                    "properties": {"change_ids": {"type": "array"}, "group": {"type": "null"}},
                },
                {"required": ["group"], "properties": {"change_ids": {"type": "null"}, "group": {"type": "string"}}},
            ]
        }
    )

    change_ids: list[Annotated[int, Field(ge=1, le=INTEGER_MAX), JSON_WHOLE]] | None = Field(
        default=None, min_length=1, max_length=limits.LETTERS_AT_ONCE_MAX
    )
    group: str | None = Field(default=None, min_length=1, max_length=TEXT_LENGTH_MAX)
    up_to: Annotated[int | None, Field(ge=1, le=INTEGER_MAX), JSON_WHOLE] = None


class LetterDecision(BaseModel):
    """The result for one dead letter."""

    change_id: int
    done: bool
    message: str


class LettersDecided(BaseModel):
    """The results; each decision is independent of the others and is recorded in the audit."""

    action: str
    operator: str
    decided: int
    left: int = Field(
        description="How many were not processed yet (for a group: at least this many); send the request again for them"
    )
    stopped: str | None = Field(description="Why the request ended before all were decided")
    decisions: list[LetterDecision]


class Replacement(ReasonedRequest, Keyed):
    """A corrected payload; entity and event type are those of the rejected change. Without a key the server derives one
    from the change and the payload, so that repeating the request records nothing more.
    """

    payload: dict[str, Any] = Field(description="At most 30 KiB of JSON, 16 levels")


class Replaced(BaseModel):
    """The corrected copy is recorded; `discarded` says whether the dead letter is discarded."""

    change_id: int
    replaced_by: int
    idempotency_key: str = Field(description="The copy's idempotency key")
    discarded: bool
    message: str


class Consequences(BaseModel):
    """What one way of ending a halt would do."""

    says: str
    given_up: int = Field(description="Operations applied in the database, lost at OldHost and not sent again")
    counted_applied: int = Field(description="Operations in doubt that are counted as applied")
    letters: int = Field(description="Operations in doubt that become dead letters")
    sent_again: int = Field(description="Operations that are sent again byte for byte, with the same nonces")
    waiting_again: int = Field(description="Operations whose changes wait again and get new nonces")
    next_nonce: int | None = Field(description="The next nonce after the decision; null: the one that OldHost expects")


class OperationAtStake(BaseModel):
    """An operation of the ledger that the decision affects."""

    nonce: int
    change_id: int
    status: str
    sends: int
    sent_at: datetime | None
    answer: str | None
    entity_type: str | None
    entity_id: str | None
    event_type: str | None
    priority_class: str | None


class Halt(BaseModel):
    """The ledger and OldHost side by side, and what each of the two decisions would do."""

    reason: str
    difference: str = Field(description="back: OldHost expects an earlier nonce · forward: a later one · unknown")
    conclusion: str = Field(description="The difference as a sentence, with its size")
    expected_nonce: int | None = Field(description="The nonce that OldHost expected when it was last asked")
    next_nonce: int | None = Field(description="The next nonce by the ledger")
    last_applied_nonce: int | None
    epoch: int
    decided: str | None = Field(description="A `resolve` that is stored until OldHost can be asked")
    decided_by: str | None
    decided_at: datetime | None
    updated_at: datetime
    at_stake: int = Field(description="How many operations the decision affects")
    same: bool = Field(description="Whether both decisions have the same effect")
    adopt: Consequences
    resend: Consequences
    operations: list[OperationAtStake] = Field(description="The first 50 operations that the decision affects")


class HaltState(BaseModel):
    halt: Halt | None = Field(description="null: sending is not halted")


class SeriesPoint(BaseModel):
    """One time bucket: the largest backlog of each class, the accepted and applied changes, the slowest emergency."""

    at: datetime = Field(description="When the bucket begins")
    emergency: int
    txn: int
    lww: int
    accepted: int
    applied: int
    emergency_ms: int = Field(description="The longest time that an emergency took or waited; 0: there was none")
    stopped: str | None = Field(description="BANNED, PAUSED or HALTED, if sending was stopped in this bucket")


class Series(BaseModel):
    span: str = Field(examples=["1h"])
    step_seconds: int = Field(description="The length of a bucket", examples=[10])
    points: list[SeriesPoint]


class Stop(BaseModel):
    """What keeps the writer from sending."""

    word: str = Field(description="PAUSED, BANNED or HALTED", examples=["BANNED"])
    why: str
    since: datetime | None
    until: datetime | None


class WriterSituation(BaseModel):
    """The state in one word, with its reason and the next step."""

    word: str = Field(description="SENDING, AT RISK, WAITING, BANNED, PAUSED, HALTED or NO WRITER", examples=["BANNED"])
    tone: str = Field(description="good, calm (it resolves itself), warning or bad")
    why: str
    next_step: str
    since: datetime | None = Field(description="When this state began; null if that is not known")
    until: datetime | None = Field(description="When it ends by itself, if that is known")
    also: list[Stop] = Field(description="What else keeps the writer from sending")


class PlanSample(BaseModel):
    """The state at one point of a plan: operations ready to be sent, waiting in the debounce, and sent so far."""

    at_ms: int
    ready: int
    debounced: int
    sent: int
    banned: bool


class Plan(BaseModel):
    """The result of a simulation; a name's suffix gives its unit (`_s`: seconds, `_ms`: milliseconds)."""

    scenario: dict[str, float | None] = Field(description="With `from_now`, it has the writer's settings")
    notes: list[str] = Field(description="With `from_now`: what the plan does not know, or can't change")
    figures: dict[str, Any] | None = Field(description="null: there is nothing to simulate")
    promises: dict[str, bool] = Field(description="Whether each promise is kept")
    samples: list[PlanSample]


class SessionOperations(BaseModel):
    """What the ledger's newest operations show about a session."""

    operations: int
    first_nonce: int
    last_nonce: int
    began_at: datetime
    last_at: datetime
    sent_again: int = Field(description="Operations sent more than once, for example after a lost reply")
    in_doubt: int


class HostSession(BaseModel):
    """One session. A field is null if its worker did not report the value."""

    epoch: int
    owner: str | None = Field(description="The worker that held it")
    opened_at: datetime | None
    opened_at_nonce: int | None
    ended_at: datetime | None
    ended_because: str | None
    lost_replies: int | None
    successor_at: datetime | None = Field(description="When the next session began; this one had ended by then")
    operations: SessionOperations | None = Field(description="null: none of the newest 5,000 operations belong to it")


class Process(BaseModel):
    name: str
    seen_at: datetime = Field(description="When a worker last reported; for a relay, until when its lease is valid")
    at_work: bool
    has_left: bool = Field(
        description="Whether it reported a normal exit; a process that is neither at work nor has left was killed, is "
        "frozen, or is cut off"
    )
    knows_release: int | None = Field(
        description="For a worker: the newest release of the writer's decisions with which it begins a run"
    )


class Sessions(BaseModel):
    """Sessions, newest first. `epoch` and `owner` are from the ledger; the ban is the most recent one."""

    epoch: int | None
    owner: str | None
    banned_at: datetime | None
    banned_until: datetime | None
    halted: str | None
    updated_at: datetime | None
    relay: Process | None
    workers: list[Process] = Field(description="The workers of the last day, at most 20; those at work first")
    sessions: list[HostSession]
    sessions_of_a_day: int
    lost_replies_of_a_day: int
