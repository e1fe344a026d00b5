"""The page of the planner."""

from __future__ import annotations

from typing import Any

import httpx

from oldhost_sync.console.plan_page import PLAN

SMALL: dict[str, Any] = {"from_now": "false", "changes": 40, "units": 5, "bursts": 0, "duration_s": 60}


def test_the_form_alone_plays_nothing(vera: httpx.Client) -> None:
    page = vera.get(PLAN).text
    assert 'name="latency_ms"' in page
    assert "What would happen" not in page


def test_a_scenario_shows_its_promises_figures_and_backlog(vera: httpx.Client) -> None:
    page = vera.get(PLAN, params=SMALL).text
    for told in ("kept", "consistency within 4 h", "Empty after", 'class="line" data-line="accepted" d="M0.0,'):
        assert told in page


def test_a_scenario_that_breaks_a_promise_says_so(vera: httpx.Client) -> None:
    page = vera.get(PLAN, params=SMALL | {"latency_ms": 60_000, "emergency_share": 0.5}).text
    assert "BROKEN" in page


def test_the_form_as_a_browser_sends_it_with_an_empty_ban_is_understood(vera: httpx.Client) -> None:
    assert vera.get(PLAN, params=SMALL | {"ban_at_s": ""}).status_code == 200


def test_the_form_keeps_what_was_asked(vera: httpx.Client) -> None:
    assert 'name="changes" type="number" step="1" min="1" value="40"' in vera.get(PLAN, params=SMALL).text


def test_from_now_with_nothing_to_play_says_so(vera: httpx.Client) -> None:
    page = vera.get(PLAN, params={"from_now": "true"}).text
    assert "Nothing is outstanding, and nothing is scheduled." in page


def test_a_figure_that_makes_no_sense_is_a_page_that_names_it(vera: httpx.Client) -> None:
    answer = vera.get(PLAN, params=SMALL | {"txn_share": 3})
    assert answer.status_code == 422
    assert "txn_share" in answer.text
