"""Decisions on dead letters: one, a selection, or a group; they are sent to the writer one after the other.

The writer carries out and audits each decision in its own transaction. So one request decides a bounded number, and the
answer holds the result of each; the client sends the request again for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from sqlalchemy.engine import Connection

from oldhost_sync.api import limits
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem, unknown_change
from oldhost_sync.api.request_spans import note
from oldhost_sync.policy.actor import Actor
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.intake.replacement import Correction, NoDeadLetter, record_correction
from oldhost_sync.store.ledger.setting_apart import waits_apart
from oldhost_sync.store.views import overview
from oldhost_sync.store.views.dead_letter_groups import ids_of_group
from workflows.messages import OperatorRequest


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
        exists, outcome = overview.find_outcome(connection, host, change_id)
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
        request = OperatorRequest(operator.name, reason, change_id, channel=operator.channel)
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
        action, OperatorRequest(operator.name, reason, change_id, channel=operator.channel)
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
