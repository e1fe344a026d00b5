"""Temporal's clock is set back: timers that run fire hours late, and the writer's time stands still."""

from __future__ import annotations

import pytest

from oldhost_sync.relay.watchdog import NUDGE_SECONDS
from tests.simulation.faults import NoFaults
from tests.simulation.shape import Shape
from tests.simulation.world import World

HOURS_S = 7200.0
SHAPE = Shape(
    changes=120, minutes=2, entities=12, debounce_s=20.0, ban_s=30.0, latency_ms=100, events_suggested=2000,
    eagerness=0.0, workers=1, relays=1,
)  # fmt: skip


def applied(world: World) -> int:
    return len(world.oldhost.applied())


@pytest.mark.parametrize("banned", [True, False], ids=["during a ban", "while keys are debounced"])
def test_changes_are_sent_in_time_though_temporals_clock_was_set_back(banned: bool) -> None:
    world = World(1, shape=SHAPE, faults=NoFaults())
    world.begin()
    world._plan_changes()
    world._go_on_for(60)
    if banned:
        world.ban()
        world._go_on_for(5)
    before = applied(world)
    world.step_temporal_clock(-HOURS_S)
    world._go_on_for(2 * NUDGE_SECONDS + SHAPE.ban_s + SHAPE.debounce_s)
    assert applied(world) > before + 5
    assert world.heal().violations == []
