"""Turns: choose the lane that sends next and its head, and count the turn for the class and property that it served."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.lanes import Lane, WeightedRoundRobin
from oldhost_sync.policy.turn_rules import properties_take_turns, too_old_for_turns

_LWW, _TXN, _EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY

Head = tuple[EntityKey, int]  # the entity whose turn it is, and the change id of its head


class Turns:
    """Turns over the lanes. `since_ms`: when the change with an id began to wait. `elsewhere`: how many
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

    def next(self, now_ms: int, service_ms: float) -> tuple[PriorityClass, Head] | None:
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

    def _first_ms(self, head: Head | None) -> int | None:
        return None if head is None else self._since_ms(head[1])
