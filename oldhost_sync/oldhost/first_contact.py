"""When OldHost first answered on a new connection: from then on nothing more of an older one comes in.

OldHost has one connection, so an answer on a new one proves that the old one is gone, and that what is still to be
applied was read before. Bytes may have been held back by the network until then, for longer than any settle time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class FirstContact:
    """One host's, beyond one opening. `at`: the first answer since the last operation, on the caller's clock; None when
    somebody else may have had a session since, or nobody has reached it.
    """

    epoch: int = 0
    at: float | None = None

    def opening(self, epoch: int) -> None:
        """An opening has taken the epoch over. Known is only what the one right before it, here, has seen."""
        if epoch != self.epoch + 1:
            self.at = None
        self.epoch = epoch

    def answered(self, now: float) -> None:
        """The first answer of these counts."""
        self.at = now if self.at is None else self.at

    def late_for(self, late_seconds: float, now: float) -> float:
        """How long from now something may still be applied late, which takes so long at most; 0 when no longer."""
        return late_seconds if self.at is None else max(0.0, self.at + late_seconds - now)

    def forget(self) -> None:
        """An operation is about to be written: it is younger."""
        self.at = None
