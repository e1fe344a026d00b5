"""A burst of emergencies of few units, several each: they reach OldHost first come, first served (I15)."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.tuning import SEND_OPERATIONS, URGENT_SENDS_IN_FLIGHT_MAX
from tests.simulation.faults import NoFaults
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Shape
from tests.simulation.world import World

EMERGENCIES, UNITS = 152, 30
REJECT = {"name": "reject", "consume": True, "every": 40, "reason": "refused by a rule"}
SHAPE = Shape(
    changes=0, minutes=2, entities=UNITS, debounce_s=2.0, ban_s=20.0, latency_ms=400, events_suggested=2000,
    eagerness=0.0, workers=1, relays=1,
)  # fmt: skip


class BurstWorld(World):
    """All emergencies are recorded within `within_s`; the host rejects a few. `order`: as they reached it."""

    def __init__(self, seed: int, within_s: float) -> None:
        super().__init__(seed, shape=SHAPE, faults=NoFaults())
        self._within_s = within_s
        self.order: list[int] = []

    def play(self, *, paused: bool = False) -> list[str]:
        """`paused`: the writer is, until it knows them all."""
        self.begin()
        self._go_on_for(10)
        if paused:
            self._ask("pause")
        self.oldhost.faults.switch_on(REJECT)
        for number in range(EMERGENCIES):
            self._want_later(number)
        if paused:
            self._go_on_for(self._within_s + 5)
            self._ask("resume")
        self._go_on_for(90)
        entries = {**self.always.applied, **self.always.rejected}
        self.order = [int((entries[nonce].body or {})["event_id"]) for nonce in sorted(entries)]
        return self.heal().violations

    def _want_later(self, number: int) -> None:
        payload = {"note": MARKER, "number": str(number)}
        wish = Wish(f"key-{number}", "unit", f"e{number % UNITS}", "guest_locked_out", payload, "api")
        self.hub.at(self.hub.now + self._within_s * number / EMERGENCIES, lambda: self.applications.want(wish))

    def _ask(self, action: str) -> None:
        self.operators.process.spawn(lambda: self.operators.ask(action))
        self._go_on_for(1)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_burst_that_the_writer_knows_reaches_oldhost_in_the_order_of_the_change_ids(seed: int) -> None:
    world = BurstWorld(seed, 2.0)
    assert world.play(paused=True) == []
    assert world.order == list(range(1, EMERGENCIES + 1))


@pytest.mark.parametrize(("seed", "within_s"), [(1, 0.5), (2, 2.0), (3, 10.0), (4, 40.0)])
def test_what_the_writer_learns_late_is_overtaken_only_by_the_urgent_sends_that_were_given_out(
    seed: int, within_s: float
) -> None:
    """Transactions commit in another order than their ids."""
    world = BurstWorld(seed, within_s)
    assert world.play() == []
    assert sorted(world.order) == list(range(1, EMERGENCIES + 1))
    overtaken = [sum(before > one for before in world.order[:at]) for at, one in enumerate(world.order)]
    assert 0 < max(overtaken) <= SEND_OPERATIONS * URGENT_SENDS_IN_FLIGHT_MAX
