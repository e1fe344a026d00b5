"""What if: a scenario, or what waits now, played by the writer's own policy on a virtual clock. Nothing is sent."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query
from pydantic import BeforeValidator

from oldhost_sync.api.auth import WATCHERS, adder
from oldhost_sync.api.dependencies import Parts
from oldhost_sync.api.planner_process import Wanted
from oldhost_sync.api.problems import field_invalid
from oldhost_sync.api.view_schemas import Plan, PlanSample
from oldhost_sync.planner import Scenario, ScenarioError

_PEAK = Scenario()


def _blank_is_none(value: Any) -> Any:
    """As a form leaves a field empty."""
    return None if value == "" else value


def wanted_plan(
    from_now: Annotated[
        bool, Query(description="Begin with what is outstanding and scheduled, by the settings")
    ] = False,
    rate: Annotated[float, Query(ge=0, description="From now: this mix goes on at so many changes a second")] = 0.0,
    units: Annotated[int, Query(description="Units that change")] = _PEAK.units,
    changes: Annotated[int, Query(description="Changes in all")] = _PEAK.changes,
    emergency_share: Annotated[float, Query(description="Share of EMERGENCY changes")] = _PEAK.emergency_share,
    txn_share: Annotated[float, Query(description="Share of TXN changes; the rest is LWW")] = _PEAK.txn_share,
    duration_s: Annotated[float, Query(description="Time over which they come")] = _PEAK.duration_s,
    bursts: Annotated[int, Query(description="How many bursts are among them")] = _PEAK.bursts,
    burst_changes: Annotated[int, Query(description="Changes in one burst")] = _PEAK.burst_changes,
    burst_per_s: Annotated[float, Query(description="Rate during a burst")] = _PEAK.burst_per_s,
    ban_at_s: Annotated[
        float | None, BeforeValidator(_blank_is_none), Query(description="When OldHost bans; empty: never")
    ] = None,
    ban_s: Annotated[float, Query(description="How long the ban lasts")] = _PEAK.ban_s,
    latency_ms: Annotated[float, Query(description="OldHost's time for one request")] = _PEAK.latency_ms,
    debounce_s: Annotated[float, Query(description="How long an LWW key must be quiet")] = _PEAK.debounce_s,
    max_wait_s: Annotated[float, Query(description="The longest an LWW key is held")] = _PEAK.max_wait_s,
    txn_per_lww: Annotated[int, Query(description="TXN turns to one LWW turn")] = _PEAK.txn_per_lww,
    early_send_s: Annotated[
        float, Query(description="How long a key must be quiet to go early to an idle OldHost; 0: none does")
    ] = _PEAK.early_send_s,
    seed: Annotated[int, Query(description="Another seed is another day")] = _PEAK.seed,
) -> Wanted:
    """What the query asks for. Raises a Problem that names the figure which makes no sense."""
    given = locals()
    try:
        scenario = Scenario(**{name: given[name] for name in asdict(_PEAK)})
    except ScenarioError as error:
        name, _, why = str(error).partition(" ")
        raise field_invalid(f"query.{name}", why) from None
    return Wanted(scenario, from_now=from_now, rate=rate)


WantedPlan = Annotated[Wanted, Depends(wanted_plan)]


class PlanRoutes:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def mount(self, app: FastAPI) -> None:
        add = adder(app, "plan")
        add("GET", "/api/plan", self.get, Plan, "What if: a scenario, or from now", WATCHERS, (405, 422))

    async def get(self, wanted: WantedPlan) -> Plan:
        """Played in virtual time; takes seconds, and one plan is played at a time."""
        planned = await self._parts.planner.plan(wanted)
        found = planned.answer
        return Plan(
            scenario=asdict(planned.scenario),
            notes=planned.live.notes() if planned.live else [],
            figures=found.figures if found else None,
            promises=found.promises if found else {},
            samples=[PlanSample(**each) for each in found.samples] if found else [],
        )
