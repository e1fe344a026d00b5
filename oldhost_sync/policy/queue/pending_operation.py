"""A waiting operation, and the hold of an entity whose later changes wait for an operator."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.queue.lanes import LaneItem

_LWW = PriorityClass.LWW


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


@dataclass(slots=True)
class Hold:
    """An entity with dead letters: its later TXN changes wait in MariaDB until an operator has decided each of these.

    `left`: how many of them the machine has seen and left there, none newer than `newest`.
    """

    dead: list[int]
    left: int = 0
    newest: int = 0

    def holds(self, change_id: int) -> bool:
        """Whether a TXN change is held; not if it was itself a dead letter, or is older than all of them."""
        return change_id not in self.dead and change_id > self.dead[0]

    def has_dead(self, change_id: int) -> bool:
        at = bisect_left(self.dead, change_id)
        return at < len(self.dead) and self.dead[at] == change_id

    def older_than(self, change_id: int) -> list[int]:
        """The dead letters that could hold this change."""
        return self.dead[: bisect_left(self.dead, change_id)]

    def leave(self, *change_ids: int) -> None:
        """These changes, oldest first, also stay in MariaDB; those already counted are not counted again."""
        self.left += len(change_ids) - bisect_right(change_ids, self.newest)
        self.newest = max(self.newest, change_ids[-1])


class Added(Enum):
    """The result of adding a change."""

    NEW = auto()
    REPLACED_OLDER = auto()
    SUPERSEDED = auto()
    HELD = auto()
