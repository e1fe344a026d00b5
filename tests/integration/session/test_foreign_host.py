"""Sessions with a host of another make: what its odd answers prove, what they cost, and what people are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningPostponed
from oldhost_sync.store.read.host_condition import read_ban
from tests.conformance.maria_world import HOST
from tests.foreign_host.answer import Answer, Effect, applied, expects, gap, page
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import Process, outcomes, send

pytestmark = pytest.mark.mariadb


def test_a_host_of_another_make_gets_each_change_once_and_in_order(foreign: ForeignStage) -> None:
    ids = [foreign.world.record(f"u{number}") for number in range(5)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 5
    assert foreign.applied_ids() == ids
    foreign.check_clean()


def test_answers_in_chunks_are_read(foreign: ForeignStage) -> None:
    foreign.host.always = lambda request: replace(foreign.host.by_the_protocol(request), chunked=True)
    ids = [foreign.world.record(f"u{number}") for number in range(3)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 3
    assert len(foreign.host.connected_at) == 1
    foreign.check_clean()


REFUSALS = [
    (page(401), "credentials", "status 401 (Unauthorized)"),
    (page(403), "credentials", "status 403 (Forbidden)"),
    (page(407), "credentials", "status 407"),
    (page(429), "refused", "status 429 (Too Many Requests)"),
    (page(500), "refused", "status 500"),
    (page(599), "refused", "status 599"),
    (page(404), "refused", "status 404"),
    (page(200), "credentials", "perhaps one to sign in, instead of OldHost's answer: status 200 (OK)"),
    (page(302), "credentials", "a redirect or a web page, perhaps one to sign in"),
    (Answer(307), "credentials", "status 307"),
    (Answer(200), "unreadable", "status 200"),
    (Answer(cut=9), "unreadable", "can't be read"),
    (replace(expects(501), stray=b"!"), "unreadable", "bytes come behind"),
]


@pytest.mark.parametrize(("answer", "reason", "words"), REFUSALS)
def test_a_host_that_refuses_is_connected_to_six_times_a_minute_at_most_and_named(
    foreign: ForeignStage, answer: Answer, reason: str, words: str
) -> None:
    foreign.host.refuse_all(answer)
    process, pauses = Process(), []
    while process.clock_offset < 60:
        waiting = foreign.refused(process)
        assert (waiting.reason, words in waiting.message) == (reason, True), waiting
        pauses.append(waiting.wait_ms)
        process.clock_offset += waiting.wait_ms / 1000
    assert len(foreign.host.connected_at) == len(pauses) == 6
    assert pauses == sorted(pauses)


def test_who_comes_before_the_pause_is_over_hears_the_cause_and_makes_no_connection(foreign: ForeignStage) -> None:
    foreign.host.refuse_all(page(401))
    first = foreign.refused()
    second = foreign.refused()
    assert (second.reason, second.message) == (first.reason, first.message)
    assert second.wait_ms <= first.wait_ms
    assert len(foreign.host.connected_at) == 1


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [("120", 120_000), ("86400", 900_000), ("Wed, 21 Oct 2026 07:30:00 GMT", 120_000), ("soon", 1_000), ("-5", 1_000)],
)
def test_the_pause_is_as_long_as_the_host_asks_and_no_longer_than_a_ban(
    foreign: ForeignStage, header: str, wait_ms: int
) -> None:
    headers = {"Retry-After": header, "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}
    foreign.host.refuse_all(Answer(503, headers=headers))
    assert foreign.refused().wait_ms == wait_ms


def test_a_ban_whose_length_is_in_the_header_only_lasts_that_long(foreign: ForeignStage) -> None:
    foreign.host.refuse_all(Answer(403, {"error": "banned"}, headers={"Retry-After": "60"}))
    waiting = foreign.refused()
    assert (waiting.reason, waiting.wait_ms) == ("ban", 60_500)


def test_after_a_refusal_a_good_answer_ends_the_pauses(foreign: ForeignStage) -> None:
    foreign.host.refuse_all(page(503))
    process = Process()
    for _ in range(3):
        process.clock_offset += foreign.refused(process).wait_ms / 1000
    foreign.host.always = None
    foreign.opening(process).session.close("over")
    foreign.host.refuse_all(page(503))
    process.clock_offset += foreign.limits.settle_seconds
    assert foreign.refused(process).wait_ms == 1_000


@pytest.mark.parametrize(
    ("more", "how"),
    [
        ({"version": "1.0"}, "it speaks HTTP/1.0"),
        ({"headers": {"Connection": "close"}}, "its answer says 'Connection: close'"),
    ],
)
def test_a_host_that_ends_each_connection_is_told_apart_by_how(
    foreign: ForeignStage, more: dict[str, Any], how: str
) -> None:
    foreign.session().close("over")
    foreign.host.says = 502  # so that one reading is not enough
    foreign.host.always = lambda request: replace(foreign.host.by_the_protocol(request), **more)
    waiting = foreign.refused()
    assert (waiting.reason, how in waiting.message) == ("keep-alive", True), waiting.message


def test_a_host_that_is_slower_than_the_timeout_is_told_with_the_setting_to_change(foreign: ForeignStage) -> None:
    foreign.limits = replace(foreign.limits, request_timeout_seconds=0.4)
    foreign.host.always = lambda request: replace(foreign.host.by_the_protocol(request), delay=1.0)
    waiting = foreign.refused()
    assert waiting.reason == "silent"
    assert "no whole answer within 0.4 s, its request timeout" in waiting.message


def test_the_wait_for_the_settle_time_does_not_hide_why_the_host_can_not_be_asked(foreign: ForeignStage) -> None:
    session = foreign.session()
    foreign.host.refuse_all(Answer(resets=True))
    assert outcomes(send(session, [foreign.world.record()])) == ["BOUND"]
    waiting = foreign.refused()
    assert waiting.reason == "settle"
    assert "connection was lost while reading" in waiting.message
    foreign.host.refuse_all(page(401))
    assert foreign.refused().reason == "credentials"


def test_a_ban_that_is_longer_than_the_setting_is_shown_with_the_hosts_own_end(foreign: ForeignStage) -> None:
    foreign.session().close("over")
    foreign.host.ban(3 * foreign.limits.ban_seconds)
    waiting = foreign.refused()
    with foreign.world.engine.connect() as connection:
        ban = read_ban(connection, HOST)
    assert ban is not None
    assert abs(waiting.wait_ms - 2_700_500) <= 1_000
    assert abs((ban.until - ban.began_at).total_seconds() - 2_700) < 5


def test_a_ban_that_ends_early_is_noticed_when_the_configured_time_is_over(foreign: ForeignStage) -> None:
    foreign.session().close("over")
    foreign.host.ban(3 * foreign.limits.ban_seconds)
    assert foreign.refused().reason == "ban"
    foreign.host.banned_until = 0.0
    assert foreign.refused().reason == "ban", "it is not asked yet"
    foreign.world.age(foreign.limits.ban_seconds)
    assert isinstance(foreign.open(), Opened)
    with foreign.world.engine.connect() as connection:
        assert read_ban(connection, HOST) is None


@pytest.mark.parametrize("status", [200, 201, 203, 299])
def test_an_answer_that_names_our_nonce_as_used_is_an_apply_whatever_its_status(
    foreign: ForeignStage, status: int
) -> None:
    foreign.host.always = lambda request: applied(request.nonce or 0, status=status) if request.is_operation else None
    ids = [foreign.world.record(f"u{number}") for number in range(4)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 4
    assert (foreign.applied_ids(), len(foreign.host.connected_at)) == (ids, 1)
    foreign.check_clean()


@pytest.mark.parametrize("status", [200, 201, 204])
def test_an_empty_yes_and_a_count_that_moved_on_by_ours_are_an_apply_without_a_new_session(
    foreign: ForeignStage, status: int
) -> None:
    foreign.host.always = lambda request: Answer(status, effect=Effect.APPLIES) if request.is_operation else None
    ids = [foreign.world.record(f"u{number}") for number in range(4)]
    assert outcomes(send(foreign.session(), ids)) == ["APPLIED"] * 4
    assert (foreign.applied_ids(), len(foreign.host.connected_at)) == (ids, 1)
    assert [foreign.world.outcome(one)[0] for one in ids] == ["APPLIED"] * 4
    foreign.check_clean()


@pytest.mark.parametrize(
    "answer", [Answer(204), Answer(202, effect=Effect.APPLIES), page(200, effect=Effect.APPLIES), Answer(201)]
)
def test_a_yes_without_our_nonce_or_without_the_count_is_no_apply(foreign: ForeignStage, answer: Answer) -> None:
    """A proxy's login page, 202, and a 204 after which the number is still free."""
    foreign.host.operations.append(answer)
    change_id = foreign.world.record()
    assert outcomes(send(foreign.session(), [change_id])) == ["BOUND"]
    assert foreign.world.outcome(change_id) == (None, None)


def test_a_count_that_moved_on_by_more_than_ours_makes_an_empty_yes_no_apply(foreign: ForeignStage) -> None:
    foreign.host.operations.append(Answer(204, effect=Effect.APPLIES))
    session = foreign.session()
    foreign.host.asks.append(expects(503))
    assert outcomes(send(session, [foreign.world.record()])) == ["BOUND"]


def test_a_rejection_that_used_no_number_and_does_not_say_so_is_a_rejection_and_the_next_one_goes_on(
    foreign: ForeignStage,
) -> None:
    silent_no = Answer(422, {"error": "rejected", "reason": "no such unit"})
    foreign.host.operations.append(silent_no)
    ids = [foreign.world.record(f"u{number}") for number in range(3)]
    assert outcomes(send(foreign.session(), ids[:1])) == ["DEAD"]
    assert outcomes(send(foreign.session(), ids[1:])) == ["APPLIED"] * 2
    assert (foreign.applied_ids(), foreign.world.halted()) == (ids[1:], None)
    assert [one.nonce for one in foreign.host.ended] == [501, 501, 502]
    foreign.check_clean()


def test_a_rejection_that_used_its_number_and_does_not_say_so_needs_no_new_session(foreign: ForeignStage) -> None:
    foreign.host.operations.append(Answer(422, {"error": "rejected", "reason": "no"}, effect=Effect.REJECTS))
    ids = [foreign.world.record(f"u{number}") for number in range(2)]
    assert outcomes(send(foreign.session(), ids)) == ["DEAD", "APPLIED"]
    assert len(foreign.host.connected_at) == 1
    foreign.check_clean()


@pytest.mark.parametrize("answer", [page(401), page(200), page(302), Answer(302)])
def test_a_host_that_answers_questions_and_refuses_operations_gets_six_connections_a_minute(
    foreign: ForeignStage, answer: Answer
) -> None:
    """Each time with another unit's change, as the one before waits apart."""
    foreign.host.always = lambda request: answer if request.is_operation else None
    process = Process()
    while process.clock_offset < 60:
        outcome = foreign.open(process)
        if isinstance(outcome, OpeningPostponed):
            process.clock_offset += outcome.wait_ms / 1000
            foreign.world.age(outcome.wait_ms / 1000)
        else:
            assert isinstance(outcome, Opened)
            send(outcome.session, [foreign.world.record(f"u{process.clock_offset:.3f}")])
    connections = {one.connection for one in foreign.host.requests if one.is_operation}
    assert 2 <= len(connections) <= 6


def test_false_gaps_to_every_third_operation_cost_sessions_and_lose_nothing(foreign: ForeignStage) -> None:
    foreign.host.every(3, lambda request: gap(request.expected))
    ids = [foreign.world.record(f"u{number}") for number in range(8)]
    ended = []
    for change_id in ids:
        while True:
            session = foreign.session()
            sent = send(session, [change_id])
            session.close("the next one")
            ended.append(sent.refusal)
            if outcomes(sent) == ["APPLIED"]:
                break
            assert "a gap" in sent.reason
    assert foreign.applied_ids() == ids
    assert ended.count("gap") == 3
    foreign.check_clean()
