"""The writer's machine: what it knows, and how each event changes it. Pure: no clock, no chance, no IO; time is an argument (ms).

The workflow, the planner and the simulation drive this very code. Whoever drives it tells it what happened and then asks
`deciding.decide` what to do. Authority: MariaDB knows which changes exist and what became of them; this machine knows only when and in
which order, and rebuilds itself from MariaDB when it starts empty.

One path leads back to work after anything unclear: let what is in flight end, then open a session, which settles what is
unsettled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from oldhost_sync.policy import notices
from oldhost_sync.policy.actions import Load, RecordHalt, TellPeople
from oldhost_sync.policy.alarms import Alarms, clock
from oldhost_sync.policy.announcements import Announcements
from oldhost_sync.policy.breaker import Breaker, BreakerState
from oldhost_sync.policy.changes import BOUND, HELD, WAITING, ChangeRef, EntityKey, Fate, Outcome, PriorityClass
from oldhost_sync.policy.coalescer import Coalescer
from oldhost_sync.policy.counters import Counters
from oldhost_sync.policy.events import (
    OpeningEnded,
    OpeningFailed,
    OpeningHalted,
    OpeningPostponed,
    Probed,
    SendEnded,
    SendFailed,
    SessionOpened,
)
from oldhost_sync.policy.in_flight import InFlight
from oldhost_sync.policy.load_monitor import LoadMonitor, LoadWatch
from oldhost_sync.policy.lost_answers import LostAnswers
from oldhost_sync.policy.pending_operation import Added, PendingOperation
from oldhost_sync.policy.progress import Progress
from oldhost_sync.policy.rebuild import Loading, Part
from oldhost_sync.policy.session import Phase, Session
from oldhost_sync.policy.sweep import Sweeping
from oldhost_sync.policy.writer_policy import (
    FRUITLESS_SESSIONS_ALERT,
    REOPEN_ALERT_ATTEMPTS,
    REOPEN_MS_MAX,
    REOPEN_MS_MIN,
    WriterPolicy,
)


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The operator's request makes no sense now; the message says why. Nothing was changed."""


# What a machine does is kept in its run's history and must be the same whenever that is replayed. So what it does differently
# from 0.2 on it does in release 2 only; runs begun before 0.2 stay with release 1 until they are followed by a new one.
RELEASE = 2
RELEASE_MIN = 1


@dataclass
class Pause:
    """Who paused the writer and why; None while it runs."""

    operator: str
    reason: str


@dataclass
class OutcomeWaiter:
    """Somebody waits for a change's fate; `watchers` how many (two updates may carry the same idempotency key)."""

    watchers: int = 0
    fate: Fate | None = None


@dataclass
class Machine:
    """The whole state. `loaded` False: still rebuilding from MariaDB, nothing is sent; `carried`: but for what waits, it came from
    an earlier run. `draining`: a new run is about to start. `release`: which of its actions' orders it keeps (RELEASE_MIN, RELEASE).
    """

    policy: WriterPolicy
    now_ms: int
    release: int = RELEASE
    loaded: bool = False
    carried: bool = False
    draining: bool = False
    paused: Pause | None = None
    session: Session = field(default_factory=Session)
    counters: Counters = field(default_factory=Counters)
    batch: int = 0
    probe_at_ms: int = 0
    probing: bool = False

    def __post_init__(self) -> None:
        policy = self.policy
        self.breaker = Breaker(policy.ban_ms, asks_again=self.release >= RELEASE)
        self.coalescer = Coalescer(
            debounce_ms=policy.debounce_ms,
            max_wait_ms=policy.max_wait_ms,
            txn_per_lww=policy.txn_per_lww,
            keeps_held=self.release < RELEASE,
        )
        self.loading = Loading(None if self.release < RELEASE else Part.EMERGENCIES)
        self.dead_letters = 0
        self.in_flight = InFlight(self.coalescer)
        self.sweeping = Sweeping(policy.sweep_ms)
        self.load = LoadWatch(self.now_ms)
        if self.release >= RELEASE:
            self.load = LoadMonitor(self.now_ms, policy.txn_per_lww, self.in_flight)
        self.halt_is_old = False  # an operator resolved while a session was being opened: what that finds came before
        self.resolved_epoch = 0  # of the last resolve in this run: no send of an older run's session is under way
        self.watched: dict[int, OutcomeWaiter] = {}
        self.announcements = Announcements()
        self.alarms: Alarms = self.announcements if self.release >= RELEASE else Alarms()
        self.progress = Progress(self.now_ms)
        self.lost_answers = LostAnswers()

    # ------------------------------------------------------------------------------------------------- changes coming in

    def enqueue(self, refs: Iterable[ChangeRef], now_ms: int, *, sweep: bool = False) -> int:
        """Take changes over; what is already held is ignored (the relay may say things twice). Returns how many were new."""
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
                    self.counters.superseded += 1
                    self._tell(ref.change_id, Fate(ref.change_id, Outcome.SUPERSEDED.value))
                elif self.release >= RELEASE:  # the newer one came while older ones were still being read from MariaDB
                    self.coalescer.inherit(ref)
                return False
        older = self.coalescer.newest_waiting(ref.key)
        added = self.coalescer.add(ref, now_ms)
        if added is Added.HELD:  # it waits in MariaDB, and comes again when it may go
            return False
        self.counters.received += 1
        if added is Added.REPLACED_OLDER and older is not None:
            self._supersede(ref.entity, older)
        elif self.loaded:  # what is read again came long ago
            self.load.arrived(ref.priority_class)
        if ref.priority_class is PriorityClass.EMERGENCY and self.release < RELEASE:
            self._warn_of_blocked_emergency(ref)
        return True

    def _holds(self, ref: ChangeRef) -> bool:
        if self.coalescer.knows(ref.change_id) or ref.change_id in self.in_flight:
            return True
        hold = self.coalescer.holds.get(ref.entity)
        return hold is not None and (
            ref.change_id in hold.dead or any(entry.ref.change_id == ref.change_id for entry in hold.waiting)
        )

    def load_held(self, entity: EntityKey, dead: Sequence[int]) -> None:
        """Some dead letters of this entity wait for an operator."""
        for change_id in dead:
            self.counters.received -= self.coalescer.hold(entity, change_id)

    def load_pause(self, operator: str, reason: str) -> None:
        """While rebuilding: an operator has paused this writer, whichever run of it that was."""
        self.paused = Pause(operator, reason)

    @property
    def stops(self) -> tuple[Pause | None, str]:
        """What an operator can end: a pause, a halt and its reason."""
        return self.paused, self.breaker.reason if self.breaker.state is BreakerState.HALTED else ""

    def follow_books(self, paused: Sequence[str] | None, now_ms: int, *, halted: bool) -> None:
        """The books are the truth about operators' acts: one that an earlier run had begun may have ended after this one began."""
        if self.breaker.state is BreakerState.HALTED and not halted:
            self.resolve(now_ms)
        if (paused is None) != (self.paused is None):
            self.paused = Pause(*paused) if paused else None

    def load_ban(self, left_ms: int, now_ms: int) -> None:
        """While rebuilding: the last ban and what is left of it; negative when it is over."""
        self.breaker.load_ban(left_ms, now_ms)

    def finish_loading(self, now_ms: int) -> None:
        """Everything that is outstanding was read."""
        self.loaded = True
        self.loading.part = None
        self.sweeping.begin_soon(now_ms)

    def took_page(self, load: Load, refs: Iterable[ChangeRef], last_id: int, more: bool, now_ms: int) -> None:
        """A page that `load` asked for was read. With the first one of a start sending may begin."""
        self.enqueue(self.loading.fates.outstanding(refs), now_ms, sweep=True)
        self.loading.end(load.entity, last_id, more=more)
        if load.entity is None:
            self.loaded = True
            if self.loading.part is None:
                self.finish_loading(now_ms)

    def load_failed(self, load: Load, now_ms: int) -> None:
        self.loading.fail(load.entity, load.after_id, now_ms)

    def take_released(self) -> None:
        """Entities that are held no longer: what waits of them in MariaDB is to be read."""
        for entity in self.coalescer.released:
            self.loading.want(entity)
        self.coalescer.released.clear()

    def swept(self, refs: Iterable[ChangeRef], last_id: int, more: bool, now_ms: int) -> None:
        """A page of outstanding changes was read: take over what is not held here."""
        strays = self.enqueue(self.sweeping.fates.outstanding(refs), now_ms, sweep=True)
        self.sweeping.end(last_id, now_ms, more=more)
        if strays:
            self.alarms.strays(strays, last_id, now_ms)

    # ------------------------------------------------------------------------------------------------------ the session

    def opening_ended(self, event: OpeningEnded, now_ms: int) -> None:
        """A session is open, or must wait, or must not be."""
        match event:
            case SessionOpened():
                self._opened(event, now_ms)
            case OpeningHalted():
                self._opening_halted(event.message or event.reason)
            case OpeningPostponed():
                self._postponed(event, now_ms)
            case OpeningFailed():
                self._opening_failed(now_ms)

    def _opened(self, event: SessionOpened, now_ms: int) -> None:
        """OldHost agrees with the ledger: settle what was unsettled, first of all send what is bound."""
        bound = event.bound_refs()
        for fate in event.fates:
            self._settle(fate, now_ms)
        self._bind_all(bound)
        if self.session.attempts >= REOPEN_ALERT_ATTEMPTS:
            self.alarms.session_is_back()
        fruitless = self.session.fruitless + 1 if bound else 0
        if fruitless == FRUITLESS_SESSIONS_ALERT:
            self.alarms.goes_nowhere(bound[0], fruitless)
        elif not bound:
            self.alarms.nothing_is_stuck()
        self.session = Session(
            Phase.OPEN,
            event.epoch,
            event.task_queue,
            event.expected_nonce,
            more_bound=event.more_bound,
            fruitless=fruitless,
        )
        self.counters.sessions += 1
        self.progress.fates = 0
        self.probe_at_ms = now_ms + self.policy.probe_ms
        if self.breaker.state is BreakerState.HALF_OPEN:
            self.alarms.ban_or_halt_is_over()
        if self.breaker.state is not BreakerState.HALTED:  # halted meanwhile: the session is closed again
            self.breaker.agreed()

    def _postponed(self, event: OpeningPostponed, now_ms: int) -> None:
        """A ban still runs, a row in doubt is too young, or the connection can't be had."""
        if event.reason == "ban":
            self._banned(event.wait_ms, now_ms)
        else:
            self.progress.said(f"{event.reason}: {event.message}" if event.message else event.reason)
        self._retry_later(max(event.wait_ms, 1), event.reason, now_ms)

    def _opening_failed(self, now_ms: int) -> None:
        """Try again, ever more slowly."""
        wait_ms = min(REOPEN_MS_MIN * 2 ** min(self.session.attempts, 10), REOPEN_MS_MAX)
        self.progress.said("failure: opening a session failed")
        self._retry_later(wait_ms, "failure", now_ms)

    def _opening_halted(self, reason: str) -> None:
        """Something that a program must not decide: send nothing until an operator resolves."""
        self.session.phase = Phase.NONE
        if not self.halt_is_old:  # else the next opening asks the books whether it still halts
            self.halt(reason)

    def violated(self, what: str) -> None:
        """One of our own rules was broken (level 0): stop sending, halt, tell people, and make the halt durable."""
        self.session.lost = True
        if self.session.phase is Phase.OPENING:  # what was to end the opening may be what broke
            self.session.phase = Phase.NONE
        self.halt(f"invariant violated: {what}")
        self.alarms.record_halt(f"invariant violated: {what}")

    def unreadable(self, what: str, dedupe_key: str) -> None:
        """Somebody sent what can't be read."""
        self.alarms.unreadable(what, dedupe_key)

    def send_ended(self, batch: int, event: SendEnded | SendFailed, now_ms: int, *, epoch: int = 0) -> None:
        """`epoch`: of the session that was to send."""
        match event:
            case SendEnded():
                self._sent(batch, event, now_ms, epoch)
            case SendFailed():
                self._send_failed(batch, event)

    def _sent(self, batch: int, event: SendEnded, now_ms: int, epoch: int) -> None:
        older, held = event.older_refs(), event.dead_letters()
        ids = self.in_flight.batches.pop(batch)
        self.enqueue(older, now_ms)
        for entity, dead in held:
            self.load_held(entity, dead)
        settled, in_doubt = self._settle_all(event.fates, ids, now_ms)
        if event.service_ms > 0:
            self.load.served(event.service_ms)
        if not event.session_open or in_doubt or event.banned_ms > 0:
            self.session.lost = True
        self.progress.said("" if settled else event.reason)
        self.lost_answers.note(self.announcements, settled=settled, in_doubt=in_doubt, reason=event.reason)
        if event.banned_ms > 0:
            self._banned(event.banned_ms, now_ms)
        if event.halted:
            self._send_halted(event, epoch)

    def _send_halted(self, event: SendEnded, epoch: int) -> None:
        if epoch >= self.resolved_epoch:  # else an operator has decided since; the books say whether it still halts
            self.halt(event.halted)
        # The session may have failed to: the database was away.
        self.alarms.record_halt(event.halted, event.never_taken, epoch)

    def _send_failed(self, batch: int, event: SendFailed) -> None:
        ids = self.in_flight.batches.pop(batch)
        self.session.lost = True
        if event.never_started:
            for change_id in ids:
                if change_id not in self.in_flight.bound:
                    self._put_back(change_id)
        self._leave_unsettled(ids)

    def probed(self, event: Probed, now_ms: int) -> None:
        self.probing = False
        self.probe_at_ms = now_ms + self.policy.probe_ms
        if not event.session_open:
            self.session.lost = True

    def sweep_failed(self, now_ms: int) -> None:
        self.sweeping.fail(now_ms)

    def closed(self) -> None:
        self.session = Session(epoch=self.session.epoch, fruitless=self.session.fruitless)

    def lose_session(self, now_ms: int) -> None:
        """It ended by itself. When sessions bring nothing, the next one comes later and later."""
        self.progress.session_ended(sent=self.session.sends > 0)
        self.closed()
        if self.release >= RELEASE and self.progress.pause_ms:
            self.session.phase = Phase.PAUSING
            self.session.until_ms = now_ms + self.progress.pause_ms
            self.session.waiting_for = "progress"

    # -------------------------------------------------------------------------------------------------------- operators

    def pause(self, operator: str, reason: str) -> None:
        if self.paused:
            raise Refused(f"already paused by {self.paused.operator}: {self.paused.reason}")
        self.paused = Pause(operator, reason)
        self._warn_of_blocked_emergencies()

    def resume(self) -> None:
        if not self.paused:
            raise Refused("the writer is not paused")
        self.paused = None

    def flush(self, entity: EntityKey | None, now_ms: int) -> int:
        """End the debounce of one entity's keys, or of all; returns how many keys."""
        return self.coalescer.flush(entity, now_ms)

    def retry(self, ref: ChangeRef, now_ms: int) -> None:
        """A dead letter waits again, before the changes held behind it (the books are changed already)."""
        self._dead_letter_is_decided(ref.change_id)
        if self.release >= RELEASE:  # the hold may not be known here; it ends with the change's fate
            self.load_held(ref.entity, [ref.change_id])
        if self.coalescer.knows(ref.change_id) or ref.change_id in self.in_flight:
            return
        self.counters.dead -= 1
        entry = PendingOperation(ref, ref.accepted_at_ms, min(ref.accepted_at_ms, now_ms), ready=True)
        if self.coalescer.put_back(entry) is Added.SUPERSEDED:
            self._supersede(ref.entity, ref.change_id)

    def is_decided(self, entity: EntityKey, change_id: int) -> None:
        """A dead letter waits no longer for an operator; what was held behind it may go."""
        self._dead_letter_is_decided(change_id)
        self.coalescer.unhold(entity, change_id)
        if self.release >= RELEASE:  # the hold may not have been known here
            self.loading.want(entity)

    def _dead_letter_is_decided(self, change_id: int) -> None:
        self.dead_letters = max(0, self.dead_letters - 1)
        self.announcements.decided(change_id, self.dead_letters)
        if self.release < RELEASE:
            self.alarms.dead_letter_is_decided(change_id)

    def can_resolve(self) -> None:
        """Raises Refused unless there is a halt to resolve."""
        if self.breaker.state is not BreakerState.HALTED:
            raise Refused("the writer is not halted: there is nothing to resolve")

    def resolve(self, now_ms: int, fates: Iterable[Fate] = (), epoch: int = 0) -> None:
        """`fates`: what the books say now of what was in doubt. `epoch`: which the decision began; earlier sessions' finds are old."""
        self.can_resolve()
        self.resolved_epoch = max(self.resolved_epoch, epoch)
        for fate in fates:
            if self.release >= RELEASE and fate.change_id in self.in_flight.unsettled:
                self._settle(fate, now_ms)
        self.breaker.resolve(now_ms)
        self.session.until_ms = 0

    def resolved_before_told(self, epoch: int) -> None:
        """An operator has ended a halt that the books had and the machine did not know of yet."""
        self.resolved_epoch = max(self.resolved_epoch, epoch)
        self.halt_is_old = self.session.phase is Phase.OPENING

    @property
    def may_send(self) -> bool:
        """Nothing but the lack of something to send keeps the machine from sending."""
        return (
            self.session.phase is Phase.OPEN
            and not self.session.lost
            and not self.paused
            and not self.draining
            and self.breaker.state is BreakerState.CLOSED
        )

    # -------------------------------------------------------------------------------------------------------- settling

    def _settle_all(self, fates: Iterable[Fate], ids: Sequence[int], now_ms: int) -> tuple[bool, bool]:
        """How the changes of a send ended: whether any did, and whether any is left in doubt."""
        settled = False
        try:
            for fate in fates:
                settled = settled or fate.outcome not in (BOUND, WAITING, HELD)
                self._settle(fate, now_ms)
        finally:
            in_doubt = self._leave_unsettled(ids)
        return settled, in_doubt

    def _settle(self, fate: Fate, now_ms: int) -> None:
        change_id = fate.change_id
        if fate.outcome == BOUND:
            return
        if change_id not in self.in_flight:
            entry = self.coalescer.take_change(change_id)
            if entry is None:
                return
            self.in_flight.enter(entry)
        if fate.outcome == HELD:
            self.coalescer.waits_again(self.in_flight.entity_of(change_id), change_id)
        if fate.outcome in (WAITING, HELD):
            self._put_back(change_id)
            return
        outcome = Outcome(fate.outcome)
        entry = self.in_flight.leave(change_id)
        self.counters.count(outcome)
        self.sweeping.fates.saw(entry.ref)
        self.loading.fates.saw(entry.ref)
        self.alarms.has_its_fate(change_id)
        self.progress.fate(now_ms)
        self._tell(change_id, fate)
        if outcome in (Outcome.APPLIED, Outcome.DEAD):
            self.session.fruitless = 0
        if outcome is Outcome.DEAD:
            self._reject(entry.ref, now_ms)
        else:
            self.coalescer.unhold(entry.ref.entity, change_id)
        if outcome is Outcome.APPLIED and fate.nonce is not None:
            self.load.applied(now_ms)

    def _reject(self, ref: ChangeRef, now_ms: int) -> None:
        self.dead_letters += 1
        self.counters.received -= self.coalescer.hold(ref.entity, ref.change_id)
        if self.release >= RELEASE:
            self.announcements.rejected(ref, self.dead_letters, now_ms)
        else:
            self.alarms.dead_letter(ref)

    def _put_back(self, change_id: int) -> None:
        entry = self.in_flight.leave(change_id)
        added = self.coalescer.put_back(entry)
        if added is Added.SUPERSEDED:
            self._supersede(entry.ref.entity, change_id)
        self.counters.received -= added is Added.HELD

    def _supersede(self, entity: EntityKey, change_id: int) -> None:
        """A newer change took its place. If it was a dead letter that an operator retried, it holds nothing any more."""
        self.counters.superseded += 1
        self._tell(change_id, Fate(change_id, Outcome.SUPERSEDED.value))
        self.coalescer.unhold(entity, change_id)

    def _bind_all(self, refs: Sequence[ChangeRef]) -> None:
        """What the ledger says is bound, in its order, is all that is: whatever else was in doubt waits again."""
        for ref in refs:
            if ref.change_id not in self.in_flight:
                entry = self.coalescer.take_change(ref.change_id)
                self.in_flight.enter(entry or PendingOperation(ref, ref.accepted_at_ms, ref.accepted_at_ms, ready=True))
        ids = [ref.change_id for ref in refs]
        free = [entry.ref.change_id for entry in self.in_flight if entry.ref.change_id not in ids]
        self.in_flight.bound, self.in_flight.unsettled = ids, []
        for change_id in free:
            self._put_back(change_id)

    def _leave_unsettled(self, ids: Iterable[int]) -> bool:
        """Those of them whose end is still not known are the next session's to settle; True when there are any."""
        left = [change_id for change_id in ids if change_id in self.in_flight]
        self.in_flight.unsettled += [change_id for change_id in left if change_id not in self.in_flight.unsettled]
        return bool(left)

    def _tell(self, change_id: int, fate: Fate) -> None:
        if change_id in self.watched:
            self.watched[change_id].fate = fate

    # ------------------------------------------------------------------------------------------------- bans and waiting

    def _retry_later(self, wait_ms: int, reason: str, now_ms: int) -> None:
        session = self.session
        session.phase = Phase.PAUSING
        session.until_ms = now_ms + wait_ms
        session.waiting_for = reason
        session.attempts += reason not in ("ban", "settle")
        # What waits is told of by `no-progress` from 0.2 on, and sooner.
        if session.attempts == REOPEN_ALERT_ATTEMPTS and (self.release < RELEASE or not self.could_go):
            self.alarms.no_session(session.attempts, reason)

    def _banned(self, ban_ms: int, now_ms: int) -> None:
        fresh = self.breaker.state is BreakerState.CLOSED
        again = self.breaker.ban(now_ms, ban_ms)
        if not fresh:
            return
        self.counters.bans += 1
        self.alarms.banned(self.breaker.until_ms)
        if isinstance(self.load, LoadMonitor):
            self.load.look_soon(now_ms)
        if again:
            self.halt("a second ban within the hour")
            self.alarms.record_halt("a second ban within the hour")
        self._warn_of_blocked_emergencies()

    def halt(self, reason: str) -> None:
        """Stop, or tell of a halt anew."""
        self.breaker.halt(reason)
        self.alarms.halted(reason)
        self._warn_of_blocked_emergencies()

    def _warn_of_blocked_emergencies(self) -> None:
        """In runs begun before 0.2: one alert for each."""
        if self.release >= RELEASE:
            return
        for entry in [*self.coalescer.waiting.values(), *self.in_flight]:
            if entry.ref.priority_class is PriorityClass.EMERGENCY:
                self._warn_of_blocked_emergency(entry.ref)

    def _warn_of_blocked_emergency(self, ref: ChangeRef) -> None:
        if self.paused:
            why = f"the writer is paused by {self.paused.operator}"
        elif self.breaker.state is BreakerState.OPEN:
            why = f"OldHost has banned us until {clock(self.breaker.until_ms)}"
        elif self.breaker.state is BreakerState.HALTED:
            why = f"sending is halted: {self.breaker.reason}"
        else:
            return
        self.alarms.emergency_is_blocked(ref, why)

    # --------------------------------------------------------------------------------------------------------- telling

    def forecast(self, now_ms: int) -> None:
        if now_ms >= self.load.next_at_ms:
            self.alarms.add(*self.load.look(self.coalescer, self.blocked_ms(now_ms), now_ms))

    @property
    def could_go(self) -> bool:
        """Something could be on its way to OldHost, if only OldHost took it."""
        blocked = self.paused is not None or self.breaker.state in (BreakerState.OPEN, BreakerState.HALTED)
        return not blocked and (not self.loaded or len(self.in_flight) > 0 or self.coalescer.can_send)

    def tell(self, now_ms: int) -> list[RecordHalt | TellPeople]:
        """What people have to know now; nothing of it depends on how much waits."""
        notices.of_emergencies(self, now_ms)
        notices.of_progress(self, now_ms)
        return self.announcements.take_all(now_ms, draining=self.draining)

    def blocked_ms(self, now_ms: int) -> int:
        """How long nothing can be sent, as far as that is known."""
        return max(0, self.breaker.until_ms - now_ms) if self.breaker.state is not BreakerState.CLOSED else 0
