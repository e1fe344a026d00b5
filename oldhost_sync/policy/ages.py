"""Ages: how many operations wait, by when their turn comes and how old they are, to the minute.

Kept up as changes come and go, so that a forecast walks some hundreds of cells and not what waits. Its error is that minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

CELL_MS = 60_000


class Ages:
    """Of one class: counts by (minute of its turn, minute since when it waits)."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self.total = 0

    def add(self, turn_ms: int, first_ms: int) -> None:
        cell = (turn_ms // CELL_MS, first_ms // CELL_MS)
        self._cells[cell] = self._cells.get(cell, 0) + 1
        self.total += 1

    def fill(self, instants: list[tuple[int, int]]) -> None:
        """Take many at once, as (turn, since when), into one that is empty."""
        self._cells = dict(Counter([(turn_ms // CELL_MS, first_ms // CELL_MS) for turn_ms, first_ms in instants]))
        self.total = len(instants)

    def remove(self, turn_ms: int, first_ms: int) -> None:
        cell = (turn_ms // CELL_MS, first_ms // CELL_MS)
        self.total -= 1
        if self._cells[cell] == 1:
            del self._cells[cell]
        else:
            self._cells[cell] -= 1

    def in_order(self) -> Iterator[tuple[int, int, int]]:
        """(turn, since when, how many), in ms, as their turns come; each instant is the beginning of its minute."""
        for (turn, first), count in sorted(self._cells.items()):
            yield turn * CELL_MS, first * CELL_MS, count
