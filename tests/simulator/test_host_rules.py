"""The rules themselves, without a socket: whatever comes, nonces stay sequential and the facts tell the whole story."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_simulator.call import Call
from oldhost_simulator.dialects.http import Request, parse_call
from oldhost_simulator.faults import Switchboard
from oldhost_simulator.host import Fact, Host, fact_from_json, fact_to_json
from oldhost_simulator.verdicts import Banned
from tests.simulator.client import operation

BAN_SECONDS = 10.0


def sync(nonce: int, at: float = 0.0, number: int = 1) -> Call:
    return Call("sync", at, 1, nonce=nonce, body=operation(number, entity_id=f"u{number % 3}"), raw_sha256="00")


steps = st.lists(
    st.tuples(
        st.sampled_from(["right", "right", "right", "gap", "replay", "ask", "foreign", "restore", "reject", "unban"]),
        st.floats(min_value=0, max_value=15),
    ),
    max_size=40,
)


@given(steps)
def test_applied_nonces_are_sequential_and_the_facts_rebuild_the_host(moves: list[tuple[str, float]]) -> None:
    host, faults = Host(ban_seconds=BAN_SECONDS), Switchboard(seed=0)
    facts: list[Fact] = []
    now = 0.0
    for number, (move, seconds) in enumerate(moves):
        now += seconds
        new: tuple[Fact, ...]
        before = host.expected_nonce
        banned = host.banned_until(now) is not None
        if move == "foreign":
            new = (host.foreign_write(now),)
        elif move == "restore":
            new = (host.restore(now, max(1, before - 2)),)
        elif move == "unban":
            new = (host.unban(now),)
        else:
            faults.switch_off()
            if move == "reject":
                faults.switch_on({"name": "reject"})
            nonce = {"gap": before + 1, "replay": before - 1}.get(move, before)
            call = Call("ask", now, 1) if move == "ask" else sync(nonce, now, number)
            decision = host.decide(call, now, faults)
            assert host.expected_nonce == before, "deciding changes nothing"
            assert isinstance(decision.verdict, Banned) == banned
            new = decision.facts
        for fact in new:
            host.apply(fact)
            facts.append(fact)
        if move in {"gap", "replay", "ask", "unban"} or (banned and move in {"right", "reject"}):
            assert host.expected_nonce == before
    rebuilt = Host(ban_seconds=BAN_SECONDS)
    for fact in facts:
        rebuilt.apply(fact_from_json(fact_to_json(fact)))
    assert (rebuilt.expected_nonce, rebuilt.journal, rebuilt.incidents) == (
        host.expected_nonce,
        host.journal,
        host.incidents,
    )
    assert (rebuilt.records, rebuilt.banned_until(now)) == (host.records, host.banned_until(now))


def test_a_ban_is_told_rounded_up_to_whole_seconds() -> None:
    host = Host(ban_seconds=900)
    host.apply(host.ban(100.0, 900))
    assert host.decide(sync(1), 100.5, Switchboard(0)).verdict == Banned(900)


def test_a_ban_of_a_fraction_is_told_in_milliseconds() -> None:
    host = Host(ban_seconds=0.25)
    host.apply(host.ban(100.0, 0.25))
    verdict = host.decide(sync(1), 100.1, Switchboard(0)).verdict
    assert isinstance(verdict, Banned)
    assert verdict.retry_after == pytest.approx(0.15, abs=0.0011)
    assert verdict.retry_after >= 0.1499


def test_a_ban_ends_at_its_end() -> None:
    host = Host()
    host.apply(host.ban(100.0, 5))
    assert host.banned_until(104.999) == 105.0
    assert host.banned_until(105.0) is None


def request(body: bytes, nonce: str = "1") -> Call:
    return parse_call(Request("POST", "/oldhost/sync", (nonce,), body), 0.0, 1)


@given(st.binary(max_size=200))
def test_no_bytes_make_reading_an_operation_fail(body: bytes) -> None:
    call = request(body)
    assert (call.problem is None) == (call.body is not None)


@pytest.mark.parametrize(
    "missing", ["entity_type", "entity_id", "event_type", "payload", "event_id", "idempotency_key", "unit_id", "status"]
)
def test_an_operation_without_one_of_its_fields_is_malformed(missing: str) -> None:
    body = {name: value for name, value in operation().items() if name != missing}
    problem = request(json.dumps(body).encode()).problem
    assert problem is not None
    assert missing in problem
