"""A unit that OldHost refuses for ever, without using the nonce: all others keep nine tenths of OldHost's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.simulation.faults import NoFaults
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Shape
from tests.simulation.world import World

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MINUTES = 20
REFUSED, OTHERS = "e0", 150
SHAPE = Shape(
    changes=0, minutes=MINUTES, entities=OTHERS, debounce_s=2.0, ban_s=900.0, latency_ms=2_000, events_suggested=2000,
    eagerness=0.0, workers=1, relays=1,
)  # fmt: skip
# Another 400 and a firewall's 403 take the same steps as a 500.
REFUSALS: Mapping[str, dict[str, Any]] = {
    "500": {"name": "answer", "status": 500, "nonce": "unused"},
    "busy": {"name": "busy", "retry_after": 1.0},
    "a reset": {"name": "drop_before", "reset": True},
}
STATES_EVERY_S = 20.0


class Backlog(World):
    """More waits for other units than OldHost can take in the time."""

    def __init__(self, refusal: str = "", *, states: bool = False) -> None:
        super().__init__(1, shape=SHAPE, faults=NoFaults())
        self._refusal, self._states = refusal, states

    def of_others(self) -> int:
        """How many operations of other units OldHost has applied when the time is over."""
        self.begin()
        self._go_on_for(5)
        if self._refusal:
            self.oldhost.faults.switch_on({**REFUSALS[self._refusal], "rule": {"entity_id": REFUSED}})
            self._want(0.0, REFUSED, "booking_created", "poison")
        for number in range(int(60 * MINUTES * 1.1)):
            self._want(0.05 * number, f"e{1 + number % OTHERS}", "booking_created", str(number))
        if self._states:
            for number in range(int(60 * MINUTES / STATES_EVERY_S)):
                self._want(STATES_EVERY_S * number, REFUSED, "rate_changed", f"state-{number}")
        self._go_on_for(60 * MINUTES)
        assert self.always.violations + self.hub.failures == []
        assert self.oldhost.host.count("gap") + self.oldhost.host.count("replay") == 0
        bodies = [entry.body or {} for entry in self.oldhost.applied()]
        self.hub.end()
        self.database.raw.close()
        return sum(body.get("entity_id") != REFUSED for body in bodies)

    def _want(self, after_s: float, unit: str, event_type: str, number: str) -> None:
        wish = Wish(f"{unit}-{number}", "unit", unit, event_type, {"number": number, "note": MARKER}, "api")
        self.hub.at(self.hub.now + after_s, lambda: self.applications.want(wish))


@pytest.fixture(scope="module")
def capacity() -> int:
    """Of a host that refuses nothing."""
    taken = Backlog().of_others()
    assert taken > 0.95 * 60 * MINUTES / (SHAPE.latency_ms / 1000)
    return taken


@pytest.mark.parametrize("refusal", REFUSALS)
def test_one_operation_that_is_refused_for_ever_leaves_others_nine_tenths(capacity: int, refusal: str) -> None:
    assert Backlog(refusal).of_others() >= 0.9 * capacity


def test_so_does_a_unit_whose_states_are_refused_for_ever(capacity: int) -> None:
    """A newer one every 20 s."""
    assert Backlog("500", states=True).of_others() >= 0.9 * capacity
