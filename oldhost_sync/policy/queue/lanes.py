"""Lanes: the queues of ready changes, one per class, and which class (`WeightedRoundRobin`), property
(`Rotation`) and entity is next (`Turns`).

A lane has at most one head per entity, however many of its changes wait. Within TXN and LWW, properties take turns.
Between the lanes: EMERGENCY always first, then TXN and LWW 3:1 while both can be sent, work-conserving
and without saved-up credit (invariant I8; trap 12).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.tuning import OLDEST_FIRST_MS, OLDEST_TURN_EVERY

_LWW, _TXN, _EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY

LaneItem = tuple[int, int, str]  # (position, change id, property): the lowest is first
Head = tuple[LaneItem, EntityKey]
LaneHead = tuple[EntityKey, int]  # the entity whose turn it is, and the change id of its head
_Front = tuple[int, Head]  # of a property: its last turn, its first head


class Lane:
    """Ready changes of one class in order of position. `by_property`: properties take turns."""

    def __init__(self, *, by_property: bool = False) -> None:
        self._rotation = Rotation(lambda head: self.heads.get(head[1]) == head[0]) if by_property else None
        self._ready: dict[EntityKey, list[LaneItem]] = {}
        self._heads: list[tuple[LaneItem, EntityKey]] = []
        self.heads: dict[EntityKey, LaneItem] = {}
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
        self.heads = {entity: items[0] for entity, items in lists.items()}
        self._heads = [(item, entity) for entity, item in self.heads.items()]  # sorted, and so a heap
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
            self.heads.pop(entity, None)
        elif self.heads.get(entity) != items[0]:
            self.heads[entity] = items[0]
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

    def head(self) -> LaneHead | None:
        """The entity whose turn it is in this lane, and the change id of its head."""
        if self._rotation is None or self._rotation.oldest_is_due:
            return self.oldest()
        head = self._rotation.first()
        return None if head is None else (head[1], head[0][1])

    def charge(self, entity: EntityKey) -> None:
        """Count the turn for this entity's property. Call it before anything of the entity is taken out."""
        if self._rotation is not None:
            self._rotation.charge(self.heads[entity][2])

    def oldest(self) -> LaneHead | None:
        """The first head in order of position, whichever property's turn it is."""
        while self._heads:
            item, entity = self._heads[0]
            if self.heads.get(entity) == item:
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


class Rotation:
    """Properties take turns within a lane, each with its own oldest head first.

    The turn is for the property whose last turn is longest ago. So a property that had no changes is served at once,
    and no credit is saved up. Some turns are for the lane's oldest head, and count for its property. Each step is
    O(log n) in the number of waiting changes, however many properties there are.

    `is_shown`: whether a head is still the head of its entity; others are stale and are removed when found.

    `last_turns`: the number of each property's last turn; 0: none so far. The next run begins a new rotation.
    """

    def __init__(self, is_shown: Callable[[Head], bool]) -> None:
        self._is_shown = is_shown
        self._turn = 0
        self.last_turns: dict[str, int] = {}
        self._heads: dict[str, list[Head]] = {}
        self._fronts: list[_Front] = []
        self._front_of: dict[str, _Front] = {}

    def show(self, head: Head) -> None:
        """Add a head."""
        property_id = head[0][2]
        heads = self._heads.setdefault(property_id, [])
        heappush(heads, head)
        if heads[0] is head:
            self._bring_forward(property_id)

    def fill(self, heads: Iterable[Head]) -> None:
        """Add many heads at once, in order, to an empty rotation."""
        queues = self._heads
        for head in heads:
            if (queue := queues.get(head[0][2])) is None:
                queues[head[0][2]] = [head]
            else:
                queue.append(head)
        self._front_of = {one: (self.last_turns.get(one, 0), heads[0]) for one, heads in queues.items()}
        self._fronts = list(self._front_of.values())
        heapify(self._fronts)

    @property
    def oldest_is_due(self) -> bool:
        """Whether the next turn is for the lane's oldest head instead of the rotation."""
        return (self._turn + 1) % OLDEST_TURN_EVERY == 0

    def first(self) -> Head | None:
        """The next head in rotation."""
        while self._fronts:
            front = self._fronts[0]
            head = front[1]
            is_current = self._front_of.get(head[0][2]) == front
            if is_current and self._is_shown(head):
                return head
            heappop(self._fronts)
            if is_current:
                del self._front_of[head[0][2]]
                self._bring_forward(head[0][2])
        return None

    def charge(self, property_id: str) -> None:
        """The property has had its turn."""
        self._turn += 1
        self.last_turns[property_id] = self._turn
        self._bring_forward(property_id)

    def follow(self, other: Rotation) -> None:
        """Copy the past turns of another rotation."""
        self._turn, self.last_turns = other._turn, dict(other.last_turns)

    def _bring_forward(self, property_id: str) -> None:
        """Put the property's first head among those of all properties, ordered by last turn."""
        heads = self._heads.get(property_id, [])
        while heads and not self._is_shown(heads[0]):
            heappop(heads)
        if not heads:
            self._heads.pop(property_id, None)
            self._front_of.pop(property_id, None)
            return
        front = (self.last_turns.get(property_id, 0), heads[0])
        if self._front_of.get(property_id) != front:
            self._front_of[property_id] = front
            heappush(self._fronts, front)


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


class Turns:
    """Choose the lane that sends next and its head, and count the turn for the class and property that it served.

    `since_ms`: when the change with an id began to wait. `elsewhere`: how many
    operations wait outside these lanes, if these hold only some of them (`preview`).
    """

    def __init__(
        self,
        lanes: Mapping[PriorityClass, Lane],
        robin: WeightedRoundRobin,
        since_ms: Callable[[int], int],
    ) -> None:
        self._lanes = lanes
        self.robin = robin
        self._since_ms = since_ms
        self.elsewhere = 0

    def next(self, now_ms: int, service_ms: float) -> tuple[PriorityClass, LaneHead] | None:
        """Take the next turn: its lane and head; None when nothing can be sent. `service_ms`: that of one operation."""
        heads = {cls: lane.oldest() for cls, lane in self._lanes.items()}
        turn = self.robin.choose(
            emergency=heads[_EMERGENCY] is not None,
            txn=heads[_TXN] is not None,
            lww=heads[_LWW] is not None,
            oldest=too_old_for_turns(self._first_ms(heads[_TXN]), self._first_ms(heads[_LWW]), now_ms),
        )
        if turn is None or (oldest := heads[turn]) is None:
            return None
        lane = self._lanes[turn]
        waiting_ms = service_ms * (self.elsewhere + self.waiting)
        takes_turns = properties_take_turns(self._since_ms(oldest[1]), waiting_ms, now_ms)
        head = lane.head() if takes_turns else oldest
        assert head is not None, "a lane with an oldest head has no next head"
        lane.charge(head[0])
        return turn, head

    @property
    def waiting(self) -> int:
        """How many operations wait in the lanes that take turns."""
        return len(self._lanes[_TXN]) + len(self._lanes[_LWW])

    def brought(self, turn: PriorityClass, cls: PriorityClass) -> None:
        """In this turn a change of class `cls` was sent: the head, or an older change of the same entity. An LWW change
        in TXN's turn, because a TXN of its entity waits behind it, counts as LWW's.
        """
        if turn is _TXN and cls is _LWW:
            self.robin.charge_lww()

    def _first_ms(self, head: LaneHead | None) -> int | None:
        return None if head is None else self._since_ms(head[1])


def too_old_for_turns(txn_ms: int | None, lww_ms: int | None, now_ms: int) -> PriorityClass | None:
    """The class with the older head, if that is too old to wait for its turn. `txn_ms`, `lww_ms`: when each head began
    to wait; None: no head.
    """
    if txn_ms is None or lww_ms is None or now_ms - min(txn_ms, lww_ms) < OLDEST_FIRST_MS:
        return None
    return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW


def properties_take_turns(first_ms: int, waiting_ms: float, now_ms: int) -> bool:
    """Whether the properties of a lane may take turns: its oldest change, waiting from `first_ms` on, would not get too
    old even if it were sent last. `waiting_ms`: how long OldHost takes for all that waits.
    """
    return now_ms - first_ms + waiting_ms < OLDEST_FIRST_MS
