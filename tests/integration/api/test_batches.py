"""The batch route: each change answered for itself, as the route for one change answers, and each entity whole."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.limits import BATCH_CHANGES_MAX
from oldhost_sync.store import transactions
from oldhost_sync.store.errors import CommitUncertain
from tests.integration.api.conftest import a_client
from tests.integration.api.test_fates import bind
from tests.integration.api.test_feed import end
from tests.integration.api.test_writes import DOOR_CODE, count_changes, rows

BATCH = "/api/changes/batch"
LATER = "2027-01-01T00:00:00Z"


def change(entity_id: str, key: str | None = None, **changes: Any) -> dict[str, Any]:
    made = DOOR_CODE | {"entity_id": entity_id} | changes
    return made if key is None else made | {"idempotency_key": key}


def post(client: httpx.Client, *changes: Any, **more: Any) -> httpx.Response:
    return client.post(BATCH, json={"changes": list(changes)}, **more)


def statuses(answer: httpx.Response) -> list[int]:
    return [result["status"] for result in answer.json()["results"]]


def kinds(answer: httpx.Response) -> list[str | None]:
    return [result["problem"] and result["problem"]["type"].rpartition(":")[2] for result in answer.json()["results"]]


def test_each_change_is_answered_in_its_place_and_is_durable(shop: httpx.Client, engine: Engine) -> None:
    answer = post(shop, change("12B"), change("7A", "mine"), change("12B", event_type="unit_status_changed"))
    assert answer.status_code == 202
    body = answer.json()
    assert (body["recorded"], body["refused"]) == (3, 0)
    found = rows(engine, "SELECT id, idempotency_key, entity_id, source, priority_class FROM outbox_events ORDER BY id")
    assert [(each["change_id"], each["idempotency_key"]) for each in body["results"]] == [
        (row.id, row.idempotency_key) for row in found
    ]
    assert [(row.entity_id, row.source, row.priority_class) for row in found] == [
        ("12B", "api:shop", "TXN"), ("7A", "api:shop", "TXN"), ("12B", "api:shop", "LWW"),
    ]  # fmt: skip
    assert body["results"][1] == {
        "status": 202, "sync_status": "PENDING_SYNC", "change_id": found[1].id, "idempotency_key": "mine",
        "expected_at": None, "keeps_promise": None, "replayed": False, "problem": None,
    }  # fmt: skip


def test_a_repeated_batch_gets_the_first_answers_and_records_nothing(shop: httpx.Client, engine: Engine) -> None:
    changes = [change(f"u{number % 3}", f"k{number}") for number in range(9)]
    first, again = post(shop, *changes), post(shop, *changes)
    assert (first.status_code, again.status_code) == (202, 202)
    assert [each | {"replayed": False} for each in again.json()["results"]] == first.json()["results"]
    assert {each["replayed"] for each in again.json()["results"]} == {True}
    assert count_changes(engine) == 9


def test_the_routes_for_one_and_for_many_know_each_others_keys(shop: httpx.Client) -> None:
    alone = shop.post("/api/changes", json=DOOR_CODE, headers={"Idempotency-Key": "k1"}).json()
    (result,) = post(shop, change("12B", "k1")).json()["results"]
    assert (result["change_id"], result["replayed"]) == (alone["change_id"], True)
    (result,) = post(shop, change("12B", "k2")).json()["results"]
    again = shop.post("/api/changes", json=DOOR_CODE, headers={"Idempotency-Key": "k2"})
    assert again.json()["change_id"] == result["change_id"]
    assert again.headers["idempotency-replayed"] == "true"


def test_without_keys_of_their_own_items_take_the_requests_key_and_their_place(shop: httpx.Client) -> None:
    header = {"headers": {"Idempotency-Key": "b1"}}
    first, again = (
        post(shop, change("a"), change("b", "mine"), **header),
        post(shop, change("a"), change("b", "mine"), **header),
    )
    assert [each["idempotency_key"] for each in first.json()["results"]] == ["b1:0", "mine"]
    assert [each["change_id"] for each in again.json()["results"]] == [
        each["change_id"] for each in first.json()["results"]
    ]


def test_one_wrong_change_keeps_its_entity_out_and_no_other(shop: httpx.Client, engine: Engine) -> None:
    answer = post(shop, change("a"), change("b"), change("a", payload={"n": 2**63}), change("a"))
    assert (answer.status_code, statuses(answer)) == (207, [424, 202, 422, 424])
    assert kinds(answer) == ["entity-refused", None, "invalid", "entity-refused"]
    assert answer.json()["results"][3]["problem"]["because_of"] == 2
    assert [row.entity_id for row in rows(engine, "SELECT entity_id FROM outbox_events")] == ["b"]


WRONG = [
    ("no object", "x", "invalid"),
    ("no payload", {"entity_type": "unit", "entity_id": "w", "event_type": "e"}, "invalid"),
    ("an unknown field", change("w", not_befor=LATER), "invalid"),
    ("a name with a blank", change("w", event_type="a b"), "invalid"),
    ("a key with a blank", change("w", "a b"), "invalid"),
    ("too long a key", change("w", "x" * 122), "invalid"),
    ("a time without a zone", change("w", occurred_at="2026-05-01T12:00:00"), "invalid"),
    ("too deep", change("w", payload={"n": json.loads("[" * 40 + "]" * 40)}), "invalid"),
    ("too deep for the database", change("w", payload={"n": json.loads("[" * 18 + "]" * 18)}), "invalid"),
    ("payload over 30 KiB", change("w", payload={"n": "x" * 31_000}), "invalid"),
]


@pytest.mark.parametrize(("wrong", "kind"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_a_wrong_change_is_refused_by_itself_and_told_without_its_content(
    shop: httpx.Client, engine: Engine, wrong: Any, kind: str
) -> None:
    answer = post(shop, change("good"), wrong)
    assert (answer.status_code, statuses(answer), kinds(answer)) == (207, [202, 422], [None, kind])
    if kind == "invalid":
        assert answer.json()["results"][1]["problem"]["errors"]
    assert count_changes(engine) == 1


def test_a_key_of_another_change_is_refused_as_the_single_route_does(shop: httpx.Client) -> None:
    post(shop, change("a", "k1"))
    answer = post(shop, change("a", "k1", payload={"door_code": "1"}), change("b", "k2"), change("c", "k2"))
    assert (answer.status_code, statuses(answer)) == (207, [422, 202, 422])
    assert kinds(answer) == ["idempotency-key-reused", None, "idempotency-key-reused"]


def test_a_change_for_later_is_scheduled_cancelled_and_answered_as_before(shop: httpx.Client) -> None:
    later = change("a", "k1", not_before=LATER)
    (first,) = post(shop, later).json()["results"]
    assert (first["sync_status"], first["change_id"]) == ("SCHEDULED", None)
    assert shop.delete("/api/changes/k1").status_code == 200
    (again,) = post(shop, later).json()["results"]
    assert (again["sync_status"], again["change_id"], again["replayed"]) == ("CANCELLED", None, True)


@pytest.mark.parametrize(
    "body", [{}, {"changes": []}, {"changes": {}}, [], {"changes": [DOOR_CODE], "more": 1}, {"changes": None}]
)
def test_what_is_no_batch_is_a_422_as_a_whole(shop: httpx.Client, engine: Engine, body: Any) -> None:
    answer = shop.post(BATCH, json=body)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (422, "invalid")
    assert count_changes(engine) == 0


def test_more_than_the_most_changes_are_a_422(shop: httpx.Client, engine: Engine) -> None:
    answer = post(shop, *[change("a")] * (BATCH_CHANGES_MAX + 1))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "body.changes"
    assert count_changes(engine) == 0
    assert post(shop, *[change("a")] * BATCH_CHANGES_MAX).status_code == 202


def test_a_body_over_the_limit_is_a_413_and_what_is_not_json_a_400(shop: httpx.Client) -> None:
    headers = {"Content-Type": "application/json"}
    assert shop.post(BATCH, content=b" " * (2 * 1024 * 1024 + 1), headers=headers).status_code == 413
    assert shop.post(BATCH, content=b'{"changes": [NaN]}', headers=headers).status_code == 400
    assert shop.post(BATCH, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415


def test_who_may_not_write_one_change_may_not_write_many(
    anyone: httpx.Client, vera: httpx.Client, anna: httpx.Client, engine: Engine
) -> None:
    assert [post(who, change("a")).status_code for who in (anyone, vera)] == [401, 403]
    assert count_changes(engine) == 0
    assert post(anna, change("a")).status_code == 202


def test_a_held_entity_is_a_503_in_its_place_and_the_others_are_recorded(shop: httpx.Client, engine: Engine) -> None:
    post(shop, change("held"))
    with engine.connect() as connection:
        connection.execute(text("SET SESSION idle_transaction_timeout = 0"))
        connection.execute(text("SELECT * FROM units WHERE host = 'oldhost' AND id = 'held' FOR UPDATE"))
        answer = post(shop, change("a", "k1"), change("held", "k2"), change("b", "k3"))
        alone = post(shop, change("held", "k2"))
    assert (answer.status_code, statuses(answer)) == (207, [202, 503, 202])
    assert kinds(answer) == [None, "contended", None]
    assert (alone.status_code, alone.json()["type"].rpartition(":")[2]) == (503, "contended")
    again = post(shop, change("a", "k1"), change("held", "k2"), change("b", "k3"))
    assert (again.status_code, [each["replayed"] for each in again.json()["results"]]) == (202, [True, False, True])


def test_a_commit_whose_end_is_unknown_names_the_keys_and_can_be_repeated(
    shop: httpx.Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit_and_lose_the_answer(connection: Connection) -> None:
        connection.commit()
        raise CommitUncertain("the answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "_commit", commit_and_lose_the_answer)
        answer = post(shop, change("a"), change("b", "mine"))
    problem = answer.json()
    assert (answer.status_code, problem["type"].rpartition(":")[2]) == (503, "commit-uncertain")
    made, mine = problem["idempotency_keys"]
    assert mine == "mine"
    deadline = time.monotonic() + 10
    while (repeated := post(shop, change("a", made), change("b", mine))).status_code == 503:
        assert time.monotonic() < deadline
    assert {each["replayed"] for each in repeated.json()["results"]} == {True}
    assert count_changes(engine) == 2


def test_batches_at_once_of_the_same_units_are_all_recorded_each_in_its_order(address: str, engine: Engine) -> None:
    def write(writer: int) -> set[int]:
        with a_client(address, "shop") as client:
            changes = [change(f"u{number % 25}", f"w{writer}-{number}", payload={"n": number}) for number in range(200)]
            return set(statuses(post(client, *changes)))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, range(4))) == [{202}] * 4
    assert count_changes(engine) == 800
    for writer in range(4):
        found = rows(
            engine,
            "SELECT entity_id, JSON_VALUE(payload, '$.n') + 0 AS n FROM outbox_events "
            "WHERE idempotency_key LIKE :keys ORDER BY entity_id, id",
            keys=f"w{writer}-%",
        )
        assert [tuple(row) for row in found] == sorted(tuple(row) for row in found)


def test_a_batch_tells_how_far_it_is_but_not_to_others(shop: httpx.Client, kiosk: httpx.Client, engine: Engine) -> None:
    changes = [change("12B"), change("7A"), change("8C", not_before=LATER), change("9D", "its own"), change("1A")]
    post(shop, *changes, headers={"Idempotency-Key": "night/7"})
    of_key = "SELECT id FROM outbox_events WHERE idempotency_key = :key"
    with engine.begin() as connection:
        first, last = (connection.execute(text(of_key), {"key": f"night/7:{n}"}).scalar_one() for n in (0, 4))
        end(connection, first)
    bind(engine, last, "night/7:4", 501, "SENT")
    told = shop.get("/api/batches/night/7")
    assert told.json() == {
        "idempotency_key": "night/7",
        "changes": 4,
        "open": 3,
        "states": {"APPLIED": 1, "IN_FLIGHT": 1, "SCHEDULED": 1, "WAITING": 1},
    }
    assert kiosk.get("/api/batches/night/7").status_code == 404
    assert shop.get("/api/batches/night").status_code == 404
