"""A question to the planner, and its answer, as JSON: a server has it answered by a separate process.

A rehearsal holds Python's global lock for seconds, during which a server could not answer requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oldhost_sync.planner.rehearsal import rehearse
from oldhost_sync.planner.scenario import Arrival, Scenario
from oldhost_sync.policy.changes import PriorityClass


@dataclass(frozen=True, slots=True)
class Question:
    """A scenario to rehearse. `arrivals`: instead of the scenario's own."""

    scenario: Scenario
    arrivals: Sequence[Arrival] | None = None

    def to_json(self) -> str:
        arrivals = None if self.arrivals is None else [_as_list(each) for each in self.arrivals]
        return json.dumps({"scenario": asdict(self.scenario), "arrivals": arrivals})

    @staticmethod
    def from_json(text: str) -> Question:
        values = json.loads(text)
        arrivals = values["arrivals"]
        return Question(
            Scenario(**values["scenario"]), None if arrivals is None else [_arrival(*each) for each in arrivals]
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """`figures`: those of Plan.figures. `promises`: whether each is kept. `samples`: the states over time."""

    figures: dict[str, Any]
    promises: dict[str, bool]
    samples: list[dict[str, Any]]

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Answer:
        return Answer(**json.loads(text))


def answer(question: Question) -> Answer:
    """Rehearse the scenario."""
    plan = rehearse(question.scenario, changes=question.arrivals)
    return Answer(plan.figures(), dict(plan.promises()), [asdict(sample) for sample in plan.samples])


def _as_list(arrival: Arrival) -> list[object]:
    return [
        arrival.number,
        arrival.at_ms,
        arrival.priority_class.value,
        arrival.entity_type,
        arrival.entity_id,
        arrival.event_type,
        arrival.property_id,
    ]


def _arrival(number: int, at_ms: int, cls: str, *names: str) -> Arrival:
    entity_type, entity_id, event_type, property_id = names
    return Arrival(number, at_ms, PriorityClass(cls), entity_type, entity_id, event_type, property_id=property_id)
