"""What if: a scenario, or the present backlog, simulated with the writer's own policy on a virtual clock. Nothing is
sent.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from fastapi import Depends, FastAPI, Query
from pydantic import Field

from oldhost_sync.api.access import WATCHERS, adder
from oldhost_sync.api.dependencies import Dependencies
from oldhost_sync.api.planner_process import PlanRequest
from oldhost_sync.api.problems import field_invalid
from oldhost_sync.api.requests import (
    BLANK_IS_NONE,
    DECIMAL,
    FLAG,
    WHOLE,
    AnswerBody,
)
from oldhost_sync.planner import Scenario, ScenarioError
from oldhost_sync.planner.scenario import CHANGES_MAX, FIGURE_MAX, MEANINGS, UNITS_MAX
from oldhost_sync.policy.limits import INTEGER_MAX, INTEGER_MIN

_PEAK = Scenario()


def _figure(name: str) -> Any:
    return Query(description=MEANINGS[name])


def wanted_plan(
    from_now: Annotated[
        bool, FLAG, Query(description="Begin with the outstanding and scheduled changes, with the writer's settings")
    ] = False,
    rate: Annotated[
        float,
        Field(ge=0, lt=FIGURE_MAX),
        DECIMAL,
        Query(description="With `from_now`: new changes per second, in this mix"),
    ] = 0.0,
    units: Annotated[int, Field(ge=1, le=UNITS_MAX), WHOLE, _figure("units")] = _PEAK.units,
    changes: Annotated[int, Field(ge=1, le=CHANGES_MAX), WHOLE, _figure("changes")] = _PEAK.changes,
    emergency_share: Annotated[float, Field(ge=0, le=1), DECIMAL, _figure("emergency_share")] = _PEAK.emergency_share,
    txn_share: Annotated[float, Field(ge=0, le=1), DECIMAL, _figure("txn_share")] = _PEAK.txn_share,
    duration_s: Annotated[float, Field(gt=0, lt=FIGURE_MAX), DECIMAL, _figure("duration_s")] = _PEAK.duration_s,
    bursts: Annotated[int, Field(ge=0, le=CHANGES_MAX), WHOLE, _figure("bursts")] = _PEAK.bursts,
    burst_changes: Annotated[int, Field(ge=1, le=CHANGES_MAX), WHOLE, _figure("burst_changes")] = _PEAK.burst_changes,
    burst_per_s: Annotated[float, Field(gt=0, lt=FIGURE_MAX), DECIMAL, _figure("burst_per_s")] = _PEAK.burst_per_s,
    ban_at_s: Annotated[
        float | None, Field(ge=0, lt=FIGURE_MAX), DECIMAL, BLANK_IS_NONE, _figure("ban_at_s")
    ] = _PEAK.ban_at_s,
    ban_s: Annotated[float, Field(gt=0, lt=FIGURE_MAX), DECIMAL, _figure("ban_s")] = _PEAK.ban_s,
    latency_ms: Annotated[float, Field(ge=0, lt=FIGURE_MAX), DECIMAL, _figure("latency_ms")] = _PEAK.latency_ms,
    debounce_s: Annotated[float, Field(ge=0, lt=FIGURE_MAX), DECIMAL, _figure("debounce_s")] = _PEAK.debounce_s,
    max_wait_s: Annotated[float, Field(ge=0, lt=FIGURE_MAX), DECIMAL, _figure("max_wait_s")] = _PEAK.max_wait_s,
    txn_per_lww: Annotated[int, Field(ge=1, le=CHANGES_MAX), WHOLE, _figure("txn_per_lww")] = _PEAK.txn_per_lww,
    early_send_s: Annotated[float, Field(ge=0, lt=FIGURE_MAX), DECIMAL, _figure("early_send_s")] = _PEAK.early_send_s,
    emergency_promise_s: Annotated[
        float, Field(gt=0, lt=FIGURE_MAX), DECIMAL, _figure("emergency_promise_s")
    ] = _PEAK.emergency_promise_s,
    consistency_promise_h: Annotated[
        float, Field(gt=0, lt=FIGURE_MAX), DECIMAL, _figure("consistency_promise_h")
    ] = _PEAK.consistency_promise_h,
    seed: Annotated[int, Field(ge=INTEGER_MIN, le=INTEGER_MAX), WHOLE, _figure("seed")] = _PEAK.seed,
) -> PlanRequest:
    """The plan that the query asks for. Raises a Problem that names an invalid parameter."""
    given = locals()
    try:
        scenario = Scenario(**{name: given[name] for name in asdict(_PEAK)})
    except ScenarioError as error:
        name, _, why = str(error).partition(" ")
        raise field_invalid(f"query.{name}", why) from None
    return PlanRequest(scenario, from_now=from_now, rate=rate)


WantedPlan = Annotated[PlanRequest, Depends(wanted_plan)]


class PlanSample(AnswerBody):
    """The state at one point of a plan: operations ready to be sent, waiting in the debounce, and sent so far."""

    at_ms: int
    ready: int
    debounced: int
    sent: int
    banned: bool


class Plan(AnswerBody):
    """The result of a simulation; a name's suffix gives its unit (`_s`: seconds, `_ms`: milliseconds)."""

    EXAMPLE: ClassVar[dict[str, Any]] = {
        "scenario": {"units": 2500, "changes": 10000, "latency_ms": 400.0, "ban_at_s": None},
        "notes": [],
        "figures": {"operations": 4508, "superseded": 5492, "drained": True, "drained_s": 3243.5},
        "promises": {"drains": True, "consistency within 4 h": True},
        "samples": [{"at_ms": 0, "ready": 0, "debounced": 3, "sent": 0, "banned": False}],
    }

    scenario: dict[str, float | None] = Field(description="With `from_now`, it has the writer's settings")
    notes: list[str] = Field(description="With `from_now`: what the plan does not know, or can't change")
    figures: dict[str, Any] | None = Field(description="null: there is nothing to simulate")
    promises: dict[str, bool] = Field(description="Whether each promise is kept")
    samples: list[PlanSample]


class PlanRoutes:
    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "plan")
        add("GET", "/api/plan", self.get, Plan, "Simulate a scenario, or the present backlog", WATCHERS, (405, 422))

    async def get(self, wanted: WantedPlan) -> Plan:
        """A simulation in virtual time. It takes some seconds, and only one runs at a time."""
        planned = await self._dependencies.planner.plan(wanted)
        answer = planned.answer
        return Plan(
            scenario=asdict(planned.scenario),
            notes=planned.live.notes() if planned.live else [],
            figures=answer.figures if answer else None,
            promises=answer.promises if answer else {},
            samples=[PlanSample(**sample) for sample in answer.samples] if answer else [],
        )
