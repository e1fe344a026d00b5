"""The options of a host with an API of its own: what they refuse, and what is written and read by them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_sync.drivers.capabilities import OLDHOST, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.contract import InvalidOptions, Peer
from oldhost_sync.drivers.events import (
    Answer,
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    Event,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutOfRange,
    Rejected,
    Replay,
    Unlisted,
)
from oldhost_sync.drivers.http.driver import HTTP, HttpDriver, make_driver
from oldhost_sync.drivers.http.patterns import MEANINGS
from oldhost_sync.drivers.http.wire import HttpWire
from tests.architecture.project_files import ROOT

APPLIED = '[[answers]]\nis = "applied"\nstatus = 200\nwhere = { "/ok" = true }\nnumber = "/seq"\n'
KEY = b"the key"
PAGE = ROOT / "docs" / "hosts-over-http.md"
PEER = Peer("units.example:8443", "/v2", sign_key=KEY)


def driver(text: str) -> HttpDriver:
    return make_driver(tomllib.loads(text))


def mistakes(text: str) -> dict[str, str]:
    with pytest.raises(InvalidOptions) as refused:
        driver(text)
    return {".".join(key): why for key, why in refused.value.mistakes}


def answers(*patterns: str) -> str:
    return APPLIED + "".join(f"[[answers]]\n{pattern}\n" for pattern in patterns)


WRONG = [
    ("x = 1", "x", "there is no such option: there are number, question"),
    ('number = "X-Nonce"', "number", "must be a table"),
    ('number = { name = "X" }', "number", "in is missing"),
    ('number = { in = "cookie" }', "number.in", "must be one of header, body, path"),
    ('number = { in = "header" }', "number.name", "must be a header's name"),
    ('number = { in = "header", name = "X Y" }', "number.name", "must be a header's name"),
    ('number = { in = "header", name = "host" }', "number.name", "requests have anyway"),
    ('number = { in = "body", name = "a b" }', "number.name", "the name of a member"),
    ('question = "units/next"', "question", "must be a path"),
    ('question = "/units next"', "question", "must be a path"),
    ('date = { header = "X-Time", form = "iso" }', "date.form", "must be one of seconds, http"),
    ('sign = { header = "X-Sign" }', "sign", "over is missing"),
    ('sign = { over = ["date", "path"], header = "X-Sign" }', "sign.over", "no date is sent"),
    ('sign = { over = ["date"], header = "X-Sign" }\ndate = { header = "X-T" }', "sign.over", "signs nothing of"),
    ('sign = { over = ["path", "path"], header = "X-Sign" }', "sign.over", "must be a list of some of method, path"),
    ('sign = { over = ["path"], header = "X-Sign", algorithm = "md5" }', "sign.algorithm", "one of sha256, sha512"),
    ('sign = { over = ["path"], header = "X-Sign", prefix = "a\\r\\nb" }', "sign.prefix", "printable ASCII"),
    ('sign = { over = ["path"], header = "x-nonce" }\nnumber = { in = "header", name = "X-Nonce" }', "sign.header", ""),
    ('repeated = "punished"', "repeated", "for hosts whose answers are given, too"),
    ("answers = []", "answers", "must be 1 to"),
    ('answers = ["applied"]', "answers.1.is", "must be one of applied"),
    ('[[answers]]\nis = ["applied"]\nstatus = 200', "answers.1.is", "must be one of applied"),
    ('[[answers]]\nis = "busy"\nstatus = 503', "answers", "none of them is applied"),
    (answers('is = "gap"\nstatus = 409'), "answers.2", "expected is missing"),
    (answers('is = "busy"\nstatus = 503\nnumber = "/seq"'), "answers.2.number", "there is no such option"),
    (answers('is = "busy"\nstatus = 99'), "answers.2.status", "from 200 to 599"),
    (answers('is = "busy"\nstatus = true'), "answers.2.status", "from 200 to 599"),
    (answers('is = "busy"\nstatus = 503\nseconds = "wait"'), "answers.2.seconds", "must be a JSON pointer"),
    (answers('is = "busy"\nstatus = 503\nwhere = { "/a" = 1.5 }'), "answers.2.where", "no text, whole number or bool"),
    (answers('is = "busy"\nstatus = 503\nwhere = {}'), "answers.2.where", "must be a table"),
    (answers('is = "expected"\nstatus = 200\nexpected = "/next"'), "answers.2", "there is no question"),
    (f'question = "/next"\n{APPLIED}', "question", "none of the answers is expected"),
    ('[[answers]]\nis = "applied"\nstatus = 200', "answers.1", "a log-in page has the same status"),
    (answers('is = "rejected"\nstatus = [200, 422]'), "answers.2", "is rejected, and fits answers of 1, applied, too"),
    (answers('is = "rejected"\nstatus = 200\nwhere = { "/no" = true }'), "answers.2", "fits answers of 1"),
    (
        answers('is = "gap"\nstatus = 409\nexpected = "/n"', 'is = "replay"\nstatus = 409'),
        "answers.3",
        "fits answers of 2",
    ),
    *(
        (
            f'[[answers]]\nis = "applied"\nstatus = [200, {status}]\nnumber = "/seq"',
            "answers.1.status",
            "is never applied",
        )
        for status in (302, 400, 422, 500)
    ),
]


@pytest.mark.parametrize(("text", "key", "why"), WRONG)
def test_a_mistake_is_told_with_its_key(text: str, key: str, why: str) -> None:
    found = mistakes(text)
    assert list(found) == [key]
    assert why in found[key]


def test_all_mistakes_are_told_at_once_and_no_value_is() -> None:
    found = mistakes(
        'x = "hunter2"\nquestion = "hunter2"\nsign = { header = "hunter2 " }\n' + answers('is = "hunter2"')
    )
    assert set(found) == {"x", "question", "sign", "sign.header", "answers.2.is"}
    assert "hunter2" not in "".join(found.values())


@pytest.mark.parametrize(
    "pattern",
    [
        'is = "rejected"\nstatus = 200\nwhere = { "/ok" = false }',
        'is = "rejected"\nstatus = 200\nwhere = { "/ok" = 1 }',
        'is = "applied"\nstatus = 200\nwhere = { "/done" = true }',
    ],
)
def test_patterns_that_no_answer_fits_both_or_that_mean_the_same_are_taken(pattern: str) -> None:
    driver(answers(pattern))


def test_without_options_it_is_oldhost_and_a_part_leaves_the_rest() -> None:
    assert make_driver({}) is HTTP
    some = driver('number = { in = "header", name = "X-Seq" }')
    assert some.capabilities == OLDHOST
    assert some.wire(PEER).operation(501, b"{}", 0) == (
        HTTP.wire(PEER).operation(501, b"{}", 0).replace(b"X-Nonce", b"X-Seq")
    )
    assert some.wire(PEER).ask_expected(0) == HTTP.wire(PEER).ask_expected(0)


def test_of_a_host_with_answers_of_its_own_only_what_it_claims_is_believed() -> None:
    assert driver(answers()).capabilities == Capabilities()
    some = driver(
        'question = "/next"\nproves = "applied"\nrepeated = "refused"\nrejection_uses = "no"\n'
        + answers('is = "expected"\nstatus = 200\nwhere = { "/next" = 1 }\nexpected = "/next"')
    )
    assert some.capabilities == Capabilities(
        expected=Expects.APPLIED,
        repeated=Repeats.REFUSED,
        rejection_uses=RejectionUses.NO,
    )
    with pytest.raises(NotImplementedError):
        driver(answers()).wire(PEER).ask_expected(0)


# ------------------------------------------------------------------------------------------------------------ requests


def head(request: bytes) -> list[str]:
    return request.partition(b"\r\n\r\n")[0].decode().split("\r\n")


@pytest.mark.parametrize(
    ("options", "bound", "line", "body"),
    [
        ("", b"{}", "POST /v2/oldhost/sync HTTP/1.1", b"{}"),
        ("", b"PUT /units/u%2F1\n{}", "PUT /v2/units/u%2F1 HTTP/1.1", b"{}"),
        ("", b"PUT /units/u1/{number}\n{}", "PUT /v2/units/u1/501 HTTP/1.1", b"{}"),
        ('number = { in = "path" }', b"PUT /{number}/u1\n{}", "PUT /v2/501/u1 HTTP/1.1", b"{}"),
        ('number = { in = "path" }', b"PUT /units/u1\n{}", "PUT /v2/units/u1/501 HTTP/1.1", b"{}"),
        ('number = { in = "path" }', b"{}", "POST /v2/oldhost/sync/501 HTTP/1.1", b"{}"),
        ('number = { in = "body", name = "seq" }', b"{}", "POST /v2/oldhost/sync HTTP/1.1", b'{"seq":501}'),
        (
            'number = { in = "body", name = "a" }',
            b'{"a":1,"b":2}',
            "POST /v2/oldhost/sync HTTP/1.1",
            b'{"a":501,"b":2}',
        ),
    ],
)
def test_the_number_and_the_mappings_place_are_where_they_belong(
    options: str, bound: bytes, line: str, body: bytes
) -> None:
    request = driver(options).wire(PEER).operation(501, bound, 0)
    assert head(request)[0] == line
    assert request.partition(b"\r\n\r\n")[2] == body
    assert f"Content-Length: {len(body)}" in head(request)
    assert ("X-Nonce: 501" in head(request)) == ("in =" not in options)


def test_a_body_that_is_no_object_has_no_place_for_a_number() -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        driver('number = { in = "body", name = "seq" }').wire(PEER).operation(501, b"[]", 0)


@pytest.mark.parametrize("form", ["hex", "base64"])
@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_the_chosen_parts_are_signed_when_the_request_is_made(form: str, algorithm: str) -> None:
    parts = '["method", "path", "number", "date", "body"]'
    sign = f'over = {parts}, header = "X-Sign", prefix = "v1=", form = "{form}", algorithm = "{algorithm}"'
    wire = driver(f'date = {{ header = "X-Time" }}\nsign = {{ {sign} }}').wire(PEER)

    def signature(*parts: bytes) -> str:
        made = hmac.new(KEY, b"\n".join(parts), getattr(hashlib, algorithm)).digest()
        return f"X-Sign: v1={made.hex() if form == 'hex' else base64.b64encode(made).decode()}"

    for at_ms, date in ((1_700_000_000_999, "1700000000"), (1_800_000_000_000, "1800000000")):
        operation = head(wire.operation(501, b'PUT /u1\n{"a":1}', at_ms))
        assert f"X-Time: {date}" in operation
        assert signature(b"PUT", b"/v2/u1", b"501", date.encode(), b'{"a":1}') in operation
        question = head(wire.ask_expected(at_ms))
        assert signature(b"GET", b"/v2/oldhost/expected-nonce", b"", date.encode(), b"") in question


def test_a_date_may_be_as_http_has_it() -> None:
    wire = driver('date = { header = "X-Date", form = "http" }').wire(PEER)
    assert "X-Date: Tue, 14 Nov 2023 22:13:20 GMT" in head(wire.operation(1, b"{}", 1_700_000_000_000))


def test_the_key_is_in_no_representation() -> None:
    assert "the key" not in repr(PEER)


# ------------------------------------------------------------------------------------------------------------- answers

ANSWERS = """
question = "/next"
answers = [
    { is = "applied", status = [200, 201], where = { "/ok" = true }, number = "/seq", expected = "/next" },
    { is = "rejected", status = 422, expected = "/next", reason = "/error/text" },
    { is = "gap", status = 409, where = { "/error/code" = 7 }, expected = "/next" },
    { is = "replay", status = 409, where = { "/error/code" = 8 }, expected = "/next", seconds = "/wait" },
    { is = "banned", status = 403, where = { "/error/code" = 9 }, seconds = "/wait" },
    { is = "busy", status = 503, where = { "/error/code" = 10 }, seconds = "/wait" },
    { is = "in_use", status = 503, where = { "/error/code" = 11 } },
    { is = "malformed", status = 400, reason = "/error/text" },
    { is = "expected", status = 200, expected = "/next" },
]
"""


def heard(wire: HttpWire, status: int, body: str) -> Event:
    data = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    return wire.feed(data)[0]


def answered(status: int, body: str, options: str = ANSWERS, peer: Peer = PEER) -> Event:
    wire = driver(options).wire(peer)
    wire.operation(501, b"{}", 0)
    return heard(wire, status, body)


SURPRISE = "OldHost says that nonce 501 is applied, and then expects 7, not 502"


@pytest.mark.parametrize(
    ("status", "body", "event"),
    [
        (200, '{"ok": true, "seq": 501, "next": 502}', Applied(502)),
        (201, '{"ok": true, "seq": 501}', Applied(None)),
        (200, '{"ok": true, "seq": 501, "next": 7}', Applied(7, SURPRISE)),
        (422, '{"error": {"text": "no"}, "next": 502}', Rejected("no", consumed=True)),
        (422, '{"error": {"text": "no"}, "next": 501}', Rejected("no", consumed=False)),
        (422, "{}", Rejected("no reason given", consumed=True, is_told=False)),
        (409, '{"error": {"code": 7}, "next": 499}', Gap(499)),
        (409, '{"error": {"code": 8}, "next": 502, "wait": 60}', Replay(502, 60.0)),
        (409, '{"error": {"code": 8}}', Replay(None, None)),
        (403, '{"error": {"code": 9}, "wait": 60}', Banned(60.0)),
        (503, '{"error": {"code": 10}}', Busy(0.0)),
        (503, '{"error": {"code": 11}}', ConnectionInUse()),
        (400, '{"error": {"text": "bad"}}', Malformed("bad")),
    ],
)
def test_an_answer_to_an_operation_is_read_by_its_pattern(status: int, body: str, event: Answer) -> None:
    read = answered(status, body)
    assert read == event
    if isinstance(event, Rejected) and isinstance(read, Rejected):
        assert read.is_told == event.is_told


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, '{"ok": true, "seq": 500}'),
        (200, '{"ok": true, "seq": "501"}'),
        (200, '{"ok": true, "seq": true}'),
        (200, '{"ok": true}'),
        (200, '{"ok": 1, "seq": 501}'),
        (200, '{"ok": "true", "seq": 501}'),
        (200, '[{"ok": true, "seq": 501}]'),
        (200, '{"next": 502}'),
        (200, "<html>sign in</html>"),
        (200, ""),
        (204, ""),
        (202, '{"ok": true, "seq": 501}'),
        (302, '{"ok": true, "seq": 501}'),
        (409, '{"error": {"code": 7}}'),
        (409, '{"error": {"code": "7"}, "next": 499}'),
        (422, '{"next": 7}'),
        (422, '{"next": null}'),
        (422, "<h1>Unprocessable</h1>"),
        (500, "{}"),
    ],
)
def test_what_fits_no_pattern_proves_nothing(status: int, body: str) -> None:
    assert isinstance(answered(status, body), Unlisted)


@pytest.mark.parametrize(
    ("status", "body", "event"),
    [
        (200, '{"next": 502}', Expected(502)),
        (200, '{"next": 99999999999999999999}', OutOfRange("99999999999999999999")),
        (403, '{"error": {"code": 9}, "wait": 60}', Banned(60.0)),
        (503, '{"error": {"code": 11}}', ConnectionInUse()),
    ],
)
def test_an_answer_to_the_question_is_read_by_its_pattern(status: int, body: str, event: Event) -> None:
    wire = driver(ANSWERS).wire(PEER)
    wire.ask_expected(0)
    assert heard(wire, status, body) == event


@pytest.mark.parametrize(
    ("status", "body"), [(200, '{"next": "502"}'), (200, "{}"), (200, "<p>"), (401, "{}"), (422, '{"next": 502}')]
)
def test_any_other_answer_to_the_question_is_no_service(status: int, body: str) -> None:
    wire = driver(ANSWERS).wire(PEER)
    wire.ask_expected(0)
    assert isinstance(heard(wire, status, body), NoService)


@pytest.mark.parametrize(
    ("uses", "consumed", "is_told"), [("yes", True, True), ("no", False, True), ("says", True, False)]
)
def test_what_a_rejection_does_with_its_number_is_as_the_options_say(uses: str, consumed: bool, is_told: bool) -> None:
    read = answered(422, "{}", f'rejection_uses = "{uses}"\n{ANSWERS}')
    assert isinstance(read, Rejected)
    assert (read.consumed, read.is_told) == (consumed, is_told)


@given(
    status=st.integers(200, 599),
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(
            st.sampled_from(["ok", "seq", "next", "error", "code", "wait"]), inner, max_size=4
        ),
    ),
)
def test_no_answer_without_our_number_is_an_apply(status: int, body: Any) -> None:
    read = answered(status, json.dumps(body))
    if isinstance(read, Applied):
        assert (status in {200, 201}, body["ok"] is True, body["seq"]) == (True, True, 501)


def test_the_pages_example_can_be_used_and_it_lists_every_answer() -> None:
    text = PAGE.read_text()
    example = tomllib.loads(text.partition("```toml\n")[2].partition("```")[0])
    make_driver(example["hosts"]["units"]["options"])
    listed = [line.split(" | ")[0].strip("| ") for line in text.split("\n") if line.startswith("| ")]
    assert [meaning for meaning in MEANINGS if meaning not in listed] == []
