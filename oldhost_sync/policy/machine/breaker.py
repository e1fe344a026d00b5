"""The breaker: it stops sending after a ban (trap 5).

It closes only after OldHost was asked and agreed with the ledger. A second ban within four ban lengths of the first (an
hour, at 15 minutes) is no accident: the breaker halts until an operator resolves. The table below has all transitions;
an event that it does not list for a state raises an exception and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# OldHost is asked again after this share of a ban's usual length: a little more than all of it, so that a usual ban
# ends first, with the margin that the ledger adds.
ASK_AGAIN_PERCENT = 105
SECOND_BAN_WINDOW_IN_BANS = 4  # 4 x 15 minutes: "within the hour", and it scales with a compressed ban


class BreakerState(StrEnum):
    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"
    HALTED = "HALTED"


class BreakerEvent(StrEnum):
    BAN = "ban"  # OldHost answered with a ban
    DUE = "due"  # the ban's time is over
    AGREED = "agreed"  # a new session is open: OldHost's expected nonce equals the ledger's
    HALT = "halt"  # there is something that only an operator may decide
    RESOLVE = "resolve"  # an operator decided


class IllegalTransition(Exception):  # noqa: N818 - reads as what happened
    """A bug of ours, never to be retried: an event arrived in a state that does not allow it."""


_TRANSITIONS: dict[tuple[BreakerState, BreakerEvent], BreakerState] = {
    (BreakerState.CLOSED, BreakerEvent.BAN): BreakerState.OPEN,
    (BreakerState.CLOSED, BreakerEvent.AGREED): BreakerState.CLOSED,
    (BreakerState.CLOSED, BreakerEvent.HALT): BreakerState.HALTED,
    (BreakerState.OPEN, BreakerEvent.BAN): BreakerState.OPEN,
    (BreakerState.OPEN, BreakerEvent.DUE): BreakerState.HALF_OPEN,
    (BreakerState.OPEN, BreakerEvent.HALT): BreakerState.HALTED,
    (BreakerState.HALF_OPEN, BreakerEvent.BAN): BreakerState.OPEN,
    (BreakerState.HALF_OPEN, BreakerEvent.AGREED): BreakerState.CLOSED,
    (BreakerState.HALF_OPEN, BreakerEvent.HALT): BreakerState.HALTED,
    (BreakerState.HALTED, BreakerEvent.BAN): BreakerState.HALTED,
    (BreakerState.HALTED, BreakerEvent.HALT): BreakerState.HALTED,
    (BreakerState.HALTED, BreakerEvent.RESOLVE): BreakerState.HALF_OPEN,
}


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

    def ban(self, now_ms: int, ban_ms: int) -> bool:
        """OldHost banned us for `ban_ms` more. True when this is a second ban within the window: halt at once."""
        fresh = self.state is BreakerState.CLOSED
        asked_again = self.state is BreakerState.HALF_OPEN
        again = fresh and self.banned_at_ms is not None and now_ms - self.banned_at_ms < self._window_ms()
        self._move(BreakerEvent.BAN)
        if fresh:
            self.banned_at_ms = now_ms
        if self.state is BreakerState.OPEN:
            self.until_ms = max(self.until_ms, now_ms + ban_ms) if not asked_again else now_ms + ban_ms
            self.told_at_ms = now_ms
            self.reason = "banned by OldHost"
        return again

    def load_ban(self, left_ms: int, now_ms: int) -> None:
        """An earlier run's ban. It counts as the first. `left_ms`: by MariaDB's clock, which may have been set since;
        negative: it ended that long ago. If OldHost, asked first, reports a ban, then it is this one, unless the window
        is over.
        """
        self.banned_at_ms = now_ms + left_ms - self.ban_ms
        if left_ms > 0 or now_ms - self.banned_at_ms < self._window_ms():
            self._move(BreakerEvent.BAN)
            self.until_ms = now_ms + left_ms
            self.told_at_ms = now_ms
            self.reason = "banned by OldHost"

    def tick(self, now_ms: int) -> None:
        if self.state is BreakerState.OPEN and now_ms >= self.ask_at_ms:
            self._move(BreakerEvent.DUE)

    @property
    def ask_at_ms(self) -> int:
        """When OldHost is asked again: at least once in a ban's usual length. Asking does not prolong a ban."""
        return min(self.until_ms, self.told_at_ms + self.ask_again_ms)

    @property
    def ask_again_ms(self) -> int:
        """The longest time without asking."""
        return self.ban_ms * ASK_AGAIN_PERCENT // 100

    def agreed(self) -> None:
        self._move(BreakerEvent.AGREED)
        self.reason = ""

    def halt(self, reason: str) -> None:
        self._move(BreakerEvent.HALT)
        self.reason = reason

    def resolve(self, now_ms: int) -> None:
        """An operator decided: ask OldHost again, after the rest of a ban."""
        self._move(BreakerEvent.RESOLVE)
        self.banned_at_ms = None
        self.reason = ""
        if self.until_ms > now_ms:
            self._move(BreakerEvent.BAN)
            self.reason = "banned by OldHost"

    @property
    def lets_ask(self) -> bool:
        """Whether a new session may be opened, which asks OldHost but sends nothing."""
        return self.state in (BreakerState.CLOSED, BreakerState.HALF_OPEN)

    def _window_ms(self) -> int:
        return SECOND_BAN_WINDOW_IN_BANS * self.ban_ms

    def _move(self, event: BreakerEvent) -> None:
        try:
            self.state = _TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransition(f"{event.value} is not possible while the breaker is {self.state.value}") from None
