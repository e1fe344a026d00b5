"""What no longer waits but has no fate yet: sends under way, operations bound to a nonce, and those in doubt.

An entity's operations reach OldHost one after the other, in order (invariant I4). Several of them may be in sends,
which keep its order.
"""

from __future__ import annotations

from collections.abc import Iterator

from oldhost_sync.policy.changes import CoalescingKey, EntityKey
from oldhost_sync.policy.queue.pending_operation import PendingOperation


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
        urgent = [one for number in self.urgent for one in self.sends[number]]
        found = (entry for entry in self if entry.ref.entity == entity and entry.ref.change_id not in urgent)
        return sorted(found, key=lambda entry: entry.ref.change_id)

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
