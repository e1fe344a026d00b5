"""Operators' acts: the updates that bring them, what refuses them, and the queue in which they are carried out.

One after the other: each is first recorded, with who and why, and then applied to the machine. The order is the same in
MariaDB as here, so whatever fails in between, a writer that is rebuilt from MariaDB acts as this one would have. An act
that a run could not finish is passed to the next run, under the same id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.fields.change import FLUSH_ONE_OR_ALL
    from oldhost_sync.policy.limits import INTEGER_MAX, PAUSE_SECONDS_MAX, TEXT_LENGTH_MAX
    from oldhost_sync.policy.machine import operators
    from oldhost_sync.policy.machine.machine import Machine
    from oldhost_sync.policy.rules.operator_act import ActRecorded, OperatorAct
    from workflows import calls, messages
    from workflows.clock import now_ms

# A resolve of many operations takes minutes; whoever asked for it is told so after this.
RESOLVE_ANSWERED_WITHIN = timedelta(seconds=8)
# Temporal lets ten updates wait per run, and each waiting act is one of them; while the database is away acts would
# take all ten places.
PENDING_MAX = 3
# Longer than a SHA-256 in hexadecimal digits.
SIGNATURE_TEXT_MAX = 128
RESOLVING = (
    "a resolve is being carried out, which may take minutes if it concerns many operations, or as long as MariaDB does "
    "not answer: until the halt has ended (see the status), nothing else can be decided"
)


@dataclass
class PendingAct:
    """`answer`: the operator's answer; `refused`: why nothing was done."""

    act: OperatorAct
    answer: str | int | None = None
    refused: str = ""


class OperatorActs:
    """`pending`: acts not done yet, in order. `leaving`: whether a new run is about to take them over."""

    def __init__(
        self,
        host: str,
        machine: Machine,
        wake: Callable[[], None],
        leaving: Callable[[], bool],
        carried: list[OperatorAct],
    ) -> None:
        self._host = host
        self._machine = machine
        self._wake = wake
        self._leaving = leaving
        self.pending = [PendingAct(act) for act in carried]
        self.at_work = False
        self.long_resolve_at_ms: int | None = None  # from then on the resolve that is carried out counts as long

    def check(self, act: OperatorAct, objection: Objection) -> None:
        """Validator of the act's update: raises an error that says why not. A refusal leaves nothing in the history.

        While a rebuild is running, which would undo the act, only a flush is taken.
        """
        if not self._machine.loaded and act.action != "flush":
            raise ValueError("the writer is still reading outstanding changes from MariaDB: try again in a moment")
        self._check_room()
        _check_texts(act)
        if why := objection(self._machine, act):
            raise ValueError(why)

    def _check_room(self) -> None:
        """Raises NoRoom when too many acts wait already, or all would wait for a long resolve."""
        if self.long_resolve_at_ms is not None and now_ms() >= self.long_resolve_at_ms:
            raise messages.NoRoom(RESOLVING)
        if len(self.pending) >= PENDING_MAX:
            first = self.pending[0].act
            raise messages.NoRoom(
                f"{len(self.pending)} acts wait to be recorded, the first is {first.action!r} by {first.operator}: "
                "repeat yours in a moment"
            )

    def add_own(self, own: OperatorAct) -> None:
        """Add an act of the writer's own, a halt or the end of a pause, which must outlast this run."""
        own, known = self._named(own), (pending.act for pending in self.pending)
        if not any((act.action, act.reason) == (own.action, own.reason) for act in known):
            self._add(own)

    def _named(self, act: OperatorAct) -> OperatorAct:
        until_ms = now_ms() + 1000 * act.for_seconds if act.for_seconds else act.until_ms
        return replace(act, host=self._host, decision_id=str(workflow.uuid4()), in_doubt=[], until_ms=until_ms)

    def _add(self, act: OperatorAct) -> PendingAct:
        pending = PendingAct(act)
        self.pending.append(pending)
        self._wake()
        return pending

    async def carry_out(self, act: OperatorAct) -> Any:
        """Add an act and wait for it; ApplicationError says why nothing was done, or that the next run does it."""
        pending = self._add(self._named(act))
        await self._end_of(pending)
        self._wake()
        if pending.refused:
            raise ApplicationError(pending.refused, type="Refused", non_retryable=True)
        if pending.answer is None and self.at_work and act.action == "resolve":
            raise ApplicationError(RESOLVING, type="Pending", non_retryable=True)
        if pending.answer is None:
            text = f"{act.action} is not recorded yet: the database does not answer. It is retried; check the status"
            raise ApplicationError(text, type="Pending", non_retryable=True)
        return pending.answer

    async def _end_of(self, pending: PendingAct) -> None:
        """Wait until it is done, or the next run does it; for a resolve only so long."""
        is_limited = pending.act.action == "resolve"
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: pending.answer is not None or bool(pending.refused) or self._leaving(),
                timeout=RESOLVE_ANSWERED_WITHIN if is_limited else None,
            )

    async def work_off(self) -> None:
        """One act after the other, until none is pending."""
        self.at_work = True
        try:
            await workflow.wait_condition(lambda: self._machine.loaded)
            while self.pending:
                await self._do(self.pending[0])
                self.pending.pop(0)
        finally:
            self.at_work = False
            self._wake()

    async def _do(self, pending: PendingAct) -> None:
        act = pending.act
        pending.refused = operators.objection(self._machine, act.action)
        if pending.refused:
            return
        asked = act
        if act.action == "resolve":
            asked = replace(act, in_doubt=list(self._machine.in_flight.in_doubt))
            self.long_resolve_at_ms = now_ms() + round(RESOLVE_ANSWERED_WITHIN.total_seconds() * 1000)
        try:
            recorded: ActRecorded = await calls.result_of(asked)
        finally:
            self.long_resolve_at_ms = None
        if recorded.refused:
            pending.refused = recorded.refused
            operators.follow_refusal(self._machine, act, recorded, now_ms())
        else:
            pending.answer = operators.follow(self._machine, act, recorded, now_ms())
        self._wake()


# ------------------------------------------------------------------------------------------------- what refuses an act

# Why an act makes no sense now; empty if it does. May also raise an error that says so.
Objection = Callable[[Machine, OperatorAct], str]


def no_sense_now(machine: Machine, act: OperatorAct) -> str:
    """Of a pause or a resume."""
    if not 0 <= act.for_seconds <= (PAUSE_SECONDS_MAX if act.action == "pause" else 0):
        return f"for_seconds says how long a pause lasts, up to {PAUSE_SECONDS_MAX}"
    return operators.objection(machine, act.action)


def no_such_letter(machine: Machine, act: OperatorAct) -> str:
    """Of a decision about a dead letter."""
    if act.change_id is None:
        return "say which dead letter (change_id)"
    return operators.objection(machine, act.action, act.change_id)


def half_an_entity(_: Machine, act: OperatorAct) -> str:
    """Of a flush."""
    return FLUSH_ONE_OR_ALL if bool(act.entity_type) != bool(act.entity_id) else ""


def nothing_to_resolve(machine: Machine, act: OperatorAct) -> str:
    if act.mode not in tuple(messages.ResolveMode):
        return "mode must be 'resend' (send the ledger's operations again) or 'adopt' (take OldHost's count)"
    if act.expected is not None and (act.mode != messages.ResolveMode.ADOPT or not 0 <= act.expected <= INTEGER_MAX):
        return f"expected is a nonce from 0 to {INTEGER_MAX}, to adopt"
    operators.can_resolve(machine)
    return ""


def _check_texts(act: OperatorAct) -> None:
    """Who and why, in text that can be recorded, and a signature that is verified where the act is recorded."""
    if not act.operator.strip() or not act.reason.strip():
        raise ValueError("say who you are (operator) and why (reason): both are recorded")
    for name, text in (("operator", act.operator), ("reason", act.reason), ("entity_id", act.entity_id or "")):
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(f"{name} is longer than {TEXT_LENGTH_MAX} characters")
        if why := messages.why_unprintable(text, lines=name == "reason"):
            raise ValueError(f"{name} can't be recorded: {why}")
    signature = act.signature or messages.ActSignature()
    for name, text in (("channel", act.channel), ("nonce", signature.nonce), ("digest", signature.digest)):
        if len(text) > SIGNATURE_TEXT_MAX or not text.isascii():
            raise ValueError(f"{name} is not what the API sends: leave channel and signature out")


# --------------------------------------------------------------------------------------------------------- the updates


def operators_update(action: str, text: str, objection: Objection) -> Any:
    """The handler and the validator of the update `action`, for a workflow that has `acts`. `text`: for people."""

    async def handle(self: Any, act: OperatorAct) -> Any:
        return await self.acts.carry_out(replace(act, action=action, until_ms=0))

    def validate(self: Any, act: OperatorAct) -> None:
        self.acts.check(replace(act, action=action), objection)

    handle.__doc__ = text
    for function in (handle, validate):
        del function.__annotations__["self"]  # the SDK takes a `self` that has a type for an argument
    update: Any = workflow.update(name=action, description=text)(handle)
    update.validator(validate)
    return update
