"""The rehearsal: a scenario is run to its end in virtual time, the machine against the model of OldHost. Nothing here
waits or is really sent.

The product's own delays (:class:`Pace`) are added, as measured on one computer. They matter only if OldHost is about as
fast.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from oldhost_sync.planner.plan import Plan, PlannedState, bounds
from oldhost_sync.planner.scenario import Arrival, Scenario, arrivals
from oldhost_sync.policy.changes import BOUND, WAITING, ChangeRef, ChangeResult, Outcome, PriorityClass, to_wire
from oldhost_sync.policy.forecast.forecast import OPENING_READS
from oldhost_sync.policy.forecast.outlook import DISPATCH_MS, RELAY_EMERGENCY_MS, RELAY_MS
from oldhost_sync.policy.machine.actions import Action, CloseSession, OpenSession, Probe, Send, Sweep
from oldhost_sync.policy.machine.conditions import conditions
from oldhost_sync.policy.machine.events import OpeningPostponed, Probed, SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.queue.operations import PendingOperation
from oldhost_sync.policy.tuning import WriterPolicy

SAMPLES_MAX = 240  # states over time; when there are more, every second one is dropped
# After this many times the scenario's length, a backlog that has not drained is reported as not draining.
GIVE_UP_AFTER_DURATIONS = 20
ARRIVALS_PER_PROGRESS = 1_000
GIVE_UP_AFTER_MS_MIN = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class Pace:
    """The product's own delays, in ms: from acceptance to the writer, from there to a worker, and back to the writer.

    `turnaround_ms`: from OldHost's answer to our next request, if one already waits. `ban_margin_ms`: the margin that
    the ledger adds to a ban. What a ban refused can't be applied late, so the opening after it waits for nothing more.
    """

    relay_ms: int = RELAY_MS
    relay_emergency_ms: int = RELAY_EMERGENCY_MS
    dispatch_ms: int = DISPATCH_MS
    report_ms: int = 50
    turnaround_ms: float = 0.5
    ban_margin_ms: int = 500


@dataclass(slots=True)
class _Sent:
    """A send under way: its changes that wait at the session, and the fates that it will report."""

    action: Send
    waiting: deque[int]
    fates: list[ChangeResult] = field(default_factory=list)
    banned: bool = False
    arrived: bool = False


@dataclass(frozen=True, slots=True)
class _Served:
    """OldHost has answered an operation."""

    sent: _Sent
    change_id: int
    start_ms: float
    end_ms: float
    banned: bool


@dataclass(slots=True)
class _Wake:
    pass


_Event = Arrival | _Sent | _Served | _Wake | OpenSession | CloseSession | Probe | Sweep


def rehearse(
    scenario: Scenario,
    pace: Pace | None = None,
    changes: Sequence[Arrival] | None = None,
    *,
    steady_ms: int | None = None,
    progress: Callable[[int], None] = lambda _arrived: None,
) -> Plan:
    """Run the scenario until OldHost has every accepted change. `changes`: instead of the scenario's own; those
    accepted before its start wait from the start. `steady_ms`: the load does not end, so run for this long, or until
    something is older than promised. `progress` hears now and then how many changes have arrived.
    """
    changes = arrivals(scenario) if changes is None else changes
    return _Rehearsal(scenario, pace or Pace(), changes, steady_ms, progress).run()


class _Rehearsal:
    def __init__(
        self,
        scenario: Scenario,
        pace: Pace,
        changes: Sequence[Arrival],
        steady_ms: int | None,
        progress: Callable[[int], None],
    ) -> None:
        self._pace = pace
        self._progress = progress
        self._steady_ms = steady_ms
        self._host = HostModel(scenario, pace.turnaround_ms)
        self._machine = _machine(scenario)
        lowest = bounds(changes, scenario.latency_ms, self._host.ban)
        self._plan = Plan(scenario, lowest, len(changes), drained=False)
        self._now_ms = 0
        self._exact_ms = 0.0
        self._events: list[tuple[float, int, _Event]] = []
        self._pushed = 0
        self._woken_at_ms: int | None = None
        self._conditions: dict[str, str] = {}  # by cause, the kind
        self._to_arrive = len(changes)
        self._nonce = 0
        self._bound: list[ChangeRef] = []
        self._queue: list[_Sent] = []
        self._on_wire = False
        self._ended_ms = 0.0
        self._sample_ms = max(1.0, 2 * scenario.duration_s * 1000 / SAMPLES_MAX)
        self._give_up_ms = max(GIVE_UP_AFTER_MS_MIN, GIVE_UP_AFTER_DURATIONS * scenario.duration_s * 1000)
        for change in changes:
            self._push(change.at_ms + self._relay_ms(change.priority_class), change)

    def run(self) -> Plan:
        self._decide()
        while self._events and not self._is_over():
            self._step()
        plan = self._plan
        plan.drained = self._is_drained()
        plan.drained_ms = round(self._ended_ms)
        plan.busy_ms = self._host.busy_ms
        plan.superseded = self._machine.counters.superseded
        return plan

    # ---------------------------------------------------------------------------------------------------------- events

    def _push(self, at_ms: float, event: _Event) -> None:
        self._pushed += 1
        heappush(self._events, (at_ms, self._pushed, event))

    def _step(self) -> None:
        at_ms, _, event = heappop(self._events)
        self._sample_until(at_ms)
        self._exact_ms = max(self._exact_ms, at_ms)
        self._now_ms = max(self._now_ms, -int(-at_ms // 1))
        match event:
            case Arrival():
                self._to_arrive -= 1
                if self._to_arrive % ARRIVALS_PER_PROGRESS == 0:
                    self._progress(self._plan.changes - self._to_arrive)
                self._machine.enqueue([event.ref], self._now_ms)
            case _Sent() | _Served() if not self._came_back(event):
                return  # the machine receives it with the send's report
            case OpenSession():
                self._opened(event)
            case CloseSession():
                self._machine.closed()
            case Probe():
                self._machine.probed(Probed(), self._now_ms)
            case Sweep():
                self._machine.swept([], 0, more=False, now_ms=self._now_ms)
            case _Wake():
                if self._woken_at_ms is None or self._now_ms < self._woken_at_ms:
                    return  # an earlier wake-up has replaced it
                self._woken_at_ms = None
        self._decide()

    def _decide(self) -> None:
        for action in self._machine.decide(self._now_ms):
            self._act(action)
        self._count_alerts()
        at_ms = self._machine.wake_at_ms()
        if at_ms is not None and (self._woken_at_ms is None or at_ms < self._woken_at_ms):
            self._woken_at_ms = max(at_ms, self._now_ms + 1)
            self._push(self._woken_at_ms, _Wake())

    def _count_alerts(self) -> None:
        before, alerts = self._conditions, self._plan.alerts
        self._conditions = {each.cause: each.kind for each in conditions(self._machine, self._now_ms)}
        for cause, kind in self._conditions.items():
            alerts[kind] = alerts.get(kind, 0) + (cause not in before)

    def _act(self, action: Action) -> None:
        there_ms = self._now_ms + self._pace.dispatch_ms
        match action:
            case Send():
                self._push(there_ms, _Sent(action, deque(action.change_ids)))
            case OpenSession():
                self._push(self._host.ask(there_ms, reads=OPENING_READS) + self._pace.report_ms, action)
            case Probe():
                self._push(self._host.ask(there_ms, reads=1) + self._pace.report_ms, action)
            case CloseSession() | Sweep():
                self._push(there_ms + self._pace.report_ms, action)

    # ------------------------------------------------------------------------------------------------------ the session

    def _came_back(self, event: _Sent | _Served) -> bool:
        """A send arrives at the session, an operation is answered, or the send reports its end: only then True."""
        if isinstance(event, _Served):
            self._answered(event)
        elif not event.arrived:
            self._arrive(event)
        else:
            self._report(event)
            return True
        return False

    def _arrive(self, sent: _Sent) -> None:
        """An urgent send goes before all others that are not on the wire, as in the real session."""
        sent.arrived = True
        place = sum(other.action.urgent for other in self._queue) if sent.action.urgent else len(self._queue)
        self._queue.insert(place, sent)
        self._serve_next()

    def _serve_next(self) -> None:
        while self._queue and not self._on_wire:
            sent = self._queue[0]
            if not sent.waiting:
                self._push(self._now_ms + self._pace.report_ms, self._queue.pop(0))
                continue
            change_id = sent.waiting.popleft()
            if change_id not in self._machine.in_flight:  # another send has sent it
                sent.fates.append(ChangeResult(change_id, WAITING))
                continue
            for other in self._queue[1:]:
                if change_id in other.waiting:
                    other.waiting.remove(change_id)
                    other.fates.append(ChangeResult(change_id, BOUND))
            self._on_wire = True
            start_ms, end_ms, banned = self._host.serve(self._exact_ms)
            self._push(end_ms, _Served(sent, change_id, start_ms, end_ms, banned))

    def _answered(self, served: _Served) -> None:
        self._on_wire = False
        entry = self._machine.in_flight.get(served.change_id)
        assert entry is not None, "the machine has no entry for a change that it sends"
        if served.banned:
            self._bound = self._bound or [entry.ref]
            served.sent.fates.append(ChangeResult(served.change_id, BOUND))
            for sent in self._queue:
                sent.banned = True
                sent.fates += [ChangeResult(one, WAITING) for one in sent.waiting]
                sent.waiting.clear()
        else:
            self._nonce += 1
            self._bound = [ref for ref in self._bound if ref.change_id != served.change_id]
            served.sent.fates.append(ChangeResult(served.change_id, Outcome.APPLIED.value, self._nonce))
            self._applied(entry, served.start_ms, served.end_ms)
        self._serve_next()

    def _report(self, sent: _Sent) -> None:
        banned_ms = self._host.ban_left_ms(self._now_ms) + self._pace.ban_margin_ms if sent.banned else 0
        ended = SendEnded(sent.fates, not sent.banned, self._plan.scenario.latency_ms, banned_ms)
        self._machine.send_ended(sent.action.number, ended, self._now_ms)

    def _opened(self, action: OpenSession) -> None:
        left_ms = self._host.ban_left_ms(self._now_ms)
        if left_ms:
            self._machine.opening_ended(OpeningPostponed(left_ms, "ban"), self._now_ms)
            return
        bound = [ref.change_id for ref in self._bound]
        fates = [ChangeResult(one, BOUND if one in bound else WAITING) for one in action.in_doubt]
        epoch = self._machine.session.epoch + 1
        opened = SessionOpened(epoch, "", self._nonce + 1, fates, [to_wire(ref) for ref in self._bound])
        self._machine.opening_ended(opened, self._now_ms)

    # -------------------------------------------------------------------------------------------------------- measuring

    def _applied(self, entry: PendingOperation, start_ms: float, end_ms: float) -> None:
        plan, ref = self._plan, entry.ref
        plan.by_class[ref.priority_class] += 1
        age_ms = round(end_ms - entry.first_at_ms)
        plan.ages_ms[ref.priority_class].append(age_ms)
        plan.ages_of_property_ms.setdefault((ref.priority_class, ref.property_id), []).append(age_ms)
        minute_ms = self._now_ms // 60_000 * 60_000
        by_minute = plan.oldest_by_minute[ref.priority_class]
        by_minute[minute_ms] = max(by_minute.get(minute_ms, 0), age_ms)
        plan.oldest_ms = max(plan.oldest_ms, age_ms)
        could_go_ms = entry.due_at_ms + self._relay_ms(ref.priority_class)
        if could_go_ms < self._ended_ms and not self._spans_ban(start_ms):
            plan.lost_ms += start_ms - self._ended_ms
        self._ended_ms = end_ms
        if ref.priority_class is PriorityClass.EMERGENCY:
            latency_ms = round(end_ms - ref.accepted_at_ms)
            plan.emergencies_ms.append(latency_ms)
            ban = self._host.ban
            if ban is None or end_ms <= ban[0] or ref.accepted_at_ms >= ban[1]:
                plan.emergencies_outside_ban_ms.append(latency_ms)

    def _spans_ban(self, start_ms: float) -> bool:
        return self._host.ban is not None and self._ended_ms <= self._host.ban[1] <= start_ms

    def _sample_until(self, at_ms: float) -> None:
        coalescer, samples = self._machine.coalescer, self._plan.samples
        self._plan.backlog_max = max(self._plan.backlog_max, len(coalescer.waiting))
        while len(samples) * self._sample_ms <= at_ms:
            debounced = coalescer.debounced_count
            now_ms = round(len(samples) * self._sample_ms)
            banned = self._host.ban_left_ms(now_ms) > 0
            ready = len(coalescer.waiting) - debounced
            samples.append(PlannedState(now_ms, ready, debounced, self._plan.operations, banned))
            if len(samples) > SAMPLES_MAX:
                del samples[1::2]
                self._sample_ms *= 2

    def _relay_ms(self, cls: PriorityClass) -> int:
        return self._pace.relay_emergency_ms if cls is PriorityClass.EMERGENCY else self._pace.relay_ms

    def _is_over(self) -> bool:
        if self._steady_ms is not None:
            return self._now_ms >= self._steady_ms or self._plan.oldest_ms > self._plan.scenario.promises.consistency_ms
        return self._is_drained() or self._now_ms >= self._give_up_ms

    def _is_drained(self) -> bool:
        machine = self._machine
        return not (self._to_arrive or machine.coalescer.waiting or machine.coalescer.held_count or machine.in_flight)


def _machine(scenario: Scenario) -> Machine:
    policy = WriterPolicy(
        debounce_ms=round(scenario.debounce_s * 1000),
        max_wait_ms=round(scenario.max_wait_s * 1000),
        txn_per_lww=scenario.txn_per_lww,
        ban_ms=round(scenario.ban_s * 1000),
        early_send_ms=round(scenario.early_send_s * 1000),
        consistency_ms=scenario.promises.consistency_ms,
        emergency_ms=scenario.promises.emergency_ms,
    )
    machine = Machine(policy, 0)
    machine.load.service_ms = max(scenario.latency_ms, 0.1)
    machine.finish_loading(0)
    return machine


class HostModel:
    """OldHost as the planner has it: one request after the other, each with the same latency, and at most one ban.

    Times in ms of the scenario's clock. Whether a ban refuses a request is decided when it ends (docs/protocol.md).

    `turnaround_ms`: the time that we need from an answer to the next request.
    """

    def __init__(self, scenario: Scenario, turnaround_ms: float = 0.0) -> None:
        self._latency_ms = scenario.latency_ms
        self._turnaround_ms = turnaround_ms
        self.ban = ban_interval_ms(scenario)
        self.free_at_ms = 0.0
        self.busy_ms = 0.0

    def serve(self, ready_ms: float) -> tuple[float, float, bool]:
        """One write that waits at the socket from `ready_ms` on. Returns (start, end, refused because of a ban)."""
        start_ms, end_ms = self._occupy(ready_ms)
        if self._is_banned(end_ms):
            return start_ms, end_ms, True
        self.busy_ms += self._latency_ms
        return start_ms, end_ms, False

    def ask(self, ready_ms: float, *, reads: int) -> float:
        """Read the expected nonce `reads` times. Returns when the last answer arrives."""
        for _ in range(reads):
            _, ready_ms = self._occupy(ready_ms)
        return ready_ms

    def ban_left_ms(self, now_ms: float) -> int:
        """How long the ban still runs, 0 when there is none."""
        return int(self.ban[1] - now_ms) + 1 if self.ban is not None and self._is_banned(now_ms) else 0

    def _occupy(self, ready_ms: float) -> tuple[float, float]:
        start_ms = max(ready_ms, self.free_at_ms + self._turnaround_ms)
        self.free_at_ms = start_ms + self._latency_ms
        return start_ms, self.free_at_ms

    def _is_banned(self, at_ms: float) -> bool:
        return self.ban is not None and self.ban[0] <= at_ms < self.ban[1]


def ban_interval_ms(scenario: Scenario) -> tuple[float, float] | None:
    """(start, end) of the scenario's ban."""
    if scenario.ban_at_s is None:
        return None
    return scenario.ban_at_s * 1000, (scenario.ban_at_s + scenario.ban_s) * 1000
