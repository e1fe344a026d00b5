"""Operators' acts, as the machine follows them. The database is changed first, and decides whether an act is valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, Outcome, PriorityClass
from oldhost_sync.policy.machine.breaker import BreakerState
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.queue.pending_operation import Added, PendingOperation
from oldhost_sync.policy.rules.operator_act import LETTER_ACTS, ActRecorded, OperatorAct

if TYPE_CHECKING:
    from oldhost_sync.policy.machine.machine import Machine


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The operator's request makes no sense now; the message says why. Nothing was changed."""


@dataclass
class Pause:
    """Who paused the writer and why; None while it runs."""

    operator: str
    reason: str


class Operators:
    """The machine's part that follows operators' acts."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    @property
    def stops(self) -> tuple[Pause | None, str]:
        """What only an operator can end: the pause, and the reason of a halt (empty: none)."""
        breaker = self._machine.breaker
        return self._machine.paused, breaker.reason if breaker.state is BreakerState.HALTED else ""

    def follow_database(self, paused: Sequence[str] | None, now_ms: int, *, halted: bool) -> None:
        """Adopt the database's state of operators' acts: one that an earlier run began may have ended in this run."""
        machine = self._machine
        if machine.breaker.state is BreakerState.HALTED and not halted:
            self.resolve(now_ms)
        if (paused is None) != (machine.paused is None):
            machine.paused = Pause(*paused) if paused else None

    def follow_sweep(self, outstanding: Sequence[ChangeRef], now_ms: int) -> None:
        """Adopt the database's state of dead letters: these changes wait, and none holds them. Where the machine has it
        otherwise, it missed a decision; else nothing of that entity's TXN changes would be sent again.
        """
        self.follow_waiting(outstanding, now_ms)
        newest: dict[EntityKey, int] = {}
        for ref in outstanding:
            if ref.priority_class is PriorityClass.TXN and ref.entity in self._machine.coalescer.holds:
                newest[ref.entity] = max(ref.change_id, newest.get(ref.entity, 0))
        for entity, change_id in newest.items():
            for dead in self._machine.coalescer.holds[entity].older_than(change_id):
                if not self._knows_better(dead):  # one that was retried holds the others until its fate
                    self._dead_letter_is_decided(dead)
                    self._machine.coalescer.unhold(entity, dead)

    def follow_waiting(self, outstanding: Sequence[ChangeRef], now_ms: int) -> None:
        """By the database these changes wait: one that is a dead letter here was retried, and the machine missed it."""
        for ref in outstanding:
            hold = self._machine.coalescer.holds.get(ref.entity)
            if hold is not None and hold.has_dead(ref.change_id) and not self._knows_better(ref.change_id):
                self._dead_letter_is_decided(ref.change_id)
                self._wait_again(ref, now_ms)

    def _knows_better(self, change_id: int) -> bool:
        """Whether this dead letter waits again or is under way here, or was rejected after MariaDB was read."""
        machine = self._machine
        return (
            machine.coalescer.knows(change_id)
            or machine.in_flight.is_under_way(change_id)
            or (machine.sweeping.under_way and change_id in machine.sweeping.fates)
        )

    # ------------------------------------------------------------------------------------------------------- following

    def objection(self, action: str, change_id: int | None = None) -> str:
        """Why the action makes no sense, perhaps because another act came first; empty if it does make sense.

        The dead letter `change_id` can't be decided while a send has it: that send's report would undo the decision.
        """
        paused, in_flight = self._machine.paused, self._machine.in_flight
        letter = change_id if action in LETTER_ACTS else None
        if letter is not None and in_flight.is_under_way(letter):
            return f"change {change_id} is being sent to OldHost; wait for the result first"
        if action == "pause" and paused:
            return f"already paused by {paused.operator}: {paused.reason}"
        return "the writer is not paused" if action == "resume" and not paused else ""

    def follow(self, act: OperatorAct, recorded: ActRecorded, now_ms: int) -> str | int:
        """Do what is recorded. Returns the answer for the operator."""
        match act.action:
            case "pause":
                self.pause(act.operator, act.reason)
                return "paused"
            case "resume":
                self.resume()
                return "resumed"
            case "flush":
                return self.flush(act.entity_key, now_ms)
            case "retry" | "discard" if recorded.apart and recorded.entity_key and act.change_id is not None:
                self.apart_is_decided(recorded.entity_key, act.change_id, now_ms, discarded=act.action == "discard")
            case "retry" if (ref := recorded.change) is not None:
                self.retry(ref, now_ms)
            case "retry" | "discard" | "confirm" if recorded.entity_key is not None and act.change_id is not None:
                self.is_decided(recorded.entity_key, act.change_id)
            case "resolve" if self._is_halted:
                self.resolve(now_ms, recorded.fates, recorded.epoch)
            case "resolve":
                self.resolved_before_told(recorded.epoch)
        return recorded.message

    def follow_refusal(self, act: OperatorAct, recorded: ActRecorded, now_ms: int) -> None:
        """MariaDB refused the act: it has a newer answer of OldHost, or the halt was resolved before."""
        if not self._is_halted:
            return
        if recorded.halted:
            self._machine.halt(recorded.halted)
        elif act.action == "halt":
            self.resolve(now_ms)

    @property
    def _is_halted(self) -> bool:
        return self._machine.breaker.state is BreakerState.HALTED

    # ------------------------------------------------------------------------------------------------------ act by act

    def pause(self, operator: str, reason: str) -> None:
        if objection := self.objection("pause"):
            raise Refused(objection)
        self._machine.paused = Pause(operator, reason)

    def resume(self) -> None:
        if objection := self.objection("resume"):
            raise Refused(objection)
        self._machine.paused = None

    def flush(self, entity: EntityKey | None, now_ms: int) -> int:
        """End the debounce of one entity's keys, or of all; returns how many keys."""
        return self._machine.coalescer.flush(entity, now_ms)

    def retry(self, ref: ChangeRef, now_ms: int) -> None:
        """A dead letter waits again, ahead of the changes held behind it (the database is already changed)."""
        machine = self._machine
        self._dead_letter_is_decided(ref.change_id)
        machine.load_held(ref.entity, [ref.change_id])  # it may not be known here; it ends with the change's fate
        if not machine.coalescer.knows(ref.change_id) and ref.change_id not in machine.in_flight:
            self._wait_again(ref, now_ms)

    def _wait_again(self, ref: ChangeRef, now_ms: int) -> None:
        machine = self._machine
        machine.counters.dead = max(0, machine.counters.dead - 1)  # a writer that was rebuilt has not counted it
        entry = PendingOperation(ref, ref.accepted_at_ms, min(ref.accepted_at_ms, now_ms), ready=True)
        if machine.coalescer.put_back(entry) is Added.SUPERSEDED:
            machine.outcomes.supersede(ref.entity, ref.change_id)

    def is_decided(self, entity: EntityKey, change_id: int) -> None:
        """A dead letter no longer waits for an operator; the changes held behind it may be sent."""
        self._dead_letter_is_decided(change_id)
        self._machine.coalescer.decided.note(change_id)
        self._machine.coalescer.unhold(entity, change_id)
        self._machine.loading.want(entity)  # the hold may not have been known here

    def apart_is_decided(self, entity: EntityKey, change_id: int, now_ms: int, *, discarded: bool) -> None:
        """A change that waited apart is tried at once or given up: its entity gets turns again."""
        machine = self._machine
        machine.coalescer.unpark(entity)
        machine.alerts.has_its_fate(change_id)
        if discarded and not machine.in_flight.is_under_way(change_id):  # else the send reports it
            machine.outcomes.record(ChangeResult(change_id, Outcome.DISCARDED.value), now_ms)

    def _dead_letter_is_decided(self, change_id: int) -> None:
        machine = self._machine
        machine.dead_letters = max(0, machine.dead_letters - 1)
        machine.alerts.decided(change_id, machine.dead_letters)

    def can_resolve(self) -> None:
        """Raises Refused unless there is a halt to resolve."""
        if not self._is_halted:
            raise Refused("the writer is not halted: there is nothing to resolve")

    def resolve(self, now_ms: int, fates: Iterable[ChangeResult] = (), epoch: int = 0) -> None:
        """`fates`: of changes in doubt, from the database. `epoch`: that of the decision; earlier reports are stale."""
        machine = self._machine
        self.can_resolve()
        machine.lifecycle.resolved(epoch)
        for fate in fates:
            if fate.change_id in machine.in_flight.in_doubt:
                machine.outcomes.record(fate, now_ms)
        machine.breaker.resolve(now_ms)
        machine.session.until_ms = 0

    def resolved_before_told(self, epoch: int) -> None:
        """An operator has resolved a halt that was in the database, but of which the machine did not know yet."""
        self._machine.lifecycle.resolved(epoch)
        self._machine.lifecycle.opening_predates_resolve = self._machine.session.phase is Phase.OPENING
