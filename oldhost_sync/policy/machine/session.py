"""The session as the machine knows it: its phase, and the values that each send over it contains; and how long
its worker may be silent.

The tables below have all transitions; an event that they do not list for a phase raises an exception and changes
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oldhost_sync.policy.machine.breaker import IllegalTransition
from oldhost_sync.policy.machine.events import SessionOpened


class Phase(StrEnum):
    """NONE → OPENING → OPEN → CLOSING → NONE; OPENING → PAUSING (it has to wait) → OPENING."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    PAUSING = "pausing"


class SessionEvent(StrEnum):
    OPEN = "open"  # a session is requested
    OPENED = "opened"
    POSTPONED = "postponed"  # the session can't be opened yet
    HALTED = "halted"  # no session before an operator resolves
    GIVE_UP = "give up"  # the result of the opening may never be reported
    CLOSE = "close"  # its end is requested
    CLOSED = "closed"
    LOST = "lost"  # it ended by itself
    REST = "rest"  # the next session is requested after a pause


# Valid in every phase: an opening that was given up still reports its end, and by then the next one may be requested.
_ANSWERS = {
    SessionEvent.OPENED: Phase.OPEN,
    SessionEvent.POSTPONED: Phase.PAUSING,
    SessionEvent.HALTED: Phase.NONE,
    SessionEvent.CLOSED: Phase.NONE,
}

_TRANSITIONS: dict[tuple[Phase, SessionEvent], Phase] = {
    (Phase.NONE, SessionEvent.OPEN): Phase.OPENING,
    (Phase.NONE, SessionEvent.REST): Phase.PAUSING,
    (Phase.PAUSING, SessionEvent.OPEN): Phase.OPENING,
    (Phase.OPENING, SessionEvent.GIVE_UP): Phase.NONE,
    (Phase.OPEN, SessionEvent.CLOSE): Phase.CLOSING,
    (Phase.OPEN, SessionEvent.LOST): Phase.NONE,
    **{(phase, event): to for phase in Phase for event, to in _ANSWERS.items()},
}


@dataclass
class SessionState:
    """`lost`: send no more, end it when nothing is in flight. `sends`, `urgent_sends`: how many so far. `attempts`:
    failed openings in a row.

    `opened_at_nonce`: what OldHost expected at the opening; what it expects now, only the ledger knows.
    `bound_list_was_cut`: more operations are bound than the ledger listed. `sessions_without_progress`: sessions in a
    row that began with an operation in doubt and brought no result of any operation.
    """

    phase: Phase = Phase.NONE
    epoch: int = 0
    task_queue: str = ""
    opened_at_nonce: int = 0
    sends: int = 0
    urgent_sends: int = 0
    until_ms: int = 0
    waiting_for: str = ""
    attempts: int = 0
    lost: bool = False
    bound_list_was_cut: bool = False
    sessions_without_progress: int = 0

    def move(self, event: SessionEvent) -> None:
        self.phase = self._after(event)

    def opened(self, event: SessionOpened, sessions_without_progress: int) -> SessionState:
        return SessionState(
            self._after(SessionEvent.OPENED),
            event.epoch,
            event.task_queue,
            event.expected_nonce,
            bound_list_was_cut=event.more_bound,
            sessions_without_progress=sessions_without_progress,
        )

    def ended(self, event: SessionEvent) -> SessionState:
        """The state after the session was closed or lost."""
        phase = self._after(event)
        return SessionState(phase, self.epoch, sessions_without_progress=self.sessions_without_progress)

    def wait(self, event: SessionEvent, reason: str, until_ms: int) -> None:
        """The next session is not requested before `until_ms`."""
        self.move(event)
        self.until_ms = until_ms
        self.waiting_for = reason

    def may_open(self, now_ms: int) -> bool:
        return self.phase is Phase.NONE or (self.phase is Phase.PAUSING and now_ms >= self.until_ms)

    @property
    def takes_sends(self) -> bool:
        return self.phase is Phase.OPEN and not self.lost

    def _after(self, event: SessionEvent) -> Phase:
        try:
            return _TRANSITIONS[self.phase, event]
        except KeyError:
            raise IllegalTransition(f"{event.value} is not possible while the session is {self.phase.value}") from None


# The longest: 8 s to begin and 24 s without a heartbeat (workflows/calls.py). If the worker dies, that is still below
# the promise for emergencies.
SLACK_MAX = 4
# The longer timeouts apply this long after the last wrong suspicion.
REMEMBERED_MS = 5 * 60_000


@dataclass
class FailureDetector:
    """How long a worker of this writer's sessions may be silent before it counts as dead: doubled each time when it
    turns out to have been only slow.

    A timeout can't tell a dead worker from a slow one. But if the worker that timed out opens the next session itself,
    it was slow. On an overloaded machine or Temporal, short timeouts would only cause more sessions and so more load.
    """

    _suspected: str = ""
    _slack: int = 1
    _until_ms: int = 0

    def slack(self, now_ms: int) -> int:
        """The factor by which timeouts are longer than usual."""
        return self._slack if now_ms < self._until_ms else 1

    def timed_out(self, task_queue: str) -> None:
        """The worker of this queue did not begin in time, or sent no heartbeat."""
        self._suspected = task_queue

    def opened(self, task_queue: str, now_ms: int) -> None:
        """The worker of this queue has opened a session."""
        if task_queue == self._suspected:
            self._slack = min(2 * self.slack(now_ms), SLACK_MAX)
            self._until_ms = now_ms + REMEMBERED_MS
        self._suspected = ""
