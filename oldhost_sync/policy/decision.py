"""Deciding: what the writer does next, given all that the machine has been told. Each action is given out once.

Sends first, while a session is open and something may go; the session itself only when nothing is in flight; then what goes
on beside it: asking OldHost for its nonce, looking for strays, the forecast, telling people.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from oldhost_sync.policy.actions import Action, CloseSession, Load, OpenSession, Probe, Send, Sweep
from oldhost_sync.policy.breaker import BreakerState
from oldhost_sync.policy.machine import RELEASE, Machine
from oldhost_sync.policy.pending_operation import PendingOperation
from oldhost_sync.policy.session import Phase
from oldhost_sync.policy.writer_policy import (
    BATCH_FILL_MS,
    BATCH_OPERATIONS_MAX,
    BATCHES_IN_FLIGHT_MAX,
    MOVED_AT_ONCE_MAX,
)


def decide(machine: Machine, now_ms: int) -> list[Action]:
    """What to do now; the machine remembers that it is under way."""
    machine.coalescer.fall_due(now_ms, MOVED_AT_ONCE_MAX if machine.release >= RELEASE else None)
    machine.breaker.tick(now_ms)
    machine.take_released()
    actions = [*_sends(machine), *_session(machine, now_ms), *_beside(machine, now_ms)]
    machine.forecast(now_ms)
    return actions + (machine.tell(now_ms) if machine.release >= RELEASE else machine.alarms.take())


def wake_at_ms(machine: Machine) -> int | None:
    """When to ask `decide` again if nothing happens before; None: only when something happens."""
    times = [machine.coalescer.next_due_at_ms()] if machine.may_send else []
    if machine.breaker.state is BreakerState.OPEN:
        times.append(machine.breaker.ask_at_ms)
    # What a draining writer does not begin needs no time: one that has come would wake it without end.
    begins = not machine.draining or machine.release < RELEASE
    if begins and machine.session.phase is Phase.PAUSING and machine.breaker.lets_ask and not machine.paused:
        times.append(machine.session.until_ms)
    if begins and machine.loaded and machine.loading.part is None and not machine.sweeping.under_way:
        times.append(machine.sweeping.at_ms)
    if machine.loading.is_due and not machine.draining:
        times.append(machine.loading.at_ms)
    if machine.may_send and not machine.probing:
        times.append(machine.probe_at_ms)
    if machine.coalescer.waiting:
        times.append(machine.load.next_at_ms)
    times.append(watch_at_ms(machine))
    return min((at for at in times if at is not None), default=None)


def watch_at_ms(machine: Machine) -> int | None:
    """When to ask even while something is on its way at the host, which may take longer than anybody should wait to be told."""
    if machine.release < RELEASE or machine.draining or machine.progress.told is not None or not machine.could_go:
        return None
    return machine.progress.due_at_ms


def _sends(machine: Machine) -> Iterator[Send]:
    session, in_flight = machine.session, machine.in_flight
    while machine.may_send and len(in_flight.batches) < BATCHES_IN_FLIGHT_MAX and (entries := _next_batch(machine)):
        machine.batch += 1
        session.sends += 1
        in_flight.start(machine.batch, entries)
        ids = tuple(entry.ref.change_id for entry in entries)
        accepted = tuple(entry.ref.accepted_at_ms for entry in entries)
        yield Send(machine.batch, session.sends, session.epoch, session.task_queue, ids, _label(entries), accepted)


def _next_batch(machine: Machine) -> list[PendingOperation]:
    """What is bound goes first; else whole chains of entities, as many as fill the batch's time."""
    in_flight = machine.in_flight
    size = max(1, min(BATCH_OPERATIONS_MAX, int(BATCH_FILL_MS / machine.load.service_ms)))
    sending = [change_id for ids in in_flight.batches.values() for change_id in ids]
    bound = [change_id for change_id in in_flight.bound if change_id not in sending][:size]
    if bound:
        return [entry for change_id in bound if (entry := in_flight.get(change_id))]
    entries: list[PendingOperation] = []
    while not machine.session.more_bound and len(entries) < size and (chain := machine.coalescer.take()):
        entries += chain
        for entry in chain:
            in_flight.enter(entry)
    return entries


def _session(machine: Machine, now_ms: int) -> Iterator[Action]:
    """Open one when there is none and nothing speaks against it; end one that must not, or need not, go on."""
    if machine.in_flight.batches or machine.draining or machine.probing:
        return
    if machine.session.phase is Phase.OPEN and machine.session.lost:
        machine.lose_session(now_ms)
    elif machine.session.phase is Phase.OPEN and _must_close(machine):
        machine.session.phase = Phase.CLOSING
        yield CloseSession(machine.session.epoch, machine.session.task_queue)
    session = machine.session
    rested = session.phase is Phase.PAUSING and now_ms >= session.until_ms
    if (session.phase is Phase.NONE or rested) and machine.loaded and not machine.paused and machine.breaker.lets_ask:
        session.phase = Phase.OPENING
        machine.halt_is_old = False
        yield OpenSession(tuple(machine.in_flight.unsettled), _newest(machine))


def _newest(machine: Machine) -> tuple[int, ...]:
    refs = [entry.ref for entries in (machine.coalescer.waiting.values(), machine.in_flight) for entry in entries]
    newest = max(refs, key=lambda ref: ref.change_id, default=None)
    return () if newest is None else (newest.change_id, newest.accepted_at_ms)


def _must_close(machine: Machine) -> bool:
    more_to_learn = machine.session.more_bound and not machine.in_flight.bound
    return machine.paused is not None or machine.breaker.state is BreakerState.HALTED or more_to_learn


def _beside(machine: Machine, now_ms: int) -> Iterator[Action]:
    if machine.may_send and not machine.probing and now_ms >= machine.probe_at_ms:
        machine.probing = True
        yield Probe(machine.session.epoch, machine.session.task_queue)
    if machine.loading.is_due and not machine.draining and now_ms >= machine.loading.at_ms:
        yield Load(*machine.loading.begin())
    sweeping = machine.sweeping
    if (
        machine.loaded
        and machine.loading.part is None
        and not sweeping.under_way
        and not machine.draining
        and now_ms >= sweeping.at_ms
    ):
        yield Sweep(sweeping.begin())


def _label(entries: Sequence[PendingOperation]) -> str:
    first = entries[0].ref
    text = f"{first.priority_class.value} {first.entity_type} {first.entity_id} {first.event_type} #{first.change_id}"
    return text if len(entries) == 1 else f"{text} and {len(entries) - 1} more"
