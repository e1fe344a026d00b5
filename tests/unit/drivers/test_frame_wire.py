"""The frame driver: its bytes, and what it makes of a host's."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.contract import Garbled, Peer
from oldhost_sync.drivers.events import (
    NONCE_MAX,
    Applied,
    Banned,
    Busy,
    Closing,
    ConnectionEnd,
    ConnectionInUse,
    Event,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutcomeTold,
    OutOfRange,
    Ready,
    Rejected,
    Replay,
    ToldFate,
    Unlisted,
    Working,
)
from oldhost_sync.drivers.frame.driver import FrameDriver
from oldhost_sync.drivers.frame.frames import FRAME_BYTES_MAX
from oldhost_sync.drivers.frame.wire import FrameWire

LIKE_OLDHOST = Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED)
LAST = Closing(ConnectionEnd.LAST)
STRAY = Closing(ConnectionEnd.STRAY)
NUMBER, KEY = 501, "key-7"


def frame(content: bytes | dict[str, Any]) -> bytes:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return len(data).to_bytes(4, "big") + data


def wire(capabilities: Capabilities = LIKE_OLDHOST) -> FrameWire:
    return FrameDriver(capabilities).wire()


def operating(capabilities: Capabilities = LIKE_OLDHOST, number: int = NUMBER) -> FrameWire:
    begun = wire(capabilities)
    begun.operation(number, b"{}", 0)
    return begun


def asking(capabilities: Capabilities = LIKE_OLDHOST) -> FrameWire:
    begun = wire(capabilities)
    begun.ask_expected(0)
    return begun


def asking_outcome(outcome: AskedOutcomes) -> FrameWire:
    begun = wire(Capabilities(outcome=outcome))
    begun.ask_outcome(NUMBER, KEY, 0)
    return begun


def greeted(capabilities: Capabilities = LIKE_OLDHOST) -> FrameWire:
    begun = wire(capabilities)
    begun.greet(0)
    return begun


# ------------------------------------------------------------------------------------------------------ requests


def test_each_request_is_one_frame_with_a_line_of_json() -> None:
    own = FrameDriver(LIKE_OLDHOST).wire(Peer(authorization="Bearer sesame"))
    assert wire().greet(0) == b'\x00\x00\x00\x1c{"type":"logon","version":1}'
    assert own.greet(0) == frame(b'{"type":"logon","version":1,"authorization":"Bearer sesame"}')
    assert wire().ask_expected(0) == frame(b'{"type":"expected"}')
    assert wire().idle(0) == frame(b'{"type":"idle"}')
    assert wire().bye(0) == frame(b'{"type":"bye"}')


def test_an_operation_is_followed_by_its_bytes_as_they_are() -> None:
    body = bytes(range(256))
    assert wire().operation(501, body, 0) == frame(b'{"type":"operation","number":501}\n' + body)


@pytest.mark.parametrize(
    ("outcome", "request_"),
    [
        (AskedOutcomes.LAST, b'{"type":"outcome"}'),
        (AskedOutcomes.BY_NUMBER, b'{"type":"outcome","number":501}'),
        (AskedOutcomes.BY_ID, b'{"type":"outcome","key":"key-7"}'),
    ],
)
def test_an_outcome_is_asked_for_as_the_host_can_be_asked(outcome: AskedOutcomes, request_: bytes) -> None:
    assert wire(Capabilities(outcome=outcome)).ask_outcome(NUMBER, KEY, 0) == frame(request_)


def test_a_host_is_not_asked_what_it_can_not_tell() -> None:
    with pytest.raises(NotImplementedError):
        wire(Capabilities()).ask_expected(0)
    with pytest.raises(NotImplementedError):
        wire(Capabilities()).ask_outcome(NUMBER, KEY, 0)


# ------------------------------------------------------------------------------------------------------- answers

OPERATION: list[tuple[dict[str, Any], list[Event]]] = [
    ({"type": "applied", "number": 501, "expected": 502}, [Applied(502)]),
    ({"type": "applied", "number": 501}, [Applied(None)]),
    ({"type": "applied", "number": 501, "expected": 502, "last": True}, [Applied(502), LAST]),
    ({"type": "rejected", "number": 501, "used": True, "reason": "no such\nunit"}, [Rejected("no such unit", True)]),
    ({"type": "rejected", "number": 501, "used": False}, [Rejected("no reason given", False)]),
    ({"type": "gap", "number": 501, "expected": 499}, [Gap(499)]),
    ({"type": "used", "number": 501, "expected": 502, "retry_after": 900}, [Replay(502, 900.0)]),
    ({"type": "used", "number": 501}, [Replay(None, None)]),
    ({"type": "banned", "retry_after": 640}, [Banned(640.0)]),
    ({"type": "banned"}, [Banned(None)]),
    ({"type": "busy", "retry_after": 1}, [Busy(1.0)]),
    ({"type": "in_use"}, [ConnectionInUse(), LAST]),
    ({"type": "malformed", "reason": "too long"}, [Malformed("too long")]),
]


@pytest.mark.parametrize(("answer", "events"), OPERATION)
def test_each_answer_to_an_operation_is_an_event(answer: dict[str, Any], events: list[Event]) -> None:
    assert operating().feed(frame(answer)) == events


NOT_APPLIED: list[bytes | dict[str, Any]] = [
    {"type": "applied", "number": 500, "expected": 501},
    {"type": "applied", "number": 502, "expected": 503},
    {"type": "applied", "number": 501.0},
    {"type": "applied", "number": "501"},
    {"type": "applied", "number": True},
    {"type": "applied"},
    {"type": "rejected", "number": 501},
    {"type": "rejected", "number": 501, "used": "yes"},
    {"type": "rejected", "number": 500, "used": True},
    {"type": "gap", "number": 501},
    {"type": "gap", "number": 501, "expected": -1},
    {"type": "used", "number": 500},
    {"type": "ready", "expected": 502},
    {"type": "expected", "expected": 502},
    {"type": "outcome", "number": 501, "fate": "applied"},
    {"type": ["applied"], "number": 501},
    {"type": None},
    {},
    {"type": "working", "number": 501},
    b"[]",
    b"null",
    b"OK",
    b"\xff\xfe",
    b'{"type":"applied","number":501}\nrest',
    b'{"type":"applied","number":NaN}',
    b"[" * 20_000,
]


@pytest.mark.parametrize("content", NOT_APPLIED)
def test_a_whole_answer_that_is_not_in_the_protocol_is_unlisted(content: bytes | dict[str, Any]) -> None:
    asked = operating()
    (event,) = asked.feed(frame(content))
    assert isinstance(event, Unlisted)
    assert asked.said is not None
    assert asked.said.refuses


def test_refused_credentials_would_meet_any_request() -> None:
    event, closing = operating().feed(frame({"type": "denied"}))
    assert isinstance(event, Unlisted)
    assert event.refuses is not None
    assert (event.refuses.reason, closing) == ("credentials", LAST)


@pytest.mark.parametrize("named", [501, 503, 0, -1, 2**80, 502.0, "502", [502]])
def test_an_apply_that_names_another_next_number_is_applied_with_a_surprise(named: object) -> None:
    (event,) = operating().feed(frame({"type": "applied", "number": 501, "expected": named}))
    assert isinstance(event, Applied)
    assert event.surprise


def test_no_word_of_the_host_is_in_a_sentence_of_ours() -> None:
    for answer in ({"type": "applied", "number": 501, "expected": "canary"}, {"type": "canary"}, {"canary": 1}):
        (event,) = operating().feed(frame(answer))
        assert isinstance(event, Applied | Unlisted)
        assert "canary" not in (event.surprise if isinstance(event, Applied) else event.why)


def test_an_answer_that_the_host_does_not_claim_is_unlisted() -> None:
    suspicious = Capabilities()
    for answer in ({"type": "used", "number": 501}, {"type": "rejected", "number": 501}):
        assert isinstance(operating(suspicious).feed(frame(answer))[0], Unlisted)
    lax = Capabilities(gapless=False)
    assert isinstance(operating(lax).feed(frame({"type": "gap", "number": 501, "expected": 499}))[0], Unlisted)


def test_what_a_host_expects_is_not_believed_if_it_can_not_be_asked() -> None:
    answer = frame({"type": "applied", "number": 501, "expected": 900})
    assert operating(Capabilities()).feed(answer) == [Applied(None)]


@pytest.mark.parametrize(
    ("uses", "said", "event"),
    [
        (RejectionUses.YES, {}, Rejected("no reason given", consumed=True)),
        (RejectionUses.NO, {}, Rejected("no reason given", consumed=False)),
        (RejectionUses.NO, {"used": False}, Rejected("no reason given", consumed=False)),
        (RejectionUses.SAYS, {"used": True}, Rejected("no reason given", consumed=True)),
    ],
)
def test_a_rejection_uses_the_number_as_declared(uses: RejectionUses, said: dict[str, Any], event: Event) -> None:
    answer = {"type": "rejected", "number": 501, **said}
    assert operating(Capabilities(rejection_uses=uses)).feed(frame(answer)) == [event]


@pytest.mark.parametrize("used", [True, False])
def test_a_rejection_that_contradicts_what_was_declared_is_unlisted(used: bool) -> None:
    declared = Capabilities(rejection_uses=RejectionUses.NO if used else RejectionUses.YES)
    (event,) = operating(declared).feed(frame({"type": "rejected", "number": 501, "used": used}))
    assert isinstance(event, Unlisted)


def test_numbers_that_wrap_are_followed_by_the_lowest() -> None:
    wraps = Capabilities(expected=Expects.USED, modulus=96, lowest=32)
    last = operating(wraps, 95)
    assert last.feed(frame({"type": "applied", "number": 95, "expected": 32})) == [Applied(32)]
    (event,) = operating(wraps, 94).feed(frame({"type": "applied", "number": 94, "expected": 96}))
    assert isinstance(event, Applied)
    assert event.surprise


@pytest.mark.parametrize(
    ("number", "expected", "used"), [(95, 32, True), (40, 41, True), (40, 39, False), (40, 40, False)]
)
def test_a_number_is_used_if_the_host_expects_one_behind_it_around_the_circle(
    number: int, expected: int, used: bool
) -> None:
    asked = operating(Capabilities(expected=Expects.USED, modulus=96, lowest=32), number)
    asked.feed(frame({"type": "odd", "number": number, "expected": expected}))
    assert asked.said is not None
    assert asked.said.used is used


def test_an_unlisted_answer_that_expects_a_later_number_says_that_ours_is_used() -> None:
    for answer, used in (
        ({"type": "odd", "number": 501, "expected": 502}, True),
        ({"type": "odd", "number": 501, "expected": 501}, False),
        ({"type": "odd", "number": 500, "expected": 502}, False),
        ({"type": "used", "number": 501}, True),
    ):
        asked = operating()
        asked.feed(frame(answer))
        assert asked.said is not None
        assert asked.said.used is used


# ----------------------------------------------------------------------------------------------------- questions


@pytest.mark.parametrize(
    ("answer", "events"),
    [
        ({"type": "ready"}, [Ready(None, "")]),
        ({"type": "ready", "expected": 502, "incarnation": "2026-11-28"}, [Ready(502, "2026-11-28")]),
        ({"type": "banned", "retry_after": 9}, [Banned(9.0)]),
        ({"type": "busy"}, [Busy(0.0)]),
        ({"type": "in_use"}, [ConnectionInUse(), LAST]),
    ],
)
def test_a_greeting_is_answered_by_ready_or_by_a_reason_to_wait(answer: dict[str, Any], events: list[Event]) -> None:
    assert greeted().feed(frame(answer)) == events


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"type": "denied"}, "credentials"),
        ({"type": "malformed", "reason": "version 1?"}, "refused"),
        ({"type": "ready", "expected": "502"}, "unreadable"),
        ({"type": "ready", "expected": NONCE_MAX + 1}, "unreadable"),
        ({"type": "ready", "incarnation": "x" * 65}, "unreadable"),
        ({"type": "ready", "incarnation": 7}, "unreadable"),
        ({"type": "expected", "expected": 502}, "unreadable"),
        (b"220 mail.example ESMTP", "unreadable"),
    ],
)
def test_any_other_answer_to_a_greeting_is_no_service(answer: bytes | dict[str, Any], reason: str) -> None:
    event = greeted().feed(frame(answer))[0]
    assert isinstance(event, NoService)
    assert event.reason == reason


def test_the_expected_number_is_told() -> None:
    assert asking().feed(frame({"type": "expected", "expected": 502})) == [Expected(502)]
    assert asking().feed(frame({"type": "expected", "expected": 2**70})) == [OutOfRange(str(2**70))]
    wraps = Capabilities(expected=Expects.USED, modulus=96, lowest=32)
    assert asking(wraps).feed(frame({"type": "expected", "expected": 96})) == [OutOfRange("96")]


@pytest.mark.parametrize(
    "answer",
    [
        {"type": "applied", "number": 501, "expected": 502},
        {"type": "expected", "number": 501, "expected": 502},
        {"type": "expected", "expected": True},
        {"type": "expected", "expected": 502.0},
        {"type": "expected"},
        {"type": "ready", "expected": 502},
        b"502",
    ],
)
def test_nothing_else_is_an_expected_number(answer: bytes | dict[str, Any]) -> None:
    (event,) = asking().feed(frame(answer))
    assert isinstance(event, NoService)


@pytest.mark.parametrize(
    ("outcome", "answer", "event"),
    [
        ("by_number", {"number": 501, "fate": "applied"}, OutcomeTold(ToldFate.APPLIED, 501)),
        (
            "by_number",
            {"number": 501, "fate": "rejected", "used": False, "reason": "no"},
            OutcomeTold(ToldFate.REJECTED, 501, "no", False),
        ),
        ("by_number", {"number": 501, "fate": "not_taken"}, OutcomeTold(ToldFate.NOT_TAKEN, 501)),
        ("by_id", {"key": "key-7", "number": 480, "fate": "applied"}, OutcomeTold(ToldFate.APPLIED, 480)),
        ("by_id", {"key": "key-7", "fate": "unknown"}, OutcomeTold(ToldFate.UNKNOWN, None)),
        ("last", {"number": 500, "fate": "applied"}, OutcomeTold(ToldFate.APPLIED, 500)),
        ("last", {"fate": "not_taken"}, OutcomeTold(ToldFate.NOT_TAKEN, None)),
    ],
)
def test_an_outcome_is_told(outcome: str, answer: dict[str, Any], event: Event) -> None:
    told = asking_outcome(AskedOutcomes(outcome)).feed(frame({"type": "outcome", **answer}))
    assert told == [event]


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ("by_number", {"number": 500, "fate": "applied"}),
        ("by_number", {"fate": "applied"}),
        ("by_id", {"key": "key-8", "number": 501, "fate": "applied"}),
        ("by_id", {"number": 501, "fate": "applied"}),
        ("last", {"number": 501, "fate": "done"}),
        ("last", {"number": 501, "fate": ["applied"]}),
        ("last", {"number": 501}),
        ("last", {"number": 501, "fate": "rejected"}),
    ],
)
def test_another_operations_outcome_is_never_ours(outcome: str, answer: dict[str, Any]) -> None:
    (event,) = asking_outcome(AskedOutcomes(outcome)).feed(frame({"type": "outcome", **answer}))
    assert isinstance(event, NoService)


# ----------------------------------------------------------------------------------------------------- the stream


def test_working_comes_before_an_answer_however_often() -> None:
    asked = operating()
    working = frame({"type": "working"})
    assert asked.feed(working * 2) == [Working(), Working()]
    assert asked.feed(working + frame({"type": "applied", "number": 501})) == [Working(), Applied(None)]


def test_bytes_behind_an_answer_close_the_connection_once() -> None:
    asked = operating()
    assert asked.feed(frame({"type": "busy"}) + b"\x00") == [Busy(0.0), STRAY]
    assert asked.feed(b"\x00") == []


def test_a_connection_carries_one_exchange_after_the_other() -> None:
    line = greeted()
    assert line.feed(frame({"type": "ready", "expected": 501})) == [Ready(501)]
    line.operation(501, b"{}", 0)
    assert line.feed(frame({"type": "busy"})) == [Busy(0.0)]
    line.operation(501, b"{}", 0)
    assert line.feed(frame({"type": "applied", "number": 501, "expected": 502})) == [Applied(502)]
    line.ask_expected(0)
    assert line.feed(frame({"type": "expected", "expected": 502})) == [Expected(502)]
    assert line.end() == []


def test_the_words_of_an_answer_go_with_the_next_request() -> None:
    line = operating()
    line.feed(frame({"type": "busy"}))
    words = [line.said]
    line.operation(501, b"{}", 0)
    assert [said is None for said in (*words, line.said)] == [False, True]


@pytest.mark.parametrize("data", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\x00\x00\x00", b"\x16\x03\x01\x02", b"\xff" * 4])
def test_a_length_that_no_answer_has_is_garbled_before_its_bytes_come(data: bytes) -> None:
    with pytest.raises(Garbled):
        operating().feed(data)


def test_a_frame_may_be_as_long_as_the_limit() -> None:
    answer = json.dumps({"type": "malformed", "reason": "x" * (FRAME_BYTES_MAX - 35)}).encode()
    assert len(answer) == FRAME_BYTES_MAX
    assert isinstance(operating().feed(frame(answer))[0], Malformed)
    with pytest.raises(Garbled):
        operating().feed(frame(answer + b" "))


STREAMS = [
    frame({"type": "working"}) * 2 + frame(answer) + rest
    for answer in [*(answer for answer, _ in OPERATION), *NOT_APPLIED[:-1]]
    for rest in (b"", b"\x00", b"HTTP/1.1 200 OK", frame({"type": "applied", "number": 501}))
]


@given(st.sampled_from(STREAMS), st.lists(st.integers(min_value=0, max_value=200), max_size=12))
def test_how_bytes_are_cut_changes_no_event(stream: bytes, cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    asked = operating()
    pieces = [stream[start:end] for start, end in itertools.pairwise(bounds) if start < end]
    assert [event for piece in pieces for event in asked.feed(piece)] == operating().feed(stream)


@pytest.mark.parametrize("answer", [answer for answer, _ in OPERATION])
def test_a_part_of_an_answer_and_the_end_is_never_definite(answer: dict[str, Any]) -> None:
    whole = frame(answer)
    for length in range(len(whole)):
        asked = operating()
        assert length == 0 or asked.feed(whole[:length]) == []
        with pytest.raises(Garbled):
            asked.end()


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_make_the_driver_fail_otherwise_than_as_garbled(data: bytes) -> None:
    for begun in (operating(), asking(), greeted(), asking_outcome(AskedOutcomes.BY_ID)):
        for content in (data, frame(data)):
            try:
                begun.feed(content)
            except Garbled:
                break


@given(
    st.dictionaries(
        st.sampled_from(["type", "number", "expected", "used", "fate", "key", "retry_after", "reason", "last"]),
        st.one_of(
            st.sampled_from(["applied", "rejected", "used", "gap", "outcome", "ready", "expected", KEY, NUMBER, 502]),
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.none(), max_size=1),
        ),
    )
)  # fmt: skip
def test_only_our_own_number_is_ever_applied(fields: dict[str, Any]) -> None:
    (event, *_) = operating().feed(frame(fields)) or [Working()]
    if isinstance(event, Applied | Rejected):
        assert fields["number"] == NUMBER
    for begun in (asking(), greeted(), asking_outcome(AskedOutcomes.BY_ID)):
        begun.feed(frame(fields))
