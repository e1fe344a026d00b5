"""Lanes: the queues of ready changes, one per class, and which class is next (`WeightedRoundRobin`).

A lane has at most one head per entity, however many of its changes wait. Within TXN and LWW, properties take turns
(`rotation`). Between the lanes: EMERGENCY always first, then TXN and LWW 3:1 while both can be sent, work-conserving
and without saved-up credit (invariant I8; trap 12).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, nsmallest
from itertools import islice

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.rotation import LaneItem, Rotation


class Lane:
    """Ready changes of one class in order of position. `by_property`: properties take turns."""

    def __init__(self, *, by_property: bool = False) -> None:
        self._rotation = Rotation(lambda head: self._head_of.get(head[1]) == head[0]) if by_property else None
        self._ready: dict[EntityKey, list[LaneItem]] = {}
        self._heads: list[tuple[LaneItem, EntityKey]] = []
        self._head_of: dict[EntityKey, LaneItem] = {}
        self._parked: dict[EntityKey, None] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, entity: EntityKey, item: LaneItem) -> None:
        insort(self._ready.setdefault(entity, []), item)
        self._size += 1
        self._refresh(entity)

    def fill(self, ready: Iterable[tuple[LaneItem, EntityKey]]) -> None:
        """Add many at once to an empty lane."""
        lists: dict[EntityKey, list[LaneItem]] = {}
        for item, entity in sorted(ready):
            if (items := lists.get(entity)) is None:
                lists[entity] = [item]
            else:
                items.append(item)
            self._size += 1
        self._ready = lists
        self._head_of = {entity: items[0] for entity, items in lists.items()}
        self._heads = [(item, entity) for entity, item in self._head_of.items()]  # sorted, and so a heap
        if self._rotation is not None:
            self._rotation.fill(self._heads)

    def remove(self, entity: EntityKey, item: LaneItem) -> None:
        items = self._ready[entity]
        del items[bisect_left(items, item)]
        self._size -= 1
        if not items:
            del self._ready[entity]
        self._refresh(entity)

    def of(self, entity: EntityKey) -> list[LaneItem]:
        """The entity's items in this lane, in order."""
        return self._ready.get(entity, [])

    def replace(self, entity: EntityKey, items: list[LaneItem]) -> None:
        """Replace all the entity's items in this lane by these."""
        self._size += len(items) - len(self._ready.pop(entity, ()))
        if items:
            self._ready[entity] = sorted(items)
        self._refresh(entity)

    def _refresh(self, entity: EntityKey) -> None:
        """Make the entity's first item its head; no head while it has nothing ready."""
        items = None if entity in self._parked else self._ready.get(entity)
        if not items:
            self._head_of.pop(entity, None)
        elif self._head_of.get(entity) != items[0]:
            self._head_of[entity] = items[0]
            head = (items[0], entity)
            heappush(self._heads, head)
            if self._rotation is not None:
                self._rotation.show(head)

    def park(self, entity: EntityKey) -> None:
        """The entity gets no turn until `unpark`."""
        self._parked[entity] = None
        self._refresh(entity)

    def unpark(self, entity: EntityKey) -> None:
        self._parked.pop(entity, None)
        self._refresh(entity)

    def head(self) -> tuple[EntityKey, int] | None:
        """The entity whose turn it is in this lane, and the change id of its head."""
        if self._rotation is None or self._rotation.oldest_is_due:
            return self.oldest()
        head = self._rotation.first()
        return None if head is None else (head[1], head[0][1])

    def charge(self, entity: EntityKey) -> None:
        """Count the turn for this entity's property. Call it before anything of the entity is taken out."""
        if self._rotation is not None:
            self._rotation.charge(self._head_of[entity][2])

    def oldest(self) -> tuple[EntityKey, int] | None:
        """The first head in order of position, whichever property's turn it is."""
        while self._heads:
            item, entity = self._heads[0]
            if self._head_of.get(entity) == item:
                return entity, item[1]
            heappop(self._heads)
        return None

    def change_ids(self) -> Iterator[int]:
        """All ready changes, unordered; for queries only."""
        return (change_id for items in self._ready.values() for _, change_id, _ in items)

    def first(self, count: int) -> Iterator[tuple[LaneItem, EntityKey]]:
        """The first `count` ready items; O(size), for queries only."""
        return iter(nsmallest(count, ((item, entity) for entity, items in self._ready.items() for item in items)))

    def first_in_rotation(self, count: int) -> Iterator[tuple[LaneItem, EntityKey]]:
        """The first `count` if all turns were in rotation; none if properties take no turns. O(size), for queries."""
        if self._rotation is None:
            return iter(())
        queues: dict[str, list[tuple[LaneItem, EntityKey]]] = {}
        for entity, items in self._ready.items():
            for item in items:
                queues.setdefault(item[2], []).append((item, entity))
        last_turns = self._rotation.last_turns
        ordered = sorted(
            (nsmallest(count, queue) for queue in queues.values()),
            key=lambda queue: (last_turns.get(queue[0][0][2], 0), queue[0]),
        )
        return islice((queue[turn] for turn in range(count) for queue in ordered if turn < len(queue)), count)

    def follow(self, other: Lane) -> None:
        """Copy the properties' past turns from another lane."""
        if self._rotation is not None and other._rotation is not None:
            self._rotation.follow(other._rotation)


class WeightedRoundRobin:
    """Chooses the class that is next. `txn_run`: TXN turns in a row since the last LWW turn, while LWW was ready."""

    def __init__(self, txn_per_lww: int, txn_run: int = 0) -> None:
        self.txn_per_lww = txn_per_lww
        self.txn_run = txn_run

    def charge_lww(self) -> None:
        """An LWW change was sent in TXN's turn: count it as LWW's turn, so that TXN loses none."""
        self.txn_run = 0

    def choose(
        self, *, emergency: bool, txn: bool, lww: bool, oldest: PriorityClass | None = None
    ) -> PriorityClass | None:
        """The next class among those that can send; None when none can. `oldest`: TXN or LWW, if it has a change that
        is too old to wait for its turn.
        """
        if emergency:
            return PriorityClass.EMERGENCY
        if oldest is not None:
            self.txn_run = 0
            return oldest
        if txn and lww:
            if self.txn_run < self.txn_per_lww:
                self.txn_run += 1
                return PriorityClass.TXN
            self.txn_run = 0
            return PriorityClass.LWW
        self.txn_run = 0
        if txn:
            return PriorityClass.TXN
        return PriorityClass.LWW if lww else None
