"""When OldHost first answered on a new connection: after that it reads nothing more from an older one.

OldHost has one connection, so an answer on a new one proves that the old one is gone, and that every operation still to
be applied has already been read. Until then the network may delay bytes for longer than any settle time.
"""

from __future__ import annotations

from dataclasses import dataclass

# For so long a smaller expected nonce than one that was told is taken for an older answer; later, OldHost went back.
STALE_SECONDS_MAX = 60.0


@dataclass(slots=True)
class FirstContact:
    """One host's first contact, kept across openings. `at`: the first answer since the last operation, on the caller's
    clock; None if there was none yet, or if another process may have had a session in between. `told`: the largest
    expected nonce that OldHost has told since, first at `told_at`.
    """

    epoch: int = 0
    at: float | None = None
    told: int = 0
    told_at: float = 0.0

    def opening(self, epoch: int) -> None:
        """An opening has taken over the epoch. `at` is kept only if the previous epoch was opened here, too."""
        if epoch != self.epoch + 1:
            self.forget()
        self.epoch = epoch

    def answered(self, now: float, expected: int = 0) -> None:
        """OldHost answered; only the first answer counts. `expected`: the nonce that it told."""
        self.at = now if self.at is None else self.at
        if expected > self.told:
            self.told, self.told_at = expected, now

    def staler_than_told(self, expected: int, now: float) -> str:
        """Why this reading is not believed: OldHost told a larger one a moment ago, and it never goes back by itself. A
        cache or a replica on the way gives such readings. Empty: it is believed.
        """
        if expected >= self.told or now - self.told_at > STALE_SECONDS_MAX:
            return ""
        return f"OldHost told the expected nonce {self.told}, and now {expected}: the smaller one is an older answer"

    def late_for(self, late_seconds: float, now: float) -> float:
        """How long from now an operation may still be applied late, given `late_seconds` at most; 0: none may."""
        return late_seconds if self.at is None else max(0.0, self.at + late_seconds - now)

    def forget(self) -> None:
        """An operation is about to be written, which is later than the first contact."""
        self.at, self.told = None, 0
