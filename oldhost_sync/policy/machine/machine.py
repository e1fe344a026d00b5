"""The writer's machine: its state, how each event changes it, and what it decides. Pure: no clock, no randomness, no
IO; time is an argument (ms).

The workflow, the planner and the simulation run this same code: they report what happened and then call `decide`.
Authority: MariaDB knows which changes exist and their fates; this machine knows only when and in which order they are
sent, and rebuilds itself from MariaDB when it starts empty.

Its parts know each other only where one is given to another, and none knows the machine: `coalescer` (what waits),
`in_flight` (what is being sent), `link` (session and breaker), `outcomes` (the fates of changes), `loading` and
`sweeping` (what is read from MariaDB), `load` (rates and forecast), `progress` and `lost_answers`. Operators' acts are
above it (`operators.py`), and so is what people are told (`conditions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.forecast.rates import LoadMonitor
from oldhost_sync.policy.machine.actions import (
    Action,
    CloseSession,
    LoadOutstanding,
    OpenSession,
    Probe,
    Send,
    StopSends,
    Sweep,
)
from oldhost_sync.policy.machine.events import (
    ANSWERED,
    REFUSALS,
    OpeningFailed,
    OpeningHalted,
    OpeningPostponed,
    OpeningResult,
    Probed,
    SendEnded,
    SendFailed,
    SessionOpened,
)
from oldhost_sync.policy.machine.outcomes import Outcomes
from oldhost_sync.policy.machine.outstanding_changes import Part, Rebuild, SweepState
from oldhost_sync.policy.machine.progress import LostAnswers, Progress
from oldhost_sync.policy.machine.release import RELEASE
from oldhost_sync.policy.machine.session import BreakerState, Event, HostLink, Phase
from oldhost_sync.policy.queue.coalescer import Added, Coalescer
from oldhost_sync.policy.queue.operations import InFlight, PendingOperation
from oldhost_sync.policy.rules.apart import pause_ms
from oldhost_sync.policy.rules.operator_act import END_PAUSE, OperatorAct
from oldhost_sync.policy.tuning import (
    MOVED_AT_ONCE_MAX,
    REOPEN_ALERT_ATTEMPTS,
    SENDS_IN_FLIGHT_MAX,
    SESSIONS_WITHOUT_PROGRESS_ALERT,
    URGENT_SENDS_IN_FLIGHT_MAX,
    WriterPolicy,
)

SECOND_BAN = "a second ban within the hour"
_EMERGENCY = PriorityClass.EMERGENCY


@dataclass
class Pause:
    """Who paused the writer, why, and until when (0: until somebody resumes). `is_ending`: that is being recorded."""

    operator: str
    reason: str
    until_ms: int = 0
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class Stuck:
    """A change that OldHost neither applies nor rejects. It has the next nonce, so everything waits behind it; or it
    waits apart after so many `tries`.
    """

    change_id: int
    tries: int = 0


class Machine:
    """The whole state. `loaded` False: still rebuilding from MariaDB, nothing is sent; `carried`: the state came from
    an earlier run, perhaps without the waiting changes. `draining`: a new run is about to start. `release`: the
    release whose decisions it makes (`release.py`).

    `stuck`: the last change found so, as long as it has no fate.

    `resolved_epoch`: that of the last resolve in this run; sends of an older run's session are no longer under way.
    `opening_predates_resolve`: an operator resolved while a session was being opened; its result is older than that.
    """

    def __init__(self, policy: WriterPolicy, now_ms: int, release: int = RELEASE) -> None:
        self.policy = policy
        self.release = release
        self.loaded = self.carried = self.draining = self.probing = self.opening_predates_resolve = False
        self.paused: Pause | None = None
        self.send_number = self.probe_at_ms = self.resolved_epoch = 0
        self._stopped_epoch = 0  # of the session whose sends were stopped, because a new run is about to start
        self.stuck: Stuck | None = None
        self._halts: list[OperatorAct] = []
        self.coalescer = Coalescer(
            debounce_ms=policy.debounce_ms,
            max_wait_ms=policy.max_wait_ms,
            txn_per_lww=policy.txn_per_lww,
            early_send_ms=policy.early_send_ms,
            oldest_first_ms=policy.promises.oldest_first_ms,
        )
        self.in_flight = InFlight()
        self.link = HostLink(policy.ban_ms)
        self.session, self.breaker = self.link.session, self.link.breaker
        self.loading = Rebuild(Part.EMERGENCIES)
        self.sweeping = SweepState(policy.sweep_ms)
        self.load = LoadMonitor(now_ms, policy, self.in_flight)
        self.progress = Progress(now_ms)
        self.lost_answers = LostAnswers()
        self.outcomes = Outcomes(
            self.coalescer,
            self.in_flight,
            self.session,
            self.loading,
            self.sweeping,
            self.load,
            self.progress,
        )
        self.counters = self.outcomes.counters

    # --------------------------------------------------------------------------------------------------------- deciding

    def decide(self, now_ms: int) -> list[Action]:
        """What to do now, after all that was reported. Each action is returned once, and remembered as under way.

        The order: sends, while a session is open and something can be sent; opening or closing the session; what is
        independent of sending: the probe, reading outstanding changes, the sweep; halts, and the end of a pause, to
        be made durable.
        """
        self.link.tick(now_ms)
        for entity in self.coalescer.advance(now_ms, MOVED_AT_ONCE_MAX):
            self.loading.want(entity)
        sends: list[Action] = [*self._sends(now_ms)] if self.may_send else []
        actions = [*sends, *self._session_actions(now_ms), *self._other_actions(now_ms)]
        if now_ms >= self.load.next_at_ms:
            self.load.update(self.coalescer, self.blocked_ms(now_ms), now_ms)
        self._look(now_ms)
        halts, self._halts = self._halts, []
        return [*actions, *halts, *self._end_of_pause(now_ms)]

    def _sends(self, now_ms: int) -> Iterator[Send]:
        """Operations that are bound to nonces first, then emergencies, then the lanes."""
        if not self.in_flight.entries and not self.coalescer.can_send:
            self.coalescer.end_quiet(now_ms, self.load.send_size(self.policy.debounce_ms))
        while entries := self._bound_send():
            yield self._send(entries)
        while entries := self._urgent_send(now_ms):
            yield self._send(entries, urgent=True)
        while entries := self._next_send(now_ms):
            yield self._send(entries)

    def _send(self, entries: list[PendingOperation], *, urgent: bool = False) -> Send:
        session = self.session
        self.send_number += 1
        session.sends += not urgent
        session.urgent_sends += urgent
        sequence = session.urgent_sends if urgent else session.sends
        self.in_flight.start(self.send_number, entries, urgent=urgent)
        ids = tuple([entry.ref.change_id for entry in entries])
        accepted = tuple([entry.ref.accepted_at_ms for entry in entries])
        return Send(self.send_number, sequence, session.epoch, ids, accepted, urgent)

    def _bound_send(self) -> list[PendingOperation]:
        if not self.in_flight.bound or self.in_flight.ordinary >= SENDS_IN_FLIGHT_MAX:
            return []
        return self.in_flight.bound_to_send(self.load.send_size(self.policy.debounce_ms))

    def _urgent_send(self, now_ms: int) -> list[PendingOperation]:
        """Emergencies, each with its entity's older operations, also from ordinary sends, so that it waits for none."""
        in_flight, lane, entries = self.in_flight, self.coalescer.lanes[_EMERGENCY], list[PendingOperation]()
        if not lane.heads or self.session.bound_is_cut or len(in_flight.urgent) >= URGENT_SENDS_IN_FLIGHT_MAX:
            return entries
        size = self.load.send_size(self.policy.debounce_ms)
        while len(entries) < size and (head := lane.head()):
            before = [entry for entry in in_flight.in_ordinary(head[0]) if entry not in entries]
            chain = self.coalescer.take(now_ms, self.load.service_ms)
            entries += before + chain
        return entries

    def _next_send(self, now_ms: int) -> list[PendingOperation]:
        """Whole chains of entities, as many as fill one send."""
        coalescer, entries = self.coalescer, list[PendingOperation]()
        if self.session.bound_is_cut or self.in_flight.ordinary >= SENDS_IN_FLIGHT_MAX:
            return entries
        if coalescer.lanes[_EMERGENCY].heads:
            return entries  # emergencies are sent first, as soon as an urgent send has ended
        while chain := coalescer.take(now_ms, self.load.service_ms):
            entries += chain
            if len(entries) >= self.load.send_size(self.policy.debounce_ms, now_ms):
                break
        return entries

    def _session_actions(self, now_ms: int) -> Iterator[Action]:
        """Open a session when there is none and nothing prevents it; close one when paused, halted, or at its end."""
        session, in_flight = self.session, self.in_flight
        if in_flight.sends and session.takes_sends:
            if self.draining and self._stopped_epoch != session.epoch:
                self._stopped_epoch = session.epoch
                yield StopSends(session.epoch)
            elif self._must_stop and not self.draining and not self.probing:
                yield self._close()
        if in_flight.sends or self.draining or self.probing:
            return
        if session.phase is Phase.OPEN:
            if session.lost:
                self._session_ended(now_ms)
            elif self._must_stop or (session.bound_is_cut and not in_flight.bound):
                yield self._close()
        if self.loaded and self.paused is None and self.link.may_open(now_ms):
            self.link.move(Event.REQUESTED)
            self.opening_predates_resolve = False
            yield OpenSession(tuple(in_flight.in_doubt), self._newest())

    @property
    def _must_stop(self) -> bool:
        """Whether the session has to drain: `oldhost/wire_owner.py` says what is still sent then."""
        return self.paused is not None or self.breaker.state is BreakerState.HALTED

    def _close(self) -> CloseSession:
        self.link.move(Event.CLOSE)
        return CloseSession(self.session.epoch)

    def _newest(self) -> tuple[int, ...]:
        refs = [entry.ref for entries in (self.coalescer.waiting.values(), self.in_flight) for entry in entries]
        newest = max(refs, key=lambda ref: ref.change_id, default=None)
        return () if newest is None else (newest.change_id, newest.accepted_at_ms)

    def _other_actions(self, now_ms: int) -> Iterator[Action]:
        if now_ms >= self.probe_at_ms and not self.probing and self.may_send:
            self.probing = True
            yield Probe(self.session.epoch)
        if self.draining:
            return
        if now_ms >= self.loading.at_ms and self.loading.is_due:
            yield LoadOutstanding(*self.loading.begin())
        if now_ms >= self.sweeping.at_ms and self._may_sweep:
            yield Sweep(self.sweeping.begin())

    @property
    def may_send(self) -> bool:
        """Whether the machine would send if something were ready."""
        closed = self.breaker.state is BreakerState.CLOSED
        return closed and not self.paused and not self.draining and self.session.takes_sends

    @property
    def _may_sweep(self) -> bool:
        return self.loaded and self.loading.part is None and not self.sweeping.under_way

    def wake_at_ms(self) -> int | None:
        """When to call `decide` again if there is no event before; None: only at the next event."""
        # A draining writer begins none of these. Their times, once past, would wake it in an endless loop.
        coalescer, may_send = self.coalescer, self.may_send
        is_idle = may_send and not len(self.in_flight) and not coalescer.can_send
        times = [
            coalescer.next_due_at_ms() if may_send else None,
            coalescer.next_quiet_at_ms() if is_idle else None,
            min(coalescer.parked.values(), default=None) if may_send else None,
            self.link.ask_at_ms if self.breaker.state is BreakerState.OPEN else None,
            self.link.reopens_at_ms if self.paused is None and not self.draining else None,
            self.paused.until_ms if self.paused and self._pause_may_end else None,
            self.sweeping.at_ms if not self.draining and self._may_sweep else None,
            self.loading.at_ms if self.loading.is_due and not self.draining else None,
            self.probe_at_ms if may_send and not self.probing else None,
            self.load.next_at_ms if coalescer.waiting else None,
            self.watch_at_ms(),
        ]
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def watch_at_ms(self) -> int | None:
        """When to call `decide` even while an operation is in flight: it may take longer than an alert may wait."""
        if self.draining or self.progress.stands_still or not self.has_sendable:
            return None
        return self.progress.due_at_ms

    # ------------------------------------------------------------------------------------------------ changes coming in

    def enqueue(self, refs: Iterable[ChangeRef], now_ms: int, *, sweep: bool = False) -> int:
        """Take changes; known ones are ignored (the relay may signal twice). Returns how many were new."""
        return sum([self._accept(ref, now_ms, sweep=sweep) for ref in refs])

    def _accept(self, ref: ChangeRef, now_ms: int, *, sweep: bool) -> bool:
        """Whether it was new."""
        coalescer, older = self.coalescer, None
        if ref.change_id in coalescer.waiting or ref.change_id in self.in_flight.entries:
            return False
        if ref.entity in coalescer.holds and ref.change_id in coalescer.holds[ref.entity].dead:
            return False
        if ref.priority_class is PriorityClass.LWW:
            older = coalescer.newest_waiting(ref.key)
            if ref.change_id < max(older or 0, self.in_flight.newest(ref.key)):
                if sweep:  # the newer one arrived while older ones were still being read
                    coalescer.inherit(ref)
                else:
                    self.counters.received += 1
                    self.outcomes.superseded(ref.change_id)
                return False
        added = coalescer.add(ref, now_ms)
        if added is Added.HELD:  # it waits in MariaDB, and is read again when it is no longer held
            return False
        self.counters.received += 1
        if older is not None:
            self.outcomes.supersede(ref.entity, older)
        elif self.loaded:  # a change that a rebuild reads is no new arrival
            self.load.arrived(ref.priority_class, now_ms, is_new=self.loading.part is None)
        return True

    def load_pause(self, operator: str, reason: str, until_ms: int = 0) -> None:
        """While rebuilding: an operator has paused this writer, perhaps in an earlier run."""
        self.paused = Pause(operator, reason, until_ms)

    def load_ban(self, left_ms: int, now_ms: int) -> None:
        """While rebuilding: the last ban and what is left of it; negative when it is over."""
        self.link.load_ban(left_ms, now_ms)

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

    def swept(
        self, refs: Iterable[ChangeRef], last_id: int, more: bool, now_ms: int, *, mends_holds: bool = True
    ) -> int:
        """A page of outstanding changes was read: take over those that are missing here. Returns how many were.
        `mends_holds`: no operator's act is under way, which may be recorded and not told here yet.
        """
        outstanding = self.sweeping.fates.outstanding(refs)
        if mends_holds:
            self.outcomes.follow_sweep(outstanding, now_ms)
        missed = self.enqueue(outstanding, now_ms, sweep=True)
        self.sweeping.end(last_id, now_ms, more=more)
        return missed

    # ------------------------------------------------------------------------------------------------ opening a session

    def opening_ended(self, event: OpeningResult | OpeningFailed, now_ms: int) -> None:
        """A session is open, or must wait, or must not be opened. If the event can't be handled, none is open."""
        try:
            self._follow_opening(event, now_ms)
        finally:
            if self.session.phase is Phase.OPENING:
                self.link.move(Event.REFUSED)

    def _follow_opening(self, event: OpeningResult | OpeningFailed, now_ms: int) -> None:
        match event:
            case SessionOpened():
                self._opened(event, now_ms)
            case OpeningHalted():
                self.link.move(Event.REFUSED)
                if not self.opening_predates_resolve:  # else the next opening reads from MariaDB if it is still halted
                    self.halt(event.message)
            case OpeningPostponed():
                self._postponed(event, now_ms)
            case OpeningFailed():
                self.link.move(Event.POSTPONED)
                self.progress.said("failure: opening a session failed" + (f": {event.why}" if event.why else ""))
                self._open_later(self.link.growing_pause_ms, "failure", now_ms)

    def _opened(self, event: SessionOpened, now_ms: int) -> None:
        """OldHost agrees with the ledger: record the fates of what was in doubt, and send bound operations first."""
        self.link.opened(event)
        bound = event.bound_refs()
        for fate in event.fates:
            self.outcomes.record(fate, now_ms)
        self.outcomes.bind_all(bound)
        self._count_without_progress(bound)
        self.counters.sessions += 1
        self._set_apart(event.apart, now_ms)
        self.progress.fates = 0
        self.probe_at_ms = now_ms + self.policy.probe_ms

    def _count_without_progress(self, bound: list[ChangeRef]) -> None:
        if not bound:
            self.session.sessions_without_progress = 0
            if self.stuck is not None and not self.stuck.tries:
                self.stuck = None
            return
        self.session.sessions_without_progress += 1
        if self.session.sessions_without_progress == SESSIONS_WITHOUT_PROGRESS_ALERT:
            self.stuck = Stuck(bound[0].change_id)

    def _set_apart(self, apart: Sequence[Sequence[int]], now_ms: int) -> None:
        for change_id, tries, *left_ms in apart:
            entity = self.coalescer.park(change_id, now_ms + (left_ms[0] if left_ms else pause_ms(tries)))
            if entity is not None and tries > 1:
                self.stuck = Stuck(change_id, tries)

    def _postponed(self, event: OpeningPostponed, now_ms: int) -> None:
        """A ban still runs, an operation in doubt needs its settle time, or the connection can't be opened."""
        self.link.move(Event.POSTPONED)
        wait_ms = max(event.wait_ms, 1)
        if event.reason == "ban":
            self.banned(event.wait_ms, now_ms)
            wait_ms = min(wait_ms, self.link.ask_again_ms)
        else:
            self.progress.said(f"{event.reason}: {event.message}" if event.message else event.reason)
        if event.reason in REFUSALS:  # each worker counts for itself
            wait_ms = max(wait_ms, self.link.growing_pause_ms)
        self._open_later(wait_ms, event.reason, now_ms)

    def _open_later(self, wait_ms: int, reason: str, now_ms: int) -> None:
        session = self.session
        self.link.wait(now_ms + wait_ms, reason)
        session.attempts += reason not in ("ban", "settle")
        # If something waits, that is a standstill, and told sooner.
        if session.attempts == REOPEN_ALERT_ATTEMPTS and not self.has_sendable:
            session.is_missed = True

    # ---------------------------------------------------------------------------------------------------- a send's end

    def send_ended(self, number: int, event: SendEnded | SendFailed, now_ms: int, *, epoch: int = 0) -> None:
        """`epoch`: of the session that was to send."""
        if number in self.in_flight.sends:
            if isinstance(event, SendEnded):
                self._sent(number, event, now_ms)
            else:
                self._send_failed(number, event)
        # Of a send that was given up, the next session learns, or has learnt, from the ledger and OldHost what became
        # of its operations. But a halt may not be in the ledger, if the database was down.
        if isinstance(event, SendEnded) and event.halted:
            if epoch >= self.resolved_epoch:  # else an operator has resolved; MariaDB says if it is still halted
                self.halt(event.halted)
            self._record_halt(event.halted, event.never_taken, epoch)

    def _sent(self, number: int, event: SendEnded, now_ms: int) -> None:
        outcomes, older, held = self.outcomes, event.older_refs(), event.dead_letters()
        ids = self.in_flight.end(number)
        if older:
            outcomes.follow_waiting(older, now_ms)
            self.enqueue(older, now_ms)
        for entity, dead in held:
            outcomes.hold(entity, [change_id for change_id in dead if change_id not in self.coalescer.decided])
        ended, in_doubt = outcomes.record_send(event.fates, ids, now_ms)
        self._set_apart(event.apart, now_ms)
        if event.service_ms > 0:
            self.load.served(max(event.service_ms, event.pace_ms))
        if not event.session_open or in_doubt or event.banned_ms > 0:
            self.session.lost = True
        self.progress.said("" if ended else event.reason)
        no_answer = in_doubt and event.refusal != ANSWERED
        self.lost_answers.note(ended=ended, in_doubt=no_answer, reason=event.reason)
        self.lost_answers.note_session(event.refusal, event.reason, now_ms)
        if event.banned_ms > 0:
            self.banned(event.banned_ms, now_ms)

    def _send_failed(self, number: int, event: SendFailed) -> None:
        in_flight, ids = self.in_flight, self.in_flight.end(number)
        self.session.lost = True
        if event.never_started:
            for change_id in ids:
                if change_id not in in_flight or in_flight.is_being_sent(change_id):
                    continue
                if change_id not in in_flight.bound:
                    self.outcomes.requeue(change_id)
        self.outcomes.leave_in_doubt(ids)
        self.progress.said(_why_failed(event))
        if event.silent:
            self._give_up_sends()

    def worker_ended(self, task_queue: str) -> None:
        """Another worker has found that the process of this queue has ended. If the session is there, give it up."""
        if self.session.phase is not Phase.OPEN or self.session.task_queue != task_queue:
            return
        self.session.lost = True
        self._give_up_sends()

    def _give_up_sends(self) -> None:
        """Do not wait until the heartbeat of each send is overdue. The session's worker may live after all; then the
        ledger's epoch fences it, as any session that was given up.
        """
        for number in list(self.in_flight.sends):
            self.outcomes.leave_in_doubt(self.in_flight.end(number))

    # ---------------------------------------------------------------------------------------------- a session's end

    def probed(self, event: Probed, now_ms: int) -> None:
        self.probing = False
        self.probe_at_ms = now_ms + self.policy.probe_ms
        if not event.session_open:
            self.session.lost = True

    def closed(self) -> None:
        """The session is closed, as requested."""
        self.link.ended(Event.CLOSED)

    def _session_ended(self, now_ms: int) -> None:
        """It ended by itself. If several in a row brought no fate, the next follow after growing pauses."""
        self.progress.session_ended(sent=self.session.sends + self.session.urgent_sends > 0)
        pause = self.progress.pause_ms
        self.link.ended(Event.ENDED_IDLE if pause else Event.ENDED)
        if pause:
            self.link.wait(now_ms + pause, "progress")

    def violated(self, what: str) -> None:
        """One of our own invariants was broken: stop sending, halt, and make the halt durable."""
        self.session.lost = True
        self.halt(f"invariant violated: {what}")
        self._record_halt(f"invariant violated: {what}")

    def banned(self, ban_ms: int, now_ms: int) -> None:
        """OldHost answered with a ban. A second one soon after the first halts the writer."""
        before = self.breaker.state
        again = self.link.banned(now_ms, ban_ms)
        if before is not BreakerState.CLOSED:
            return
        self.counters.bans += 1
        self.load.update_soon(now_ms)
        if again:
            self.halt(SECOND_BAN)
            self._record_halt(SECOND_BAN)

    def halt(self, reason: str) -> None:
        """Halt, or report an existing halt again."""
        self.link.halt(reason)

    def _record_halt(self, reason: str, never_taken: int | None = None, epoch: int = 0) -> None:
        """Make a halt durable in the ledger, where it was not found by the ledger itself: an act of the writer's own.

        `never_taken`: the change whose first send OldHost called a replay; it must not count as applied. `epoch`: that
        of the session whose send showed it; 0: none.
        """
        halt = OperatorAct("", "halt", "writer", reason, never_taken, epoch=epoch)
        if halt not in self._halts:
            self._halts.append(halt)

    @property
    def _pause_may_end(self) -> bool:
        return self.paused is not None and self.paused.until_ms > 0 and not self.paused.is_ending and not self.draining

    def _end_of_pause(self, now_ms: int) -> Iterator[OperatorAct]:
        """The writer's own act, recorded like an operator's, so that whoever looks finds that the pause has ended."""
        if self.paused and self._pause_may_end and now_ms >= self.paused.until_ms:
            self.paused.is_ending = True
            yield OperatorAct("", END_PAUSE, "writer", "the pause was to end now", until_ms=self.paused.until_ms)

    # ----------------------------------------------------------------------------------------------------- a standstill

    def _look(self, now_ms: int) -> None:
        """Note whether changes get their fates, and whether the stuck one has."""
        if self.draining:
            self.progress.looked_at_ms = now_ms
        else:
            self.progress.look(now_ms, sendable=self.has_sendable, service_ms=self.load.service_ms)
        if self.stuck is not None and self.loading.part is None and self.entry(self.stuck.change_id) is None:
            self.stuck = None

    def entry(self, change_id: int) -> PendingOperation | None:
        """The change, if it has no fate and the machine has it."""
        return self.in_flight.get(change_id) or self.coalescer.waiting.get(change_id)

    @property
    def has_sendable(self) -> bool:
        """Whether something could be sent, if OldHost took it."""
        blocked = self.paused is not None or self.breaker.state in (BreakerState.OPEN, BreakerState.HALTED)
        return not blocked and (not self.loaded or bool(self.in_flight.entries) or self.coalescer.can_send)

    def blocked_ms(self, now_ms: int) -> int:
        """How long nothing can be sent, as far as that is known."""
        return max(self.banned_ms(now_ms), self.pause_left_ms(now_ms) or 0)

    def pause_left_ms(self, now_ms: int) -> int | None:
        """None: it is not paused, or until somebody resumes."""
        return max(0, self.paused.until_ms - now_ms) if self.paused and self.paused.until_ms else None

    def banned_ms(self, now_ms: int) -> int:
        """What is left of a ban."""
        return max(0, self.breaker.until_ms - now_ms) if self.breaker.state is not BreakerState.CLOSED else 0


def _why_failed(event: SendFailed) -> str:
    if event.never_started:
        return "worker: the one that has the session took no send in time"
    if event.silent:
        return "worker: the one that has the session gave no sign of life"
    return "worker: a send failed there; its log says why"
