"""The shapes of what people look at and decide: lists of changes, an entity, a search, rules."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from oldhost_sync.api import limits
from oldhost_sync.api.schemas import KEY, Because, Keyed
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX


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
    nonce: int | None = Field(description="The nonce that it was sent with, or holds now")
    superseded_by: int | None
    error: str | None = Field(description="OldHost's reason, when it was rejected")


class ChangePage(BaseModel):
    """Newest first. A page may hold fewer changes than `limit`, even none, before the list ends."""

    changes: list[ListedChange]
    next_cursor: str | None = Field(description="Give it as `cursor` for the next page; null after the last")


class Payload(BaseModel):
    """What a change says; personal data."""

    change_id: int
    payload: dict[str, Any]


class KeyComparison(BaseModel):
    """One coalescing key: what is shown, and what OldHost has."""

    event_type: str
    is_shown: bool = Field(description="The application shows a state of this key")
    change_id: int | None = Field(description="The change that OldHost applied last")
    nonce: int | None
    applied_at: datetime | None
    equal: bool | None = Field(description="Whether both are equal; null: what OldHost has is not known")
    shown: dict[str, Any] | None = Field(description="The payloads, if they were asked for")
    at_oldhost: dict[str, Any] | None


class ScheduledOfEntity(BaseModel):
    """A change that is kept for later."""

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
    """What the application shows beside what OldHost has, and what is still to come."""

    entity_type: str
    entity_id: str
    name: str | None
    property_id: str | None
    status: str | None
    sync_status: str = Field(description="PENDING_SYNC, SYNCED or SYNC_FAILED")
    newest_change_id: int | None
    updated_at: datetime
    keys: list[KeyComparison]
    outstanding: int = Field(description="Changes without a fate; counting ends at 10,000")
    held: int = Field(description="Of these, TXN changes behind a dead letter")
    dead_letters: list[int] = Field(description="Undecided ones, the oldest 20")
    scheduled: list[ScheduledOfEntity]
    changes: list[ChangeOfEntity] = Field(description="The latest 20")
    writer: dict[str, Any] | None = Field(description="Where the writer holds its changes; null: see `note`")
    note: str | None = Field(description="Why the writer's part is missing")


class SearchHit(BaseModel):
    """One thing that was found. Which fields it has depends on its kind."""

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
    default: PriorityClass = Field(description="Its class where no rule says otherwise")


class Rules(BaseModel):
    rules: list[Rule] = Field(description="Every other event type is TXN")


class NewRule(Because):
    """The class of an event type from now on."""

    priority_class: PriorityClass = Field(examples=["LWW"])


class ScheduledChange(BaseModel):
    """A change that is kept until its time has come."""

    idempotency_key: str
    entity_type: str
    entity_id: str
    event_type: str
    source: str
    not_before: datetime
    created_at: datetime


class ScheduledPage(BaseModel):
    """In the order in which they become due."""

    scheduled: list[ScheduledChange]
    next_cursor: str | None


class LetterGroup(BaseModel):
    """Dead letters with one reason of OldHost's; numbers in it stand as #."""

    reason: str = Field(examples=["no such guest #"])
    example: str = Field(description="OldHost's words to the oldest of them, as they are")
    letters: int
    entities: int = Field(description="Of how many entities")
    held: int = Field(description="TXN changes that wait behind them")
    oldest_at: datetime | None = Field(description="When the oldest was rejected")
    newest_id: int = Field(description="Give it as `up_to`, so that a decision is about what was shown")
    event_types: list[str]
    sources: list[str] = Field(description="The applications that sent them")
    change_ids: list[int] = Field(description="The oldest 20")


class LetterGroups(BaseModel):
    groups: list[LetterGroup]
    more: bool = Field(description="There are more than the 5,000 letters that were looked at")


class Letters(Because):
    """Which dead letters: `change_ids`, or a `group` (of it those up to `up_to`)."""

    change_ids: list[Annotated[int, Field(ge=1, le=limits.INTEGER_MAX)]] | None = Field(
        default=None, min_length=1, max_length=limits.LETTERS_AT_ONCE_MAX
    )
    group: str | None = Field(default=None, min_length=1, max_length=TEXT_LENGTH_MAX)
    up_to: int | None = Field(default=None, ge=1, le=limits.INTEGER_MAX)


class LetterDecision(BaseModel):
    """What became of one letter."""

    change_id: int
    done: bool
    message: str


class LettersDecided(BaseModel):
    """Each decision stands for itself, and in the audit."""

    action: str
    operator: str
    decided: int
    left: int = Field(description="Above 0: ask again for those that were not come to (of a group: at least so many)")
    stopped: str | None = Field(description="Why it ended before all were decided")
    decisions: list[LetterDecision]


class Replacement(Because, Keyed):
    """A corrected payload; entity and event type are the rejected change's. Without a key the server makes one of the
    change and the payload, so that the same request again records nothing.
    """

    payload: dict[str, Any] = Field(description="At most 30 KiB of JSON, 16 levels")


class Replaced(BaseModel):
    """The copy is recorded; whether the letter is discarded, too."""

    change_id: int
    replaced_by: int
    idempotency_key: str = Field(description="The copy's")
    discarded: bool
    message: str


class Consequences(BaseModel):
    """Of one way of ending a halt."""

    says: str
    given_up: int = Field(description="Applied in the books, lost at OldHost, and not sent again")
    counted_applied: int = Field(description="In doubt, and taken as applied")
    sent_again: int = Field(description="Byte for byte, under the same nonces")
    waiting_again: int = Field(description="Under new nonces")
    next_nonce: int | None = Field(description="Where the count goes on; null: where OldHost says")


class OperationAtStake(BaseModel):
    """An operation of the ledger that the decision is about."""

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
    """Ledger and OldHost side by side, and what either way would do."""

    reason: str
    difference: str = Field(description="back: OldHost expects an earlier nonce · forward: a later one · unknown")
    conclusion: str = Field(description="The same as a sentence, with by how many")
    expected_nonce: int | None = Field(description="By OldHost, as it was last found")
    next_nonce: int | None = Field(description="By the ledger")
    last_applied_nonce: int | None
    epoch: int
    decided: str | None = Field(description="A `resolve` that waits until OldHost can be asked")
    decided_by: str | None
    decided_at: datetime | None
    updated_at: datetime
    at_stake: int
    same: bool = Field(description="Both ways have the same effect")
    adopt: Consequences
    resend: Consequences
    operations: list[OperationAtStake] = Field(description="The first 50 at stake")


class HaltState(BaseModel):
    halt: Halt | None = Field(description="null: sending is not halted")


class SeriesPoint(BaseModel):
    """One bucket: the most that waited in it by class, what was accepted and applied, and the slowest emergency."""

    at: datetime = Field(description="When it begins")
    emergency: int
    txn: int
    lww: int
    accepted: int
    applied: int
    emergency_ms: int = Field(description="The longest that an emergency took or waited; 0: there was none")
    stopped: str | None = Field(description="BANNED, PAUSED or HALTED, if sending was stopped in it")


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

    word: str = Field(description="SENDING, WAITING, BANNED, PAUSED, HALTED or NO WRITER", examples=["BANNED"])
    tone: str = Field(description="good, calm (it passes by itself), warning or bad")
    why: str
    next_step: str
    since: datetime | None = Field(description="null where it is not known")
    until: datetime | None = Field(description="When it ends by itself, if that is known")
    also: list[Stop] = Field(description="What else keeps it from sending")


class PlanSample(BaseModel):
    """The state at one instant of a plan: operations ready to go, held back by the debounce, sent so far."""

    at_ms: int
    ready: int
    debounced: int
    sent: int
    banned: bool


class Plan(BaseModel):
    """What would happen; times in seconds where a name ends so."""

    scenario: dict[str, float | None] = Field(description="What was played; from now: with the writer's settings")
    notes: list[str] = Field(description="From now: what the plan does not know or can't help")
    figures: dict[str, Any] | None = Field(description="null: there is nothing to play")
    promises: dict[str, bool] = Field(description="Each promise, and whether it is kept")
    samples: list[PlanSample]


class SessionOperations(BaseModel):
    """What the ledger's newest operations tell of a session."""

    operations: int
    first_nonce: int
    last_nonce: int
    began_at: datetime
    last_at: datetime
    sent_again: int = Field(description="Sent more than once, as after a lost reply")
    in_doubt: int


class HostSession(BaseModel):
    """One session. What its worker did not tell is null."""

    epoch: int
    owner: str | None = Field(description="The worker that held it")
    opened_at: datetime | None
    opened_at_nonce: int | None
    ended_at: datetime | None
    ended_because: str | None
    lost_replies: int | None
    successor_at: datetime | None = Field(description="When the next one began, which this one can't have outlasted")
    operations: SessionOperations | None = Field(description="null: it bound none of the newest 5,000 operations")


class Process(BaseModel):
    name: str
    seen_at: datetime = Field(description="When it last told of itself; a relay: until when its lease holds")
    at_work: bool
    has_left: bool = Field(description="It said that it leaves; else who is not at work was killed, frozen or cut off")
    knows_release: int | None = Field(description="A worker's: the newest release of the writer's decisions it begins")


class Sessions(BaseModel):
    """The newest first. `epoch` and `owner` are the ledger's; the ban is the last one that there was."""

    epoch: int | None
    owner: str | None
    banned_at: datetime | None
    banned_until: datetime | None
    halted: str | None
    updated_at: datetime | None
    relay: Process | None
    workers: list[Process] = Field(description="Of the last day, at most 20; those at work first")
    sessions: list[HostSession]
    sessions_of_a_day: int
    lost_replies_of_a_day: int
