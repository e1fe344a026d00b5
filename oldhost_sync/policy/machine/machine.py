"""The writer's machine: its state, how each event changes it, and what it decides. Pure: no clock, no randomness, no
IO; time is an argument (ms).

The workflow, the planner and the simulation run this same code: they report what happened and then call `decide`.
Authority: MariaDB knows which changes exist and their fates; this machine knows only when and in which order they are
sent, and rebuilds itself from MariaDB when it starts empty.

Its parts: `coalescer` (what waits), `in_flight` (what is being sent), `session` and its `lifecycle`, `breaker`,
`outcomes` (the fates of changes), `operators` (their acts), `loading` and `sweeping` (what is read from MariaDB),
`alerts` (the alerts).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oldhost_sync.policy.changes import ChangeRef, EntityKey, Outcome, PriorityClass
from oldhost_sync.policy.forecast.rates import LoadMonitor
from oldhost_sync.policy.machine import bans, notices
from oldhost_sync.policy.machine.actions import Action, LoadOutstanding, Probe, RecordAlerts, RecordHalt, Send, Sweep
from oldhost_sync.policy.machine.alerts import Alerts
from oldhost_sync.policy.machine.breaker import Breaker, BreakerState
from oldhost_sync.policy.machine.events import OpeningEnded, Probed, SendEnded, SendFailed
from oldhost_sync.policy.machine.lost_answers import LostAnswers
from oldhost_sync.policy.machine.operators import Operators, Pause
from oldhost_sync.policy.machine.outcomes import Outcomes
from oldhost_sync.policy.machine.outstanding_changes import Part, Rebuild, SweepState
from oldhost_sync.policy.machine.progress import Progress
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.machine.session import SessionState
from oldhost_sync.policy.machine.session_lifecycle import SessionLifecycle
from oldhost_sync.policy.queue.coalescer import Coalescer
from oldhost_sync.policy.queue.in_flight import InFlight
from oldhost_sync.policy.queue.pending_operation import Added, PendingOperation, label_of
from oldhost_sync.policy.tuning import (
    MOVED_AT_ONCE_MAX,
    SENDS_IN_FLIGHT_MAX,
    URGENT_SENDS_IN_FLIGHT_MAX,
    WriterPolicy,
    send_size,
)


@dataclass
class Counters:
    """What happened since the machine's first start; carried from run to run."""

    received: int = 0
    applied: int = 0
    superseded: int = 0
    no_op: int = 0
    stale: int = 0
    dead: int = 0
    sessions: int = 0
    bans: int = 0

    def count(self, outcome: Outcome) -> None:
        name = outcome.value.lower()
        if hasattr(self, name):
            setattr(self, name, getattr(self, name) + 1)


@dataclass
class Machine:
    """The whole state. `loaded` False: still rebuilding from MariaDB, nothing is sent; `carried`: the state came from
    an earlier run, perhaps without the waiting changes. `draining`: a new run is about to start. `release`: the
    release whose decisions it makes (`release.py`).
    """

    policy: WriterPolicy
    now_ms: int
    release: int = RELEASE
    loaded: bool = False
    carried: bool = False
    draining: bool = False
    paused: Pause | None = None
    session: SessionState = field(default_factory=SessionState)
    counters: Counters = field(default_factory=Counters)
    send_number: int = 0
    probe_at_ms: int = 0
    probing: bool = False

    def __post_init__(self) -> None:
        policy = self.policy
        self.breaker = Breaker(policy.ban_ms)
        self.coalescer = Coalescer(
            debounce_ms=policy.debounce_ms,
            max_wait_ms=policy.max_wait_ms,
            txn_per_lww=policy.txn_per_lww,
            early_send_ms=policy.early_send_ms,
        )
        self.loading = Rebuild(Part.EMERGENCIES)
        self.dead_letters = 0
        self.in_flight = InFlight()
        self.outcomes = Outcomes(self)
        self.lifecycle = SessionLifecycle(self)
        self.operators = Operators(self)
        self.sweeping = SweepState(policy.sweep_ms)
        self.load = LoadMonitor(self.now_ms, policy.txn_per_lww, self.in_flight)
        self.alerts = Alerts()
        self.progress = Progress(self.now_ms)
        self.looked_at_ms = self.now_ms
        self.lost_answers = LostAnswers()

    # --------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now_ms: int) -> list[Action]:
        """What to do now, after all that was reported. Each action is returned once, and remembered as under way.

        The order: sends, while a session is open and something can be sent; opening or closing the session; what is
        independent of sending: the probe, reading outstanding changes, the sweep; the forecast and the alerts.
        """
        self.coalescer.unpark_due(now_ms)
        self.coalescer.fall_due(now_ms, MOVED_AT_ONCE_MAX)
        self.breaker.tick(now_ms)
        self.take_released()
        if self._is_idle:
            self.coalescer.end_quiet(now_ms, self._send_size)
        actions = [*self._sends(now_ms), *self.lifecycle.next_actions(now_ms), *self._other_actions(now_ms)]
        self._forecast(now_ms)
        return actions + self.tell(now_ms)

    def wake_at_ms(self) -> int | None:
        """When to call `decide` again if there is no event before; None: only at the next event."""
        # A draining writer begins none of these. Their times, once past, would wake it in an endless loop.
        times = [
            self.coalescer.next_due_at_ms() if self.may_send else None,
            self.coalescer.next_quiet_at_ms() if self._is_idle else None,
            min(self.coalescer.parked.values(), default=None) if self.may_send else None,
            self.breaker.ask_at_ms if self.breaker.state is BreakerState.OPEN else None,
            self.lifecycle.reopens_at_ms if not self.draining else None,
            self.sweeping.at_ms if not self.draining and self._may_sweep else None,
            self.loading.at_ms if self.loading.is_due and not self.draining else None,
            self.probe_at_ms if self.may_send and not self.probing else None,
            self.load.next_at_ms if self.coalescer.waiting else None,
            self.watch_at_ms(),
        ]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def watch_at_ms(self) -> int | None:
        """When to call `decide` even while an operation is in flight: it may take longer than an alert may wait."""
        if self.draining or self.progress.open_alert is not None or not self.has_sendable:
            return None
        return self.progress.due_at_ms

    def _sends(self, now_ms: int) -> Iterator[Send]:
        """Bound operations first, then emergencies, then the lanes."""
        while self.may_send:
            if entries := self._bound_send():
                yield self._send(entries)
            elif entries := self._urgent_send(now_ms):
                yield self._send(entries, urgent=True)
            elif entries := self._next_send(now_ms):
                yield self._send(entries)
            else:
                return

    def _send(self, entries: list[PendingOperation], *, urgent: bool = False) -> Send:
        session = self.session
        self.send_number += 1
        session.sends += not urgent
        session.urgent_sends += urgent
        sequence = session.urgent_sends if urgent else session.sends
        self.in_flight.start(self.send_number, entries, urgent=urgent)
        ids = tuple(entry.ref.change_id for entry in entries)
        accepted = tuple(entry.ref.accepted_at_ms for entry in entries)
        label = label_of(entries)
        return Send(self.send_number, sequence, session.epoch, session.task_queue, ids, label, accepted, urgent)

    def _bound_send(self) -> list[PendingOperation]:
        is_room = self.in_flight.ordinary < SENDS_IN_FLIGHT_MAX
        return self.in_flight.bound_to_send(self._send_size) if is_room else []

    def _urgent_send(self, now_ms: int) -> list[PendingOperation]:
        """Emergencies, each with its entity's older operations, also from ordinary sends, so that it waits for none."""
        in_flight, entries = self.in_flight, list[PendingOperation]()
        if not self._emergencies_are_urgent or len(in_flight.urgent) >= URGENT_SENDS_IN_FLIGHT_MAX:
            return entries
        while len(entries) < self._send_size and (entity := self.coalescer.emergency_entity):
            before = [entry for entry in in_flight.in_ordinary(entity) if entry not in entries]
            chain = self.coalescer.take(now_ms, self.load.service_ms)
            entries += before + chain
            for entry in chain:
                in_flight.enter(entry)
        return entries

    @property
    def _emergencies_are_urgent(self) -> bool:
        return not self.session.bound_list_was_cut

    @property
    def _send_size(self) -> int:
        return send_size(self.load.service_ms, self.policy.debounce_ms)

    def _next_send(self, now_ms: int) -> list[PendingOperation]:
        """Whole chains of entities, as many as fill one send."""
        calm, entries = self.load.is_calm(now_ms), list[PendingOperation]()
        size = send_size(self.load.service_ms, self.policy.debounce_ms, calm=calm)
        if self.in_flight.ordinary >= SENDS_IN_FLIGHT_MAX:
            return entries
        if self._emergencies_are_urgent and self.coalescer.emergency_entity is not None:
            return entries  # emergencies are sent first, as soon as an urgent send has ended
        while not self.session.bound_list_was_cut and len(entries) < size:
            if not (chain := self.coalescer.take(now_ms, self.load.service_ms)):
                return entries
            entries += chain
            for entry in chain:
                self.in_flight.enter(entry)
        return entries

    def _other_actions(self, now_ms: int) -> Iterator[Action]:
        if self.may_send and not self.probing and now_ms >= self.probe_at_ms:
            self.probing = True
            yield Probe(self.session.epoch, self.session.task_queue)
        if self.loading.is_due and not self.draining and now_ms >= self.loading.at_ms:
            yield LoadOutstanding(*self.loading.begin())
        if self._may_sweep and not self.draining and now_ms >= self.sweeping.at_ms:
            yield Sweep(self.sweeping.begin())

    @property
    def may_send(self) -> bool:
        """Whether the machine would send if something were ready."""
        closed = self.breaker.state is BreakerState.CLOSED
        return self.session.takes_sends and closed and not self.paused and not self.draining

    @property
    def _is_idle(self) -> bool:
        """Whether OldHost could take an operation, but none is ready."""
        return self.may_send and not len(self.in_flight) and not self.coalescer.can_send

    @property
    def _may_sweep(self) -> bool:
        return self.loaded and self.loading.part is None and not self.sweeping.under_way

    # ------------------------------------------------------------------------------------------------ changes coming in

    def enqueue(self, refs: Iterable[ChangeRef], now_ms: int, *, sweep: bool = False) -> int:
        """Take changes; known ones are ignored (the relay may signal twice). Returns how many were new."""
        new = 0
        for ref in refs:
            if not self._holds(ref) and self._accept(ref, now_ms, sweep=sweep):
                new += 1
        return new

    def _accept(self, ref: ChangeRef, now_ms: int, *, sweep: bool) -> bool:
        if ref.priority_class is PriorityClass.LWW:
            newest = max(self.coalescer.newest_waiting(ref.key) or 0, self.in_flight.newest(ref.key))
            if ref.change_id < newest:
                if not sweep:
                    self.counters.received += 1
                    self.outcomes.superseded(ref.change_id)
                else:  # the newer one arrived while older ones were still being read
                    self.coalescer.inherit(ref)
                return False
        older = self.coalescer.newest_waiting(ref.key)
        added = self.coalescer.add(ref, now_ms)
        if added is Added.HELD:  # it waits in MariaDB, and is read again when it is no longer held
            return False
        self.counters.received += 1
        if added is Added.REPLACED_OLDER and older is not None:
            self.outcomes.supersede(ref.entity, older)
        elif self.loaded:  # a change that a rebuild reads is no new arrival
            self.load.arrived(ref.priority_class, now_ms, is_new=self.loading.part is None)
        return True

    def _holds(self, ref: ChangeRef) -> bool:
        if self.coalescer.knows(ref.change_id) or ref.change_id in self.in_flight:
            return True
        hold = self.coalescer.holds.get(ref.entity)
        return hold is not None and ref.change_id in hold.dead

    def load_held(self, entity: EntityKey, dead: Sequence[int]) -> None:
        """Some dead letters of this entity wait for an operator."""
        for change_id in dead:
            self.counters.received -= self.coalescer.hold(entity, change_id)

    def load_pause(self, operator: str, reason: str) -> None:
        """While rebuilding: an operator has paused this writer, perhaps in an earlier run."""
        self.paused = Pause(operator, reason)

    def load_ban(self, left_ms: int, now_ms: int) -> None:
        bans.load(self, left_ms, now_ms)

    def finish_loading(self, now_ms: int) -> None:
        """All outstanding changes were read."""
        self.loaded = True
        self.loading.part = None
        self.sweeping.begin_soon(now_ms)

    def took_page(
        self, load: LoadOutstanding, refs: Iterable[ChangeRef], last_id: int, more: bool, now_ms: int
    ) -> None:
        """The page that `load` requested was read. After the first page of a start, sending may begin."""
        self.enqueue(self.loading.fates.outstanding(refs), now_ms, sweep=True)
        self.loading.end(load.entity, last_id, more=more)
        if load.entity is None:
            self.loaded = True
            if self.loading.part is None:
                self.finish_loading(now_ms)

    def load_failed(self, load: LoadOutstanding, now_ms: int) -> None:
        self.loading.fail(load.entity, load.after_id, now_ms)

    def take_released(self) -> None:
        """Request the changes that wait in MariaDB, of entities that are no longer held."""
        for entity in self.coalescer.released:
            self.loading.want(entity)
        self.coalescer.released.clear()

    def swept(
        self, refs: Iterable[ChangeRef], last_id: int, more: bool, now_ms: int, *, mends_holds: bool = True
    ) -> None:
        """A page of outstanding changes was read: take over those that are missing here. `mends_holds`: no operator's
        act is under way, which may be recorded and not told here yet.
        """
        outstanding = self.sweeping.fates.outstanding(refs)
        if mends_holds:
            self.operators.follow_sweep(outstanding, now_ms)
        strays = self.enqueue(outstanding, now_ms, sweep=True)
        self.sweeping.end(last_id, now_ms, more=more)
        if strays:
            self.alerts.strays(strays, last_id, now_ms)

    # ------------------------------------------------------------------------------------------------------ the session

    def opening_ended(self, event: OpeningEnded, now_ms: int) -> None:
        """A session is open, or must wait, or must not be opened."""
        self.lifecycle.opening_ended(event, now_ms)

    def send_ended(self, number: int, event: SendEnded | SendFailed, now_ms: int, *, epoch: int = 0) -> None:
        """`epoch`: of the session that was to send."""
        self.lifecycle.send_ended(number, event, now_ms, epoch)

    def probed(self, event: Probed, now_ms: int) -> None:
        self.probing = False
        self.probe_at_ms = now_ms + self.policy.probe_ms
        if not event.session_open:
            self.session.lost = True

    def closed(self) -> None:
        """The session is closed, as requested."""
        self.lifecycle.closed()

    def violated(self, what: str) -> None:
        """One of our own invariants was broken: stop sending, halt, raise the alert, and make the halt durable."""
        self.lifecycle.give_up()
        self.halt(f"invariant violated: {what}")
        self.alerts.record_halt(f"invariant violated: {what}")

    def unreadable(self, what: str, dedupe_key: str) -> None:
        """A message to the writer can't be read."""
        self.alerts.unreadable(what, dedupe_key)

    def sweep_failed(self, now_ms: int) -> None:
        self.sweeping.fail(now_ms)

    # --------------------------------------------------------------------------------------------------- bans and halts

    def banned(self, ban_ms: int, now_ms: int) -> None:
        bans.report(self, ban_ms, now_ms)

    def halt(self, reason: str) -> None:
        """Halt, or report an existing halt again."""
        self.breaker.halt(reason)
        self.alerts.halted(reason)

    # ---------------------------------------------------------------------------------------------------------- alerts

    def _forecast(self, now_ms: int) -> None:
        if now_ms >= self.load.next_at_ms:
            self.alerts.add(*self.load.look(self.coalescer, self.blocked_ms(now_ms), now_ms))

    @property
    def has_sendable(self) -> bool:
        """Whether something could be sent, if OldHost took it."""
        blocked = self.paused is not None or self.breaker.state in (BreakerState.OPEN, BreakerState.HALTED)
        return not blocked and (not self.loaded or len(self.in_flight) > 0 or self.coalescer.can_send)

    def tell(self, now_ms: int) -> list[RecordHalt | RecordAlerts]:
        """The halts and alerts that are due now."""
        notices.of_emergencies(self, now_ms)
        notices.of_progress(self, now_ms)
        return self.alerts.take(now_ms, draining=self.draining)

    def blocked_ms(self, now_ms: int) -> int:
        """How long nothing can be sent, as far as that is known."""
        return max(0, self.breaker.until_ms - now_ms) if self.breaker.state is not BreakerState.CLOSED else 0
