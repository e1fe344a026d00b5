"""Ages: how many operations wait, counted by when they may be sent and since when they wait, to the minute.

Updated with each change that is added or removed, so that a forecast walks over some hundreds of cells and not over the
changes. The error is one minute; where the changes are spread over weeks, wider cells keep their number low.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

CELL_MS = 60_000
# For each of the two lanes; a forecast walks over both in some 40 ms.
CELLS_MAX = 5_000


class Ages:
    """The counts of one class by (when it may be sent, since when it waits), both in cells of `cell_ms`."""

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self.cell_ms = CELL_MS
        self.total = 0

    def add(self, ready_ms: int, first_ms: int) -> None:
        cell = (ready_ms // self.cell_ms, first_ms // self.cell_ms)
        self._cells[cell] = self._cells.get(cell, 0) + 1
        self.total += 1
        self._widen()

    def fill(self, instants: list[tuple[int, int]]) -> None:
        """Add many at once, as (when ready, since when), to empty counts."""
        self._cells = dict(
            Counter([(ready_ms // self.cell_ms, first_ms // self.cell_ms) for ready_ms, first_ms in instants])
        )
        self.total = len(instants)
        self._widen()

    def remove(self, ready_ms: int, first_ms: int) -> None:
        cell = (ready_ms // self.cell_ms, first_ms // self.cell_ms)
        self.total -= 1
        if self._cells[cell] == 1:
            del self._cells[cell]
        else:
            self._cells[cell] -= 1
        if not self._cells:
            self.cell_ms = CELL_MS

    def _widen(self) -> None:
        """Double the cells' width until they are few enough. Later calls find an instant's cell by the new width."""
        while len(self._cells) > CELLS_MAX:
            self.cell_ms *= 2
            wider: dict[tuple[int, int], int] = {}
            for (ready, first), count in self._cells.items():
                cell = (ready // 2, first // 2)
                wider[cell] = wider.get(cell, 0) + count
            self._cells = wider

    def in_order(self) -> Iterator[tuple[int, int, int]]:
        """(when ready, since when, how many), the longest waiting first, which is the lane's order. Instants are in ms,
        rounded down to their cell.
        """
        for ready, first in sorted(self._cells, key=lambda cell: (cell[1], cell[0])):
            yield ready * self.cell_ms, first * self.cell_ms, self._cells[ready, first]
