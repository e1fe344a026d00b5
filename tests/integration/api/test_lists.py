"""Lists of changes: each filter leaves what it names, pages miss nothing and repeat nothing, no payload is shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.read import change_list
from tests.integration.api.test_fates import bind, end, execute, make, relay

pytestmark = pytest.mark.mariadb


def listed(client: httpx.Client, **params: Any) -> list[int]:
    """The ids of all pages, in their order."""
    found: list[int] = []
    cursor = None
    while True:
        answer = client.get("/api/outbox", params=params | ({"cursor": cursor} if cursor else {}))
        assert answer.status_code == 200, answer.text
        found += [change["change_id"] for change in answer.json()["changes"]]
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found


def test_the_newest_change_is_first_and_pages_join(shop: httpx.Client, vera: httpx.Client) -> None:
    ids = [make(shop, f"k{number}", "checked_in", unit=f"u{number}") for number in range(7)]
    assert listed(vera) == ids[::-1]
    assert listed(vera, limit=2) == ids[::-1]
    assert listed(vera, limit=7) == ids[::-1]


def test_each_filter_leaves_what_it_names(shop: httpx.Client, anna: httpx.Client, engine: Engine) -> None:
    clean, checked_in = make(shop, "a"), make(shop, "b", "checked_in")
    locked_out, other = make(shop, "c", "guest_locked_out"), make(shop, "d", unit="7A")
    end(engine, checked_in, "DEAD", error="No such guest: 100%_sure")
    end(engine, clean, "APPLIED", nonce=1)
    assert listed(anna, entity_id="12B") == [locked_out, checked_in, clean]
    assert listed(anna, entity_type="unit", entity_id="7A") == [other]
    assert listed(anna, outcome="DEAD") == [checked_in]
    assert listed(anna, outcome="APPLIED") == [clean]
    assert listed(anna, outcome="OUTSTANDING") == [other, locked_out]
    assert listed(anna, priority_class="EMERGENCY") == [locked_out]
    assert listed(anna, event_type="unit_status_changed") == [other, clean]
    assert listed(anna, answer="such GUEST") == [checked_in]
    assert listed(anna, answer="100%_s") == [checked_in]
    assert listed(anna, answer="100_%") == []
    assert listed(anna, entity_id="12B", outcome="OUTSTANDING", priority_class="EMERGENCY") == [locked_out]


def test_a_property_s_changes_are_those_of_its_units(shop: httpx.Client, vera: httpx.Client) -> None:
    for unit, place in (("12B", "seaview"), ("7A", "hilltop")):
        shop.put(f"/api/units/{unit}", json={"name": unit, "property_id": place})
    mine, _ = make(shop, "a"), make(shop, "b", unit="7A")
    found = listed(vera, property_id="seaview")
    assert (found[0], len(found)) == (mine, 2)
    assert listed(vera, property_id="seaview", event_type="unit_status_changed") == [mine]
    assert listed(vera, property_id="nowhere") == []


@pytest.mark.parametrize("units_max", [0, 1])
def test_a_property_with_many_units_is_found_in_all_changes(
    shop: httpx.Client, vera: httpx.Client, monkeypatch: pytest.MonkeyPatch, units_max: int
) -> None:
    monkeypatch.setattr(change_list, "_UNITS_MAX", units_max)
    monkeypatch.setattr(change_list, "_WINDOW", 2)
    for number in range(6):
        shop.put(f"/api/units/u{number % 2}", json={"name": f"n{number}", "property_id": f"p{number % 2}"})
    assert len(listed(vera, property_id="p1")) == 3


def test_the_age_of_changes_is_a_span_of_the_database_s_time(
    shop: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    ids = [make(shop, f"k{number}", "checked_in") for number in range(10)]
    now = datetime(2026, 5, 1, 12, tzinfo=UTC)
    for hours, change_id in enumerate(ids):
        at = (now + timedelta(hours=hours)).replace(tzinfo=None)
        execute(engine, "UPDATE outbox_events SET created_at = :at WHERE id = :id", at=at, id=change_id)
    from_, before = (now + timedelta(hours=3)).isoformat(), (now + timedelta(hours=6)).isoformat()
    assert listed(vera, accepted_from=from_, accepted_before=before) == ids[5:2:-1]
    assert listed(vera, accepted_before=from_) == ids[2::-1]
    assert listed(vera, accepted_from=before) == ids[:5:-1]


def test_late_ones_took_longer_or_wait_longer_than_asked(
    shop: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    late, waiting, in_time, new = (make(shop, key, "guest_locked_out", unit=key) for key in "abcd")
    make(shop, "other", "checked_in")
    ago = "UPDATE outbox_events SET created_at = UTC_TIMESTAMP(6) - INTERVAL :s SECOND WHERE id = :id"
    for change_id, seconds in ((late, 31), (waiting, 40), (in_time, 20), (new, 1)):
        execute(engine, ago, id=change_id, s=seconds)
    end(engine, late, "APPLIED", nonce=1)
    end(engine, in_time, "APPLIED", nonce=2)
    execute(engine, ago, id=in_time, s=20)
    assert listed(vera, priority_class="EMERGENCY", waited_s=30) == [waiting, late]
    assert listed(vera, waited_s=10) == [in_time, waiting, late]
    assert vera.get("/api/outbox", params={"waited_s": -1}).status_code == 422


def test_a_fate_whose_row_is_locked_is_listed_with_its_outcome(
    shop: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    change_id = make(shop, "a", "checked_in")
    execute(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, error) "
        "VALUES ('oldhost', :id, 'unit', '12B', 'DEAD', 'no such guest')",
        id=change_id,
    )
    assert listed(anna, outcome="DEAD") == listed(anna, answer="guest") == [change_id]
    assert listed(anna, outcome="OUTSTANDING") == []


def test_a_page_that_looked_long_enough_ends_early_and_the_next_goes_on(
    shop: httpx.Client, vera: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_list, "_CHUNK", 2)
    monkeypatch.setattr(change_list, "PAGE_LOOKS_AT_MAX", 2)
    first = make(shop, "a", "guest_locked_out")
    for number in range(5):
        make(shop, f"k{number}", "checked_in")
    page = vera.get("/api/outbox", params={"event_type": "guest_locked_out", "entity_id": "12B", "limit": 1}).json()
    assert page["changes"] == []
    assert page["next_cursor"] is not None
    assert listed(vera, event_type="guest_locked_out", entity_id="12B", limit=1) == [first]


def test_a_listed_change_says_where_it_is(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    make(shop, "a", unit="u1")
    relay(engine, make(shop, "b", unit="u2"))
    bind(engine, make(shop, "c", unit="u3"), "c", 9, "SENT")
    found = vera.get("/api/outbox").json()["changes"]
    assert [(each["state"], each["nonce"]) for each in found] == [
        ("IN_FLIGHT", 9),
        ("WAITING", None),
        ("WAITING", None),
    ]


def test_no_list_and_no_fate_shows_a_payload(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "the-key", "checked_in")
    execute(engine, 'UPDATE outbox_events SET payload = \'{"guest": "Vera Secret"}\'')
    end(engine, change_id, "DEAD", error="no such guest")
    for path in ("/api/outbox", f"/api/outbox/{change_id}", "/api/entities/unit/12B", "/api/search?q=12B", "/api/audit",
                 "/api/dead-letters"):  # fmt: skip
        answer = vera.get(path)
        assert answer.status_code == 200, path
        assert "Secret" not in answer.text, path


def test_another_host_s_changes_are_not_listed(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "a")
    execute(
        engine,
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class) VALUES ('second', 'z', '', 'unit', '12B', 'e', '{}', 'LWW')",
    )
    assert listed(vera) == listed(vera, entity_id="12B") == listed(vera, outcome="OUTSTANDING") == [change_id]
    assert vera.get(f"/api/outbox/{change_id + 1}").status_code == 404


def test_scheduled_changes_are_listed_in_due_order_page_by_page(shop: httpx.Client, vera: httpx.Client) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    for number, days in enumerate((3, 1, 2, 1, 1)):
        body = {"entity_type": "unit", "entity_id": "12B", "event_type": "checked_in", "payload": {}}
        due = (soon.replace(microsecond=5) + timedelta(days=days)).isoformat()
        shop.post("/api/changes", json=body | {"not_before": due, "idempotency_key": f"k{number}"})
    shop.delete("/api/changes/k4")
    found, cursor = [], None
    while True:
        page = vera.get("/api/scheduled", params={"limit": 1} | ({"cursor": cursor} if cursor else {})).json()
        found += [each["idempotency_key"] for each in page["scheduled"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == ["k1", "k3", "k2", "k0"]
