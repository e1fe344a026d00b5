"""Operations: each waits, is then in flight, and has its fate at last.

`Ages` counts how many wait, by when they may be sent and since when they wait, to the minute, so that a forecast walks
over some hundreds of cells and not over the changes. The error is one minute; where the changes are spread over weeks,
wider cells keep their number low.

`InFlight` has what no longer waits but has no fate yet: sends under way, operations bound to a nonce, and those in
doubt. An entity's operations reach OldHost one after the other, in order (invariant I4). Several of them may be in
sends, which keep its order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from oldhost_sync.policy.changes import ChangeRef, CoalescingKey, EntityKey, PriorityClass

_LWW = PriorityClass.LWW

CELL_MS = 60_000
# For each of the two lanes; a forecast walks over both in some 40 ms.
CELLS_MAX = 5_000

LaneItem = tuple[int, int, str]  # (position, change id, property): the lowest is first


@dataclass(slots=True)
class PendingOperation:
    """A waiting operation: its newest change, when its key began to wait, when it is due, whether it is in its lane."""

    ref: ChangeRef
    first_at_ms: int
    due_at_ms: int
    ready: bool = False

    @property
    def ready_ms(self) -> int:
        """When it may be sent."""
        return self.due_at_ms if self.ref.priority_class is _LWW else self.first_at_ms

    def take_place_of(self, older: PendingOperation, max_wait_ms: int) -> None:
        """It waits since the older change of its key did, and is ready if that was."""
        self.first_at_ms = min(self.first_at_ms, older.first_at_ms)
        self.due_at_ms = min(self.due_at_ms, older.due_at_ms if older.ready else self.first_at_ms + max_wait_ms)
        self.ready = self.ready or older.ready

    @property
    def lane_item(self) -> LaneItem:
        """Its place in its lane. An LWW key's is by its first change."""
        change_id = self.ref.change_id
        place = self.first_at_ms if self.ref.priority_class is _LWW else change_id
        return place, change_id, self.ref.property_id


def label_of(entries: Sequence[PendingOperation]) -> str:
    """A text for people about operations that are sent together."""
    first = entries[0].ref
    text = f"{first.priority_class.value} {first.entity_type} {first.entity_id} {first.event_type} #{first.change_id}"
    return text if len(entries) == 1 else f"{text} and {len(entries) - 1} more"


class Ages:
    """The counts of one class by (when it may be sent, since when it waits), both in cells of `cell_ms`; and those of
    each property.
    """

    def __init__(self) -> None:
        self._cells: dict[tuple[int, int], int] = {}
        self.by_property: dict[str, int] = {}
        self.cell_ms = CELL_MS
        self.total = 0

    def add(self, entry: PendingOperation) -> None:
        cell = self._cell(entry)
        self._cells[cell] = self._cells.get(cell, 0) + 1
        property_id = entry.ref.property_id
        self.by_property[property_id] = self.by_property.get(property_id, 0) + 1
        self.total += 1
        self._widen()

    def fill(self, instants: list[tuple[int, int]], properties: Iterable[str] = ()) -> None:
        """Add many at once, as (when ready, since when), to empty counts; and the property of each."""
        self.by_property = dict(Counter(properties))
        self._cells = dict(
            Counter([(ready_ms // self.cell_ms, first_ms // self.cell_ms) for ready_ms, first_ms in instants])
        )
        self.total = len(instants)
        self._widen()

    def remove(self, entry: PendingOperation) -> None:
        cell = self._cell(entry)
        self.total -= 1
        if self._cells[cell] == 1:
            del self._cells[cell]
        else:
            self._cells[cell] -= 1
        property_id = entry.ref.property_id
        if self.by_property[property_id] == 1:
            del self.by_property[property_id]
        else:
            self.by_property[property_id] -= 1
        if not self._cells:
            self.cell_ms = CELL_MS

    def _cell(self, entry: PendingOperation) -> tuple[int, int]:
        return entry.ready_ms // self.cell_ms, entry.first_at_ms // self.cell_ms

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


class InFlight:
    """Entries by change id; `sends` (number → ids in order), `urgent` (numbers of the urgent sends), `bound` (ids in
    nonce order), `in_doubt`. A change may be both in an ordinary send and in an urgent one, ahead of its emergency.
    """

    def __init__(self) -> None:
        self.entries: dict[int, PendingOperation] = {}
        self._busy: dict[EntityKey, int] = {}  # how many of each entity
        self.sends: dict[int, list[int]] = {}
        self.urgent: dict[int, None] = {}
        self.bound: list[int] = []
        self.in_doubt: list[int] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, change_id: int) -> bool:
        return change_id in self.entries

    def __iter__(self) -> Iterator[PendingOperation]:
        return iter(self.entries.values())

    def enter(self, entry: PendingOperation) -> None:
        entity = entry.ref.entity
        self.entries[entry.ref.change_id] = entry
        self._busy[entity] = self._busy.get(entity, 0) + 1

    def leave(self, change_id: int) -> PendingOperation:
        """Remove an operation that is in flight no more."""
        entry = self.entries.pop(change_id)
        for group in (self.bound, self.in_doubt):
            if change_id in group:
                group.remove(change_id)
        entity = entry.ref.entity
        self._busy[entity] -= 1
        if not self._busy[entity]:
            del self._busy[entity]
        return entry

    def entity_of(self, change_id: int) -> EntityKey:
        return self.entries[change_id].ref.entity

    def get(self, change_id: int) -> PendingOperation | None:
        return self.entries.get(change_id)

    def start(self, number: int, entries: list[PendingOperation], *, urgent: bool = False) -> None:
        for entry in entries:
            if entry.ref.change_id not in self.entries:
                self.enter(entry)
        self.sends[number] = [entry.ref.change_id for entry in entries]
        if urgent:
            self.urgent[number] = None

    def end(self, number: int) -> list[int]:
        """The send has ended. Returns the ids that were in it."""
        self.urgent.pop(number, None)
        return self.sends.pop(number)

    def is_being_sent(self, change_id: int) -> bool:
        """Whether it is in a send that has not ended."""
        return any(change_id in ids for ids in self.sends.values())

    def is_under_way(self, change_id: int) -> bool:
        """Whether it is in flight, or in a send that has not ended although another send has reported its fate."""
        return change_id in self or self.is_being_sent(change_id)

    @property
    def ordinary(self) -> int:
        """How many sends are not urgent."""
        return len(self.sends) - len(self.urgent)

    def in_ordinary(self, entity: EntityKey) -> list[PendingOperation]:
        """The entity's operations in flight that are in no urgent send, oldest first."""
        if entity not in self._busy:
            return []
        urgent = [change_id for number in self.urgent for change_id in self.sends[number]]
        entries = (entry for entry in self if entry.ref.entity == entity and entry.ref.change_id not in urgent)
        return sorted(entries, key=lambda entry: entry.ref.change_id)

    def bound_to_send(self, count: int) -> list[PendingOperation]:
        """The first `count` operations bound to a nonce that are in no send yet."""
        sending = [change_id for ids in self.sends.values() for change_id in ids]
        bound = [change_id for change_id in self.bound if change_id not in sending][:count]
        return [self.entries[change_id] for change_id in bound]

    def newest(self, key: CoalescingKey) -> int:
        """The largest change id of this key in flight, or 0."""
        if EntityKey(key.entity_type, key.entity_id) not in self._busy:
            return 0
        return max((entry.ref.change_id for entry in self if entry.ref.key == key), default=0)
