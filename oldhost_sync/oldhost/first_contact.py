"""When OldHost first answered on a new connection: after that it reads nothing more from an older one.

OldHost has one connection, so an answer on a new one proves that the old one is gone, and that every operation still to
be applied has already been read. Until then the network may delay bytes for longer than any settle time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FirstContact:
    """One host's first contact, kept across openings. `at`: the first answer since the last operation, on the caller's
    clock; None if there was none yet, or if another process may have had a session in between.
    """

    epoch: int = 0
    at: float | None = None

    def opening(self, epoch: int) -> None:
        """An opening has taken over the epoch. `at` is kept only if the previous epoch was opened here, too."""
        if epoch != self.epoch + 1:
            self.at = None
        self.epoch = epoch

    def answered(self, now: float) -> None:
        """OldHost answered; only the first answer counts."""
        self.at = now if self.at is None else self.at

    def late_for(self, late_seconds: float, now: float) -> float:
        """How long from now an operation may still be applied late, given `late_seconds` at most; 0: none may."""
        return late_seconds if self.at is None else max(0.0, self.at + late_seconds - now)

    def forget(self) -> None:
        """An operation is about to be written, which is later than the first contact."""
        self.at = None
