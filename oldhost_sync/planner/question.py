"""A question to the planner and its answer, as JSON; and the question that begins with what waits now.

A server has it answered by a separate process: a rehearsal holds Python's global lock for seconds, during which a
server could not answer requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from oldhost_sync.planner.rehearsal import rehearse
from oldhost_sync.planner.scenario import FIGURE_MAX, Arrival, Scenario
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.tuning import WriterPolicy


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


def live_arrivals(
    outstanding: Iterable[ChangeRef], later: Iterable[ChangeRef], now_ms: int, new: Iterable[Arrival] = ()
) -> list[Arrival]:
    """All arrivals of a plan from the live state, on a clock that is 0 now.

    `outstanding` changes arrived before, and keep their database ids; scheduled ones (`later`) arrive when due, or now
    if that has passed; `new` ones at their own times. What is due after the longest time of a plan is left out.
    """
    waiting = [_arrival_of(ref, ref.accepted_at_ms - now_ms) for ref in outstanding]
    horizon_ms = now_ms + 1000 * FIGURE_MAX
    coming = [_arrival_of(ref, max(0, ref.accepted_at_ms - now_ms)) for ref in later if ref.accepted_at_ms < horizon_ms]
    last_id = max((arrival.number for arrival in waiting), default=0)
    ordered = sorted([*coming, *new], key=lambda arrival: arrival.at_ms)
    return waiting + [replace(arrival, number=number) for number, arrival in enumerate(ordered, last_id + 1)]


def live_scenario(scenario: Scenario, policy: WriterPolicy, changes: Sequence[Arrival], ban_left_ms: int) -> Scenario:
    """`scenario` with the writer's settings and only the ban that runs now, for as long as `changes` arrive."""
    return replace(
        scenario,
        bursts=0,
        duration_s=max(scenario.duration_s, changes[-1].at_ms / 1000),
        debounce_s=policy.debounce_ms / 1000,
        max_wait_s=policy.max_wait_ms / 1000,
        txn_per_lww=policy.txn_per_lww,
        early_send_s=policy.early_send_ms / 1000,
        emergency_promise_s=policy.emergency_ms / 1000,
        consistency_promise_h=policy.consistency_ms / 3_600_000,
        **({"ban_at_s": 0.0, "ban_s": ban_left_ms / 1000} if ban_left_ms else {"ban_at_s": None}),
    )


def _arrival_of(ref: ChangeRef, at_ms: int) -> Arrival:
    return Arrival(ref.change_id, at_ms, ref.priority_class, *ref.key, property_id=ref.property_id)
