"""Lanes: what is ready to go, per class, and whose turn it is.

A lane shows at most one head per entity, so that an entity with an operation in flight is passed over in O(log n)
however much it has waiting. Turns: EMERGENCY absolute, then TXN and LWW 3:1 while both can go, work-conserving and
without saved-up credit (invariant I8; trap 12).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator
from heapq import heappop, heappush, nsmallest

from oldhost_sync.policy.changes import EntityKey, PriorityClass

LaneItem = tuple[int, int]  # (position, change id): lower goes first


class Lane:
    """Ready changes of one class in order of position; `blocked` tells the entities that have something in flight."""

    def __init__(self, blocked: Container[EntityKey]) -> None:
        self._blocked = blocked
        self._ready: dict[EntityKey, list[LaneItem]] = {}
        self._heads: list[tuple[LaneItem, EntityKey]] = []
        self._head_of: dict[EntityKey, LaneItem] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, entity: EntityKey, item: LaneItem) -> None:
        insort(self._ready.setdefault(entity, []), item)
        self._size += 1
        self.refresh(entity)

    def fill(self, ready: Iterable[tuple[LaneItem, EntityKey]]) -> None:
        """Take many at once into a lane that is empty."""
        lists: dict[EntityKey, list[LaneItem]] = {}
        for item, entity in sorted(ready):
            if (items := lists.get(entity)) is None:
                lists[entity] = [item]
            else:
                items.append(item)
            self._size += 1
        self._ready = lists
        self._head_of = {entity: items[0] for entity, items in lists.items() if entity not in self._blocked}
        self._heads = [(item, entity) for entity, item in self._head_of.items()]  # in order, and so a heap

    def remove(self, entity: EntityKey, item: LaneItem) -> None:
        items = self._ready[entity]
        del items[bisect_left(items, item)]
        self._size -= 1
        if not items:
            del self._ready[entity]
        self.refresh(entity)

    def of(self, entity: EntityKey) -> list[LaneItem]:
        """What the entity has here, in its order."""
        return self._ready.get(entity, [])

    def replace(self, entity: EntityKey, items: list[LaneItem]) -> None:
        """These are all that the entity has here from now on."""
        self._size += len(items) - len(self._ready.pop(entity, ()))
        if items:
            self._ready[entity] = sorted(items)
        self.refresh(entity)

    def refresh(self, entity: EntityKey) -> None:
        """Show the entity's first item as a head, or none while the entity is blocked or has nothing ready."""
        items = self._ready.get(entity)
        if not items or entity in self._blocked:
            self._head_of.pop(entity, None)
        elif self._head_of.get(entity) != items[0]:
            self._head_of[entity] = items[0]
            heappush(self._heads, (items[0], entity))

    def head(self) -> tuple[EntityKey, int] | None:
        """The entity whose turn it is in this lane, and the change id that brought it there."""
        while self._heads:
            item, entity = self._heads[0]
            if self._head_of.get(entity) == item:
                return entity, item[1]
            heappop(self._heads)
        return None

    def change_ids(self) -> Iterator[int]:
        """All that is ready, blocked or not, in no order; for queries only."""
        return (change_id for items in self._ready.values() for _, change_id in items)

    def first(self, count: int) -> Iterator[tuple[LaneItem, EntityKey]]:
        """The first `count` ready items, blocked ones too; O(size), for queries only."""
        return iter(nsmallest(count, ((item, entity) for entity, items in self._ready.items() for item in items)))


class WeightedRoundRobin:
    """Whose turn it is. `txn_run`: TXN turns taken in a row since LWW had one, while LWW could have gone."""

    def __init__(self, txn_per_lww: int, txn_run: int = 0) -> None:
        self.txn_per_lww = txn_per_lww
        self.txn_run = txn_run

    def charge_lww(self) -> None:
        """TXN's turn brought an LWW change: that was LWW's turn, and TXN has its own still to come."""
        self.txn_run = 0

    def choose(
        self, *, emergency: bool, txn: bool, lww: bool, oldest: PriorityClass | None = None
    ) -> PriorityClass | None:
        """The class that goes next among those that can go; None when none can. `oldest`: TXN or LWW, whichever has
        what is too old to wait for its turn.
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
