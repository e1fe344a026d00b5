"""Changes that OldHost rejected, or may have: list them, one by one or grouped by reason, and retry them, discard them,
replace them with a corrected copy, or (the unsure ones) confirm that OldHost has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import FastAPI, Path, Query, Request, Response
from sqlalchemy.engine import Connection

from oldhost_sync.api import limits, view_schemas
from oldhost_sync.api.access.rights import OPERATORS, WATCHERS, adder, caller_of, seen_by, source_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.fields import RowId
from oldhost_sync.api.problems import Problem, field_invalid, unknown_change
from oldhost_sync.api.request_spans import note
from oldhost_sync.api.requests import Cursor, Limit, json_body, read_body, read_number_cursor, request_key, write_body
from oldhost_sync.api.schemas import ActionResult, DeadLetter, DeadLetterPage, ReasonedRequest
from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.store.intake.change_recorder import Correction, NoDeadLetter, RecordedChange, record_correction
from oldhost_sync.store.ledger.fates import waits_apart
from oldhost_sync.store.read.dead_letters import (
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


class DeadLetterRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "dead letters")
        title = "Undecided dead letters, oldest first"
        add("GET", "/api/dead-letters", self.list, DeadLetterPage, title, WATCHERS, (405, 422))
        title = "Dead letters, grouped by OldHost's reason"
        add("GET", "/api/dead-letters/groups", self.groups, view_schemas.LetterGroups, title, WATCHERS, (405,))
        for action, handler, several in (
            ("retry", self.retry, self.retry_several),
            ("discard", self.discard, self.discard_several),
            ("confirm", self.confirm, self.confirm_several),
        ):
            path, title = f"/api/dead-letters/{{change_id}}/{action}", f"{action.capitalize()} a dead letter"
            body = json_body(ReasonedRequest, example={"reason": _WHY[action]})
            add("POST", path, handler, ActionResult, title, OPERATORS, _ERRORS, **body)
            some = json_body(
                view_schemas.Letters,
                a_selection={"reason": _WHY[action], "change_ids": [4712, 4719]},
                a_group={"reason": _WHY[action], "group": "no such guest", "up_to": 4719},
            )
            path, title = f"/api/dead-letters/{action}", f"{action.capitalize()} several dead letters"
            add("POST", path, several, view_schemas.LettersDecided, title, OPERATORS, (405, 413, 415, 422), **some)
        body = write_body(
            view_schemas.Replacement, a_guest={"reason": "The guest's id was wrong", "payload": {"guest": "g-78"}}
        )
        title = "Send a corrected copy and discard the rejected change"
        path = "/api/dead-letters/{change_id}/replace"
        add("POST", path, self.replace, view_schemas.Replaced, title, OPERATORS, _ERRORS, **body)

    async def list(
        self, request: Request, group: Group = None, cursor: Cursor = None, limit: Limit = limits.PAGE_DEFAULT
    ) -> DeadLetterPage:
        """Payloads are not shown; `GET /api/outbox/{change_id}/payload` returns one. A viewer gets OldHost's words
        without quoted text, numbers and ids.
        """
        after_id = read_number_cursor(cursor) or 0
        host = self._dependencies.host
        if group is None:
            found = await self._dependencies.database.run(
                lambda connection: list_dead_letters(connection, host, after_id=after_id, limit=limit + 1)
            )
        else:
            found = await self._dependencies.database.run(
                lambda connection: dead_letters_of(
                    connection,
                    host,
                    ids_of_group(connection, host, group, after_id=after_id, limit=limit + 1),
                )
            )
        page = [DeadLetter(**seen_by(caller_of(request), letter)) for letter in found[:limit]]
        return DeadLetterPage(dead_letters=page, next_cursor=str(page[-1].change_id) if len(found) > limit else None)

    async def groups(self, request: Request) -> view_schemas.LetterGroups:
        """Largest group first, at most 50; reasons that differ only in numbers form one group. At most 5,000 letters
        are read. All letters, whatever their group, are in `GET /api/dead-letters`.
        """
        host = self._dependencies.host
        found = await self._dependencies.database.run(lambda connection: list_groups(connection, host))
        return view_schemas.LetterGroups(**asdict(seen_by(caller_of(request), found)))

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

    async def retry_several(self, request: Request) -> view_schemas.LettersDecided:
        """At most 50 of a selection or a group, each as if requested alone; `left` above 0: there are more."""
        return await self._act_on_several("retry", request)

    async def discard_several(self, request: Request) -> view_schemas.LettersDecided:
        """Like retry: at most 50, one after the other; decisions that were made stay in force."""
        return await self._act_on_several("discard", request)

    async def confirm_several(self, request: Request) -> view_schemas.LettersDecided:
        """Like retry: at most 50, one after the other; letters that are not unsure are refused."""
        return await self._act_on_several("confirm", request)

    async def replace(self, request: Request, change_id: ChangeId) -> Response:
        """The copy is a new change with its own key. It is sent after all changes of its entity that already wait,
        including those held behind the rejected change. The audit links both. `discarded: false`: the copy is recorded,
        but the dead letter is not discarded yet; send the same request again.
        """
        body = await read_body(request, view_schemas.Replacement)
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
        answer = view_schemas.Replaced(
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

    async def _act_on_several(self, action: str, request: Request) -> view_schemas.LettersDecided:
        body = await read_body(request, view_schemas.Letters)
        operator = caller_of(request).operator
        if (body.change_ids is None) == (body.group is None):
            raise field_invalid("body.change_ids", "give either change_ids or group")
        if body.group is not None:
            done = await decide_group(
                self._dependencies, operator, action, group=body.group, up_to=body.up_to, reason=body.reason
            )
        else:
            done = await decide_letters(
                self._dependencies, operator, action, change_ids=body.change_ids or [], reason=body.reason
            )
        decided = sum(each.done for each in done.decisions)
        return view_schemas.LettersDecided(action=action, operator=operator.name, decided=decided, **asdict(done))


# ------------------------------------------------------------------------------------------------------------ decisions

# One, a selection, or a group; they are sent to the writer one after the other. The writer carries out and audits each
# decision in its own transaction. So one request decides a bounded number, and the answer holds the result of each; the
# client sends the request again for the rest.


@dataclass(slots=True)
class LetterResult:
    """The result for one letter; `message`: the writer's answer, or why nothing was done."""

    change_id: int
    done: bool
    message: str


@dataclass(slots=True)
class Decisions:
    """`left`: chosen but not processed, because the time was over or the writer stopped answering (see `stopped`)."""

    decisions: list[LetterResult] = field(default_factory=list)
    left: int = 0
    stopped: str | None = None


# In place of a fate: the change waits apart, and can be retried or discarded as a dead letter can.
WAITS_APART = "waiting apart"
_UNDECIDED = ("DEAD", WAITS_APART)


def choose(connection: Connection, host: str, change_ids: Sequence[int]) -> list[tuple[int, str | None, bool]]:
    """For each id, in order and without duplicates: its fate so far, and whether the change exists."""
    found = []
    for change_id in dict.fromkeys(change_ids):
        exists, outcome = find_outcome(connection, host, change_id)
        if exists and outcome is None and waits_apart(connection, host, change_id):
            outcome = WAITS_APART
        found.append((change_id, outcome, exists))
    return found


async def decide_group(
    dependencies: Dependencies, operator: Actor, action: str, *, group: str, up_to: int | None, reason: str
) -> Decisions:
    """Decide the oldest letters of a group. `up_to`: the newest letter when the group was shown."""
    some = limits.LETTERS_AT_ONCE_MAX
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
    until = dependencies.clock() + limits.LETTERS_SECONDS_MAX
    for place, (change_id, outcome, exists) in enumerate(chosen):
        if outcome not in _UNDECIDED:
            is_now = (outcome or "still outstanding") if exists else "unknown"
            decided.decisions.append(LetterResult(change_id, False, f"it is {is_now}, not a dead letter"))
            continue
        if dependencies.clock() >= until:
            decided.left, decided.stopped = len(chosen) - place, "the time for one request is over; send it again"
            break
        request = OperatorAct(operator=operator.name, reason=reason, change_id=change_id, channel=operator.channel)
        try:
            message, done = await dependencies.writer.update(action, request), True
        except Problem as problem:
            if problem.status != HTTPStatus.CONFLICT:
                if not any(each.done for each in decided.decisions):
                    raise
                decided.left, decided.stopped = len(chosen) - place, str(problem.content["detail"])
                break
            message, done = str(problem.content["detail"]), False
        decided.decisions.append(LetterResult(change_id, done, message))
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
