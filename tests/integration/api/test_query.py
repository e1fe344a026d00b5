"""Filters do what they say, and a query that a route does not understand is refused instead of left out."""

from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

pytestmark = pytest.mark.mariadb


def test_every_route_refuses_a_parameter_it_does_not_know(app: FastAPI, anna: httpx.Client) -> None:
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    assert len(routes) > 15
    for route in routes:
        for method in route.methods or ():
            path = route.path.replace("{", "").replace("}", "").replace(":path", "")
            answer = anna.request(method, path, params={"no_such": "x"})
            assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), path
            assert answer.json()["errors"][0]["field"] == "query.no_such"


def test_the_refusal_names_what_the_route_takes(anna: httpx.Client) -> None:
    detail = anna.get("/api/units", params={"property": "seaview"}).json()["detail"]
    assert detail == (
        "query.property: is not a parameter of this route, which takes cursor, limit, name, property_id, sync_status"
    )


def test_a_parameter_that_is_given_twice_is_refused(anna: httpx.Client) -> None:
    answer = anna.get("/api/units?limit=1&limit=2")
    assert answer.status_code == 422
    assert "more than once" in answer.json()["detail"]


def test_units_are_found_by_property_and_by_name(shop: httpx.Client) -> None:
    for number in range(6):
        details = {"name": f"Sea view {number % 3}", "property_id": "seaview" if number < 4 else "hilltop"}
        assert shop.put(f"/api/units/u{number}", json=details).status_code == 202

    def found(**params: str) -> list[str]:
        return [unit["id"] for unit in shop.get("/api/units", params=params).json()["units"]]

    assert found(property_id="seaview") == ["u0", "u1", "u2", "u3"]
    assert found(property_id="nowhere") == []
    assert found(name="sea VIEW 1") == ["u1", "u4"]
    assert found(name="Sea view 1", property_id="hilltop", sync_status="PENDING_SYNC") == ["u4"]
    assert found(property_id="seaview", sync_status="SYNCED") == []


def test_a_filtered_list_is_paged_like_any_other(shop: httpx.Client) -> None:
    for number in range(5):
        assert shop.put(f"/api/units/u{number}", json={"name": "n", "property_id": "p"}).status_code == 202
    seen, cursor = [], None
    for _ in range(4):
        params = {"property_id": "p", "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = shop.get("/api/units", params=params).json()
        seen.append([unit["id"] for unit in page["units"]])
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [["u0", "u1"], ["u2", "u3"], ["u4"]]
