from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers import events
from oldhost_sync.drivers.contract import Peer
from oldhost_sync.drivers.events import (
    REASON_LENGTH_MAX,
    Ambiguous,
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    Expected,
    Gap,
    Malformed,
    Rejected,
    Replay,
    Unlisted,
)
from oldhost_sync.drivers.http.oldhost import read_answer, read_ask
from oldhost_sync.drivers.http.requests import OLDHOST

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
answer_fields = st.dictionaries(
    st.sampled_from(["nonce", "expected_nonce", "error", "reason", "retry_after", "other"]),
    st.sampled_from(["rejected", "nonce_gap", "nonce_replay", "banned", "busy", "malformed", "connection_in_use"])
    | st.sampled_from([500, 501, 502, 503, -1, 501.0, True, "501"])
    | scalars,
)
statuses = st.sampled_from([200, 201, 204, 400, 403, 404, 422, 500, 502, 503]) | st.integers(100, 999)


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


# ------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (200, {"nonce": 501, "expected_nonce": 502}, Applied(502)),
        (422, {"error": "rejected", "reason": "no", "expected_nonce": 502}, Rejected("no", consumed=True)),
        (422, {"error": "rejected", "reason": "no", "expected_nonce": 501}, Rejected("no", consumed=False)),
        (422, {"error": "rejected", "reason": "no"}, Rejected("no", consumed=True)),
        (400, {"error": "nonce_gap", "expected_nonce": 499}, Gap(499)),
        (400, {"error": "nonce_replay", "expected_nonce": 502, "retry_after": 900}, Replay(502, 900)),
        (400, {"error": "nonce_replay"}, Replay(None, None)),
        (403, {"error": "banned", "retry_after": 640}, Banned(640)),
        (403, {"error": "banned"}, Banned(None)),
        (503, {"error": "busy", "retry_after": 1}, Busy(1)),
        (503, {"error": "busy"}, Busy(0)),
        (503, {"error": "connection_in_use"}, ConnectionInUse()),
        (400, {"error": "malformed", "reason": "over 64 KiB"}, Malformed("over 64 KiB")),
    ],
)
def test_each_answer_of_the_page_is_read_as_what_it_is(
    status: int, body: dict[str, Any], answer: events.Answer
) -> None:
    assert read_answer(status, encoded(body), 501) == answer


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"nonce": 500, "expected_nonce": 501}),
        (200, {"nonce": 501.0, "expected_nonce": 502}),
        (200, {"nonce": "501", "expected_nonce": 502}),
        (200, {"nonce": True, "expected_nonce": 2}),
        (200, {"expected_nonce": 502}),
        (200, {}),
        (201, {"nonce": 500, "expected_nonce": 502}),
        (301, {"nonce": 501, "expected_nonce": 502}),
        (422, {"error": "rejected", "expected_nonce": 600}),
        (422, {"error": "rejected", "expected_nonce": "502"}),
        (422, {"error": "teapot"}),
        (400, {"error": "nonce_gap"}),
        (400, {}),
        (403, {"error": "forbidden"}),
        (500, {"error": "busy"}),
        (503, {"error": "banned"}),
    ],
)
def test_anything_else_is_unlisted(status: int, body: dict[str, Any]) -> None:
    assert isinstance(read_answer(status, encoded(body), 501), Unlisted)


@given(status=statuses, body=st.binary(max_size=200), nonce=st.integers(0, 10**12))
def test_garbage_never_becomes_an_answer(status: int, body: bytes, nonce: int) -> None:
    assert isinstance(read_answer(status, body, nonce), Unlisted) or isinstance(json.loads(body), dict)


@given(status=statuses, fields=answer_fields, nonce=st.sampled_from([0, 1, 500, 501, 502]))
def test_applied_means_our_nonce_and_another_next_one_is_a_surprise(
    status: int, fields: dict[str, Any], nonce: int
) -> None:
    answer = read_answer(status, encoded(fields), nonce)
    if isinstance(answer, Applied):
        assert 200 <= status < 300
        assert fields["nonce"] == nonce
        expected = fields.get("expected_nonce")
        is_next = type(expected) is int and expected == nonce + 1  # 501.0 is no nonce
        assert (answer.surprise == "") == (expected is None or is_next)


@pytest.mark.parametrize("expected", [501, 503, 0, 2**63, "502", [], 502.5])
def test_what_an_applied_answer_says_besides_does_not_undo_it(expected: object) -> None:
    answer = read_answer(200, encoded({"nonce": 501, "expected_nonce": expected, "more": "than asked"}), 501)
    assert isinstance(answer, Applied)
    assert answer.surprise


@pytest.mark.parametrize("expected", ["Vera Secret", ["Vera Secret"], {"guest": "Vera Secret"}, 4711.0, True])
def test_a_surprise_has_no_word_of_the_answer(expected: object) -> None:
    """It becomes the reason of a halt: viewers read it, and Temporal stores it."""
    answer = read_answer(200, encoded({"nonce": 501, "expected_nonce": expected}), 501)
    assert isinstance(answer, Applied)
    assert answer.surprise.endswith("and then expects what is no number, not 502")


@pytest.mark.parametrize("fields", [{}, {"expected_nonce": None}, {"expected_nonce": 502, "more": {"than": "asked"}}])
def test_an_applied_answer_may_say_less_or_more(fields: dict[str, Any]) -> None:
    answer = read_answer(200, encoded({"nonce": 501, **fields}), 501)
    assert isinstance(answer, Applied)
    assert not answer.surprise


@given(status=statuses, value=json_values, nonce=st.integers(0, 1000))
def test_no_json_at_all_breaks_the_reader(status: int, value: Any, nonce: int) -> None:
    read_answer(status, encoded(value), nonce)
    read_ask(status, encoded(value))


@pytest.mark.parametrize("body", [b"[" * 100_000, b"1" * 10_000, b"\xff\xfe", b"", b"null", b'{"a":' * 50_000])
def test_hostile_bodies_are_unlisted(body: bytes) -> None:
    assert isinstance(read_answer(200, body, 501), Unlisted)


@pytest.mark.parametrize(("given_", "seconds"), [(1e300, 86_400), (-5, 0), (True, None), ("900", None), (0.25, 0.25)])
def test_a_retry_after_is_kept_within_bounds(given_: Any, seconds: float | None) -> None:
    assert read_answer(403, encoded({"error": "banned", "retry_after": given_}), 1) == Banned(seconds)


def test_a_ban_of_nan_seconds_is_a_ban_of_unknown_length() -> None:
    assert read_answer(403, b'{"error": "banned", "retry_after": NaN}', 1) == Banned(None)


def test_a_reason_is_cut_and_cleaned() -> None:
    answer = read_answer(422, encoded({"error": "rejected", "reason": "a\x1b[31m\n" + "x" * 9999}), 501)
    assert isinstance(answer, Rejected)
    assert len(answer.reason) == REASON_LENGTH_MAX
    assert answer.reason.isprintable()


@pytest.mark.parametrize(
    ("status", "body", "answer"),
    [
        (200, {"expected_nonce": 502}, Expected(502)),
        (403, {"error": "banned", "retry_after": 3}, Banned(3)),
        (503, {"error": "busy", "retry_after": 1}, Busy(1)),
        (503, {"error": "connection_in_use"}, ConnectionInUse()),
    ],
)
def test_an_asks_answers(status: int, body: dict[str, Any], answer: events.Told | Ambiguous) -> None:
    assert read_ask(status, encoded(body)) == answer


@pytest.mark.parametrize("body", [{"nonce": 501, "expected_nonce": 502}, {"expected_nonce": "502"}, {}, []])
def test_a_late_answer_to_a_sync_is_no_answer_to_an_ask(body: Any) -> None:
    assert isinstance(read_ask(200, encoded(body)), Ambiguous)


# ------------------------------------------------------------------------------------------------------- writing


def test_a_request_is_the_pages_request() -> None:
    assert OLDHOST.operation(501, b"{}") == (
        b"POST /oldhost/sync HTTP/1.1\r\nHost: oldhost\r\nX-Nonce: 501\r\n"
        b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    )


def test_a_question_is_answered_by_no_cache() -> None:
    """A stored answer has an older expected nonce."""
    head = OLDHOST.ask_expected(peer=Peer("oldhost:8100")).decode().removesuffix("\r\n\r\n").split("\r\n")
    assert head[:2] == ["GET /oldhost/expected-nonce HTTP/1.1", "Host: oldhost:8100"]
    assert "Cache-Control: no-cache" in head
