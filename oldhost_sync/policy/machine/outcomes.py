"""Outcomes: the reported fate of each change, and its effect on the changes that wait behind it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeRef, ChangeResult, EntityKey, Outcome
from oldhost_sync.policy.queue.pending_operation import Added, PendingOperation

if TYPE_CHECKING:
    from oldhost_sync.policy.machine.machine import Machine


@dataclass
class OutcomeWaiter:
    """Updates wait for a change's fate; `watchers`: how many (two may have the same idempotency key)."""

    watchers: int = 0
    fate: ChangeResult | None = None


class Outcomes:
    """The machine's part that ends changes or lets them wait again. `watched`: those whose fate an update waits for."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.watched: dict[int, OutcomeWaiter] = {}

    def record_send(self, fates: Iterable[ChangeResult], ids: Sequence[int], now_ms: int) -> tuple[bool, bool]:
        """Record how the changes of a send ended. Returns whether any has its fate, and whether any is in doubt."""
        ended, kept = False, list[int]()
        try:
            for fate in fates:
                waits = fate.outcome in (WAITING, HELD)
                if waits and self._is_on_its_way(fate.change_id):
                    kept.append(fate.change_id)
                    continue
                ended = ended or (fate.outcome != BOUND and not waits)
                self.record(fate, now_ms)
        finally:
            in_doubt = self.leave_in_doubt(one for one in ids if one not in kept)
        return ended, in_doubt

    def _is_on_its_way(self, change_id: int) -> bool:
        """Whether it is in flight, although this send did not send it: an urgent send took it along from an ordinary
        one and is still under way, or it was bound when the session began and the send was ended before its turn.
        """
        machine = self._machine
        return machine.in_flight.is_being_sent(change_id) or change_id in machine.in_flight.bound

    def record(self, fate: ChangeResult, now_ms: int) -> None:
        coalescer, in_flight, change_id = self._machine.coalescer, self._machine.in_flight, fate.change_id
        if fate.outcome == BOUND:
            return
        if change_id not in in_flight:
            entry = coalescer.take_change(change_id)
            if entry is None:
                return
            in_flight.enter(entry)
        if fate.outcome == HELD:
            coalescer.waits_again(in_flight.entity_of(change_id), change_id)
        if fate.outcome in (WAITING, HELD):
            self.put_back(change_id)
        else:
            self._end(in_flight.leave(change_id).ref, fate, Outcome(fate.outcome), now_ms)

    def _end(self, ref: ChangeRef, fate: ChangeResult, outcome: Outcome, now_ms: int) -> None:
        machine = self._machine
        machine.counters.count(outcome)
        machine.sweeping.fates.saw(ref)
        machine.loading.fates.saw(ref)
        machine.alerts.has_its_fate(ref.change_id)
        machine.progress.fate(now_ms)
        self._tell(fate)
        if outcome in (Outcome.APPLIED, Outcome.DEAD):
            machine.session.sessions_without_progress = 0
        if outcome is Outcome.DEAD:
            self._reject(ref, now_ms)
        else:
            machine.coalescer.unhold(ref.entity, ref.change_id)
        if outcome is Outcome.APPLIED and fate.nonce is not None:
            machine.load.applied()

    def _reject(self, ref: ChangeRef, now_ms: int) -> None:
        machine = self._machine
        machine.dead_letters += 1
        machine.counters.received -= machine.coalescer.hold(ref.entity, ref.change_id)
        machine.alerts.rejected(ref, machine.dead_letters, now_ms)

    def put_back(self, change_id: int) -> None:
        """The change is no longer in flight, and waits as before."""
        machine = self._machine
        entry = machine.in_flight.leave(change_id)
        older = machine.coalescer.newest_waiting(entry.ref.key)
        added = machine.coalescer.put_back(entry)
        if added is Added.REPLACED_OLDER and older is not None:
            self.supersede(entry.ref.entity, older)
        if added is Added.SUPERSEDED:
            self.supersede(entry.ref.entity, change_id)
        machine.counters.received -= added is Added.HELD

    def supersede(self, entity: EntityKey, change_id: int) -> None:
        """A newer change took its place. If it was a retried dead letter, no change is held behind it any more."""
        self.superseded(change_id)
        self._machine.coalescer.unhold(entity, change_id)

    def superseded(self, change_id: int) -> None:
        self._machine.counters.superseded += 1
        self._tell(ChangeResult(change_id, Outcome.SUPERSEDED.value))

    def bind_all(self, refs: Sequence[ChangeRef]) -> None:
        """Exactly these changes are bound, in this order, says the ledger. All others that were in doubt wait again."""
        coalescer, in_flight = self._machine.coalescer, self._machine.in_flight
        for ref in refs:
            if ref.change_id not in in_flight:
                entry = coalescer.take_change(ref.change_id)
                in_flight.enter(entry or PendingOperation(ref, ref.accepted_at_ms, ref.accepted_at_ms, ready=True))
        ids = [ref.change_id for ref in refs]
        free = [entry.ref.change_id for entry in in_flight if entry.ref.change_id not in ids]
        in_flight.bound, in_flight.in_doubt = ids, []
        for change_id in free:
            self.put_back(change_id)

    def leave_in_doubt(self, ids: Iterable[int]) -> bool:
        """Those without a fate stay in doubt until the next session; True if there are any."""
        in_flight = self._machine.in_flight
        left = [change_id for change_id in ids if change_id in in_flight]
        in_flight.in_doubt += [change_id for change_id in left if change_id not in in_flight.in_doubt]
        return bool(left)

    def _tell(self, fate: ChangeResult) -> None:
        if fate.change_id in self.watched:
            self.watched[fate.change_id].fate = fate
