"""Withdraw changes that wait, by a filter: look at the preview first. Undo it within a minute."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar

from fastapi import FastAPI, Path, Request
from pydantic import Field

from oldhost_sync.api import http_limits
from oldhost_sync.api.access import OPERATORS, adder, caller_of
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.problems import Problem, field_invalid
from oldhost_sync.api.requests import (
    JSON_WHOLE,
    AnswerBody,
    Id,
    Moment,
    Name,
    ReasonedRequest,
    RecordedKey,
    RequestBody,
    RowId,
    json_body,
    read_body,
)
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.store.intake.withdrawal import (
    NothingToUndo,
    WithdrawalFilter,
    WithdrawalPreview,
    begin_undo,
    begin_withdrawal,
    preview,
)
from workflows.messages import WithdrawnBatch, to_wire

WithdrawalId = Annotated[RowId, Path(description="The withdrawal's id")]
_EXAMPLE = {"source": "api:shop", "event_type": "rate_changed", "accepted_before": "2026-05-01T12:00:00Z"}
_ERRORS = (405, 413, 415, 422)


class WaitingChanges(RequestBody):
    """Which changes that wait: those that fit all fields that are given; at least one is."""

    change_id: Annotated[int | None, Field(ge=1, le=INTEGER_MAX), JSON_WHOLE] = None
    idempotency_key: RecordedKey | None = None
    source: Id | None = Field(default=None, description="Who made them: `api:` and a token's name, python, signal …")
    entity_type: Name | None = None
    entity_id: Id | None = None
    event_type: Name | None = None
    property_id: Id | None = Field(default=None, description="Only changes of this property's units")
    priority_class: PriorityClass | None = None
    accepted_before: Moment | None = Field(default=None, description="Accepted before this time")

    @property
    def filter(self) -> WithdrawalFilter:
        """Raises a Problem, 422, if it would be every change that waits."""
        wanted = WithdrawalFilter(**{name: getattr(self, name) for name in WithdrawalFilter.__slots__})
        if not wanted.given:
            raise field_invalid("body", "say which changes: give at least one field of the filter")
        return wanted


class WithdrawalRequest(ReasonedRequest, WaitingChanges):
    """The changes, why, and up to which one: the preview's `up_to`. Newer ones are not withdrawn."""

    up_to: Annotated[int, Field(ge=0, le=INTEGER_MAX), JSON_WHOLE]


class Withdrawn(AnswerBody):
    """What was done. `left`: there are more; send the request again."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "withdrawal_id": 812,
        "withdrawn": 1200,
        "bound": 2,
        "locked": 0,
        "left": False,
        "is_told": True,
    }

    withdrawal_id: int
    withdrawn: int
    bound: int = Field(description="At OldHost, or may be: these stay")
    locked: int = Field(description="Locked by another transaction: these stay; send the request again for them")
    left: bool
    is_told: bool = Field(description="false: the writer learns of it only when their turn comes, which takes its time")


class Undone(AnswerBody):
    EXAMPLE: ClassVar[dict[str, Any]] = {"withdrawal_id": 812, "recorded": 1190, "left_out": 10, "left": False}

    withdrawal_id: int
    recorded: int = Field(description="Recorded anew, each as a new change")
    left_out: int = Field(description="Have a newer change of their entity, or are locked, or can't be sent any more")
    left: bool = Field(description="There are more: send the request again")


class WithdrawalRoutes:
    """An operator's acts, each audited with the filter, the reason and the number of changes."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "withdrawals")
        body = json_body(WaitingChanges, example=_EXAMPLE)
        title = "What a withdrawal would do"
        add("POST", "/api/withdrawals/preview", self.preview, WithdrawalPreview, title, OPERATORS, _ERRORS, **body)
        body = json_body(WithdrawalRequest, example=_EXAMPLE | {"reason": "The rates were wrong", "up_to": 4711})
        title = "Withdraw changes that wait"
        add("POST", "/api/withdrawals", self.withdraw, Withdrawn, title, OPERATORS, _ERRORS, **body)
        body = json_body(ReasonedRequest, example={"reason": "The filter was too wide"})
        title, path = "Undo a withdrawal", "/api/withdrawals/{withdrawal_id}/undo"
        add("POST", path, self.undo, Undone, title, OPERATORS, (409, *_ERRORS), **body)

    async def preview(self, request: Request) -> WithdrawalPreview:
        """Counts, what the shadow would show, and the time that OldHost is spared. Nothing is changed."""
        wanted = (await read_body(request, WaitingChanges)).filter
        host = self._dependencies.host
        return await self._dependencies.database.run(lambda connection: preview(connection, host, wanted))

    async def withdraw(self, request: Request) -> Withdrawn:
        """They get the fate WITHDRAWN: OldHost never gets them. What has a nonce already, or may have been written to
        OldHost, stays. Of an LWW key the newest state that still waits is sent; the shadow shows that, else what
        OldHost has.
        """
        body = await read_body(request, WithdrawalRequest)
        run, host = self._dependencies.database.run, self._dependencies.host
        begin = partial(begin_withdrawal, host=host, wanted=body.filter, up_to=body.up_to, reason=body.reason)
        act = await run(partial(begin, operator=caller_of(request).operator))
        until, is_told = self._until(), True
        while not act.done and self._dependencies.clock() < until:
            step = await run(act.step)
            act.took(step)
            if step.change_ids and is_told:
                batch = WithdrawnBatch(step.change_ids, [to_wire(ref) for ref in step.refs])
                is_told = await self._dependencies.writer.tell("enqueue", batch)
        return Withdrawn(
            withdrawal_id=act.act_id,
            withdrawn=act.withdrawn,
            bound=act.bound,
            locked=act.locked,
            left=not act.done,
            is_told=is_told,
        )

    async def undo(self, request: Request, withdrawal_id: WithdrawalId) -> Undone:
        """Possible for a minute. The changes are recorded anew, under new ids and keys, but for those of entities that
        have a newer change.
        """
        body = await read_body(request, ReasonedRequest)
        run, operator = self._dependencies.database.run, caller_of(request).operator
        begin = partial(begin_undo, host=self._dependencies.host, act_id=withdrawal_id, reason=body.reason)
        try:
            undo = await run(partial(begin, operator=operator))
        except NothingToUndo as error:
            why = f"{str(error)[:1].upper()}{str(error)[1:]}."
            raise Problem(409, "nothing-to-undo", "This can't be undone", why, "See GET /api/audit.") from None
        until = self._until()
        while not undo.done and self._dependencies.clock() < until:
            undo.took(await run(undo.step))
        return Undone(withdrawal_id=withdrawal_id, recorded=undo.recorded, left_out=undo.left_out, left=not undo.done)

    def _until(self) -> float:
        return self._dependencies.clock() + http_limits.WITHDRAWAL_SECONDS
