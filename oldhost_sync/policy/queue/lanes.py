"""Lanes: the queues of waiting changes. Debounced keys wait for their time; ready changes wait in the lane of their
class, and take turns by class (`WeightedRoundRobin`), property (`Rotation`) and entity (`Turns`).

A lane has at most one head per entity, however many of its changes wait. Within TXN and LWW, properties take turns.
Between the lanes: EMERGENCY always first, then TXN and LWW 3:1 while both can be sent, work-conserving
and without saved-up credit (invariant I8; trap 12).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, nsmallest
from itertools import islice
from typing import Any, Generic, TypeVar

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.queue.operations import LaneItem, PendingOperation
from oldhost_sync.policy.tuning import OLDEST_TURN_EVERY

_LWW, _TXN, _EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY

# A heap with more stale items than this, and more than live ones, is made anew.
STALE_MAX = 64

Head = tuple[LaneItem, EntityKey]
LaneHead = tuple[EntityKey, int]  # the entity whose turn it is, and the change id of its head

K = TypeVar("K")
P = TypeVar("P", bound=Any)


class LazyHeap(Generic[P, K]):
    """Keys in order of their priority, the lowest first, each step in O(log n). `priorities`: that of each key.

    A key that moves or leaves is left where it was in the heap, and skipped when it is met.
    """

    __slots__ = ("_heap", "priorities")

    def __init__(self, priorities: dict[K, P] | None = None) -> None:
        self._heap: list[tuple[P, K]] = []
        self.priorities: dict[K, P] = {}
        if priorities:
            self.fill(priorities)

    def put(self, key: K, priority: P) -> None:
        """Add a key, or move it."""
        heap, priorities = self._heap, self.priorities
        if priorities.get(key) == priority:
            return
        priorities[key] = priority
        heappush(heap, (priority, key))
        if len(heap) > STALE_MAX + 2 * len(priorities):
            self._rebuild()

    def fill(self, priorities: Mapping[K, P]) -> None:
        """Add many at once."""
        self.priorities.update(priorities)
        self._rebuild()

    def remove(self, key: K) -> None:
        self.priorities.pop(key, None)

    def first(self) -> tuple[P, K] | None:
        """The lowest priority and its key."""
        heap, priorities = self._heap, self.priorities
        while heap and priorities.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0] if heap else None

    def _rebuild(self) -> None:
        self._heap = [(priority, key) for key, priority in self.priorities.items()]
        heapify(self._heap)


class DebouncedKeys:
    """Keys that wait for the end of their debounce. `early_ms`: after this quiet time one may be sent early; 0: no."""

    def __init__(self, early_ms: int) -> None:
        self._early_ms = early_ms
        self._due, self._quiet = LazyHeap[int, int](), LazyHeap[int, int]()

    def __len__(self) -> int:
        return len(self._due.priorities)

    def change_ids(self) -> Iterable[int]:
        return self._due.priorities

    def put(self, change_id: int, due_at_ms: int, changed_at_ms: int) -> None:
        """`changed_at_ms`: when its quiet time began."""
        self._due.put(change_id, due_at_ms)
        if self._early_ms:
            self._quiet.put(change_id, changed_at_ms + self._early_ms)

    def fill(self, due_at_ms: Mapping[int, int], changed_at_ms: Callable[[int], int]) -> None:
        """Add many at once, by change id, when there are none yet."""
        self._due.fill(due_at_ms)
        if self._early_ms:
            self._quiet.fill({change_id: changed_at_ms(change_id) + self._early_ms for change_id in due_at_ms})

    def remove(self, change_id: int) -> None:
        self._due.remove(change_id)
        self._quiet.remove(change_id)

    def next_due_at_ms(self) -> int | None:
        first = self._due.first()
        return first[0] if first else None

    def next_quiet_at_ms(self) -> int | None:
        first = self._quiet.first()
        return first[0] if first else None

    def pop_due(self, now_ms: int) -> int | None:
        """Take the change id that is due longest, or None when nothing is due at `now_ms`."""
        first = self._due.first()
        if first is None or first[0] > now_ms:
            return None
        self.remove(first[1])
        return first[1]

    def quiet(self, now_ms: int, at_most: int) -> list[int]:
        """Those that were quiet for long enough, the quietest first. Each is returned once, and still waits."""
        quiet: list[int] = []
        while len(quiet) < at_most and (first := self._quiet.first()) is not None and first[0] <= now_ms:
            self._quiet.remove(first[1])
            quiet.append(first[1])
        return quiet


class Lane:
    """Ready changes of one class in order of position. `by_property`: properties take turns."""

    def __init__(self, *, by_property: bool = False) -> None:
        self._rotation = Rotation() if by_property else None
        self._ready: dict[EntityKey, list[LaneItem]] = {}
        self._order: LazyHeap[LaneItem, EntityKey] = LazyHeap()
        self.heads = self._order.priorities
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
        self._order.fill({entity: items[0] for entity, items in lists.items()})
        if self._rotation is not None:
            self._rotation.fill(self.heads)

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
        before, head = self.heads.get(entity), items[0] if items else None
        if head == before:
            return
        if before is not None and self._rotation is not None:
            self._rotation.hide(entity, before)
        if head is None:
            self._order.remove(entity)
            return
        self._order.put(entity, head)
        if self._rotation is not None:
            self._rotation.show(entity, head)

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
        head = self._order.first()
        return None if head is None else (head[1], head[0][1])

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

    `last_turns`: the number of each property's last turn; 0: none so far. The next run begins a new rotation.
    """

    def __init__(self) -> None:
        self._turn = 0
        self.last_turns: dict[str, int] = {}
        self._heads: dict[str, LazyHeap[LaneItem, EntityKey]] = {}  # by property
        self._order: LazyHeap[tuple[int, Head], str] = LazyHeap()  # properties, by last turn and first head

    def show(self, entity: EntityKey, head: LaneItem) -> None:
        """Add an entity's head."""
        if (heads := self._heads.get(head[2])) is None:
            heads = self._heads[head[2]] = LazyHeap()
        heads.put(entity, head)
        self._place(head[2])

    def hide(self, entity: EntityKey, head: LaneItem) -> None:
        """Remove an entity's head."""
        self._heads[head[2]].remove(entity)
        self._place(head[2])

    def fill(self, heads: Mapping[EntityKey, LaneItem]) -> None:
        """Add many heads at once, in order, to an empty rotation."""
        by_property: dict[str, dict[EntityKey, LaneItem]] = {}
        fronts: dict[str, tuple[int, Head]] = {}
        for entity, head in heads.items():
            property_id = head[2]
            if (of_property := by_property.get(property_id)) is None:
                by_property[property_id] = {entity: head}
                fronts[property_id] = self.last_turns.get(property_id, 0), (head, entity)
            else:
                of_property[entity] = head
        self._heads = {property_id: LazyHeap(of_property) for property_id, of_property in by_property.items()}
        self._order.fill(fronts)

    @property
    def oldest_is_due(self) -> bool:
        """Whether the next turn is for the lane's oldest head instead of the rotation."""
        return (self._turn + 1) % OLDEST_TURN_EVERY == 0

    def first(self) -> Head | None:
        """The next head in rotation."""
        front = self._order.first()
        return None if front is None else front[0][1]

    def charge(self, property_id: str) -> None:
        """The property has had its turn."""
        self._turn += 1
        self.last_turns[property_id] = self._turn
        self._place(property_id)

    def follow(self, other: Rotation) -> None:
        """Copy the past turns of another rotation."""
        self._turn, self.last_turns = other._turn, dict(other.last_turns)

    def _place(self, property_id: str) -> None:
        """Put the property where its last turn and its first head belong; one without heads leaves."""
        heads = self._heads.get(property_id)
        first = None if heads is None else heads.first()
        if first is None:
            self._heads.pop(property_id, None)
            self._order.remove(property_id)
        else:
            self._order.put(property_id, (self.last_turns.get(property_id, 0), first))


class WeightedRoundRobin:
    """Chooses the class that is next. `txn_run`: TXN turns in a row since the last LWW turn, while LWW was ready."""

    def __init__(self, txn_per_lww: int, txn_run: int = 0) -> None:
        self.txn_per_lww = txn_per_lww
        self.txn_run = txn_run

    def charge_lww(self) -> None:
        """An LWW change was sent in TXN's turn, because a TXN change of its entity waits behind it: count it as LWW's
        turn, so that TXN loses none.
        """
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

    `waiting`: all that waits, by change id. `oldest_first_ms`: see `Promises`. `elsewhere`: how many operations wait
    outside these lanes, if these hold only some of them (`upcoming`).
    """

    def __init__(
        self,
        lanes: Mapping[PriorityClass, Lane],
        robin: WeightedRoundRobin,
        waiting: Mapping[int, PendingOperation],
        oldest_first_ms: int,
    ) -> None:
        self._lanes = lanes
        self.robin = robin
        self._waiting = waiting
        self.oldest_first_ms = oldest_first_ms
        self.elsewhere = 0

    def next(self, now_ms: int, service_ms: float) -> tuple[PriorityClass, LaneHead] | None:
        """Take the next turn: its lane and head; None when nothing can be sent. `service_ms`: that of one operation."""
        heads = {cls: lane.oldest() for cls, lane in self._lanes.items()}
        turn = self.robin.choose(
            emergency=heads[_EMERGENCY] is not None,
            txn=heads[_TXN] is not None,
            lww=heads[_LWW] is not None,
            oldest=self._too_old_for_turns(self._first_ms(heads[_TXN]), self._first_ms(heads[_LWW]), now_ms),
        )
        if turn is None or (oldest := heads[turn]) is None:
            return None
        lane = self._lanes[turn]
        waiting_ms = service_ms * (self.elsewhere + self.waiting)
        takes_turns = self._properties_take_turns(self._waiting[oldest[1]].first_at_ms, waiting_ms, now_ms)
        head = lane.head() if takes_turns else oldest
        assert head is not None, "a lane with an oldest head has no next head"
        lane.charge(head[0])
        return turn, head

    @property
    def waiting(self) -> int:
        """How many operations wait in the lanes that take turns."""
        return len(self._lanes[_TXN]) + len(self._lanes[_LWW])

    def _first_ms(self, head: LaneHead | None) -> int | None:
        return None if head is None else self._waiting[head[1]].first_at_ms

    def _too_old_for_turns(self, txn_ms: int | None, lww_ms: int | None, now_ms: int) -> PriorityClass | None:
        """The class with the older head, if that is too old to wait for its turn. `txn_ms`, `lww_ms`: when each head
        began to wait; None: no head.
        """
        if txn_ms is None or lww_ms is None or now_ms - min(txn_ms, lww_ms) < self.oldest_first_ms:
            return None
        return PriorityClass.TXN if txn_ms <= lww_ms else PriorityClass.LWW

    def _properties_take_turns(self, first_ms: int, waiting_ms: float, now_ms: int) -> bool:
        """Whether the properties of a lane may take turns: its oldest change, waiting from `first_ms` on, would not get
        too old even if it were sent last. `waiting_ms`: how long OldHost takes for all that waits.
        """
        return now_ms - first_ms + waiting_ms < self.oldest_first_ms
