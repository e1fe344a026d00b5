"""Operators' acts, as the machine follows them. The database is changed first, and decides whether an act is valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, Outcome
from oldhost_sync.policy.machine.machine import Machine, Pause
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.rules.operator_act import END_PAUSE, LETTER_ACTS, ActRecorded, OperatorAct


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The operator's request makes no sense now; the message says why. Nothing was changed."""


def blockers(machine: Machine) -> tuple[Pause | None, str]:
    """What only an operator can end: the pause, and the reason of a halt (empty: none)."""
    return machine.paused, machine.breaker.reason if is_halted(machine) else ""


def is_halted(machine: Machine) -> bool:
    return machine.breaker.state is BreakerState.HALTED


def objection(machine: Machine, action: str, change_id: int | None = None) -> str:
    """Why the action makes no sense, perhaps because another act came first; empty if it does make sense.

    The dead letter `change_id` can't be decided while a send has it: that send's report would undo the decision.
    """
    paused, letter = machine.paused, change_id if action in LETTER_ACTS else None
    if letter is not None and machine.in_flight.is_under_way(letter):
        return f"change {change_id} is being sent to OldHost; wait for the result first"
    if action == "pause" and paused:
        return f"already paused by {paused.operator}: {paused.reason}"
    return "the writer is not paused" if action in ("resume", END_PAUSE) and not paused else ""


def _refuse(machine: Machine, action: str) -> None:
    if why := objection(machine, action):
        raise Refused(why)


# ----------------------------------------------------------------------------------------------------------- following


def follow(machine: Machine, act: OperatorAct, recorded: ActRecorded, now_ms: int) -> str | int:
    """Do what is recorded. Returns the answer for the operator."""
    match act.action:
        case "pause" | "resume" | "end-pause":
            return _follow_pause(machine, act)
        case "flush":  # ends the debounce of one entity's keys, or of all; returns how many keys
            return machine.coalescer.flush(act.entity_key, now_ms)
        case "retry" | "discard" if recorded.apart and recorded.entity_key and act.change_id is not None:
            apart_is_decided(machine, recorded.entity_key, act.change_id, now_ms, discarded=act.action == "discard")
        case "retry" if (ref := recorded.change) is not None:
            retry(machine, ref, now_ms)
        case "retry" | "discard" | "confirm" if recorded.entity_key is not None and act.change_id is not None:
            is_decided(machine, recorded.entity_key, act.change_id)
        case "resolve" if is_halted(machine):
            resolve(machine, now_ms, recorded.fates, recorded.epoch)
        case "resolve":
            resolved_before_told(machine, recorded.epoch)
    return recorded.message


def follow_refusal(machine: Machine, act: OperatorAct, recorded: ActRecorded, now_ms: int) -> None:
    """MariaDB refused the act: it has a newer answer of OldHost, or the halt was resolved before."""
    if not is_halted(machine):
        return
    if recorded.halted:
        machine.halt(recorded.halted)
    elif act.action == "halt":
        resolve(machine, now_ms)


def follow_database(machine: Machine, paused: Sequence[Any] | None, now_ms: int, *, halted: bool) -> None:
    """Adopt the database's state of operators' acts: one that an earlier run began may have ended in this run."""
    if is_halted(machine) and not halted:
        resolve(machine, now_ms)
    noted = Pause(*paused) if paused else None
    if (noted and noted.until_ms) != (machine.paused and machine.paused.until_ms):
        machine.paused = noted


# ---------------------------------------------------------------------------------------------------------- act by act


def _follow_pause(machine: Machine, act: OperatorAct) -> str:
    if act.action == "pause":
        pause(machine, act.operator, act.reason, act.until_ms)
        until = datetime.fromtimestamp(act.until_ms // 1000, UTC).isoformat(sep=" ")
        return f"paused until {until}" if act.until_ms else "paused"
    resume(machine)
    return "resumed"


def pause(machine: Machine, operator: str, reason: str, until_ms: int = 0) -> None:
    _refuse(machine, "pause")
    machine.paused = Pause(operator, reason, until_ms)


def resume(machine: Machine) -> None:
    _refuse(machine, "resume")
    machine.paused = None


def retry(machine: Machine, ref: ChangeRef, now_ms: int) -> None:
    """A dead letter waits again, ahead of the changes held behind it (the database is already changed)."""
    machine.outcomes.letter_is_decided()
    machine.outcomes.hold(ref.entity, [ref.change_id])  # it may not be known here; it ends with the change's fate
    if ref.change_id not in machine.coalescer.waiting and ref.change_id not in machine.in_flight:
        machine.outcomes.wait_again(ref, now_ms)


def is_decided(machine: Machine, entity: EntityKey, change_id: int) -> None:
    """A dead letter no longer waits for an operator; the changes held behind it may be sent."""
    machine.outcomes.letter_is_decided()
    machine.coalescer.decided.note(change_id)
    machine.coalescer.unhold(entity, change_id)
    machine.loading.want(entity)  # the hold may not have been known here


def apart_is_decided(machine: Machine, entity: EntityKey, change_id: int, now_ms: int, *, discarded: bool) -> None:
    """A change that waited apart is tried at once or given up: its entity gets turns again."""
    machine.coalescer.unpark(entity)
    if machine.stuck is not None and machine.stuck.change_id == change_id:
        machine.stuck = None
    if discarded and not machine.in_flight.is_under_way(change_id):  # else the send reports it
        machine.outcomes.record(ChangeResult(change_id, Outcome.DISCARDED.value), now_ms)


def can_resolve(machine: Machine) -> None:
    """Raises Refused unless there is a halt to resolve."""
    if not is_halted(machine):
        raise Refused("the writer is not halted: there is nothing to resolve")


def resolve(machine: Machine, now_ms: int, fates: Iterable[ChangeResult] = (), epoch: int = 0) -> None:
    """`fates`: of changes in doubt, from the database. `epoch`: that of the decision; earlier reports are stale."""
    can_resolve(machine)
    machine.resolved_epoch = max(machine.resolved_epoch, epoch)
    for fate in fates:
        if fate.change_id in machine.in_flight.in_doubt:
            machine.outcomes.record(fate, now_ms)
    machine.link.resolve(now_ms)


def resolved_before_told(machine: Machine, epoch: int) -> None:
    """An operator has resolved a halt that was in the database, but of which the machine did not know yet."""
    machine.resolved_epoch = max(machine.resolved_epoch, epoch)
    machine.opening_predates_resolve = machine.session.phase is Phase.OPENING
