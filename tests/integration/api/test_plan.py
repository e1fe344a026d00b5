"""Plans over HTTP: a scenario, or what waits now, played beside the server and not in it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from oldhost_sync.api import http_limits, planner_process
from oldhost_sync.store.intake.change_recorder import record_change
from tests.integration.api.conftest import HOST

pytestmark = pytest.mark.mariadb
SMALL = {"changes": 40, "units": 5, "bursts": 0, "duration_s": 60}


def asked(client: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/api/plan", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def refused(client: httpx.Client, **query: Any) -> str:
    answer = client.get("/api/plan", params=query)
    assert answer.status_code == 422
    return str(answer.json()["detail"])


def test_a_scenario_tells_operations_promises_and_the_picture(vera: httpx.Client) -> None:
    plan = asked(vera, **SMALL)
    assert plan["figures"]["changes"] == 40
    assert set(plan["promises"].values()) == {True}
    assert max(each["debounced"] for each in plan["samples"]) > 0
    assert 0 < plan["samples"][-1]["sent"] <= plan["figures"]["operations"]


def test_a_ban_in_the_scenario_is_in_the_picture(vera: httpx.Client) -> None:
    plan = asked(vera, **SMALL, ban_at_s=10, ban_s=600)
    assert any(each["banned"] for each in plan["samples"])
    assert plan["figures"]["drained_s"] > 600


def test_from_now_plays_what_is_outstanding_with_the_writers_settings(vera: httpx.Client, engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(3):
            record_change(
                connection,
                host=HOST,
                entity_type="unit",
                entity_id=f"U-{number}",
                event_type="checked_in",
                payload={"guest": "g"},
                idempotency_key=f"key-{number}",
            )
    plan = asked(vera, from_now=True, debounce_s=1, max_wait_s=1)
    assert plan["figures"]["operations"] == 3
    assert plan["scenario"]["debounce_s"] == 120


def test_from_now_with_nothing_outstanding_says_so(vera: httpx.Client) -> None:
    plan = asked(vera, from_now=True)
    assert plan["figures"] is None
    assert plan["notes"] == ["Nothing is outstanding, and nothing is scheduled."]


def test_from_now_at_a_rate_adds_the_mix(vera: httpx.Client) -> None:
    plan = asked(vera, from_now=True, rate=1, duration_s=30)
    assert plan["figures"]["operations"] > 0


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"emergency_share": 2}, "query.emergency_share: Input should be less than or equal to 1"),
        ({"changes": http_limits.PLANNED_CHANGES_MAX + 1}, "query.changes: at most 50,000"),
        ({"from_now": True, "rate": 100}, "query.rate: at most 50,000"),
        ({"latency_ms": "fast"}, "query.latency_ms"),
    ],
)
def test_a_figure_that_makes_no_sense_is_named(vera: httpx.Client, query: dict[str, Any], told: str) -> None:
    assert told in refused(vera, **query)


def test_a_plan_that_takes_too_long_is_ended_and_the_next_one_is_played(
    vera: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(http_limits, "PLAN_SECONDS_MAX", 0.05)
        patched.setattr(planner_process, "_CHILD", ("sleep", "600"))
        answer = vera.get("/api/plan", params=SMALL)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "plan-too-slow")
    assert asked(vera, **SMALL)["figures"]["changes"] == 40


def test_applications_may_not_plan(shop: httpx.Client) -> None:
    assert shop.get("/api/plan", params=SMALL).status_code == 403
