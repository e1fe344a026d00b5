"""Lost answers: sends in a row of which none brought an answer that can be read.

Each such operation is found applied, or sent again, when the settle time is over. So there is progress, a tenth of what
could be, and nobody would be told of it by a standstill.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.policy.alarms import Alarms

# One lost answer in fifty makes three in a row once in 125,000 sends.
LOST_ANSWERS_ALERT = 3


@dataclass
class LostAnswers:
    """`in_a_row` so far. `told`: people know."""

    in_a_row: int = 0
    told: bool = False

    def note(self, alarms: Alarms, *, ended: bool, in_doubt: bool, reason: str) -> None:
        """How a send ended: with fates or without, and with something left in doubt or not."""
        if ended:
            self.in_a_row = 0
            if self.told:
                alarms.answers_are_back()
            self.told = False
        elif in_doubt:
            self.in_a_row += 1
            if self.in_a_row >= LOST_ANSWERS_ALERT and not self.told:
                self.told = True
                alarms.answers_are_lost(self.in_a_row, reason)
