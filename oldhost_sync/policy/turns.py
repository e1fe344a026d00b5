"""Turns: which lane's head goes next, and that a turn is charged to whom it served."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from oldhost_sync.policy.changes import EntityKey, PriorityClass
from oldhost_sync.policy.lanes import Lane, WeightedRoundRobin
from oldhost_sync.policy.turn_rules import TurnRules

_LWW, _TXN, _EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY

Head = tuple[EntityKey, int]  # whose turn it is, and the change id that brought it there


class Turns:
    """Over the lanes, by the rules. `since_ms`: since when the change of an id waits."""

    def __init__(
        self,
        lanes: Mapping[PriorityClass, Lane],
        rules: TurnRules,
        robin: WeightedRoundRobin,
        since_ms: Callable[[int], int],
    ) -> None:
        self._lanes = lanes
        self._rules = rules
        self.robin = robin
        self._since_ms = since_ms

    def next(self, now_ms: int) -> tuple[PriorityClass, Head] | None:
        """Whose turn it is, and the turn is theirs; None when nothing can go."""
        heads = {cls: lane.head() for cls, lane in self._lanes.items()}
        turn = self.robin.choose(
            emergency=heads[_EMERGENCY] is not None,
            txn=heads[_TXN] is not None,
            lww=heads[_LWW] is not None,
            oldest=self._rules.oldest(self._first_ms(heads[_TXN]), self._first_ms(heads[_LWW]), now_ms),
        )
        head = heads[turn] if turn is not None else None
        return None if turn is None or head is None else (turn, head)

    def brought(self, turn: PriorityClass, cls: PriorityClass) -> None:
        """What went in that turn was of this class: older than the change whose turn it was, and of its entity."""
        if self._rules.charges_inherited and turn is _TXN and cls is _LWW:
            self.robin.charge_lww()

    def _first_ms(self, head: Head | None) -> int | None:
        return None if head is None else self._since_ms(head[1])
