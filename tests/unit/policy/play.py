"""A machine at play: it drives the real machine against `Books`, hands its actions to whoever ends them, and checks
every
invariant that can be seen from outside after each step. Time stands in `now_ms` and moves only when told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from oldhost_sync.policy.changes import (
    BOUND,
    HELD,
    WAITING,
    ChangeRef,
    ChangeResult,
    CoalescingKey,
    EntityKey,
    Outcome,
    PriorityClass,
)
from oldhost_sync.policy.machine import operators, snapshot
from oldhost_sync.policy.machine.actions import (
    CloseSession,
    LoadOutstanding,
    OpenSession,
    Probe,
    RecordConditions,
    Send,
    StopSends,
    Sweep,
)
from oldhost_sync.policy.machine.conditions import Reports
from oldhost_sync.policy.machine.events import OpeningFailed, OpeningResult, Probed, SendEnded, SendFailed
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.tuning import SENDS_IN_FLIGHT_MAX, WriterPolicy
from tests.workflows.books import Alert, Alerts, Books, Reply
from workflows import messages
from workflows.messages import from_wire

LWW, TXN, EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY
START_MS = 1_700_000_000_000


@dataclass
class Under:
    """What is under way: what the machine asked for and nobody has ended yet. `given_up`: sends of a worker that was
    taken for dead.
    """

    sends: dict[int, Send] = field(default_factory=dict)
    given_up: dict[int, Send] = field(default_factory=dict)
    reports: dict[int, SendEnded | None] = field(default_factory=dict)
    opening: OpenSession | None = None
    stopped: list[int] = field(default_factory=list)
    closing: CloseSession | None = None
    probe: Probe | None = None
    sweep: Sweep | None = None
    load: LoadOutstanding | None = None

    @property
    def anything(self) -> bool:
        return bool(self.sends or self.opening or self.closing or self.probe or self.sweep or self.load)


class Play:
    """One machine, one set of books, one clock. Every `_do…` ends with `step`."""

    def __init__(self, policy: WriterPolicy | None = None) -> None:
        self.policy = policy or WriterPolicy()
        self.now_ms = START_MS
        self.books = Books()
        self.machine = Machine(self.policy, self.now_ms)
        self.machine.finish_loading(self.now_ms)
        self.under = Under()
        self.undelivered: list[ChangeRef] = []
        self.lost: dict[int, None] = {}  # said to be relayed, never arrived: the sweep's to find
        self.reports = Reports(self.machine)
        self.lists: list[RecordConditions] = []
        self._alerts = Alerts()
        self.flushed = False
        self.was_rebuilt = False
        self.taken: dict[int, None] = {}  # taken out to be sent, whatever came of it: their debounce is behind them
        self.sent: dict[int, None] = {}  # taken out, and not put back
        self.hurried: dict[CoalescingKey, None] = {}  # an older version was put back or retried: it goes at once
        self.in_flight: dict[int, None] = {}
        self.step()

    # -------------------------------------------------------------------------------------------------------- arrivals

    def accept(self, cls: str, unit: str, kind: str = "a", payload: str = "x", property_id: str = "") -> ChangeRef:
        entity, event_type = EntityKey("unit", unit), f"{cls.lower()}_{kind}"
        ref = self.books.accept(cls, entity, event_type, payload, self.now_ms, property_id)
        self.undelivered.append(ref)
        return ref

    def deliver(self, count: int | None = None) -> None:
        refs = self.undelivered[:count]
        del self.undelivered[: len(refs)]
        for ref in refs:
            self.books.changes[ref.change_id].relayed = True
        self.machine.enqueue(refs, self.now_ms)
        self.step()

    def take(self, cls: str, unit: str, kind: str = "a", payload: str = "x", property_id: str = "") -> int:
        """Accept and deliver one change; returns its id."""
        ref = self.accept(cls, unit, kind, payload, property_id)
        self.deliver()
        return ref.change_id

    def deliver_again(self, change_id: int) -> None:
        ref = self.books.changes[change_id].ref
        self.hurried[ref.key] = None
        self.machine.enqueue([ref], self.now_ms)
        self.step()

    def lose(self) -> None:
        """The relay's mark was committed, the signal lost. The change is late, and its entity's order with it."""
        ref = self.undelivered.pop(0)
        self.lost[ref.change_id] = None
        change = self.books.changes[ref.change_id]
        change.relayed = change.exempt = True

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.step()

    # ----------------------------------------------------------------------------------------------------- ends of work

    def run_send(self, number: int, reply_to: Callable[[int], Reply] = lambda _: Reply.APPLIED) -> None:
        """At the worker: the sends of a session happen in their order, urgent ones first; the report is not delivered
        yet.
        """
        overtakes = not self.machine.in_flight.bound  # what is bound goes before what is urgent
        for each, send in sorted(self.under.sends.items(), key=lambda one: overtakes and not one[1].urgent):
            if each not in self.under.reports:
                ids = [] if each in self.under.stopped else list(send.change_ids)
                report = self.books.send(replace(send, change_ids=tuple(ids)), self.now_ms, reply_to)
                left = [ChangeResult(one, WAITING) for one in send.change_ids if not ids]
                self.under.reports[each] = replace(report, fates=[*report.fates, *left])
            if each == number:
                return

    def end_send(self, number: int, reply_to: Callable[[int], Reply] = lambda _: Reply.APPLIED) -> None:
        self.run_send(number, reply_to)
        report = self.under.reports.pop(number)
        assert report is not None
        put_back = [fate.change_id for fate in report.fates if fate.outcome in (WAITING, BOUND, HELD)]
        self._landed(self.under.sends.pop(number), put_back)
        self.machine.send_ended(number, report, self.now_ms)
        self.step()

    def fail_send(
        self,
        number: int,
        *,
        never_started: bool = False,
        silent: bool = False,
        reply_to: Callable[[int], Reply] | None = None,
    ) -> None:
        """The activity ended without a word, after doing its work (`reply_to`) or before it."""
        if reply_to is not None and not never_started:
            self.run_send(number, reply_to)
        never_started = never_started and number not in self.under.reports
        self.under.reports.pop(number, None)
        send = self.under.sends.pop(number)
        self._landed(send, send.change_ids)
        self.books.epoch += 1  # the worker is gone, or lets go: nothing goes over its session any more
        silent = silent and not never_started
        self.machine.send_ended(number, SendFailed(never_started, silent), self.now_ms)
        if silent:
            self._give_up_sends()
        self.step()

    def end_worker(self, task_queue: str | None = None) -> None:
        """The worker of this queue (None: the one that has the session) is said to have ended."""
        session = self.machine.session
        asked = session.task_queue if task_queue is None else task_queue
        gives_up = session.phase is Phase.OPEN and asked == session.task_queue
        self.machine.worker_ended(asked)
        if gives_up:
            self.books.epoch += 1
            self._give_up_sends()
        self.step()

    def _give_up_sends(self) -> None:
        self.under.given_up |= self.under.sends
        for number in list(self.under.sends):
            send = self.under.sends.pop(number)
            self._landed(send, send.change_ids)

    def end_given_up(self, number: int) -> None:
        """What it did before it was given up is told late, or nothing."""
        del self.under.given_up[number]
        self.machine.send_ended(number, self.under.reports.pop(number, None) or SendFailed(), self.now_ms)
        self.step()

    def _landed(self, send: Send, waiting: Iterable[int]) -> None:
        elsewhere = [one for other in self.under.sends.values() for one in other.change_ids]
        for change_id in send.change_ids:
            if change_id not in elsewhere:
                del self.in_flight[change_id]
            self.sent[change_id] = None
        for change_id in waiting:
            self.hurried[self.books.changes[change_id].ref.key] = None

    def end_open(self) -> OpeningResult:
        opening, self.under.opening = self.under.opening, None
        assert opening is not None
        answer = self.books.open(opening.in_doubt, self.now_ms)
        self.machine.opening_ended(answer, self.now_ms)
        self.step()
        return answer

    def fail_open(self) -> None:
        self.under.opening = None
        self.machine.opening_ended(OpeningFailed(), self.now_ms)
        self.step()

    def end_close(self) -> None:
        self.under.closing = None
        self.books.epoch += bool(self.under.sends)  # nothing goes over it any more
        self.machine.closed()
        self.step()

    def end_probe(self, *, session_open: bool = True) -> None:
        self.under.probe = None
        self.machine.probed(Probed(session_open), self.now_ms)
        self.step()

    def end_sweep(self, *, fails: bool = False, limit: int = 1000) -> None:
        sweep, self.under.sweep = self.under.sweep, None
        assert sweep is not None
        if fails:
            self.machine.sweeping.fail(self.now_ms)
        else:
            page = self.books.page(sweep, self.now_ms, limit)
            for ref in page.refs:
                self.lost.pop(ref[0], None)
            self.reports.missed(self.machine.swept(list(page.changes()), page.last_id, page.more, self.now_ms))
        self.step()

    def end_load(self, *, fails: bool = False, limit: int = 3) -> None:
        load, self.under.load = self.under.load, None
        assert load is not None
        if fails:
            self.machine.load_failed(load, self.now_ms)
            self.step()
            return
        page = self.books.page(load, self.now_ms, limit)
        if load.part is Part.EMERGENCIES and not load.after_id:
            self.machine.outcomes.dead_letters = page.dead_letters
            if not self.machine.carried:
                if page.paused is not None:
                    self.machine.load_pause(*page.paused)
                if page.ban_left_ms is not None:
                    self.machine.load_ban(page.ban_left_ms, self.now_ms)
        for ref in page.refs:
            self.lost.pop(ref[0], None)
        self.machine.took_page(load, list(page.changes()), page.last_id, page.more, self.now_ms)
        self.step()

    # ------------------------------------------------------------------------------------------------------- operators

    def decide_on(self, change_id: int, action: str) -> str:
        """Retry or discard a dead letter, as the workflow does: books first, then the machine."""
        decided = self.books.decide(messages.OperatorAct("oldhost", action, "ana", "test", change_id))
        if decided.refused:
            return decided.refused
        self.hurried[self.books.changes[change_id].ref.key] = None
        if decided.ref is not None:
            operators.retry(self.machine, from_wire(decided.ref), self.now_ms)
        elif decided.entity is not None:
            operators.is_decided(self.machine, EntityKey(*decided.entity), change_id)
        self.step()
        return ""

    def pause_or_resume(self) -> None:
        action = "resume" if self.machine.paused else "pause"
        if action == "resume":
            operators.resume(self.machine)
        else:
            operators.pause(self.machine, "ana", "a look")
        self.books.decide(messages.OperatorAct("oldhost", action, "ana", "a look"))
        self.step()

    def resolve(self, mode: str = "resend") -> None:
        operators.can_resolve(self.machine)
        in_doubt = list(self.machine.in_flight.in_doubt)
        act = messages.OperatorAct("oldhost", "resolve", "ana", "test", mode=mode, in_doubt=in_doubt)
        operators.resolve(self.machine, self.now_ms, self.books.decide(act).fates)
        self.step()

    # ----------------------------------------------------------------------------------------------- carrying over

    def carry_over(self) -> None:
        """Continue-as-new: drain, snapshot, load it in a new machine."""
        self.machine.draining = True
        self.step()
        self._let_everything_end()
        carried = json.loads(json.dumps({**snapshot.dump(self.machine), "reports": self.reports.dump()}))
        self.machine = snapshot.load(carried, self.policy, self.now_ms)
        self.reports = Reports(self.machine, carried["reports"])
        self.step()

    def rebuild(self) -> None:
        """The workflow was terminated: what was under way ends unheard, a new machine asks MariaDB."""
        for number in list(self.under.sends):
            self.run_send(number)
        self.under, self.in_flight, self.lost = Under(), {}, {}
        self.was_rebuilt = True
        self.machine = Machine(self.policy, self.now_ms)
        self.reports = Reports(self.machine)
        self.step()
        self.end_load()

    def _let_everything_end(self) -> None:
        while self.under.anything:
            self.end_something()

    def end_something(self) -> bool:
        if self.under.sends:
            self.end_send(next(iter(self.under.sends)))
        elif self.under.opening:
            self.end_open()
        elif self.under.closing:
            self.end_close()
        elif self.under.probe:
            self.end_probe()
        elif self.under.sweep:
            self.end_sweep()
        elif self.under.load:
            self.end_load()
        elif self.under.given_up:
            self.end_given_up(next(iter(self.under.given_up)))
        else:
            return False
        return True

    def drain_unless_halted(self, steps_max: int = 3000) -> None:
        """No more faults: everything ends well, time goes on, until nothing waits that may go, or a
        halt. It must end."""
        self.deliver()
        self.machine.probed(Probed(session_open=False), self.now_ms)  # ask OldHost once more
        self.step()
        for _ in range(steps_max):
            if self.end_something():
                continue
            settled = not self.open_ends() and self.machine.session.phase is Phase.OPEN
            if settled or self.machine.breaker.state is BreakerState.HALTED:
                return
            wake_at_ms = self.machine.wake_at_ms()
            assert wake_at_ms is not None, "something waits and nobody will wake the machine"
            self.advance(max(wake_at_ms - self.now_ms, 1))
        raise AssertionError("it does not converge")

    def open_ends(self) -> list[int]:
        """Changes without a fate that are not held behind a dead letter."""
        outstanding = self.books.outstanding()
        return [change.ref.change_id for change in outstanding if not self.books.is_held(change.ref)]

    # -------------------------------------------------------------------------------------------------------- checking

    def step(self) -> None:
        """Ask the machine what to do, check that it may, and note what is under way from now."""
        for action in self.machine.decide(self.now_ms):
            match action:
                case Send():
                    self._check_send(action)
                    self.under.sends[action.number] = action
                    self.in_flight.update(dict.fromkeys(action.change_ids))
                    self.taken.update(dict.fromkeys(action.change_ids))
                case OpenSession():
                    assert not self.under.opening
                    assert not self.under.sends
                    assert not self.under.closing
                    assert self.machine.breaker.state in (BreakerState.CLOSED, BreakerState.HALF_OPEN)
                    self.under.opening = action
                case StopSends():
                    assert self.machine.draining
                    self.under.stopped = list(self.under.sends)
                case CloseSession():
                    must_stop = self.machine.paused or self.machine.breaker.state is BreakerState.HALTED
                    assert must_stop or not self.under.sends
                    self.under.closing = action
                case Probe():
                    self.under.probe = action
                case Sweep():
                    self.under.sweep = action
                case LoadOutstanding():
                    assert self.under.load is None
                    self.under.load = action
                case messages.OperatorAct():
                    self.books.halted = self.books.halted or action.reason
        for report in self.reports.due(self.now_ms):
            self.lists.append(report)
            self._alerts.record(report)
            self.reports.recorded()
        self._check()

    @property
    def alerts(self) -> list[Alert]:
        return self._alerts.told

    def _waits_for_a_fate(self) -> bool:
        return bool(self.books.outstanding())

    def _check_send(self, send: Send) -> None:
        machine = self.machine
        assert machine.breaker.state is BreakerState.CLOSED, "nothing is sent before OldHost was asked"
        assert not machine.paused
        assert not machine.draining
        alike = sum(other.urgent is send.urgent for other in self.under.sends.values())
        assert alike < SENDS_IN_FLIGHT_MAX, "two of a kind in flight, never three"
        for position, change_id in enumerate(send.change_ids):
            change = self.books.changes[change_id]
            if change_id in self.in_flight:
                assert send.urgent, "a change is in two sends only where an emergency takes it along"
                continue
            if change_id in machine.in_flight.bound:
                continue
            self._check_turn(change.ref, send.change_ids[:position])
            self._check_age(change.ref)

    def _check_turn(self, ref: ChangeRef, before: tuple[int, ...]) -> None:
        """I8 and I4: no emergency could go instead, and nothing older of the entity waits."""
        taken = [*self.in_flight, *before]
        busy = [self.books.changes[one].ref.entity for one in taken]
        waiting = [entry.ref for entry in self.machine.coalescer.waiting.values()]
        older = [one.change_id for one in waiting if one.entity == ref.entity and one.change_id < ref.change_id]
        assert not older, f"{older} of the same entity wait while {ref.change_id} goes (I4)"
        brings = [one for one in waiting if one.entity == ref.entity and one.priority_class is EMERGENCY]
        if ref.priority_class is not EMERGENCY and not brings and not self._brings_later(ref, before):
            urgent = [one.change_id for one in waiting if one.priority_class is EMERGENCY and one.entity not in busy]
            assert not urgent, f"{ref.priority_class} {ref.change_id} goes while the emergencies {urgent} could (I8)"

    def _brings_later(self, ref: ChangeRef, before: tuple[int, ...]) -> bool:
        """Whether an emergency of the same entity follows in this very send."""
        sent = [entry.ref for entry in self.machine.in_flight]
        return any(one.entity == ref.entity and one.priority_class is EMERGENCY for one in sent)

    def _check_age(self, ref: ChangeRef) -> None:
        """An LWW change goes when its debounce is over, or for a reason."""
        if ref.priority_class is not LWW or ref.change_id in self.taken or self.flushed or ref.key in self.hurried:
            return
        ids = [one for one, change in self.books.changes.items() if change.ref.key == ref.key]
        # A version that is read again after a loss hands its age on, even when it is sent by itself.
        sent = 0 if self.was_rebuilt else max((one for one in ids if one in self.sent), default=0)
        first_at_ms = min(self.books.changes[one].ref.accepted_at_ms for one in ids if one > sent)
        due = ref.accepted_at_ms + (self.policy.early_send_ms or self.policy.debounce_ms) <= self.now_ms
        overdue = first_at_ms + self.policy.debounce_ms <= self.now_ms  # it was in its lane before this version came
        newer = [one for one in self.machine.coalescer.waiting.values() if one.ref.entity == ref.entity]
        chained = [one for one in self.machine.in_flight if one.ref.entity == ref.entity and one.ref != ref]
        assert due or overdue or newer or chained, f"{ref.change_id} goes before its debounce is over"

    def _check(self) -> None:
        machine = self.machine
        assert list(machine.in_flight.sends) == list(self.under.sends)
        assert machine.in_flight.ordinary <= SENDS_IN_FLIGHT_MAX
        wake_at_ms = machine.wake_at_ms()
        assert wake_at_ms is None or wake_at_ms > self.now_ms, "woken again and again for what it can't begin"
        assert self.books.oldhost.gaps == 0 or self.books.oldhost.restored, "a gap (I1)"
        assert self.books.oldhost.replays == 0 or self.books.oldhost.written_by_others, "a replay (I1)"
        for change in self.books.outstanding():
            change.exempt = change.exempt or self.books.is_held(change.ref)
        self._check_books()
        may_send = (
            machine.session.phase is Phase.OPEN
            and not machine.session.lost
            and not machine.paused
            and not machine.draining
            and machine.breaker.state is BreakerState.CLOSED
        )
        sends = machine.in_flight.ordinary, len(machine.in_flight.urgent)
        if may_send and max(sends) < SENDS_IN_FLIGHT_MAX and not machine.session.bound_is_cut:
            idle = self._could_go()
            assert not idle, f"the scheduler idles while {idle} could go (I8)"
        if self._waits_for_a_fate() and not self.under.anything and not machine.draining:
            stuck = (
                machine.wake_at_ms() is None and not machine.paused and machine.breaker.state is not BreakerState.HALTED
            )
            assert not stuck, "changes wait, nothing is under way, and nothing will wake the machine"

    def _check_books(self) -> None:
        """I5: every change that was delivered and has no fate is held by the machine, or a newer one of its key is."""
        held = {entry.ref.change_id: entry.ref for entry in self.machine.coalescer.waiting.values()}
        held.update({entry.ref.change_id: entry.ref for entry in self.machine.in_flight})
        newest: dict[CoalescingKey, int] = {}
        for ref in held.values():
            newest[ref.key] = max(newest.get(ref.key, 0), ref.change_id)
        for change in self.books.outstanding():
            ref = change.ref
            if not change.relayed or ref.change_id in self.lost or ref.change_id in held:
                continue
            if self.books.is_held(ref) or self._is_to_be_read(ref) or self._is_behind_a_retried(ref, held):
                continue
            replaced = ref.priority_class is LWW and newest.get(ref.key, 0) > ref.change_id
            bound = any(row.change is change for row in self.books.rows.values() if not row.consumed)
            assert replaced or bound, f"change {ref.change_id} has no fate and nobody holds it (I5)"

    def _is_behind_a_retried(self, ref: ChangeRef, held: Mapping[int, ChangeRef]) -> bool:
        """It is read again when a dead letter that was retried has its fate: that one the machine must hold, then."""
        hold = self.machine.coalescer.holds.get(ref.entity)
        if hold is None or ref.priority_class is not TXN:
            return False
        return any(one < ref.change_id and one in held for one in hold.dead)

    def _is_to_be_read(self, ref: ChangeRef) -> bool:
        loading, read = self.machine.loading, self.under.load
        ours = ref.entity in loading.entities or (read is not None and read.entity in (None, ref.entity))
        return ours or loading.part is not None

    def _could_go(self) -> list[int]:
        """By the books alone: what is ready, of an entity that has nothing in flight, and not held."""
        busy = {entry.ref.entity for entry in self.machine.in_flight}
        dead = {self.books.changes[one].ref.entity for one in self.books.dead_letters()}
        ready = []
        for change in self.books.outstanding():
            ref = change.ref
            if not change.relayed or ref.change_id in self.lost or ref.entity in busy or self._is_to_be_read(ref):
                continue
            if self.books.older(change):
                continue
            if ref.priority_class is LWW:
                newest = max(
                    one.ref.change_id for one in self.books.outstanding() if one.ref.key == ref.key and one.relayed
                )
                age_ms = self.now_ms - ref.accepted_at_ms
                debounced = ref.change_id == newest and age_ms >= self.policy.debounce_ms
                if debounced or (age_ms >= self.policy.max_wait_ms and not change.exempt):
                    ready.append(ref.change_id)
            elif ref.priority_class is EMERGENCY or ref.entity not in dead:
                ready.append(ref.change_id)
        return ready

    # ------------------------------------------------------------------------------------------------- after the play

    def check_the_end(self) -> None:
        """When everything has converged: I1 to I5 over OldHost's journal."""
        books = self.books
        lines = [line for line in books.oldhost.journal if line.change is not None]
        by_change: dict[int, int] = {}
        for line in lines:
            assert line.change is not None
            by_change[line.change.ref.change_id] = by_change.get(line.change.ref.change_id, 0) + 1
        for change_id, change in books.changes.items():
            times = by_change.get(change_id, 0)
            assert times == (1 if change.outcome is Outcome.APPLIED else 0), (
                f"{change_id}: {change.outcome}, {times} times (I2)"
            )
        self._check_order([line.change.ref for line in lines if line.change])
        self._check_last_states()

    def _check_order(self, refs: list[ChangeRef]) -> None:
        last: dict[EntityKey, int] = {}
        for ref in refs:
            if self.books.changes[ref.change_id].exempt:
                continue
            assert last.get(ref.entity, 0) < ref.change_id, f"{ref.change_id} after {last[ref.entity]} (I4)"
            last[ref.entity] = ref.change_id

    def _check_last_states(self) -> None:
        applied: dict[CoalescingKey, str] = {}
        for line in self.books.oldhost.journal:
            if line.change is not None:
                applied[line.change.ref.key] = line.change.payload
        newest: dict[CoalescingKey, str] = {}
        for change in self.books.changes.values():
            if change.ref.priority_class is LWW and change.outcome not in (Outcome.DEAD, Outcome.DISCARDED):
                newest[change.ref.key] = change.payload
        given_up = {c.ref.key for c in self.books.changes.values() if c.outcome in (Outcome.DEAD, Outcome.DISCARDED)}
        for key, payload in newest.items():
            assert key in given_up or applied.get(key) == payload, (
                f"{key} ends as {applied.get(key)}, not {payload} (I3)"
            )


def sent(play: Play) -> list[tuple[int, ...]]:
    """What is under way, send by send."""
    return [send.change_ids for send in play.under.sends.values()]


def journal(play: Play) -> list[int]:
    """What OldHost has, in its order."""
    return [line.change.ref.change_id for line in play.books.oldhost.journal if line.change]
