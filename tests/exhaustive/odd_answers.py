"""Answers that the protocol does not have, each step of a worker killed: one unit is refused for ever without its nonce
being used, in each way in turn; others' operations use their nonces and get a foreign 422, 409, 500 or 200.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.exhaustive.scenario import NumberedFaults, Scenario
from tests.simulation.faults import MODES
from tests.simulation.roles import MARKER, Wish
from tests.simulation.shape import Verdict

REFUSALS: Mapping[str, dict[str, Any]] = {
    "403": {"name": "answer", "status": 403, "body": "no", "nonce": "unused"},
    "500": {"name": "answer", "status": 500, "nonce": "unused"},
    "400": {"name": "answer", "status": 400, "body": "{}", "nonce": "unused"},
    "busy": {"name": "busy", "retry_after": 0.5},
    "reset": {"name": "drop_before", "reset": True},
}
FOREIGN: Mapping[str, dict[str, Any]] = {
    "b": {"status": 422, "body": "no", "nonce": "used"},
    "c": {"status": 500, "body": '{"code": 17}', "nonce": "used"},
    "d": {"status": 200, "body": "<h1>It works</h1>", "nonce": "applied"},
    "f": {"status": 409, "body": "", "nonce": "used"},
}
# When, entity, event type. "p" is refused for ever: long enough for three tries.
CHANGES = (
    (1.0, "p", "booking_created"),
    (1.2, "p", "checked_in"),
    (1.4, "b", "booking_created"),
    (1.5, "b", "checked_in"),
    (1.6, "c", "booking_created"),
    (1.8, "d", "booking_created"),
    (2.0, "f", "rate_changed"),
    (15.0, "e", "guest_locked_out"),
    (40.0, "p", "rate_changed"),
    (50.0, "e", "booking_created"),
    (110.0, "f", "rate_changed"),
)
REFUSED_S = 150.0
# Those whose steps differ: a complete answer, busy, and none at all.
KILLED_IN = ("500", "busy", "reset")
KILLS = ("die", "die-after")


class OddAnswers(Scenario):
    """The same each time, but for how one unit is refused."""

    def __init__(self, faults: NumberedFaults, refusal: str) -> None:
        super().__init__(faults)
        self._refusal = refusal

    def play(self) -> Verdict:
        self.begin()
        for number, (at, entity, event_type) in enumerate(CHANGES):
            wish = Wish(f"key-{number}", "unit", entity, event_type, {"number": str(number), "note": MARKER}, "api")
            self.hub.after(at, lambda wish=wish: self.applications.want(wish))  # type: ignore[misc]
        self.oldhost.faults.switch_on({**REFUSALS[self._refusal], "label": "refused", "rule": {"entity_id": "p"}})
        for entity, answer in FOREIGN.items():
            self.oldhost.faults.switch_on(
                {"name": "answer", "label": entity, "next": 1, "rule": {"entity_id": entity}, **answer}
            )
        self._go_on_for(REFUSED_S)
        return self.heal()


@dataclass(frozen=True, slots=True)
class OddCase:
    """One call that fails, while one unit is refused in this way."""

    refusal: str
    number: int
    mode: str

    def __str__(self) -> str:
        return f"{self.refusal}: call {self.number} {self.mode}"


def play(case: OddCase) -> tuple[Verdict, OddAnswers]:
    scenario = OddAnswers(NumberedFaults({case.number: case.mode}), case.refusal)
    return scenario.play(), scenario


def cases() -> Iterator[tuple[str, OddCase]]:
    """Every call of a worker that a kill can hit, before and after its effect; single statements are rolled back."""
    for refusal in KILLED_IN:
        verdict, scenario = play(OddCase(refusal, -1, ""))
        assert not verdict.violations, (refusal, verdict.violations)
        for number, (kind, who) in enumerate(scenario.faults.calls):
            if who.startswith("worker") and kind in {"commit", "write", "read", "result"}:
                for mode in [one for one in MODES[kind] if one in KILLS]:
                    yield f"{refusal}, {kind}", OddCase(refusal, number, mode)
