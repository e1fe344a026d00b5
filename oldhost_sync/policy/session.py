"""The session as the machine knows it: which phase it is in, and what a send over it needs to say.

The table below is the whole of its phases; an event that is not in it for a phase raises and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from oldhost_sync.policy.breaker import IllegalTransition
from oldhost_sync.policy.events import SessionOpened


class Phase(StrEnum):
    """NONE → OPENING → OPEN → CLOSING → NONE; OPENING → PAUSING (told to wait) → OPENING."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    PAUSING = "pausing"


class SessionEvent(StrEnum):
    OPEN = "open"  # one is asked for
    OPENED = "opened"
    POSTPONED = "postponed"  # none can be had yet
    HALTED = "halted"  # none may be had before an operator resolves
    GIVE_UP = "give up"  # whatever becomes of the opening, nobody may ever tell
    CLOSE = "close"  # its end is asked for
    CLOSED = "closed"
    LOST = "lost"  # it ended by itself
    REST = "rest"  # the next one is not asked for at once


# They count in every phase: an opening that was given up still ends, and the next one may have been asked for
# meanwhile.
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
    """`lost`: send no more, end it when nothing is in flight. `sends`, `urgent_sends`: how many so far.
    `attempts`: in a row without success.

    `opened_at_nonce`: what OldHost expected then. What it expects next, only the ledger knows. `bound_list_was_cut`:
    more operations are bound than the ledger named. `sessions_without_progress`: in a row, that began with an operation
    in doubt, and none ended.
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
        """None any more; closed, or lost."""
        phase = self._after(event)
        return SessionState(phase, self.epoch, sessions_without_progress=self.sessions_without_progress)

    def wait(self, event: SessionEvent, reason: str, until_ms: int) -> None:
        """The next one is not asked for before `until_ms`."""
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
