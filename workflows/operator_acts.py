"""Operators' acts, one after the other: each is first recorded, with who and why, and then applied to the machine.

The order is the same in MariaDB as here, so whatever fails in between, a writer that is rebuilt from MariaDB acts as
this one would have. An act that a run could not finish is passed to the next run, under the same id.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.fields.change import FLUSH_ONE_OR_ALL
    from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
    from oldhost_sync.policy.machine import operators
    from oldhost_sync.policy.machine.actions import RecordHalt
    from oldhost_sync.policy.machine.machine import Machine
    from workflows import calls, messages
    from workflows.clock import now_ms
    from workflows.messages import OperatorRequest


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

    decision: messages.OperatorAct
    answer: str | int | None = None
    refused: str = ""


class OperatorActs:
    """`pending`: acts not done yet, in order. `leaving`: whether a new run is about to take them over."""

    def __init__(
        self,
        machine: Machine,
        wake: Callable[[], None],
        leaving: Callable[[], bool],
        carried: list[messages.OperatorAct],
    ) -> None:
        self._machine = machine
        self._wake = wake
        self._leaving = leaving
        self.pending = [PendingAct(decision) for decision in carried]
        self.at_work = False
        self.long_resolve_at_ms: int | None = None  # from then on the resolve that is carried out counts as long

    def check_room(self) -> None:
        """Raises NoRoom when too many acts wait already, or all would wait for a long resolve."""
        if self.long_resolve_at_ms is not None and now_ms() >= self.long_resolve_at_ms:
            raise messages.NoRoom(RESOLVING)
        if len(self.pending) >= PENDING_MAX:
            first = self.pending[0].decision
            raise messages.NoRoom(
                f"{len(self.pending)} acts wait to be recorded, the first is {first.action!r} by {first.operator}: "
                "repeat yours in a moment"
            )

    def add(self, decision: messages.OperatorAct) -> PendingAct:
        act = PendingAct(decision)
        self.pending.append(act)
        self._wake()
        return act

    def add_halt(self, host: str, halt: RecordHalt) -> None:
        """Add the writer's own act: a halt, which must outlast this run."""
        reason = halt.reason
        decision = messages.OperatorAct(
            host, "halt", "writer", reason, halt.never_taken, decision_id=f"{workflow.uuid4()}", epoch=halt.epoch
        )
        if not any(act.decision.action == "halt" and act.decision.reason == reason for act in self.pending):
            self.add(decision)

    async def carry_out(self, host: str, action: str, request: OperatorRequest) -> str | int:
        """Add an act and wait for it; ApplicationError says why nothing was done, or that the next run does it."""
        act = self.add(request.act(host, action, str(workflow.uuid4())))
        await self._end_of(act)
        self._wake()
        if act.refused:
            raise ApplicationError(act.refused, type="Refused", non_retryable=True)
        if act.answer is None and self.at_work and action == "resolve":
            raise ApplicationError(RESOLVING, type="Pending", non_retryable=True)
        if act.answer is None:
            text = f"{action} is not recorded yet: the database does not answer. It is retried; check the status"
            raise ApplicationError(text, type="Pending", non_retryable=True)
        return act.answer

    async def _end_of(self, act: PendingAct) -> None:
        """Wait until it is done, or the next run does it; for a resolve only so long."""
        is_limited = act.decision.action == "resolve"
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: act.answer is not None or bool(act.refused) or self._leaving(),
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

    async def _do(self, act: PendingAct) -> None:
        act.refused = operators.objection(self._machine, act.decision.action)
        if act.refused:
            return
        decision = act.decision
        if decision.action == "resolve":
            decision = replace(decision, unsettled=list(self._machine.in_flight.in_doubt))
            self.long_resolve_at_ms = now_ms() + round(RESOLVE_ANSWERED_WITHIN.total_seconds() * 1000)
        try:
            decided = await calls.record_decision(decision)
        finally:
            self.long_resolve_at_ms = None
        if decided.refused:
            act.refused = decided.refused
            operators.follow_refusal(self._machine, act.decision, decided, now_ms())
        else:
            act.answer = operators.follow(self._machine, act.decision, decided, now_ms())
        self._wake()


def check_named(request: OperatorRequest) -> None:
    """For every operator's act: who and why, in text that can be recorded."""
    if not request.operator.strip() or not request.reason.strip():
        raise ValueError("say who you are (operator) and why (reason): both are recorded")
    for name, text in (
        ("operator", request.operator),
        ("reason", request.reason),
        ("entity_id", request.entity_id or ""),
    ):
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(f"{name} is longer than {TEXT_LENGTH_MAX} characters")
        if why := messages.why_unprintable(text, lines=name == "reason"):
            raise ValueError(f"{name} can't be recorded: {why}")
    _check_signature(request)


def _check_signature(request: OperatorRequest) -> None:
    """Of a size that history can hold; it is verified where the act is recorded."""
    signature = request.signature or messages.ActSignature()
    for name, text in (("channel", request.channel), ("nonce", signature.nonce), ("digest", signature.digest)):
        if len(text) > SIGNATURE_TEXT_MAX or not text.isascii():
            raise ValueError(f"{name} is not what the API sends: leave channel and signature out")


def check_flush(request: OperatorRequest) -> None:
    check_named(request)
    if bool(request.entity_type) != bool(request.entity_id):
        raise ValueError(FLUSH_ONE_OR_ALL)


def check_resolve(request: OperatorRequest) -> None:
    check_named(request)
    if request.mode not in tuple(messages.ResolveMode):
        raise ValueError("mode must be 'resend' (send the ledger's operations again) or 'adopt' (take OldHost's count)")
