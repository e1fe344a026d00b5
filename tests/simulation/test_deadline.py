"""A process that sleeps between SENT and the first byte sends too late, whatever its wall clock says (traps 2, 3)."""

from __future__ import annotations

from typing import Any

from tests.simulation.hub import Process
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Shape
from tests.simulation.world import World


class StalledAfterSent:
    """Once: after the COMMIT of a SENT mark the worker sleeps, and its wall clock is set back by an hour."""

    def __init__(self) -> None:
        self.on = True
        self.world: Any = None
        self._marking = False
        self.stalled = False

    def at(self, kind: str, process: Process, detail: str = "") -> str:
        if process.role != "worker":
            return ""
        if kind == "statement":
            self._marking = "SET status = 'SENT" in detail
        if kind != "commit" or not self._marking or self.stalled:
            return ""
        self.stalled = True
        for worker in self.world.workers:
            worker.wall_offset -= 3600.0
        return "stall"


def test_trap_2_what_was_marked_too_long_ago_is_not_written() -> None:
    faults = StalledAfterSent()
    world = World(3, shape=Shape(changes=1, debounce_s=2.0, ban_s=20.0), faults=faults)
    faults.world = world
    world.begin()
    wish = Wish("key", "unit", "a", "booking_created", {"number": "1", "note": MARKER}, "api")
    world.hub.after(1.0, lambda: world.applications.want(wish))
    world._go_on_for(60)
    verdict = world.heal()
    assert faults.stalled
    assert verdict.violations == []
    assert verdict.operations == 1
