"""The session's lifecycle: when the next one is opened, what each answer about it means, and when it ends.

There is one way to recover from any uncertainty: let the sends in flight end, then open a session, which finds out
what became of the operations in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.machine.actions import Action, CloseSession, OpenSession, StopSends
from oldhost_sync.policy.machine.breaker import BreakerState
from oldhost_sync.policy.machine.events import (
    ANSWERED,
    REFUSALS,
    OpeningEnded,
    OpeningFailed,
    OpeningHalted,
    OpeningPostponed,
    SendEnded,
    SendFailed,
    SessionOpened,
)
from oldhost_sync.policy.machine.session import Phase, SessionEvent
from oldhost_sync.policy.rules.apart import pause_ms
from oldhost_sync.policy.tuning import (
    REOPEN_ALERT_ATTEMPTS,
    REOPEN_MS_MAX,
    REOPEN_MS_MIN,
    SESSIONS_WITHOUT_PROGRESS_ALERT,
)

if TYPE_CHECKING:
    from oldhost_sync.policy.machine.machine import Machine


class SessionLifecycle:
    """The machine's part that opens and ends sessions.

    `resolved_epoch`: that of the last resolve in this run; sends of an older run's session are no longer under way.
    `stopped_epoch`: that of the session whose sends were stopped because a new run is about to start.
    `opening_predates_resolve`: an operator resolved while a session was being opened; its result is older than that.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.resolved_epoch = 0
        self.stopped_epoch = 0
        self.opening_predates_resolve = False
        self._told_apart = 0  # the change that the open alert says waits apart

    # --------------------------------------------------------------------------------------------------------- deciding

    def next_actions(self, now_ms: int) -> Iterator[Action]:
        """Open a session when there is none and nothing prevents it; close one when paused, halted, or at its end."""
        machine, session = self._machine, self._machine.session
        if machine.in_flight.sends and session.takes_sends:
            if machine.draining and self.stopped_epoch != session.epoch:
                self.stopped_epoch = session.epoch
                yield StopSends(session.epoch, session.task_queue)
            elif self._must_stop() and not machine.draining and not machine.probing:
                session.move(SessionEvent.CLOSE)
                yield CloseSession(session.epoch, session.task_queue)
        if machine.in_flight.sends or machine.draining or machine.probing:
            return
        if machine.session.phase is Phase.OPEN and machine.session.lost:
            self.lose(now_ms)
        elif machine.session.phase is Phase.OPEN and self._must_close():
            machine.session.move(SessionEvent.CLOSE)
            yield CloseSession(machine.session.epoch, machine.session.task_queue)
        if machine.session.may_open(now_ms) and machine.loaded and self._may_ask:
            machine.session.move(SessionEvent.OPEN)
            self.opening_predates_resolve = False
            yield OpenSession(tuple(machine.in_flight.in_doubt), self._newest())

    @property
    def reopens_at_ms(self) -> int | None:
        """When the next session is requested, if only a wait prevents it now."""
        session = self._machine.session
        return session.until_ms if session.phase is Phase.PAUSING and self._may_ask else None

    @property
    def _may_ask(self) -> bool:
        return self._machine.breaker.lets_ask and not self._machine.paused

    def _must_close(self) -> bool:
        machine = self._machine
        return self._must_stop() or (machine.session.bound_list_was_cut and not machine.in_flight.bound)

    def _must_stop(self) -> bool:
        """Whether the session has to drain: `oldhost/nonce_pipeline.py` says what is still sent then."""
        return self._machine.paused is not None or self._machine.breaker.state is BreakerState.HALTED

    def _newest(self) -> tuple[int, ...]:
        machine = self._machine
        refs = [entry.ref for entries in (machine.coalescer.waiting.values(), machine.in_flight) for entry in entries]
        newest = max(refs, key=lambda ref: ref.change_id, default=None)
        return () if newest is None else (newest.change_id, newest.accepted_at_ms)

    # ---------------------------------------------------------------------------------------------------------- opening

    def opening_ended(self, event: OpeningEnded, now_ms: int) -> None:
        match event:
            case SessionOpened():
                self._opened(event, now_ms)
            case OpeningHalted():
                self._halted(event.message)
            case OpeningPostponed():
                self._postponed(event, now_ms)
            case OpeningFailed():
                self._failed(event, now_ms)

    def _opened(self, event: SessionOpened, now_ms: int) -> None:
        """OldHost agrees with the ledger: record the fates of what was in doubt, and send bound operations first."""
        machine, bound = self._machine, event.bound_refs()
        for fate in event.fates:
            machine.outcomes.record(fate, now_ms)
        machine.outcomes.bind_all(bound)
        if machine.session.attempts >= REOPEN_ALERT_ATTEMPTS:
            machine.alerts.session_is_back()
        if event.epoch > 1 and self._proves_that_all_is_well:
            machine.alerts.disproved_by_a_session()
        machine.session = machine.session.opened(event, self._count_without_progress(bound))
        machine.counters.sessions += 1
        self._set_apart(event.apart, now_ms)
        machine.progress.fates = 0
        machine.probe_at_ms = now_ms + machine.policy.probe_ms
        if machine.breaker.state is BreakerState.HALF_OPEN:
            machine.alerts.ban_or_halt_is_over()
        if machine.breaker.state is not BreakerState.HALTED:  # halted during the opening: it is closed again
            machine.breaker.agreed()

    def _set_apart(self, apart: Sequence[Sequence[int]], now_ms: int) -> None:
        for change_id, tries, *left_ms in apart:
            entity = self._machine.coalescer.park(change_id, now_ms + (left_ms[0] if left_ms else pause_ms(tries)))
            if entity is not None and tries > 1:
                self._told_apart = change_id
                self._machine.alerts.waits_apart(change_id, entity, tries)

    def _still_waits_apart(self, change_id: int) -> bool:
        machine = self._machine
        is_here = change_id in machine.coalescer.waiting or change_id in machine.in_flight
        return change_id == self._told_apart and is_here

    @property
    def _proves_that_all_is_well(self) -> bool:
        """The first session of a run to which an earlier one left no more than its alerts, unless a pause or a halt has
        begun during the opening.
        """
        machine = self._machine
        is_first = machine.counters.sessions == 0 and not machine.carried
        return is_first and machine.paused is None and machine.breaker.state is not BreakerState.HALTED

    def _count_without_progress(self, bound: list[ChangeRef]) -> int:
        alerts = self._machine.alerts
        if not bound:
            if not self._still_waits_apart(alerts.stuck):
                alerts.nothing_is_stuck()
            return 0
        sessions = self._machine.session.sessions_without_progress + 1
        if sessions == SESSIONS_WITHOUT_PROGRESS_ALERT:
            alerts.goes_nowhere(bound[0], sessions)
        return sessions

    def _postponed(self, event: OpeningPostponed, now_ms: int) -> None:
        """A ban still runs, an operation in doubt needs its settle time, or the connection can't be opened."""
        wait_ms = max(event.wait_ms, 1)
        if event.reason == "ban":
            self._machine.banned(event.wait_ms, now_ms)
            wait_ms = min(wait_ms, self._machine.breaker.ask_again_ms)
        else:
            self._machine.progress.said(f"{event.reason}: {event.message}" if event.message else event.reason)
        if event.reason in REFUSALS:  # each worker counts for itself
            wait_ms = max(wait_ms, self._growing_pause_ms)
        self._retry_later(wait_ms, event.reason, now_ms)

    def _failed(self, event: OpeningFailed, now_ms: int) -> None:
        """Try again, with growing pauses."""
        why = f": {event.why}" if event.why else ""
        self._machine.progress.said(f"failure: opening a session failed{why}")
        self._retry_later(self._growing_pause_ms, "failure", now_ms)

    @property
    def _growing_pause_ms(self) -> int:
        doublings: int = min(self._machine.session.attempts, 10)
        return min(REOPEN_MS_MIN << doublings, REOPEN_MS_MAX)

    def _halted(self, reason: str) -> None:
        """Only an operator may decide this: send nothing until one resolves."""
        self._machine.session.move(SessionEvent.HALTED)
        if not self.opening_predates_resolve:  # otherwise the next opening reads from MariaDB if it is still halted
            self._machine.halt(reason)

    def _retry_later(self, wait_ms: int, reason: str, now_ms: int) -> None:
        machine, session = self._machine, self._machine.session
        session.wait(SessionEvent.POSTPONED, reason, now_ms + wait_ms)
        session.attempts += reason not in ("ban", "settle")
        # The alert no-progress covers the case that something waits, and is raised sooner.
        if session.attempts == REOPEN_ALERT_ATTEMPTS and not machine.has_sendable:
            machine.alerts.no_session(session.attempts, reason)

    # ---------------------------------------------------------------------------------------------------------- sending

    def send_ended(self, number: int, event: SendEnded | SendFailed, now_ms: int, epoch: int) -> None:
        if number not in self._machine.in_flight.sends:  # it was given up
            self._ended_after_all(event, epoch)
        elif isinstance(event, SendEnded):
            self._sent(number, event, now_ms, epoch)
        else:
            self._send_failed(number, event)

    def _sent(self, number: int, event: SendEnded, now_ms: int, epoch: int) -> None:
        machine, older, held = self._machine, event.older_refs(), event.dead_letters()
        ids = machine.in_flight.end(number)
        machine.operators.follow_waiting(older, now_ms)
        machine.enqueue(older, now_ms)
        for entity, dead in held:
            machine.load_held(entity, [each for each in dead if each not in machine.coalescer.decided])
        ended, in_doubt = machine.outcomes.record_send(event.fates, ids, now_ms)
        self._set_apart(event.apart, now_ms)
        if event.service_ms > 0:
            machine.load.served(max(event.service_ms, event.pace_ms))
        if not event.session_open or in_doubt or event.banned_ms > 0:
            machine.session.lost = True
        machine.progress.said("" if ended else event.reason)
        lost = in_doubt and event.refusal != ANSWERED
        machine.lost_answers.note(machine.alerts, ended=ended, in_doubt=lost, reason=event.reason)
        machine.lost_answers.note_session(machine.alerts, event.refusal, event.reason, now_ms)
        if event.banned_ms > 0:
            machine.banned(event.banned_ms, now_ms)
        if event.halted:
            self._halted_by_a_send(event, epoch)

    def _ended_after_all(self, event: SendEnded | SendFailed, epoch: int) -> None:
        """The next session learns, or has learnt, from the ledger and OldHost what became of its operations. But a halt
        may not be in the ledger, if the database was down.
        """
        if isinstance(event, SendEnded) and event.halted:
            self._halted_by_a_send(event, epoch)

    def _halted_by_a_send(self, event: SendEnded, epoch: int) -> None:
        if epoch >= self.resolved_epoch:  # otherwise an operator has resolved since; MariaDB says if it is still halted
            self._machine.halt(event.halted)
        # The session itself may have failed to record it, if the database was down.
        self._machine.alerts.record_halt(event.halted, event.never_taken, epoch)

    def _send_failed(self, number: int, event: SendFailed) -> None:
        machine = self._machine
        ids = machine.in_flight.end(number)
        machine.session.lost = True
        if event.never_started:
            for change_id in ids:
                if change_id not in machine.in_flight or machine.in_flight.is_being_sent(change_id):
                    continue
                if change_id not in machine.in_flight.bound:
                    machine.outcomes.put_back(change_id)
        machine.outcomes.leave_in_doubt(ids)
        machine.progress.said(_why_failed(event))
        if event.silent:
            self._give_up_sends()

    def worker_ended(self, task_queue: str) -> None:
        """Another worker has found that the process of this queue has ended. If the session is there, give it up."""
        session = self._machine.session
        if session.phase is not Phase.OPEN or session.task_queue != task_queue:
            return
        session.lost = True
        self._give_up_sends()

    def _give_up_sends(self) -> None:
        """Do not wait until the heartbeat of each send is overdue. The session's worker may live after all; then the
        ledger's epoch fences it, as any session that was given up.
        """
        machine = self._machine
        for number in list(machine.in_flight.sends):
            machine.outcomes.leave_in_doubt(machine.in_flight.end(number))

    # ----------------------------------------------------------------------------------------------------------- ending

    def closed(self) -> None:
        self._machine.session = self._machine.session.ended(SessionEvent.CLOSED)

    def lose(self, now_ms: int) -> None:
        """The session ended by itself. If several in a row brought no fate, the next follow after growing pauses."""
        machine = self._machine
        machine.progress.session_ended(sent=machine.session.sends + machine.session.urgent_sends > 0)
        machine.session = machine.session.ended(SessionEvent.LOST)
        if machine.progress.pause_ms:
            machine.session.wait(SessionEvent.REST, "progress", now_ms + machine.progress.pause_ms)

    def give_up(self) -> None:
        """An invariant of ours was violated: send no more. Perhaps that was while the end of an opening was handled."""
        session = self._machine.session
        session.lost = True
        if session.phase is Phase.OPENING:
            session.move(SessionEvent.GIVE_UP)

    def resolved(self, epoch: int) -> None:
        """An operator has resolved a halt."""
        self.resolved_epoch = max(self.resolved_epoch, epoch)


def _why_failed(event: SendFailed) -> str:
    if event.never_started:
        return "worker: the one that has the session took no send in time"
    if event.silent:
        return "worker: the one that has the session gave no sign of life"
    return "worker: a send failed there; its log says why"
