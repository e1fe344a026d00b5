"""The planner: the writer's own machine on a virtual clock against a model of OldHost, compared with an oracle.

Of our code it imports only the policy, so that it predicts what the product really does.
"""

from __future__ import annotations

from oldhost_sync.planner.plan import Bounds, Plan, PlannedState, bounds, quantile
from oldhost_sync.planner.question import Answer, Question, live_arrivals, live_scenario
from oldhost_sync.planner.rehearsal import Pace, rehearse
from oldhost_sync.planner.replay import REPLAYED_CHANGES_MAX, replayed_arrivals, replayed_scenario
from oldhost_sync.planner.scenario import Arrival, Scenario, ScenarioError, arrivals
from oldhost_sync.planner.steady_load import Tried, capacity, ceiling_per_s, steady

__all__ = [
    "REPLAYED_CHANGES_MAX",
    "Answer",
    "Arrival",
    "Bounds",
    "Pace",
    "Plan",
    "PlannedState",
    "Question",
    "Scenario",
    "ScenarioError",
    "Tried",
    "arrivals",
    "bounds",
    "capacity",
    "ceiling_per_s",
    "live_arrivals",
    "live_scenario",
    "quantile",
    "rehearse",
    "replayed_arrivals",
    "replayed_scenario",
    "steady",
]
