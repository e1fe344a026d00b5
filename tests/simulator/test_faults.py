"""Each fault of the switchboard, seen from the client's side and in OldHost's own records."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from oldhost_simulator import Simulator
from tests.simulator.client import AdminClient, Line, Reply, connect_when_free, operation, sync_bytes

NO_REPLY = (ConnectionError, OSError)


def reply_or_none(line: Line, nonce: int) -> Reply | None:
    try:
        return line.sync(nonce)
    except NO_REPLY:
        return None


def ask_again(simulator: Simulator) -> int:
    with connect_when_free(simulator.url) as line:
        return line.expected_nonce()


# ------------------------------------------------------------------------------------------------- answers


def test_slow_adds_to_the_latency(line: Line, admin: AdminClient) -> None:
    admin.fault("slow", extra_ms=60, next=1)
    begun = time.monotonic()
    assert line.sync(1).status == 200
    assert time.monotonic() - begun >= 0.06


def test_busy_is_told_and_consumes_nothing(line: Line, admin: AdminClient) -> None:
    admin.fault("busy", retry_after=3, next=1)
    reply = line.sync(1)
    assert (reply.status, reply.body, reply.headers["Retry-After"]) == (503, {"error": "busy", "retry_after": 3}, "3")
    assert line.sync(1).status == 200
    assert admin.stats()["busy_answers"] == 1


def test_rejected_content_consumes_its_nonce(line: Line, admin: AdminClient) -> None:
    admin.fault("reject", rule={"field": "payload.status", "equals": "Bad"}, reason="no such status")
    reply = line.sync(1, operation(status="Bad"))
    assert reply.status == 422
    assert reply.body == {"error": "rejected", "reason": "no such status", "expected_nonce": 2}
    assert line.sync(2, operation(status="Clean")).status == 200
    assert [entry["outcome"] for entry in admin.journal()] == ["rejected", "applied"]


def test_rejected_content_may_leave_its_nonce_unused(line: Line, admin: AdminClient) -> None:
    admin.fault("reject", next=1, consume=False)
    assert line.sync(1).body["expected_nonce"] == 1
    assert line.expected_nonce() == 1
    assert line.sync(1).status == 200


@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ({"entity_id": "u1"}, True),
        ({"entity_id": "u2"}, False),
        ({"event_type": "status"}, True),
        ({"entity_type": "unit", "entity_id": "u1", "event_type": "other"}, False),
        ({"nonce": 1}, True),
        ({"nonce": 2}, False),
        ({"field": "status", "equals": "Clean"}, True),
        ({"field": "payload.status.deeper", "equals": "Clean"}, False),
        ({"field": "payload", "equals": {"status": "Clean"}}, True),
    ],
)
def test_a_rule_fits_what_it_names(line: Line, admin: AdminClient, rule: dict[str, Any], fits: bool) -> None:
    admin.fault("reject", rule=rule)
    assert line.sync(1).status == (422 if fits else 200)


def test_a_rejection_is_no_excuse_for_a_wrong_nonce(line: Line, admin: AdminClient) -> None:
    admin.fault("reject")
    assert line.sync(5).body["error"] == "nonce_gap"


def test_several_rules_of_one_fault_hold_under_their_labels(line: Line, admin: AdminClient) -> None:
    admin.fault("reject", label="first", rule={"entity_id": "u1"}, reason="one")
    admin.fault("reject", label="second", rule={"entity_id": "u2"}, reason="two")
    assert line.sync(1, operation(entity_id="u2")).body["reason"] == "two"
    assert line.sync(2, operation(entity_id="u1")).body["reason"] == "one"
    admin.delete("/faults/first")
    assert line.sync(3, operation(entity_id="u1")).status == 200


# ------------------------------------------------------------------------------------------- connections cut


def test_drop_before_reading_applies_nothing(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    admin.fault("drop_before", next=1)
    assert reply_or_none(line, 1) is None
    assert ask_again(simulator) == 1
    assert admin.journal() == []


def test_a_drop_may_be_a_reset(line: Line, admin: AdminClient) -> None:
    admin.fault("drop_before", next=1, reset=True)
    with pytest.raises(ConnectionResetError):
        line.sync(1)


@pytest.mark.parametrize("fault", ["drop_after", "cut_reply"])
def test_a_lost_or_cut_reply_belongs_to_an_applied_operation(
    simulator: Simulator, line: Line, admin: AdminClient, fault: str
) -> None:
    admin.fault(fault, next=1)
    assert reply_or_none(line, 1) is None
    assert ask_again(simulator) == 2
    assert admin.applied_nonces() == [1]


def test_a_cut_reply_is_half_a_reply(line: Line, admin: AdminClient) -> None:
    admin.fault("cut_reply", next=1)
    line.send(sync_bytes(1, operation()))
    half = line.receive_to_end()
    assert half.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not half.endswith(b"}")


def test_apply_late_drops_first_and_applies_afterwards(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    # Long enough for the question on a busy machine: with 80 ms it once came after the apply.
    admin.fault("apply_late", next=1, delay_ms=1_000)
    assert reply_or_none(line, 1) is None
    assert ask_again(simulator) == 1
    entry = admin.journal(at_least=1)[0]
    assert (entry["nonce"], entry["late"]) == (1, True)
    assert entry["applied_at"] - entry["received_at"] >= 1
    assert ask_again(simulator) == 2


def test_a_resend_that_overtakes_a_late_apply_makes_it_a_replay(
    simulator: Simulator, line: Line, admin: AdminClient
) -> None:
    admin.post("/actions/latency", {"latency_ms": 0})
    admin.fault("apply_late", next=1, delay_ms=80)
    assert reply_or_none(line, 1) is None
    with connect_when_free(simulator.url) as second:
        assert second.sync(1).status == 200
        deadline = time.monotonic() + 10
        while second.ask().status != 403:
            assert time.monotonic() < deadline
    assert admin.applied_nonces() == [1]
    assert [incident["incident"] for incident in admin.get("/incidents")["incidents"]] == ["replay", "ban"]


def test_a_resend_after_a_late_apply_is_a_replay(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    admin.fault("apply_late", next=1, delay_ms=0)
    assert reply_or_none(line, 1) is None
    admin.journal(at_least=1)
    with connect_when_free(simulator.url) as second:
        assert second.sync(1).body["error"] == "nonce_replay"


def test_refused_connections_are_reset_and_the_open_one_lives_on(
    simulator: Simulator, line: Line, admin: AdminClient
) -> None:
    assert line.expected_nonce() == 1
    admin.fault("refuse", next=1)
    with pytest.raises(ConnectionResetError), Line(simulator.url) as second:
        second.sock.recv(1)
    assert line.sync(1).status == 200
    assert admin.stats()["reset_connections"] == 1


def test_after_refusing_new_connections_are_taken_again(simulator: Simulator, admin: AdminClient) -> None:
    admin.fault("refuse")
    with pytest.raises(OSError), Line(simulator.url) as refused:
        refused.ask()
    admin.delete("/faults/refuse")
    assert ask_again(simulator) == 1


def test_idle_close_ends_an_idle_connection(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    # Longer than a busy machine takes to the first request.
    admin.fault("idle_close", after_ms=1_000, next=1)
    assert line.sync(1).status == 200
    assert line.receive_to_end() == b""
    with connect_when_free(simulator.url) as second:
        assert second.sync(2).status == 200


def test_idle_close_reaches_a_connection_that_is_idle_already(line: Line, admin: AdminClient) -> None:
    assert line.sync(1).status == 200
    admin.fault("idle_close", after_ms=1)
    assert line.receive_to_end() == b""


# ----------------------------------------------------------------------------------------------- no answer


@pytest.mark.parametrize(("applied", "expected"), [(False, 1), (True, 2)])
def test_a_hang_ends_without_an_answer(
    simulator: Simulator, line: Line, admin: AdminClient, applied: bool, expected: int
) -> None:
    admin.fault("hang", next=1, seconds=0.05, applied=applied)
    begun = time.monotonic()
    assert reply_or_none(line, 1) is None
    assert time.monotonic() - begun >= 0.05
    assert ask_again(simulator) == expected


def test_a_hanging_host_has_its_one_connection_in_use(simulator: Simulator, line: Line, admin: AdminClient) -> None:
    admin.fault("hang", next=1, seconds=60)
    line.send(sync_bytes(1, operation()))
    line.close()
    with Line(simulator.url) as second:
        assert second.receive().body == {"error": "connection_in_use"}
    assert admin.post("/actions/close-connection") == {"closed": True}
    assert ask_again(simulator) == 1


@pytest.mark.parametrize("fault", [{"name": "hang", "seconds": 1e9}, {"name": "slow", "extra_ms": 1e15}])
def test_a_fault_that_never_ends_leaves_the_host_answering_people(
    line: Line, admin: AdminClient, fault: dict[str, Any]
) -> None:
    admin.post("/faults", fault)
    line.send(sync_bytes(1, operation()))
    while admin.stats()["requests"] == 0:
        pass
    assert admin.get("/healthz") == {"status": "ok"}
    assert admin.post("/actions/close-connection") == {"closed": True}


# ------------------------------------------------------------------------------------------------ garbage


@pytest.mark.parametrize(("applied", "expected"), [(True, 2), (False, 1)])
@pytest.mark.parametrize("reply", ["bytes", "not_json", "status", "other_nonce"])
def test_a_garbage_reply_says_nothing_about_the_operation(
    simulator: Simulator, line: Line, admin: AdminClient, reply: str, applied: bool, expected: int
) -> None:
    admin.fault("garbage", next=1, reply=reply, applied=applied)
    line.send(sync_bytes(1, operation()))
    try:
        answer = line.receive()
    except (ValueError, OSError):
        assert reply in {"bytes", "not_json"}
    else:
        assert (answer.status, answer.body.get("nonce")) != (200, 1)
    line.close()
    assert ask_again(simulator) == expected


# ----------------------------------------------------------------- what befalls OldHost before it judges a call


def test_a_ban_may_come_with_a_request(line: Line, admin: AdminClient) -> None:
    admin.fault("ban", next=1, skip=1, seconds=600)
    assert line.sync(1).status == 200
    assert line.sync(2).headers["Retry-After"] == "600"
    assert line.sync(2).status == 403
    admin.post("/actions/unban")
    assert line.sync(2).status == 200
    stats = admin.stats()
    assert (stats["bans"], stats["replays"]) == (1, 0)


def test_a_ban_that_comes_with_every_request_is_not_extended_by_asking(line: Line, admin: AdminClient) -> None:
    admin.fault("ban", on="any", seconds=600)
    assert [line.ask().status for _ in range(3)] == [403] * 3
    assert admin.stats()["bans"] == 1


def test_a_backup_may_be_restored_just_before_a_request(line: Line, admin: AdminClient) -> None:
    for nonce in (1, 2, 3):
        line.sync(nonce)
    admin.fault("restore", on="ask", next=1, back=2)
    assert line.expected_nonce() == 2
    assert line.sync(2).status == 200
    assert [entry["outcome"] for entry in admin.journal()] == ["applied"] * 3 + ["restored", "applied"]


def test_a_backup_reaches_back_no_farther_than_the_first_nonce(line: Line, admin: AdminClient) -> None:
    line.sync(1)
    admin.fault("restore", on="ask", next=1, back=100)
    assert line.expected_nonce() == 1


def test_somebody_else_may_write_just_before_a_request_and_make_it_a_replay(line: Line, admin: AdminClient) -> None:
    admin.fault("foreign_write", next=1, rule={"nonce": 2})
    assert line.sync(1).status == 200
    assert line.sync(2).body["error"] == "nonce_replay"
    assert [entry["outcome"] for entry in admin.journal()] == ["applied", "foreign"]


def test_foreign_writes_by_probability_are_of_the_seed(start: Callable[..., Simulator]) -> None:
    def nonces(seed: int) -> list[int]:
        simulator = start(seed=seed, latency_ms=0)
        AdminClient(simulator.admin_url).fault("foreign_write", probability=0.3, on="ask", count=2)
        with Line(simulator.url) as line:
            return [line.expected_nonce() for _ in range(30)]

    assert nonces(1) == nonces(1) != nonces(2)
    assert 1 < nonces(1)[-1] < 61


# ------------------------------------------------------------------------------------------- when they fire


def test_a_fault_for_the_next_two_fires_twice_and_never_again(line: Line, admin: AdminClient) -> None:
    admin.fault("busy", next=2)
    assert [line.sync(1).status for _ in range(3)] == [503, 503, 200]
    assert admin.get("/faults")["faults"][0]["fired"] == 2


def test_a_fault_lets_the_first_pass_that_it_is_told_to_skip(line: Line, admin: AdminClient) -> None:
    admin.fault("busy", next=1, skip=2)
    assert [line.sync(nonce).status for nonce in (1, 2, 3, 3)] == [200, 200, 503, 200]


def test_a_fault_on_asking_leaves_syncs_alone(line: Line, admin: AdminClient) -> None:
    admin.fault("busy", on="ask")
    assert line.sync(1).status == 200
    assert line.ask().status == 503


def test_a_fault_without_next_or_probability_fires_until_it_is_switched_off(line: Line, admin: AdminClient) -> None:
    admin.fault("busy")
    assert [line.sync(1).status for _ in range(3)] == [503] * 3
    assert admin.delete("/faults") == {"switched_off": 1}
    assert line.sync(1).status == 200


def test_the_same_seed_gives_the_same_faults(start: Callable[..., Simulator]) -> None:
    def pattern(seed: int) -> list[int]:
        simulator = start(seed=seed, latency_ms=0)
        AdminClient(simulator.admin_url).fault("busy", probability=0.5, on="ask")
        with Line(simulator.url) as line:
            return [line.ask().status for _ in range(40)]

    first = pattern(7)
    assert set(first) == {200, 503}
    assert pattern(7) == first
    assert pattern(8) != first


def test_a_fault_switched_on_again_takes_the_place_of_itself(line: Line, admin: AdminClient) -> None:
    admin.fault("busy", next=5)
    admin.fault("busy", next=1)
    assert [line.sync(1).status for _ in range(2)] == [503, 200]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"name": "earthquake"},
        {"name": "busy", "next": -1},
        {"name": "busy", "next": 1.5},
        {"name": "busy", "probability": 2},
        {"name": "busy", "probability": "often"},
        {"name": "busy", "on": "monday"},
        {"name": "busy", "extra_ms": 1},
        {"name": "slow", "extra_ms": "long"},
        {"name": "ban", "seconds": -1},
        {"name": "restore", "back": 0.5},
        {"name": "foreign_write", "count": 10**9},
        {"name": "garbage", "applied": 1},
        {"name": "garbage", "reply": "poem"},
        {"name": "reject", "rule": {"field": "status"}},
        {"name": "reject", "rule": {"colour": "red"}},
        {"name": "reject", "rule": "all"},
        {"name": "reject", "reason": 1},
    ],
)
def test_a_fault_that_makes_no_sense_is_refused_with_the_reason(admin: AdminClient, wanted: dict[str, Any]) -> None:
    status, answer = admin.request("POST", "/faults", wanted)
    assert status == 400
    assert answer["reason"]
    assert admin.get("/faults") == {"faults": []}
