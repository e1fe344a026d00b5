"""Changes that OldHost rejected, or may have: list them, one by one or grouped by reason, and retry them, discard them,
replace them with a corrected copy, or (the unsure ones) confirm that OldHost has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Path, Query, Request, Response
from pydantic import ConfigDict, Field
from sqlalchemy.engine import Connection

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, WATCHERS, adder, caller_of, seen_by, source_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem, field_invalid, unknown_change
from oldhost_sync.api.requests import (
    JSON_WHOLE,
    AnswerBody,
    Cursor,
    Keyed,
    Limit,
    ReasonedRequest,
    RowId,
    json_body,
    read_body,
    read_number_cursor,
    request_key,
    write_body,
)
from oldhost_sync.api.routes.writer import ActionResult
from oldhost_sync.api.telemetry import note
from oldhost_sync.policy.limits import INTEGER_MAX, TEXT_LENGTH_MAX
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.intake.change_recorder import Correction, NoDeadLetter, RecordedChange, record_correction
from oldhost_sync.store.ledger.fates import waits_apart
from oldhost_sync.store.read.dead_letters import (
    LetterGroups,
    dead_letters_of,
    find_outcome,
    ids_of_group,
    list_dead_letters,
    list_groups,
)
from workflows.messages import OperatorAct

ChangeId = Annotated[RowId, Path(description="The rejected change's id")]
Group = Annotated[
    str | None, Query(min_length=1, max_length=TEXT_LENGTH_MAX, description="Only letters of this group (its `reason`)")
]
_ERRORS = (404, 405, 409, 413, 415, 422)
_WHY = {
    "retry": "The guest's record was corrected at OldHost",
    "discard": "The booking no longer exists",
    "confirm": "OldHost's screen shows the booking",
}


class DeadLetter(AnswerBody):
    """A change that OldHost rejected, or that is unsure; `held`: how many later TXN changes of its entity wait behind
    it; at most 1,000 are counted.
    """

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "change_id": 4712,
        "idempotency_key": "booking-2093-checked-in",
        "entity_type": "unit",
        "entity_id": "12B",
        "event_type": "checked_in",
        "priority_class": "TXN",
        "accepted_at": "2026-05-01T12:00:30Z",
        "processed_at": "2026-05-01T12:01:03Z",
        "nonce": 502,
        "error": "no such guest",
        "unsure": False,
        "held": 1,
    }

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


class DeadLetterPage(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"dead_letters": [DeadLetter.EXAMPLE], "next_cursor": None}

    dead_letters: list[DeadLetter]
    next_cursor: str | None


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
        default=None, min_length=1, max_length=http_limits.LETTERS_AT_ONCE_MAX
    )
    group: str | None = Field(default=None, min_length=1, max_length=TEXT_LENGTH_MAX)
    up_to: Annotated[int | None, Field(ge=1, le=INTEGER_MAX), JSON_WHOLE] = None


class LettersDecided(AnswerBody):
    """The results; each decision is independent of the others and is recorded in the audit."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "action": "retry",
        "operator": "anna",
        "decided": 1,
        "left": 0,
        "stopped": None,
        "decisions": [
            {"change_id": 4712, "done": True, "message": "change 4712 waits again"},
            {"change_id": 4719, "done": False, "message": "it is APPLIED, not a dead letter"},
        ],
    }

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


class Replaced(AnswerBody):
    """The corrected copy is recorded; `discarded` says whether the dead letter is discarded."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "change_id": 4712,
        "replaced_by": 4720,
        "idempotency_key": "corrected-4712-5e884898da280471",
        "discarded": True,
        "message": "change 4720 is recorded; change 4712 is given up",
    }

    change_id: int
    replaced_by: int
    idempotency_key: str = Field(description="The copy's idempotency key")
    discarded: bool
    message: str


class DeadLetterRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "dead letters")
        title = "Undecided dead letters, oldest first"
        add("GET", "/api/dead-letters", self.list, DeadLetterPage, title, WATCHERS, (405, 422))
        title = "Dead letters, grouped by OldHost's reason"
        add("GET", "/api/dead-letters/groups", self.groups, LetterGroups, title, WATCHERS, (405,))
        for action, handler, several in (
            ("retry", self.retry, self.retry_several),
            ("discard", self.discard, self.discard_several),
            ("confirm", self.confirm, self.confirm_several),
        ):
            path, title = f"/api/dead-letters/{{change_id}}/{action}", f"{action.capitalize()} a dead letter"
            body = json_body(ReasonedRequest, example={"reason": _WHY[action]})
            add("POST", path, handler, ActionResult, title, OPERATORS, _ERRORS, **body)
            some = json_body(
                Letters,
                a_selection={"reason": _WHY[action], "change_ids": [4712, 4719]},
                a_group={"reason": _WHY[action], "group": "no such guest", "up_to": 4719},
            )
            path, title = f"/api/dead-letters/{action}", f"{action.capitalize()} several dead letters"
            add("POST", path, several, LettersDecided, title, OPERATORS, (405, 413, 415, 422), **some)
        body = write_body(Replacement, a_guest={"reason": "The guest's id was wrong", "payload": {"guest": "g-78"}})
        title = "Send a corrected copy and discard the rejected change"
        path = "/api/dead-letters/{change_id}/replace"
        add("POST", path, self.replace, Replaced, title, OPERATORS, _ERRORS, **body)

    async def list(
        self, request: Request, group: Group = None, cursor: Cursor = None, limit: Limit = http_limits.PAGE_DEFAULT
    ) -> DeadLetterPage:
        """Payloads are not shown; `GET /api/outbox/{change_id}/payload` returns one. A viewer gets OldHost's words
        without quoted text, numbers and ids.
        """
        after_id = read_number_cursor(cursor) or 0
        host = self._dependencies.host
        if group is None:
            letters = await self._dependencies.database.run(
                lambda connection: list_dead_letters(connection, host, after_id=after_id, limit=limit + 1)
            )
        else:
            letters = await self._dependencies.database.run(
                lambda connection: dead_letters_of(
                    connection,
                    host,
                    ids_of_group(connection, host, group, after_id=after_id, limit=limit + 1),
                )
            )
        page = [DeadLetter(**seen_by(caller_of(request), letter)) for letter in letters[:limit]]
        return DeadLetterPage(dead_letters=page, next_cursor=str(page[-1].change_id) if len(letters) > limit else None)

    async def groups(self, request: Request) -> LetterGroups:
        """Largest group first, at most 50; reasons that differ only in numbers form one group. At most 5,000 letters
        are read. All letters, whatever their group, are in `GET /api/dead-letters`.
        """
        host = self._dependencies.host
        groups = await self._dependencies.database.run(lambda connection: list_groups(connection, host))
        return seen_by(caller_of(request), groups)

    async def retry(self, request: Request, change_id: ChangeId) -> ActionResult:
        """It is sent again in its turn, followed by the changes held behind it."""
        return await self._act("retry", request, change_id)

    async def discard(self, request: Request, change_id: ChangeId) -> ActionResult:
        """It is given up; the changes held behind it are sent in their turn."""
        return await self._act("discard", request, change_id)

    async def confirm(self, request: Request, change_id: ChangeId) -> ActionResult:
        """OldHost has it after all: it counts as applied, unconfirmed. Only an unsure letter can be confirmed; the
        changes held behind it are sent in their turn.
        """
        return await self._act("confirm", request, change_id)

    async def retry_several(self, request: Request) -> LettersDecided:
        """At most 50 of a selection or a group, each as if requested alone; `left` above 0: there are more."""
        return await self._act_on_several("retry", request)

    async def discard_several(self, request: Request) -> LettersDecided:
        """Like retry: at most 50, one after the other; decisions that were made stay in force."""
        return await self._act_on_several("discard", request)

    async def confirm_several(self, request: Request) -> LettersDecided:
        """Like retry: at most 50, one after the other; letters that are not unsure are refused."""
        return await self._act_on_several("confirm", request)

    async def replace(self, request: Request, change_id: ChangeId) -> Response:
        """The copy is a new change with its own key. It is sent after all changes of its entity that already wait,
        including those held behind the rejected change. The audit links both. `discarded: false`: the copy is recorded,
        but the dead letter is not discarded yet; send the same request again.
        """
        body = await read_body(request, Replacement)
        key = request_key(request, body.idempotency_key)
        correction = Correction(
            change_id=change_id,
            payload=body.payload,
            operator=caller_of(request).operator,
            source=source_of(request),
            reason=body.reason,
            key=None if key.is_new else key.text,
        )
        copy, discarded, message = await replace_letter(self._dependencies, correction)
        answer = Replaced(
            change_id=change_id,
            replaced_by=copy.change_id or 0,
            idempotency_key=copy.idempotency_key,
            discarded=discarded is not None,
            message=message,
        )
        return Response(answer.model_dump_json(), 202, media_type="application/json")

    async def _act(self, action: str, request: Request, change_id: int) -> ActionResult:
        body = await read_body(request, ReasonedRequest)
        operator = caller_of(request).operator
        message = await decide_one(self._dependencies, operator, action, change_id=change_id, reason=body.reason)
        return ActionResult(action=action, operator=operator.name, message=message)

    async def _act_on_several(self, action: str, request: Request) -> LettersDecided:
        body = await read_body(request, Letters)
        operator = caller_of(request).operator
        if (body.change_ids is None) == (body.group is None):
            raise field_invalid("body.change_ids", "give either change_ids or group")
        if body.group is not None:
            result = await decide_group(
                self._dependencies, operator, action, group=body.group, up_to=body.up_to, reason=body.reason
            )
        else:
            result = await decide_letters(
                self._dependencies, operator, action, change_ids=body.change_ids or [], reason=body.reason
            )
        decided = sum(decision.done for decision in result.decisions)
        return LettersDecided(action=action, operator=operator.name, decided=decided, **asdict(result))


# ------------------------------------------------------------------------------------------------------------ decisions

# One, a selection, or a group; they are sent to the writer one after the other. The writer carries out and audits each
# decision in its own transaction. So one request decides a bounded number, and the answer holds the result of each; the
# client sends the request again for the rest.


@dataclass(slots=True)
class LetterDecision:
    """The result for one dead letter."""

    change_id: int
    done: bool
    message: str


@dataclass(slots=True)
class Decisions:
    """`left`: chosen but not processed, because the time was over or the writer stopped answering (see `stopped`)."""

    decisions: list[LetterDecision] = field(default_factory=list)
    left: int = 0
    stopped: str | None = None


# In place of a fate: the change waits apart, and can be retried or discarded as a dead letter can.
WAITS_APART = "waiting apart"
_UNDECIDED = ("DEAD", WAITS_APART)


def choose(connection: Connection, host: str, change_ids: Sequence[int]) -> list[tuple[int, str | None, bool]]:
    """For each id, in order and without duplicates: its fate so far, and whether the change exists."""
    outcomes = []
    for change_id in dict.fromkeys(change_ids):
        exists, outcome = find_outcome(connection, host, change_id)
        if exists and outcome is None and waits_apart(connection, host, change_id):
            outcome = WAITS_APART
        outcomes.append((change_id, outcome, exists))
    return outcomes


async def decide_group(
    dependencies: Dependencies, operator: Actor, action: str, *, group: str, up_to: int | None, reason: str
) -> Decisions:
    """Decide the oldest letters of a group. `up_to`: the newest letter when the group was shown."""
    some = http_limits.LETTERS_AT_ONCE_MAX
    ids = await dependencies.database.run(
        lambda connection: ids_of_group(connection, dependencies.host, group, up_to=up_to, limit=some + 1)
    )
    decided = await decide_letters(dependencies, operator, action, change_ids=ids[:some], reason=reason)
    decided.left += len(ids) > some
    return decided


async def decide_letters(
    dependencies: Dependencies, operator: Actor, action: str, *, change_ids: Sequence[int], reason: str
) -> Decisions:
    """Retry or discard (`action`) each of `change_ids`. Raises a Problem only if no letter was decided."""
    chosen = await dependencies.database.run(partial(choose, host=dependencies.host, change_ids=change_ids))
    decided = Decisions()
    until = dependencies.clock() + http_limits.LETTERS_SECONDS_MAX
    for place, (change_id, outcome, exists) in enumerate(chosen):
        if outcome not in _UNDECIDED:
            is_now = (outcome or "still outstanding") if exists else "unknown"
            decided.decisions.append(LetterDecision(change_id, False, f"it is {is_now}, not a dead letter"))
            continue
        if dependencies.clock() >= until:
            decided.left, decided.stopped = len(chosen) - place, "the time for one request is over; send it again"
            break
        request = OperatorAct(operator=operator.name, reason=reason, change_id=change_id, channel=operator.channel)
        try:
            message, done = await dependencies.writer.update(action, request), True
        except Problem as problem:
            if problem.status != HTTPStatus.CONFLICT:
                if not any(decision.done for decision in decided.decisions):
                    raise
                decided.left, decided.stopped = len(chosen) - place, str(problem.content["detail"])
                break
            message, done = str(problem.content["detail"]), False
        decided.decisions.append(LetterDecision(change_id, done, message))
    return decided


async def decide_one(dependencies: Dependencies, operator: Actor, action: str, *, change_id: int, reason: str) -> str:
    """The writer's answer. Raises a Problem: 404, 409, or why the writer could not do it."""
    ((_, outcome, exists),) = await dependencies.database.run(
        partial(choose, host=dependencies.host, change_ids=[change_id])
    )
    if outcome not in _UNDECIDED:
        raise not_dead(change_id, exists=exists, outcome=outcome)
    return await dependencies.writer.update(
        action, OperatorAct(operator=operator.name, reason=reason, change_id=change_id, channel=operator.channel)
    )


async def replace_letter(dependencies: Dependencies, correction: Correction) -> tuple[RecordedChange, str | None, str]:
    """Record a corrected copy, then discard the letter. Returns the copy, the writer's message (None: the letter is not
    discarded), and a message for the user. A repetition continues where the first call stopped.
    """
    try:
        copy = await dependencies.database.run(
            lambda connection: record_correction(connection, dependencies.host, correction)
        )
    except NoDeadLetter as refused:
        raise not_dead(correction.change_id, exists=refused.exists, outcome=refused.outcome) from None
    note(copy)
    old = correction.change_id
    ((_, outcome, _),) = await dependencies.database.run(partial(choose, host=dependencies.host, change_ids=[old]))
    if outcome == "DISCARDED":
        return copy, "", f"change {copy.change_id} is recorded; change {old} was already discarded"
    reason = f"replaced by change {copy.change_id}: {correction.reason}"
    try:
        message = await decide_one(dependencies, correction.operator, "discard", change_id=old, reason=reason)
    except Problem as problem:
        detail = problem.content["detail"]
        return copy, None, f"change {copy.change_id} is recorded, but change {old} is not discarded yet: {detail}"
    return copy, message, f"change {copy.change_id} is recorded; {message}"


def not_dead(change_id: int, *, exists: bool, outcome: str | None) -> Problem:
    """404 or 409: nothing can be decided about this change."""
    action = "GET /api/dead-letters lists the changes that can be decided."
    if not exists:
        return unknown_change(f"No change has the id {change_id}.")
    detail = f"Change {change_id} is {outcome or 'still outstanding'}."
    return Problem(409, "no-dead-letter", "This change is not a dead letter", detail, action)
