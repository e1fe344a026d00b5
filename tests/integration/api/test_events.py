"""The feed as a stream: what a reader gets, and what it gets after an interruption."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.api import http_limits
from tests.integration.api.test_fates import make
from tests.integration.api.test_feed import end

pytestmark = pytest.mark.mariadb


def blocks(client: httpx.Client, last: str | None = None, **params: str) -> Generator[dict[str, str], None, None]:
    """The events, each as its fields."""
    headers = {} if last is None else {"Last-Event-ID": last}
    with client.stream("GET", "/api/events", headers=headers, params=params) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        found: dict[str, str] = {}
        for line in answer.iter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                found[name] = value
            elif not line and found.keys() & {"data", "id"}:
                yield found
                found = {}


def fate_of(event: dict[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event["data"])
    return found


def ended(engine: Engine, *change_ids: int) -> None:
    for change_id in change_ids:
        with engine.begin() as connection:
            end(connection, change_id)


def test_a_fate_comes_as_the_feed_has_it_and_a_later_one_follows(shop: httpx.Client, engine: Engine) -> None:
    first, second = make(shop, "a"), make(shop, "b")
    ended(engine, first)
    events = blocks(shop)
    one = next(events)
    (row,) = shop.get("/api/changes").json()["changes"]
    assert (one["event"], fate_of(one)) == ("fate", row)
    ended(engine, second)
    assert fate_of(next(events))["change_id"] == second
    events.close()


def test_after_an_interruption_no_fate_is_missing(shop: httpx.Client, engine: Engine) -> None:
    ids = [make(shop, key) for key in "abc"]
    ended(engine, ids[0])
    events = blocks(shop)
    last = next(events)["id"]
    events.close()
    ended(engine, *ids[1:])
    again = blocks(shop, last)
    assert [fate_of(next(again))["change_id"] for _ in range(2)] == ids[1:]
    again.close()


def test_an_application_gets_its_own_fates_and_passes_over_others(
    shop: httpx.Client, kiosk: httpx.Client, engine: Engine
) -> None:
    ended(engine, make(kiosk, "theirs"))
    events = blocks(shop)
    passed = next(events)
    assert "data" not in passed
    ended(engine, make(shop, "ours"))
    assert fate_of(next(events))["idempotency_key"] == "ours"
    events.close()


def test_a_cursor_that_the_feed_can_not_follow_is_answered_410(shop: httpx.Client, engine: Engine) -> None:
    ended(engine, make(shop, "a"))
    cursor = shop.get("/api/changes").json()["next_cursor"]
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO feed_horizon (host, pruned_sequence) VALUES ('oldhost', 99)")
    answer = shop.get("/api/events", headers={"Last-Event-ID": cursor})
    assert answer.status_code == 410
    assert shop.get("/api/events", headers={"Last-Event-ID": "x"}).status_code == 422


def test_a_token_with_too_many_streams_is_told_to_come_later(
    shop: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "STREAMS_OF_ONE_TOKEN_MAX", 0)
    answer = shop.get("/api/events")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:oldhost-sync:problem:too-many-streams")
