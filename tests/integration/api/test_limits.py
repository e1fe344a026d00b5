"""Whatever a client sends, the answer is a refusal that names the mistake, never a 5xx."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine

from tests.integration.api.test_writes import DOOR_CODE, count_changes

JSON = {"Content-Type": "application/json"}


def change_with(payload: object) -> bytes:
    return json.dumps(DOOR_CODE | {"payload": payload}).encode()


NOT_JSON = [
    b"",
    b"{",
    b"\xff\xfe",
    b'{"status": "\xc3\x28"}',
    b'{"status": NaN}',
    b'{"status": Infinity}',
    b'{"status": "a\x00b"}',
    b"[" * 30_000,
    b'{"status": "Clean"} trailing',
]


@pytest.mark.parametrize("body", NOT_JSON, ids=range(len(NOT_JSON)))
def test_what_is_not_json_is_a_400(shop: httpx.Client, body: bytes) -> None:
    answer = shop.post("/api/units/12B/status", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["type"].endswith("not-json")


@pytest.mark.parametrize(
    "body",
    [
        b'{"status": "Clean", "status": "Dirty"}',
        b'{"status": "Clean", "st\\u0061tus": "Dirty"}',
        b'{"status": "Clean", "idempotency_key": "a", "idempotency_key": "a"}',
    ],
    ids=["two values", "escaped", "equal"],
)
def test_a_name_that_occurs_twice_in_an_object_is_a_400(shop: httpx.Client, engine: Engine, body: bytes) -> None:
    answer = shop.post("/api/units/12B/status", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (400, "duplicate-name")
    assert count_changes(engine) == 0


def test_a_name_that_occurs_twice_within_a_payload_is_a_400_also_in_a_batch(shop: httpx.Client) -> None:
    change = change_with({}).replace(b'"payload": {}', b'"payload": {"a": {"x": 1, "x": 2}}')
    assert shop.post("/api/changes", content=change, headers=JSON).status_code == 400
    batch = b'{"changes": [' + change + b"]}"
    assert shop.post("/api/changes/batch", content=batch, headers=JSON).status_code == 400


WRONG = [
    ("half a character", change_with({"n": "\ud800"})),
    ("a number of 5000 digits", change_with({"n": 0}).replace(b'"n": 0', b'"n": ' + b"9" * 5000)),
    ("null", b"null"),
    ("a list", b"[]"),
    ("no payload", b'{"entity_type": "unit", "entity_id": "1", "event_type": "x"}'),
    ("a list as payload", change_with([])),
    ("beyond 64 bit", change_with({"n": 2**63})),
    ("below 64 bit", change_with({"n": -(2**63) - 1})),
    ("beyond a double", change_with({"n": 0}).replace(b'"n": 0', b'"n": 1e999')),
    ("too deep", change_with({"n": json.loads("[" * 40 + "]" * 40)})),
    ("too deep for the database", change_with({"n": json.loads("[" * 18 + "]" * 18)})),
    ("payload over 30 KiB", change_with({"n": "x" * 31_000})),
    ("blank in a name", change_with({}).replace(b'"unit"', b'"un it"')),
    ("NUL in an id", change_with({}).replace(b'"12B"', b'"1\\u0000B"')),
    ("newline in an id", change_with({}).replace(b'"12B"', b'"1\\nB"')),
    ("overlong id", change_with({}).replace(b'"12B"', b'"' + b"x" * 129 + b'"')),
    ("a number as time", json.dumps(DOOR_CODE | {"occurred_at": 7}).encode()),
    ("a time without a zone", json.dumps(DOOR_CODE | {"occurred_at": "2026-05-01T12:00:00"}).encode()),
    ("before all time", json.dumps(DOOR_CODE | {"occurred_at": "0001-01-01T00:00:00+14:00"}).encode()),
    ("in a thousand years", json.dumps(DOOR_CODE | {"not_before": "3026-01-01T00:00:00Z"}).encode()),
    ("an unknown field", json.dumps(DOOR_CODE | {"not_befor": "2026-05-01T12:00:00Z"}).encode()),
]


@pytest.mark.parametrize("body", [body for _, body in WRONG], ids=[name for name, _ in WRONG])
def test_a_wrong_field_is_a_422_that_records_nothing(shop: httpx.Client, engine: Engine, body: bytes) -> None:
    answer = shop.post("/api/changes", content=body, headers=JSON)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["detail"]
    assert problem["action"]
    assert count_changes(engine) == 0
    with engine.connect() as connection:
        assert connection.execute(text("SELECT COUNT(*) FROM scheduled_changes")).scalar() == 0


def test_a_mistake_names_its_field_and_not_its_content(shop: httpx.Client) -> None:
    answer = shop.post("/api/changes", json=DOOR_CODE | {"entity_type": "a secret"})
    assert answer.json()["errors"][0]["field"] == "body.entity_type"
    assert "secret" not in answer.text


def test_a_payload_may_hold_what_json_may_hold(shop: httpx.Client) -> None:
    payload = {"text": "a\u0000b ü 日本 😀", "big": 2**63 - 1, "small": -(2**63), "half": 0.5, "none": None, "": [[{}]]}
    assert shop.post("/api/changes", json=DOOR_CODE | {"payload": payload}).status_code == 202


@pytest.mark.parametrize("key", ["", "with blank", "x" * 122, "ü", "a\tb"])
def test_a_key_that_is_no_key_is_a_422(shop: httpx.Client, key: str) -> None:
    answer = shop.post("/api/changes", json=DOOR_CODE, headers=[(b"Idempotency-Key", key.encode())])
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "header.Idempotency-Key"


@pytest.mark.parametrize(
    "path",
    [
        "/api/units?limit=0",
        "/api/units?limit=501",
        "/api/units?limit=x",
        "/api/units?cursor=%25%25",
        "/api/units?cursor=%ff",
        "/api/units?sync_status=Clean",
        "/api/changes?since=yesterday",
        "/api/changes?since=f1.1.99999999999999999999",
        "/api/changes?since=" + "9" * 60,
        "/api/dead-letters?cursor=-1",
        "/api/audit?cursor=99999999999999999999",
        "/api/alerts?open=perhaps",
        "/api/outbox?outcome=LOST",
        "/api/outbox?accepted_from=yesterday",
        "/api/outbox?accepted_from=2026-05-01T12:00:00",
        "/api/outbox?cursor=x",
        "/api/outbox/0",
        "/api/outbox/99999999999999999999",
        "/api/scheduled?cursor=MjAyNg",
        "/api/scheduled?cursor=x",
        "/api/search",
        "/api/search?q=",
        "/api/search?q=" + "x" * 256,
        "/api/entities/no%20type/12B",
        "/api/units/" + "x" * 129,
        "/api/units/",
    ],
)
def test_a_query_that_makes_no_sense_is_a_422(anna: httpx.Client, path: str) -> None:
    answer = anna.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")


def test_an_id_that_no_unit_can_have_is_refused_in_the_words_of_every_door(shop: httpx.Client) -> None:
    answer = shop.get("/api/units/a%00b")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["message"] == "unit_id must be 1 to 128 printable characters"


@pytest.mark.parametrize("path", ["/api/units/%ff", "/api/changes/%00", "/api/units/%F0%9F%98%80"])
def test_odd_bytes_in_a_path_find_nothing(shop: httpx.Client, path: str) -> None:
    assert shop.get(path).status_code == 404


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "application/xml", ""])
def test_another_media_type_is_a_415(shop: httpx.Client, content_type: str) -> None:
    answer = shop.post("/api/units/12B/status", content=b'{"status": "Clean"}', headers={"Content-Type": content_type})
    assert answer.status_code == 415


def test_json_with_a_charset_is_json(shop: httpx.Client) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert shop.post("/api/units/12B/status", content=b'{"status": "Clean"}', headers=headers).status_code == 202


def test_a_body_over_the_limit_is_a_413(shop: httpx.Client) -> None:
    answer = shop.post("/api/changes", content=b"x" * (64 * 1024 + 1), headers=JSON)
    assert answer.status_code == 413


def test_a_chunked_body_over_the_limit_is_a_413(shop: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(70):
            yield b" " * 1024

    answer = shop.post("/api/changes", content=chunks(), headers=JSON)
    assert answer.status_code == 413


def test_an_announced_giant_is_refused_before_it_comes(address: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname is not None
    assert parts.port is not None
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        connection.sendall(
            b"POST /api/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer shop\r\n"
            b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


def test_an_unknown_path_and_method_are_problems(shop: httpx.Client) -> None:
    assert shop.get("/api/nothing").json()["type"].endswith("unknown-path")
    answer = shop.patch("/api/changes")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert answer.json()["action"].startswith("Use GET, HEAD, POST")


def test_a_put_to_the_status_makes_no_unit_of_that_name(shop: httpx.Client) -> None:
    answer = shop.put("/api/units/12B/status", json={"name": "x", "status": "Clean"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert shop.get("/api/units").json()["units"] == []
