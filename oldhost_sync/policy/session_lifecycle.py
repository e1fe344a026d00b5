"""The session's life: when the next one is opened, what each answer about it means, and when it ends.

One path leads back to work after anything unclear: let what is in flight end, then open a session, which decides what
is in doubt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oldhost_sync.policy.actions import Action, CloseSession, OpenSession, StopSends
from oldhost_sync.policy.breaker import BreakerState
from oldhost_sync.policy.changes import ChangeRef
from oldhost_sync.policy.events import (
    OpeningEnded,
    OpeningFailed,
    OpeningHalted,
    OpeningPostponed,
    SendEnded,
    SendFailed,
    SessionOpened,
)
from oldhost_sync.policy.release import RELEASE_MIN
from oldhost_sync.policy.session import Phase, SessionEvent
from oldhost_sync.policy.writer_policy import (
    REOPEN_ALERT_ATTEMPTS,
    REOPEN_MS_MAX,
    REOPEN_MS_MIN,
    SESSIONS_WITHOUT_PROGRESS_ALERT,
)

if TYPE_CHECKING:
    from oldhost_sync.policy.machine import Machine


class SessionLifecycle:
    """The machine's part that opens and ends sessions.

    `resolved_epoch`: of the last resolve in this run; no send of an older run's session is under way.
    `stopped_epoch`: of the session whose sends were told to end, as a new run is about to start.
    `opening_predates_resolve`: an operator resolved while a session was being opened, and what that finds came before.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.resolved_epoch = 0
        self.stopped_epoch = 0
        self.opening_predates_resolve = False

    # --------------------------------------------------------------------------------------------------------- deciding

    def next_actions(self, now_ms: int) -> Iterator[Action]:
        """Open a session when there is none and nothing prevents it; close one that is paused, halted, or through."""
        machine, session = self._machine, self._machine.session
        if machine.gives_way and machine.in_flight.sends and session.takes_sends:
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
        """When the next one is asked for, if time alone keeps it from that."""
        session = self._machine.session
        return session.until_ms if session.phase is Phase.PAUSING and self._may_ask else None

    @property
    def _may_ask(self) -> bool:
        return self._machine.breaker.lets_ask and not self._machine.paused

    def _must_close(self) -> bool:
        machine = self._machine
        return self._must_stop() or (machine.session.bound_list_was_cut and not machine.in_flight.bound)

    def _must_stop(self) -> bool:
        """The session drains: see `oldhost/nonce_pipeline.py` for what still goes out."""
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
                self._halted(event.message or event.reason)
            case OpeningPostponed():
                self._postponed(event, now_ms)
            case OpeningFailed():
                self._failed(now_ms)

    def _opened(self, event: SessionOpened, now_ms: int) -> None:
        """OldHost agrees with the ledger: record the fate of what was in doubt, and send first what is bound."""
        machine, bound = self._machine, event.bound_refs()
        for fate in event.fates:
            machine.outcomes.record(fate, now_ms)
        machine.outcomes.bind_all(bound)
        if machine.session.attempts >= REOPEN_ALERT_ATTEMPTS:
            machine.alarms.session_is_back()
        machine.session = machine.session.opened(event, self._count_without_progress(bound))
        machine.counters.sessions += 1
        machine.progress.fates = 0
        machine.probe_at_ms = now_ms + machine.policy.probe_ms
        if machine.breaker.state is BreakerState.HALF_OPEN:
            machine.alarms.ban_or_halt_is_over()
        if machine.breaker.state is not BreakerState.HALTED:  # halted meanwhile: the session is closed again
            machine.breaker.agreed()

    def _count_without_progress(self, bound: list[ChangeRef]) -> int:
        alarms = self._machine.alarms
        if not bound:
            alarms.nothing_is_stuck()
            return 0
        sessions = self._machine.session.sessions_without_progress + 1
        if sessions == SESSIONS_WITHOUT_PROGRESS_ALERT:
            alarms.goes_nowhere(bound[0], sessions)
        return sessions

    def _postponed(self, event: OpeningPostponed, now_ms: int) -> None:
        """A ban still runs, a row in doubt is too young, or the connection can't be had."""
        if event.reason == "ban":
            self._machine.banned(event.wait_ms, now_ms)
        else:
            self._machine.progress.said(f"{event.reason}: {event.message}" if event.message else event.reason)
        self._retry_later(max(event.wait_ms, 1), event.reason, now_ms)

    def _failed(self, now_ms: int) -> None:
        """Try again, ever more slowly."""
        wait_ms = min(REOPEN_MS_MIN * 2 ** min(self._machine.session.attempts, 10), REOPEN_MS_MAX)
        self._machine.progress.said("failure: opening a session failed")
        self._retry_later(wait_ms, "failure", now_ms)

    def _halted(self, reason: str) -> None:
        """Something that a program must not decide: send nothing until an operator resolves."""
        self._machine.session.move(SessionEvent.HALTED)
        if not self.opening_predates_resolve:  # else the next opening asks the books whether it still halts
            self._machine.halt(reason)

    def _retry_later(self, wait_ms: int, reason: str, now_ms: int) -> None:
        machine, session = self._machine, self._machine.session
        session.wait(SessionEvent.POSTPONED, reason, now_ms + wait_ms)
        session.attempts += reason not in ("ban", "settle")
        # What waits is told of by `no-progress` from 0.2 on, and sooner.
        if session.attempts == REOPEN_ALERT_ATTEMPTS and (machine.release == RELEASE_MIN or not machine.could_go):
            machine.alarms.no_session(session.attempts, reason)

    # ---------------------------------------------------------------------------------------------------------- sending

    def send_ended(self, number: int, event: SendEnded | SendFailed, now_ms: int, epoch: int) -> None:
        if isinstance(event, SendEnded):
            self._sent(number, event, now_ms, epoch)
        else:
            self._send_failed(number, event)

    def _sent(self, number: int, event: SendEnded, now_ms: int, epoch: int) -> None:
        machine, older, held = self._machine, event.older_refs(), event.dead_letters()
        ids = machine.in_flight.end(number)
        machine.enqueue(older, now_ms)
        for entity, dead in held:
            machine.load_held(entity, dead)
        ended, in_doubt = machine.outcomes.record_send(event.fates, ids, now_ms)
        if event.service_ms > 0:
            machine.load.served(event.service_ms)
        if not event.session_open or in_doubt or event.banned_ms > 0:
            machine.session.lost = True
        machine.progress.said("" if ended else event.reason)
        machine.lost_answers.note(machine.announcements, ended=ended, in_doubt=in_doubt, reason=event.reason)
        if event.banned_ms > 0:
            machine.banned(event.banned_ms, now_ms)
        if event.halted:
            self._halted_by_a_send(event, epoch)

    def _halted_by_a_send(self, event: SendEnded, epoch: int) -> None:
        if epoch >= self.resolved_epoch:  # else an operator has decided since; the books say whether it still halts
            self._machine.halt(event.halted)
        # The session may have failed to: the database was away.
        self._machine.alarms.record_halt(event.halted, event.never_taken, epoch)

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

    # ----------------------------------------------------------------------------------------------------------- ending

    def closed(self) -> None:
        self._machine.session = self._machine.session.ended(SessionEvent.CLOSED)

    def lose(self, now_ms: int) -> None:
        """It ended by itself. When sessions bring nothing, the next one comes later and later."""
        machine = self._machine
        machine.progress.session_ended(sent=machine.session.sends + machine.session.urgent_sends > 0)
        machine.session = machine.session.ended(SessionEvent.LOST)
        if machine.release > RELEASE_MIN and machine.progress.pause_ms:
            machine.session.wait(SessionEvent.REST, "progress", now_ms + machine.progress.pause_ms)

    def give_up(self) -> None:
        """A rule of ours was broken: send no more. What was to end an opening may be what broke."""
        session = self._machine.session
        session.lost = True
        if session.phase is Phase.OPENING:
            session.move(SessionEvent.GIVE_UP)

    def resolved(self, epoch: int) -> None:
        """An operator has ended a halt."""
        self.resolved_epoch = max(self.resolved_epoch, epoch)
