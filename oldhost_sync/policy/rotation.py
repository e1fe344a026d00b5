"""The rotation: properties take turns within a lane, each with its own oldest head first.

The turn is for the property whose last turn is longest ago. So a property that had no changes is served at once, and no
credit is saved up. Some turns are for the lane's oldest head, and count for its property. Each step is O(log n) in the
number of waiting changes, however many properties there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.policy.writer_policy import OLDEST_TURN_EVERY

LaneItem = tuple[int, int, str]  # (position, change id, property): the lowest is first
Head = tuple[LaneItem, EntityKey]
_Front = tuple[int, Head]  # of a property: its last turn, its first head


class Rotation:
    """`is_shown`: whether a head is still the head of its entity; others are stale and are removed when found.

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
