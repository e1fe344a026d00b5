"""Outcomes: the reported fate of each change, dead letters, and their effect on the changes that wait behind them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeRef, ChangeResult, EntityKey, Outcome, PriorityClass
from oldhost_sync.policy.forecast.rates import LoadMonitor
from oldhost_sync.policy.machine.outstanding_changes import Rebuild, SweepState
from oldhost_sync.policy.machine.progress import Progress
from oldhost_sync.policy.machine.session import SessionState
from oldhost_sync.policy.queue.coalescer import Added, Coalescer
from oldhost_sync.policy.queue.operations import InFlight, PendingOperation


@dataclass
class Counters:
    """What happened since the machine's first start; carried from run to run."""

    received: int = 0
    applied: int = 0
    superseded: int = 0
    no_op: int = 0
    stale: int = 0
    dead: int = 0
    withdrawn: int = 0
    sessions: int = 0
    bans: int = 0

    def count(self, outcome: Outcome) -> None:
        name = outcome.value.lower()
        if hasattr(self, name):
            setattr(self, name, getattr(self, name) + 1)


@dataclass
class OutcomeWaiter:
    """Updates wait for a change's fate; `watchers`: how many (two may have the same idempotency key)."""

    watchers: int = 0
    fate: ChangeResult | None = None


@dataclass
class Outcomes:
    """Ends changes, or lets them wait again, and tells the parts that follow it. `dead_letters`: how many are not
    decided. `watched`: the changes whose fate an update waits for.
    """

    coalescer: Coalescer
    in_flight: InFlight
    session: SessionState
    loading: Rebuild
    sweeping: SweepState
    load: LoadMonitor
    progress: Progress

    def __post_init__(self) -> None:
        self.counters = Counters()
        self.dead_letters = 0
        self.watched: dict[int, OutcomeWaiter] = {}

    # ----------------------------------------------------------------------------------------------------------- fates

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
            in_doubt = self.leave_in_doubt(change_id for change_id in ids if change_id not in kept)
        return ended, in_doubt

    def _is_on_its_way(self, change_id: int) -> bool:
        """Whether it is in flight, although this send did not send it: an urgent send took it along from an ordinary
        one and is still under way, or it was bound when the session began and the send was ended before its turn.
        """
        return self.in_flight.is_being_sent(change_id) or change_id in self.in_flight.bound

    def record(self, fate: ChangeResult, now_ms: int, *, reads_older: bool = True) -> None:
        """`reads_older`: if an LWW change was withdrawn, an older state of its key may wait, in MariaDB only."""
        coalescer, in_flight, change_id = self.coalescer, self.in_flight, fate.change_id
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
            self.requeue(change_id)
        else:
            ref, outcome = in_flight.leave(change_id).ref, Outcome(fate.outcome)
            self._end(ref, fate, outcome, now_ms)
            if reads_older and outcome is Outcome.WITHDRAWN and ref.priority_class is PriorityClass.LWW:
                self.loading.want(ref.entity)

    def _end(self, ref: ChangeRef, fate: ChangeResult, outcome: Outcome, now_ms: int) -> None:
        self.counters.count(outcome)
        self._tell(fate)
        replaces = outcome is not Outcome.WITHDRAWN
        self.sweeping.fates.saw(ref, replaces=replaces)
        self.loading.fates.saw(ref, replaces=replaces)
        self.progress.fate(now_ms)
        if outcome in (Outcome.APPLIED, Outcome.DEAD):
            self.session.sessions_without_progress = 0
        if outcome is Outcome.DEAD:
            self.dead_letters += 1
            self.hold(ref.entity, [ref.change_id])
        else:
            self.coalescer.unhold(ref.entity, ref.change_id)
        if outcome is Outcome.APPLIED and fate.nonce is not None:
            self.load.applied()

    def withdraw(self, change_ids: Iterable[int], now_ms: int) -> None:
        """An operator has withdrawn these; what waits in their place follows by `enqueue`. One that a send has taken is
        left: its reservation tells.
        """
        for change_id in change_ids:
            if change_id in self.coalescer.waiting:
                self.record(ChangeResult(change_id, Outcome.WITHDRAWN.value), now_ms, reads_older=False)

    def requeue(self, change_id: int) -> None:
        """The change is no longer in flight, and waits as before."""
        entry = self.in_flight.leave(change_id)
        older = self.coalescer.newest_waiting(entry.ref.key)
        added = self.coalescer.requeue(entry)
        if added is Added.REPLACED_OLDER and older is not None:
            self.supersede(entry.ref.entity, older)
        if added is Added.SUPERSEDED:
            self.supersede(entry.ref.entity, change_id)
        self.counters.received -= added is Added.HELD

    def supersede(self, entity: EntityKey, change_id: int) -> None:
        """A newer change took its place. If it was a retried dead letter, no change is held behind it any more."""
        self.superseded(change_id)
        self.coalescer.unhold(entity, change_id)

    def superseded(self, change_id: int) -> None:
        self.counters.superseded += 1
        self._tell(ChangeResult(change_id, Outcome.SUPERSEDED.value))

    def bind_all(self, refs: Sequence[ChangeRef]) -> None:
        """Exactly these changes are bound, in this order, says the ledger. All others that were in doubt wait again."""
        in_flight = self.in_flight
        for ref in refs:
            if ref.change_id not in in_flight:
                entry = self.coalescer.take_change(ref.change_id)
                in_flight.enter(entry or PendingOperation(ref, ref.accepted_at_ms, ref.accepted_at_ms, ready=True))
        ids = [ref.change_id for ref in refs]
        free = [entry.ref.change_id for entry in in_flight if entry.ref.change_id not in ids]
        in_flight.bound, in_flight.in_doubt = ids, []
        for change_id in free:
            self.requeue(change_id)

    def leave_in_doubt(self, ids: Iterable[int]) -> bool:
        """Those without a fate stay in doubt until the next session; True if there are any."""
        in_flight = self.in_flight
        left = [change_id for change_id in ids if change_id in in_flight.entries]
        in_flight.in_doubt += [change_id for change_id in left if change_id not in in_flight.in_doubt]
        return bool(left)

    def _tell(self, fate: ChangeResult) -> None:
        if fate.change_id in self.watched:
            self.watched[fate.change_id].fate = fate

    # ----------------------------------------------------------------------------------------------------- dead letters

    def hold(self, entity: EntityKey, dead: Iterable[int]) -> None:
        """These dead letters of this entity wait for an operator, and its later TXN changes behind them."""
        for change_id in dead:
            self.counters.received -= self.coalescer.hold(entity, change_id)

    def letter_is_decided(self) -> None:
        self.dead_letters = max(0, self.dead_letters - 1)

    def wait_again(self, ref: ChangeRef, now_ms: int) -> None:
        """A dead letter was retried: it waits ahead of the changes held behind it."""
        self.counters.dead = max(0, self.counters.dead - 1)  # a writer that was rebuilt has not counted it
        entry = PendingOperation(ref, ref.accepted_at_ms, min(ref.accepted_at_ms, now_ms), ready=True)
        if self.coalescer.requeue(entry) is Added.SUPERSEDED:
            self.supersede(ref.entity, ref.change_id)

    def follow_waiting(self, outstanding: Sequence[ChangeRef], now_ms: int) -> None:
        """By the database these changes wait: one that is a dead letter here was retried, and the machine missed it."""
        for ref in outstanding:
            hold = self.coalescer.holds.get(ref.entity)
            if hold is not None and hold.has_dead(ref.change_id) and not self._knows_better(ref.change_id):
                self.letter_is_decided()
                self.wait_again(ref, now_ms)

    def follow_sweep(self, outstanding: Sequence[ChangeRef], now_ms: int) -> None:
        """By the database these changes wait, and none holds them. Where the machine has it otherwise, it missed a
        decision; else nothing of that entity's TXN changes would be sent again.
        """
        self.follow_waiting(outstanding, now_ms)
        newest: dict[EntityKey, int] = {}
        for ref in outstanding:
            if ref.priority_class is PriorityClass.TXN and ref.entity in self.coalescer.holds:
                newest[ref.entity] = max(ref.change_id, newest.get(ref.entity, 0))
        for entity, change_id in newest.items():
            for dead in self.coalescer.holds[entity].older_than(change_id):
                if not self._knows_better(dead):  # one that was retried holds the others until its fate
                    self.letter_is_decided()
                    self.coalescer.unhold(entity, dead)

    def _knows_better(self, change_id: int) -> bool:
        """Whether this dead letter waits again or is under way here, or was rejected after MariaDB was read."""
        return (
            change_id in self.coalescer.waiting
            or self.in_flight.is_under_way(change_id)
            or (self.sweeping.under_way and change_id in self.sweeping.fates)
        )
