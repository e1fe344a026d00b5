"""The admin port: OldHost's own records, and what people can do to it."""

import contextlib
import hashlib
import json
import socket
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest

from oldhost_simulator import Simulator
from tests.simulator.client import AdminClient, Line, ask_until_unbanned, connect_when_free, operation, sync_bytes


def test_the_journal_tells_nonce_body_hash_and_times(line: Line, admin: AdminClient) -> None:
    raw = json.dumps(operation(), indent=1).encode()
    line.sync(1, raw)
    (entry,) = admin.journal()
    assert (entry["index"], entry["nonce"], entry["outcome"]) == (0, 1, "applied")
    assert entry["body"] == operation()
    assert entry["raw_sha256"] == hashlib.sha256(raw).hexdigest()
    assert entry["applied_at"] - entry["received_at"] >= 0.001


def test_the_journal_is_read_from_an_index_on_and_in_portions(line: Line, admin: AdminClient) -> None:
    for nonce in range(1, 6):
        line.sync(nonce)
    page = admin.get("/journal?since=1&limit=2")
    assert [entry["nonce"] for entry in page["entries"]] == [2, 3]
    assert page["next"] == 3
    assert [entry["nonce"] for entry in admin.get(f"/journal?since={page['next']}")["entries"]] == [4, 5]
    assert admin.get("/journal?since=99") == {"entries": [], "next": 99}


def test_a_question_for_the_journal_can_wait_for_its_next_entry(line: Line, admin: AdminClient) -> None:
    answers: list[dict[str, Any]] = []
    waiter = threading.Thread(target=lambda: answers.append(admin.get("/journal?since=0&wait_seconds=10")))
    waiter.start()
    line.sync(1)
    waiter.join(10)
    assert [entry["nonce"] for entry in answers[0]["entries"]] == [1]


def test_records_hold_the_last_payload_of_each_key(line: Line, admin: AdminClient) -> None:
    line.sync(1, operation(1, status="Dirty"))
    line.sync(2, operation(2, status="Clean"))
    line.sync(3, {**operation(3, status="4711"), "event_type": "door_code"})
    line.sync(4, operation(4, entity_id="u2"))
    records = admin.get("/records")["records"]
    found = {(record["entity_id"], record["event_type"]): record["payload"]["status"] for record in records}
    assert found == {("u1", "status"): "Clean", ("u1", "door_code"): "4711", ("u2", "status"): "Clean"}


def test_a_rejected_operation_changes_no_record(line: Line, admin: AdminClient) -> None:
    admin.fault("reject", next=1)
    line.sync(1)
    assert admin.get("/records") == {"records": [], "expected_nonce": 2}


def test_stats_count_what_happened(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    line.sync(1)
    line.sync(9)
    line.sync(None)
    admin.fault("reject", next=1)
    line.sync(2)
    with Line(simulator.url) as second:
        second.receive()
    line.sync(1)
    line.ask()
    stats = admin.stats()
    expected = {
        "requests": 6,
        "applied": 1,
        "rejected": 1,
        "gaps": 1,
        "replays": 1,
        "bans": 1,
        "banned_requests": 1,
        "malformed": 1,
        "connections": 1,
        "refused_connections": 1,
        "expected_nonce": 3,
    }
    assert {name: stats[name] for name in expected} == expected
    assert stats["banned_until"] > stats["last_request_at"]


def test_busy_time_is_the_time_spent_on_requests(start: Callable[..., Simulator]) -> None:
    simulator = start(latency_ms=20)
    admin = AdminClient(simulator.admin_url)
    with Line(simulator.url) as line:
        line.sync(1)
        line.sync(2)
        stats = admin.stats()
        assert 0.04 <= stats["busy_seconds"] <= stats["uptime_seconds"]
        assert 0 < stats["busy_share"] <= 1
        assert admin.post("/stats/reset")["busy_share"] == 0
        assert admin.stats()["busy_seconds"] == pytest.approx(stats["busy_seconds"])


def test_a_foreign_write_takes_nonces(line: Line, admin: AdminClient) -> None:
    line.sync(1)
    assert admin.post("/actions/foreign-write", {"count": 2}) == {"expected_nonce": 4}
    assert line.expected_nonce() == 4
    assert [entry["outcome"] for entry in admin.journal()] == ["applied", "foreign", "foreign"]


def test_more_foreign_writes_than_the_one_thread_can_bear_are_refused(admin: AdminClient) -> None:
    assert admin.request("POST", "/actions/foreign-write", {"count": 10**9})[0] == 400
    assert admin.stats()["expected_nonce"] == 1


def test_a_foreign_write_may_change_a_record(line: Line, admin: AdminClient) -> None:
    line.sync(1)
    admin.post("/actions/foreign-write", {"body": operation(status="Foreign")})
    assert admin.get("/records")["records"][0]["payload"] == {"status": "Foreign"}


def test_a_restored_host_expects_an_earlier_nonce_and_has_lost_later_records(line: Line, admin: AdminClient) -> None:
    for nonce, status in enumerate(["Dirty", "Clean", "Inspected"], start=1):
        line.sync(nonce, operation(nonce, status=status))
    assert admin.post("/actions/restore", {"expected_nonce": 2}) == {"expected_nonce": 2}
    assert line.expected_nonce() == 2
    assert admin.get("/records")["records"][0]["payload"] == {"status": "Dirty"}
    assert line.sync(2, operation(9, status="New")).status == 200
    assert admin.get("/records")["records"][0]["payload"] == {"status": "New"}
    kinds = [(entry["outcome"], entry["nonce"]) for entry in admin.journal()]
    assert kinds == [("applied", 1), ("applied", 2), ("applied", 3), ("restored", 2), ("applied", 2)]


@pytest.mark.parametrize("wanted", [{}, {"expected_nonce": 0}, {"expected_nonce": 3}, {"expected_nonce": "1"}])
def test_a_backup_of_a_state_that_never_was_is_refused(line: Line, admin: AdminClient, wanted: dict[str, Any]) -> None:
    line.sync(1)
    status, answer = admin.request("POST", "/actions/restore", wanted)
    assert (status, answer["error"]) == (400, "bad_request")
    assert line.expected_nonce() == 2


def test_a_ban_can_be_made_and_lifted(line: Line, admin: AdminClient) -> None:
    admin.post("/actions/ban", {"seconds": 600})
    reply = line.sync(1)
    assert (reply.status, reply.headers["Retry-After"]) == (403, "600")
    assert admin.post("/actions/unban") == {"was_banned": True}
    assert line.sync(1).status == 200
    assert admin.post("/actions/unban") == {"was_banned": False}


def test_a_made_ban_without_a_length_has_the_usual_one(line: Line, admin: AdminClient) -> None:
    admin.post("/actions/ban")
    assert ask_until_unbanned(line).status == 200


def test_latency_can_be_changed_while_it_runs(line: Line, admin: AdminClient) -> None:
    assert admin.post("/actions/latency", {"latency_ms": 0.5}) == {"latency_ms": 0.5, "jitter_ms": 0}
    assert line.sync(1).status == 200
    assert admin.stats()["latency_ms"] == 0.5


def test_the_connection_can_be_closed(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    assert line.expected_nonce() == 1
    assert admin.post("/actions/close-connection") == {"closed": True}
    assert line.receive_to_end() == b""
    assert admin.post("/actions/close-connection") == {"closed": False}
    with connect_when_free(simulator.url) as second:
        assert second.sync(1).status == 200


def test_a_request_in_process_is_done_though_its_connection_is_closed(start: Callable[..., Simulator]) -> None:
    simulator = start(latency_ms=1_000)
    admin = AdminClient(simulator.admin_url)
    with Line(simulator.url) as line:
        line.send(sync_bytes(1, operation()))
        while admin.stats()["requests"] == 0:
            pass
        assert admin.post("/actions/close-connection") == {"closed": True}
        assert line.receive_to_end() == b""
    assert admin.applied_nonces(at_least=1) == [1]
    with connect_when_free(simulator.url) as second:
        assert second.expected_nonce() == 2


def test_it_says_that_it_is_well(admin: AdminClient) -> None:
    assert admin.get("/healthz") == {"status": "ok"}


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("POST", "/journal"), ("DELETE", "/stats"), ("POST", "/actions/explode")]
)
def test_an_unknown_route_is_404_with_a_reason(admin: AdminClient, method: str, path: str) -> None:
    status, answer = admin.request(method, path)
    assert (status, answer["error"]) == (404, "not_found")


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_an_admin_body_that_is_no_json_object_is_400(admin: AdminClient, body: bytes) -> None:
    assert admin.request("POST", "/actions/ban", body)[0] == 400


@pytest.mark.parametrize("query", ["since=x", "since=-1", "limit=x"])
def test_a_wrong_query_is_400(admin: AdminClient, query: str) -> None:
    assert admin.request("GET", f"/journal?{query}")[0] == 400


def test_an_unknown_parameter_is_refused(admin: AdminClient) -> None:
    assert admin.request("POST", "/actions/foreign-write", {"number": 3})[0] == 400
    assert admin.stats()["expected_nonce"] == 1


def test_the_admin_port_answers_many_at_once_while_the_host_hangs(line: Line, admin: AdminClient) -> None:
    admin.fault("hang", next=1, seconds=60)
    line.send(sync_bytes(1, operation()))
    answers: list[dict[str, Any]] = []
    askers = [threading.Thread(target=lambda: answers.append(admin.stats())) for _ in range(8)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join(10)
    assert len(answers) == 8


@pytest.mark.parametrize("framing", ["Transfer-Encoding: chunked", "Content-Length: 0\r\nContent-Length: 90"])
def test_the_body_of_an_admin_request_is_not_read_as_a_request(
    simulator: Simulator, admin: AdminClient, framing: str
) -> None:
    address = urlsplit(simulator.admin_url)
    body = "POST /actions/ban HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=5) as connection:
        connection.sendall(f"POST /stats/reset HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n{body}".encode())
        connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(65_536):
                pass
    assert admin.stats()["bans"] == 0
