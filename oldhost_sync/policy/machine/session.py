"""The session and the breaker as the machine knows them, in one table of joint states and events.

There is one way to recover from any uncertainty: let the sends in flight end, then open a session, which finds out what
became of the operations in doubt. The breaker says whether that may be tried. After a ban it stops all (trap 5), and
closes only after OldHost was asked and agreed with the ledger. A second ban within four ban lengths of the first (an
hour, at 15 minutes) is no accident: the breaker halts until an operator resolves.

An event that the table does not list for a joint state raises an exception and changes nothing. `docs/protocol.md`
shows the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from oldhost_sync.policy.machine.events import SessionOpened
from oldhost_sync.policy.tuning import REOPEN_MS_MAX, REOPEN_MS_MIN

# OldHost is asked again after this share of a ban's usual length: a little more than all of it, so that a usual ban
# ends first, with the margin that the ledger adds.
ASK_AGAIN_PERCENT = 105
SECOND_BAN_WINDOW_IN_BANS = 4  # 4 x 15 minutes: "within the hour", and it scales with a compressed ban
# The longest a worker's timeouts are stretched: 8 s to begin and 24 s without a heartbeat (workflows/calls.py). If the
# worker dies, that is still below the promise for emergencies.
SLACK_MAX = 4
# The longer timeouts apply this long after the last wrong suspicion.
REMEMBERED_MS = 5 * 60_000
BANNED = "banned by OldHost"


class Phase(StrEnum):
    """What the machine knows of the session with OldHost."""

    NONE = "none"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    PAUSING = "pausing"  # the next one is requested after a wait


class BreakerState(StrEnum):
    """Whether anything may be sent."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"  # banned
    HALF_OPEN = "HALF_OPEN"  # a ban or a halt is over, and OldHost is asked first
    HALTED = "HALTED"


class Event(StrEnum):
    REQUESTED = "requested"  # a session is to be opened
    OPENED = "opened"  # OldHost's expected nonce equals the ledger's
    POSTPONED = "postponed"  # the session can't be opened yet
    REFUSED = "refused"  # no session before an operator resolves
    CLOSE = "close"  # its end is requested
    CLOSED = "closed"
    ENDED = "ended"  # by itself
    ENDED_IDLE = "ended idle"  # by itself, and it brought nothing: the next one is requested after a pause
    BANNED = "banned"  # OldHost answered with a ban
    BAN_DUE = "ban due"  # the ban's time is over
    HALT = "halt"  # there is something that only an operator may decide
    RESOLVED = "resolved"  # an operator decided


class IllegalTransition(Exception):  # noqa: N818 - reads as what happened
    """A bug of ours, never to be retried: an event arrived in a state that does not allow it."""


class Row(NamedTuple):
    """An event, the joint states in which it may occur, and what it makes of them; None: as before."""

    event: Event
    phases: tuple[Phase, ...]
    breakers: tuple[BreakerState, ...]
    phase: Phase | None
    breaker: BreakerState | None


_PHASES, _BREAKERS = tuple(Phase), tuple(BreakerState)
_MAY_ASK = (BreakerState.CLOSED, BreakerState.HALF_OPEN)
_NOT_HALTED = (BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN)
_HALTED = (BreakerState.HALTED,)

ROWS = (
    Row(Event.REQUESTED, (Phase.NONE, Phase.PAUSING), _MAY_ASK, Phase.OPENING, None),
    Row(Event.OPENED, (Phase.OPENING,), _MAY_ASK, Phase.OPEN, BreakerState.CLOSED),
    Row(Event.OPENED, (Phase.OPENING,), _HALTED, Phase.OPEN, None),  # halted meanwhile: it is closed again
    Row(Event.POSTPONED, (Phase.OPENING,), _BREAKERS, Phase.PAUSING, None),
    Row(Event.REFUSED, (Phase.OPENING,), _BREAKERS, Phase.NONE, None),
    Row(Event.CLOSE, (Phase.OPEN,), _BREAKERS, Phase.CLOSING, None),
    Row(Event.CLOSED, (Phase.CLOSING,), _BREAKERS, Phase.NONE, None),
    Row(Event.ENDED, (Phase.OPEN,), _BREAKERS, Phase.NONE, None),
    Row(Event.ENDED_IDLE, (Phase.OPEN,), _BREAKERS, Phase.PAUSING, None),
    Row(Event.BANNED, _PHASES, _NOT_HALTED, None, BreakerState.OPEN),
    Row(Event.BANNED, _PHASES, _HALTED, None, None),
    Row(Event.BAN_DUE, _PHASES, (BreakerState.OPEN,), None, BreakerState.HALF_OPEN),
    Row(Event.HALT, _PHASES, _BREAKERS, None, BreakerState.HALTED),
    Row(Event.RESOLVED, _PHASES, _HALTED, None, BreakerState.HALF_OPEN),
)

TRANSITIONS: dict[tuple[Event, Phase, BreakerState], tuple[Phase, BreakerState]] = {
    (row.event, phase, breaker): (row.phase or phase, row.breaker or breaker)
    for row in ROWS
    for phase, breaker in product(row.phases, row.breakers)
}


@dataclass
class SessionState:
    """`lost`: send no more, end it when nothing is in flight. `sends`, `urgent_sends`: how many so far. `attempts`:
    failed openings in a row. `until_ms`: the next one is not requested before, `waiting_for` says why.

    `opened_at_nonce`: what OldHost expected at the opening; what it expects now, only the ledger knows.
    `bound_is_cut`: more operations are bound than the ledger listed. `sessions_without_progress`: sessions in a
    row that began with an operation in doubt and brought no result of any operation. `is_missed`: many openings failed
    while nothing waited.
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
    bound_is_cut: bool = False
    sessions_without_progress: int = 0
    is_missed: bool = False

    @property
    def takes_sends(self) -> bool:
        return self.phase is Phase.OPEN and not self.lost


@dataclass
class Breaker:
    """`until_ms`: when the ban is over (OPEN only). `banned_at_ms`: when the last ban began. `reason`: why the breaker
    is not closed. `told_at_ms`: when OldHost last said how long the ban lasts.
    """

    ban_ms: int
    state: BreakerState = BreakerState.CLOSED
    until_ms: int = 0
    banned_at_ms: int | None = None
    reason: str = ""
    told_at_ms: int = 0


class HostLink:
    """The session and the breaker, which change together, by the table."""

    def __init__(self, ban_ms: int) -> None:
        self.session = SessionState()
        self.breaker = Breaker(ban_ms)

    def move(self, event: Event) -> None:
        session, breaker = self.session, self.breaker
        try:
            session.phase, breaker.state = TRANSITIONS[event, session.phase, breaker.state]
        except KeyError:
            where = f"the session is {session.phase.value} and the breaker {breaker.state.value}"
            raise IllegalTransition(f"{event.value} is not possible while {where}") from None

    # ------------------------------------------------------------------------------------------------------ the session

    def may_open(self, now_ms: int) -> bool:
        session = self.session
        waits = session.phase is Phase.PAUSING and now_ms < session.until_ms
        return not waits and (Event.REQUESTED, session.phase, self.breaker.state) in TRANSITIONS

    @property
    def reopens_at_ms(self) -> int | None:
        """When the next session may be requested, if only a wait prevents it."""
        waits = self.session.phase is Phase.PAUSING and self.breaker.state in _MAY_ASK
        return self.session.until_ms if waits else None

    def opened(self, event: SessionOpened) -> None:
        self.move(Event.OPENED)
        self._begin(event.epoch, event.task_queue, event.expected_nonce)
        self.session.bound_is_cut = event.bound_is_cut
        if self.breaker.state is BreakerState.CLOSED:
            self.breaker.reason = ""

    def ended(self, event: Event) -> None:
        """The session was closed, or ended by itself."""
        self.move(event)
        self._begin(self.session.epoch)

    def _begin(self, epoch: int, task_queue: str = "", expected_nonce: int = 0) -> None:
        session = self.session
        session.epoch, session.task_queue, session.opened_at_nonce = epoch, task_queue, expected_nonce
        session.sends = session.urgent_sends = session.until_ms = session.attempts = 0
        session.waiting_for, session.lost, session.bound_is_cut, session.is_missed = "", False, False, False

    def wait(self, until_ms: int, reason: str) -> None:
        """The next session is not requested before `until_ms`."""
        self.session.until_ms, self.session.waiting_for = until_ms, reason

    @property
    def growing_pause_ms(self) -> int:
        """After failures that OldHost does not count for us."""
        return min(REOPEN_MS_MIN << min(self.session.attempts, 10), REOPEN_MS_MAX)

    # ------------------------------------------------------------------------------------------------- a ban and a halt

    def banned(self, now_ms: int, ban_ms: int) -> bool:
        """OldHost banned us for `ban_ms` more. True when this is a second ban within the window: halt at once."""
        breaker = self.breaker
        fresh = breaker.state is BreakerState.CLOSED
        asked_again = breaker.state is BreakerState.HALF_OPEN
        again = fresh and breaker.banned_at_ms is not None and now_ms - breaker.banned_at_ms < self._window_ms
        self.move(Event.BANNED)
        if fresh:
            breaker.banned_at_ms = now_ms
        if breaker.state is BreakerState.OPEN:
            until_ms = now_ms + ban_ms
            self._ban_runs(until_ms if asked_again else max(breaker.until_ms, until_ms), now_ms)
        return again

    def load_ban(self, left_ms: int, now_ms: int) -> None:
        """An earlier run's ban. It counts as the first. `left_ms`: by MariaDB's clock, which may have been set since;
        negative: it ended that long ago. If OldHost, asked first, reports a ban, then it is this one, unless the window
        is over.
        """
        breaker = self.breaker
        breaker.banned_at_ms = now_ms + left_ms - breaker.ban_ms
        if left_ms > 0 or now_ms - breaker.banned_at_ms < self._window_ms:
            self.move(Event.BANNED)
            self._ban_runs(now_ms + left_ms, now_ms)

    def _ban_runs(self, until_ms: int, now_ms: int) -> None:
        breaker = self.breaker
        breaker.until_ms, breaker.told_at_ms, breaker.reason = until_ms, now_ms, BANNED

    def tick(self, now_ms: int) -> None:
        if self.breaker.state is BreakerState.OPEN and now_ms >= self.ask_at_ms:
            self.move(Event.BAN_DUE)

    @property
    def ask_at_ms(self) -> int:
        """When OldHost is asked again: at least once in a ban's usual length. Asking does not prolong a ban."""
        return min(self.breaker.until_ms, self.breaker.told_at_ms + self.ask_again_ms)

    @property
    def ask_again_ms(self) -> int:
        """The longest time without asking."""
        return self.breaker.ban_ms * ASK_AGAIN_PERCENT // 100

    def halt(self, reason: str) -> None:
        self.move(Event.HALT)
        self.breaker.reason = reason

    def resolve(self, now_ms: int) -> None:
        """An operator decided: ask OldHost again, after the rest of a ban."""
        breaker = self.breaker
        self.move(Event.RESOLVED)
        breaker.banned_at_ms, breaker.reason = None, ""
        self.session.until_ms = 0
        if breaker.until_ms > now_ms:
            self.move(Event.BANNED)
            breaker.reason = BANNED

    @property
    def _window_ms(self) -> int:
        return SECOND_BAN_WINDOW_IN_BANS * self.breaker.ban_ms


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
