"""The kinds of host that there may be, by name: the fault programme runs on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oldhost_simulator.behaviour import Behaviour
from oldhost_simulator.dialects.dialect import Dialect
from oldhost_simulator.dialects.frame import FRAMES
from oldhost_simulator.dialects.http import HTTP as BY_HTTP
from oldhost_sync.drivers.ambiguity import RecoveryPlan, plan
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats, Resets
from oldhost_sync.drivers.contract import Driver
from oldhost_sync.drivers.frame.driver import FrameDriver
from oldhost_sync.drivers.http.driver import HTTP

FIRST_NUMBER = 501


@dataclass(frozen=True)
class Kind:
    """A kind of host; its driver claims what it does. `tells_rejections`: an answer that is lost is found out, too.
    `more`: options of the simulator. `dialect`: what it speaks.
    """

    expected: str = "never"
    outcome: str = "never"
    repeated: str = "punished"
    rejection_uses: str = "says"
    tells_rejections: bool = True
    more: Mapping[str, Any] = field(default_factory=dict)
    dialect: Dialect = FRAMES

    @property
    def behaviour(self) -> Behaviour:
        claims: Any = {name: getattr(self, name) for name in ("expected", "outcome", "repeated", "rejection_uses")}
        return Behaviour(**claims, **self.more)

    @property
    def driver(self) -> Driver:
        if self.dialect is BY_HTTP:
            return HTTP
        claims = Capabilities(
            expected=Expects(self.expected),
            outcome=AskedOutcomes(self.outcome),
            repeated=Repeats(self.repeated),
            rejection_uses=RejectionUses(self.rejection_uses),
            resets=Resets(self.more.get("resets", "never")),
            modulus=self.more.get("modulus"),
            lowest=self.more.get("lowest", 0),
        )
        return FrameDriver(claims)

    @property
    def plan(self) -> RecoveryPlan:
        return plan(self.driver.capabilities)

    @property
    def first_number(self) -> int | None:
        """Where its numbers must begin; None: anywhere."""
        return FIRST_NUMBER if self.behaviour.modulus else self.behaviour.lowest or None

    @property
    def shows_meddling(self) -> bool:
        """Whether its count shows what somebody else did to it."""
        return self.plan.has_count and self.behaviour.modulus is None and self.behaviour.resets == "never"


OLDHOST = Kind(expected="used", tells_rejections=False, dialect=BY_HTTP)

KINDS = {
    "expected proves applied": Kind(expected="applied", rejection_uses="no"),
    "expected proves used": Kind(expected="used", tells_rejections=False),
    "expected lags behind": Kind(expected="used", tells_rejections=False, more={"lags_seconds": 0.01}),
    "expected and outcome by number": Kind(expected="used", outcome="by_number"),
    "expected and last outcome": Kind(expected="used", outcome="last", tells_rejections=False),
    "outcome by number": Kind(outcome="by_number"),
    "outcome by id": Kind(outcome="by_id"),
    "outcome by id, rejections use none": Kind(outcome="by_id", rejection_uses="no"),
    "last outcome": Kind(outcome="last"),
    "last answer": Kind(repeated="last_answer"),
    "refuses": Kind(repeated="refused", tells_rejections=False),
    "nothing": Kind(repeated="done_twice", tells_rejections=False),
    # Its numbers go from 496 to 503: they wrap within the scenario.
    "wraps, expected": Kind(expected="used", tells_rejections=False, more={"modulus": 503, "lowest": 495}),
    "wraps, outcome by number": Kind(outcome="by_number", more={"modulus": 503, "lowest": 495}),
    "wraps, last outcome": Kind(outcome="last", more={"modulus": 503, "lowest": 495}),
    "anew with each session, outcome by id": Kind(outcome="by_id", more={"resets": "session", "lowest": 1}),
    "anew with each session, nothing": Kind(
        repeated="refused", tells_rejections=False, more={"resets": "session", "lowest": 1}
    ),
}


def kind_named(name: str) -> Kind:
    """Empty: OldHost."""
    return KINDS[name] if name else OLDHOST
