"""A host that is restored uses its nonces again: the checker judges their second life as it did their first."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults import NoFaults
from tests.simulation.shape import Shape, Verdict
from tests.simulation.world import World

REJECT = {"name": "reject", "consume": True, "next": 1, "reason": "refused by a rule"}
LOSE_REPLY = {"name": "drop_after", "next": 1}
RESTORE_AT_S, BACK = 60.0, 3
# A smaller count is believed, and halts, after a minute.
RESOLVED_WITHIN_S = 180.0
SHAPE = Shape(
    changes=40, minutes=2, entities=6, debounce_s=2.0, ban_s=20.0, latency_ms=100, events_suggested=2000,
    eagerness=0.0, workers=1, relays=1,
)  # fmt: skip


class RestoredWorld(World):
    """OldHost is restored `BACK` operations, and told them again. `before`, `after`: its faults for
    one operation each."""

    def __init__(self, *, before: tuple[dict[str, Any], ...] = (), after: tuple[dict[str, Any], ...] = ()) -> None:
        super().__init__(1, shape=SHAPE, faults=NoFaults())
        self._before, self._after = before, after
        self.restored_to = 0

    def play(self) -> Verdict:
        self.begin()
        self.operators.resolve_with = "resend"
        self._plan_changes()
        self._go_on_for(RESTORE_AT_S)
        for fault in self._before:
            self.oldhost.faults.switch_on(fault)
        self.hub.run_until(self.hub.now + RESTORE_AT_S, lambda: not self._before or bool(self.always.rejected))
        self._restore()
        self._go_on_for(RESOLVED_WITHIN_S)
        return self.heal()

    def _restore(self) -> None:
        self.restored_to = self.oldhost.host.expected_nonce - BACK
        self.meddle("back")
        self.oldhost.restore(self.restored_to)
        for fault in self._after:
            self.oldhost.faults.switch_on(fault)
        self.oldhost.hang_up()


def test_a_rejection_that_is_lost_when_a_nonce_is_sent_again_is_counted_as_one() -> None:
    world = RestoredWorld(after=(REJECT, LOSE_REPLY))
    assert world.play().violations == []
    assert list(world.always.rejected) == [world.restored_to]
    entry = world.always.rejected[world.restored_to]
    assert entry.body is not None
    assert list(world.always.mistaken) == [entry.body["event_id"]]


def test_a_rejection_before_the_restore_excuses_nothing_after_it() -> None:
    world = RestoredWorld(before=(REJECT,))
    assert world.play().violations == []
    assert world.restored_to > 1
    assert list(world.always.rejected) == []
    assert list(world.always.mistaken) == []
