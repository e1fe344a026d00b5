"""What people on call look up: a change by its id, an entity beside OldHost's state, a search, rules, payloads."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.api.writer_link import writer_away
from oldhost_sync.drivers.mapping import payload_hash
from tests.integration.api.conftest import ScriptedWriter
from tests.integration.api.test_fates import bind, end, execute, fate, make, relay
from tests.integration.api.test_writes import DOOR_CODE, count_changes, rows

pytestmark = pytest.mark.mariadb


def audited(engine: Engine) -> list[tuple[str, str, int | None]]:
    return [tuple(row) for row in rows(engine, "SELECT action, operator, change_id FROM operator_audit ORDER BY id")]


def applied(engine: Engine, change_id: int, payload: dict[str, Any], event_type: str = "unit_status_changed") -> None:
    execute(
        engine,
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce) "
        "VALUES ('oldhost', 'unit', '12B', :event_type, :id, :hash, 7)",
        id=change_id,
        event_type=event_type,
        hash=payload_hash(payload),
    )


# ---------------------------------------------------------------------------------------------------------- one change


def test_a_change_is_found_by_its_id_as_by_its_key(shop: httpx.Client, engine: Engine) -> None:
    change_id = make(shop, "k")
    relay(engine, change_id)
    bind(engine, change_id, "k", 501, "APPLIED")
    end(engine, change_id, "APPLIED", nonce=501)
    assert shop.get(f"/api/outbox/{change_id}").json() == fate(shop, "k")


def test_an_unknown_id_is_a_404(shop: httpx.Client) -> None:
    answer = shop.get("/api/outbox/4711")
    assert (answer.status_code, answer.json()["detail"][:28]) == (404, "No change has the id 4711, o")


def test_a_change_names_the_older_ones_that_it_replaced(shop: httpx.Client, engine: Engine) -> None:
    older = [make(shop, "a"), make(shop, "b")]
    make(shop, "t", "checked_in")
    newest = make(shop, "c")
    for change_id in older:
        end(engine, change_id, "SUPERSEDED", superseded_by=newest)
    end(engine, newest, "APPLIED", nonce=1)
    assert fate(shop, "c")["supersedes"] == older[::-1]
    assert fate(shop, "a")["supersedes"] == fate(shop, "t")["supersedes"] == []


def test_a_payload_is_shown_to_operators_and_its_reading_is_kept(
    shop: httpx.Client, vera: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    change_id = make(shop, "k", "checked_in")
    assert vera.get(f"/api/outbox/{change_id}/payload").status_code == 403
    assert audited(engine) == []
    assert anna.get(f"/api/outbox/{change_id}/payload").json() == {"change_id": change_id, "payload": {"status": "k"}}
    assert audited(engine) == [("read-payload", "anna", change_id)]
    assert anna.get(f"/api/outbox/{change_id + 1}/payload").status_code == 404


# ---------------------------------------------------------------------------------------------------------- one entity


def test_an_entity_is_shown_beside_what_oldhost_has(shop: httpx.Client, vera: httpx.Client, engine: Engine) -> None:
    first = make(shop, "Clean")
    end(engine, first, "APPLIED", nonce=7)
    applied(engine, first, {"status": "Clean"})
    (key,) = vera.get("/api/entities/unit/12B").json()["keys"]
    assert (key["event_type"], key["change_id"], key["nonce"], key["equal"]) == ("unit_status_changed", first, 7, True)
    make(shop, "Dirty")
    (key,) = vera.get("/api/entities/unit/12B").json()["keys"]
    assert (key["equal"], key["shown"], key["at_oldhost"]) == (False, None, None)


def test_an_entity_tells_what_is_outstanding_held_dead_and_scheduled(
    shop: httpx.Client, vera: httpx.Client, engine: Engine
) -> None:
    rejected = make(shop, "a", "checked_in")
    end(engine, rejected, "DEAD", error="no such guest")
    make(shop, "b", "checked_out")
    make(shop, "c")
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    shop.post("/api/changes", json=DOOR_CODE | {"not_before": later, "idempotency_key": "d"})
    found = vera.get("/api/entities/unit/12B").json()
    assert (found["sync_status"], found["outstanding"], found["held"]) == ("SYNC_FAILED", 2, 1)
    assert found["dead_letters"] == [rejected]
    assert [each["idempotency_key"] for each in found["scheduled"]] == ["d"]
    assert [each["idempotency_key"] for each in found["changes"]] == ["c", "b", "a"]
    assert found["writer"] == {"asked": ["unit", "12B"]}


def test_an_entity_is_shown_without_the_writer_too(
    shop: httpx.Client, vera: httpx.Client, writer: ScriptedWriter
) -> None:
    make(shop, "a")
    writer.problem = writer_away("Temporal does not answer")
    found = vera.get("/api/entities/unit/12B").json()
    assert (found["writer"], found["note"], found["outstanding"]) == (None, "Temporal does not answer.", 1)


def test_payloads_of_an_entity_are_for_operators_and_kept_in_the_audit(
    shop: httpx.Client, vera: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    first = make(shop, "Clean")
    applied(engine, first, {"status": "Clean"})
    make(shop, "Dirty")
    assert vera.get("/api/entities/unit/12B", params={"payloads": True}).status_code == 403
    (key,) = anna.get("/api/entities/unit/12B", params={"payloads": True}).json()["keys"]
    assert (key["shown"], key["at_oldhost"]) == ({"status": "Dirty"}, {"status": "Clean"})
    assert audited(engine) == [("read-payload", "anna", None)]


def test_what_oldhost_has_is_not_known_after_a_lost_answer(
    shop: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    first = make(shop, "Clean")
    applied(engine, first, {"status": "Clean"})
    execute(engine, "UPDATE applied_states SET payload_hash = ''")
    (key,) = anna.get("/api/entities/unit/12B", params={"payloads": True}).json()["keys"]
    assert (key["equal"], key["at_oldhost"]) == (None, None)


def test_an_entity_whose_id_has_a_slash_is_found(shop: httpx.Client, vera: httpx.Client) -> None:
    make(shop, "a", unit="house/12B")
    assert vera.get("/api/entities/unit/house/12B").json()["entity_id"] == "house/12B"
    assert vera.get("/api/entities/unit/house").status_code == 404


# ---------------------------------------------------------------------------------------------------------- the search


def hits(client: httpx.Client, text: str) -> list[tuple[str, str, str | None]]:
    found = client.get("/api/search", params={"q": text}).json()["hits"]
    return [(hit["kind"], hit["found_by"], hit["entity_id"] or hit["property_id"]) for hit in found]


def test_the_search_takes_a_key_an_id_a_name_and_a_property(shop: httpx.Client, vera: httpx.Client) -> None:
    shop.put("/api/units/12B", json={"name": "Seaview 12", "property_id": "seaview"})
    shop.post("/api/changes", json=DOOR_CODE | {"entity_type": "door", "entity_id": "d/7", "idempotency_key": "key-1"})
    change_id = make(shop, "key-2")
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    shop.post("/api/changes", json=DOOR_CODE | {"not_before": later, "idempotency_key": "key-3"})
    assert hits(vera, "key-1") == [("change", "key", "d/7")]
    assert hits(vera, str(change_id)) == [("change", "id", "12B")]
    assert hits(vera, "key-3") == [("scheduled", "key", "12B")]
    assert hits(vera, "12B") == hits(vera, "unit/12B") == [("entity", "id", "12B")]
    assert hits(vera, "d/7") == hits(vera, "door/d/7") == [("entity", "id", "d/7")]
    assert hits(vera, " sea") == [("entity", "name", "12B")]
    assert hits(vera, "seaview") == [("entity", "name", "12B"), ("property", "property", "seaview")]
    assert hits(vera, "%") == hits(vera, "_2B") == hits(vera, "9" * 30) == []


def test_the_whole_id_comes_before_what_begins_with_it(shop: httpx.Client, vera: httpx.Client) -> None:
    for unit in ("7", "70", "71"):
        make(shop, f"k{unit}", unit=unit)
    assert [hit[2] for hit in hits(vera, "7") if hit[0] == "entity"] == ["7", "70", "71"]


# ----------------------------------------------------------------------------------------------------------- the rules


def test_rules_are_shown_to_viewers_and_set_by_operators_with_a_reason(
    shop: httpx.Client, vera: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    body = {"reason": "rates are sent whole", "priority_class": "TXN"}
    assert vera.put("/api/rules/rate_changed", json=body).status_code == 403
    assert anna.put("/api/rules/rate_changed", json={"priority_class": "TXN"}).status_code == 422
    answer = anna.put("/api/rules/rate_changed", json=body).json()
    assert answer == {"event_type": "rate_changed", "priority_class": "TXN", "default": "LWW"}
    assert answer in vera.get("/api/rules").json()["rules"]
    (act,) = vera.get("/api/audit", params={"action": "set-rule"}).json()["entries"]
    assert (act["operator"], act["reason"]) == ("anna", "rates are sent whole")
    assert act["detail"] == {"event_type": "rate_changed", "from": "LWW", "to": "TXN"}
    make(shop, "k", "rate_changed")
    assert fate(shop, "k")["priority_class"] == "TXN"


def test_the_audit_is_read_by_kind_and_by_change(vera: httpx.Client, anna: httpx.Client, shop: httpx.Client) -> None:
    change_id = make(shop, "k")
    anna.get(f"/api/outbox/{change_id}/payload")
    anna.put("/api/rules/e", json={"reason": "r", "priority_class": "LWW"})

    def acts(**params: Any) -> list[str]:
        return [entry["action"] for entry in vera.get("/api/audit", params=params).json()["entries"]]

    assert acts() == ["set-rule", "read-payload"]
    assert acts(change_id=change_id) == acts(action="read-payload") == ["read-payload"]


# ------------------------------------------------------------------------------------------------------------ the keys

WRITES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/api/changes", DOOR_CODE),
    ("POST", "/api/units/12B/status", {"status": "Clean"}),
    ("PUT", "/api/units/12B", {"name": "Seaview 12"}),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES)
def test_a_key_in_the_body_does_what_the_header_does(
    shop: httpx.Client, engine: Engine, method: str, path: str, body: dict[str, Any]
) -> None:
    first = shop.request(method, path, json=body | {"idempotency_key": "k"})
    again = shop.request(method, path, json=body, headers={"Idempotency-Key": "k"})
    assert (first.status_code, first.json()["idempotency_key"]) == (202, "k")
    assert (again.content, again.headers["idempotency-replayed"]) == (first.content, "true")
    assert count_changes(engine) == 1


@pytest.mark.parametrize(
    ("method", "path", "body"), [*WRITES, ("POST", "/api/changes/batch", {"changes": [DOOR_CODE]})]
)
def test_two_different_keys_are_refused(
    shop: httpx.Client, engine: Engine, method: str, path: str, body: dict[str, Any]
) -> None:
    headers = {"Idempotency-Key": "k"}
    answer = shop.request(method, path, json=body | {"idempotency_key": "other"}, headers=headers)
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body.idempotency_key")
    assert count_changes(engine) == 0


def test_a_batch_takes_its_key_in_the_body(shop: httpx.Client) -> None:
    answer = shop.post("/api/changes/batch", json={"changes": [DOOR_CODE], "idempotency_key": "b"}).json()
    assert [result["idempotency_key"] for result in answer["results"]] == ["b:0"]


@pytest.mark.parametrize("key", ["", "with blank", "x" * 122, "ü"])
def test_a_key_in_the_body_that_is_no_key_is_a_422(shop: httpx.Client, key: str) -> None:
    answer = shop.post("/api/changes", json=DOOR_CODE | {"idempotency_key": key})
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "body.idempotency_key")
