"""Lost answers: sends in a row of which none brought an answer that can be read.

Each such operation is found applied, or sent again, when the settle time is over. So there is progress, a tenth of what could be,
and nobody would be told of it by a standstill.
"""

from __future__ import annotations

from dataclasses import dataclass

# One lost answer in fifty makes three in a row once in 125,000 sends.
LOST_ANSWERS_ALERT = 3


@dataclass
class LostAnswers:
    """`in_a_row` so far. `told`: people know."""

    in_a_row: int = 0
    told: bool = False

    def lost(self) -> bool:
        """Another one; True when people are to be told."""
        self.in_a_row += 1
        if self.told or self.in_a_row < LOST_ANSWERS_ALERT:
            return False
        self.told = True
        return True

    def came(self) -> bool:
        """An answer; True when people are to be told that it is over."""
        was_told, self.told = self.told, False
        self.in_a_row = 0
        return was_told
