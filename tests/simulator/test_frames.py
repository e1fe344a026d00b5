"""The simulator's frames, as docs/frame-protocol.md has them; and the faults, which are those of the other dialect."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oldhost_simulator import Simulator
from oldhost_simulator.call import Call
from oldhost_simulator.dialects.frame import FrameReader
from tests.simulator.client import ASK_BYTES, AdminClient, Line, operation
from tests.simulator.frame_line import LOGON, FrameLine, frame, sync_frame


@pytest.fixture
def simulator(start: Callable[..., Simulator]) -> Simulator:
    return start(dialect="frame", first_nonce=501)


@pytest.fixture
def line(simulator: Simulator) -> Iterator[FrameLine]:
    with FrameLine(simulator.url) as line:
        yield line


# ------------------------------------------------------------------------------------------------------- reading


def read_all(*pieces: bytes) -> list[Call]:
    reader, calls = FrameReader(1, check_operations=True), []
    for piece in pieces:
        reader.feed(piece)
        while (call := reader.next_call(0.0)) is not None:
            calls.append(call)
    return calls


STREAM = (
    frame(LOGON)
    + sync_frame(1)
    + frame({"type": "expected"})
    + sync_frame(2, b"x" * 70_000)
    + frame({"type": "outcome", "number": 2})
    + frame({"type": "bye"})
)


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=20))
def test_calls_are_the_same_however_their_bytes_are_cut(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(STREAM)]
    calls = read_all(*(STREAM[start:end] for start, end in itertools.pairwise(bounds)))
    assert calls == read_all(STREAM)
    assert [call.kind for call in calls] == ["logon", "sync", "ask", "sync", "outcome", "bye"]
    assert [call.problem for call in calls] == [None, None, None, "the body is over 64 KiB", None, None]


@given(st.lists(st.binary(max_size=100), max_size=10), st.booleans())
def test_no_bytes_make_the_reader_fail(pieces: list[bytes], framed: bool) -> None:
    for call in read_all(*(frame(piece) if framed and piece else piece for piece in pieces)):
        assert call.problem is not None or call.kind != "other"


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x00", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00"])
def test_what_has_no_frames_length_ends_the_connection(data: bytes) -> None:
    (call,) = read_all(data + STREAM)
    assert call.problem is not None
    assert call.last


def test_an_operation_is_hashed_as_it_came() -> None:
    (spaced,), (tight,) = (read_all(sync_frame(1, json.dumps(operation(), indent=i).encode())) for i in (None, 2))
    assert spaced.body == tight.body
    assert spaced.raw_sha256 != tight.raw_sha256


# ------------------------------------------------------------------------------------------------------- answers


def test_a_connection_begins_with_a_logon(simulator: Simulator) -> None:
    with FrameLine(simulator.url, logon=False) as line:
        assert line.sync(501) == {"type": "malformed", "reason": "log on first"}
        assert line.ask({"type": "logon", "version": 2})["type"] == "malformed"
        assert line.ask({"type": "expected"})["type"] == "malformed"
        ready = line.ask(LOGON)
        assert (ready["type"], ready["expected"]) == ("ready", 501)
        assert 0 < len(ready["incarnation"]) <= 64
        assert line.sync(501)["type"] == "applied"


def test_the_answers_to_operations_have_these_bytes(line: FrameLine, admin: AdminClient) -> None:
    admin.fault("reject", rule={"nonce": 502}, reason="no")
    said = []
    for number in (501, 502, 504, 501):
        line.send(sync_frame(number))
        said.append(line.receive_bytes())
    assert said[:3] == [
        b'{"type":"applied","number":501,"expected":502}',
        b'{"type":"rejected","number":502,"reason":"no","expected":503,"used":true}',
        b'{"type":"gap","number":504,"expected":503}',
    ]
    assert json.loads(said[3]) == {"type": "used", "number": 501, "expected": 503, "retry_after": 0.1}


def test_asking_uses_no_number(line: FrameLine) -> None:
    assert [line.ask({"type": "expected"}) for _ in range(2)] == [{"type": "expected", "expected": 501}] * 2


def test_idle_is_answered_by_nothing_and_bye_ends(line: FrameLine) -> None:
    line.send(frame({"type": "idle"}) * 2)
    assert line.expected() == 501
    line.send(frame({"type": "bye"}))
    assert line.receive_bytes() == b""


def test_a_ban_is_told_to_each_request_and_to_a_logon(
    simulator: Simulator, line: FrameLine, admin: AdminClient
) -> None:
    admin.post("/actions/ban", {"seconds": 640})
    assert line.sync(501) == {"type": "banned", "retry_after": 640}
    line.close()
    with FrameLine(simulator.url) as second:
        assert second.ready == {"type": "banned", "retry_after": 640}


def test_a_second_connection_is_told_at_once_and_closed(simulator: Simulator, line: FrameLine) -> None:
    with FrameLine(simulator.url, logon=False) as second:
        assert second.receive() == {"type": "in_use", "last": True}
        assert second.receive_bytes() == b""
    assert line.expected() == 501


@pytest.mark.parametrize("number", [None, "501", -1, 501.5, True, 10**18])
def test_a_number_that_is_none_is_malformed(line: FrameLine, number: object) -> None:
    assert line.sync(number)["type"] == "malformed"
    assert line.sync(501)["type"] == "applied"


def test_credentials_are_wanted_at_the_logon(start: Callable[..., Simulator], tmp_path: Path) -> None:
    (tmp_path / "auth").write_text("Bearer sesame\n")
    simulator = start(dialect="frame", authorization_file=tmp_path / "auth")
    for wrong in ({}, {"authorization": "Bearer x"}, {"authorization": 7}):
        with FrameLine(simulator.url, logon=False) as line:
            assert line.ask({**LOGON, **wrong}) == {"type": "denied", "last": True}
            assert line.receive_bytes() == b""
    with FrameLine(simulator.url, logon=False) as line:
        assert line.ask({**LOGON, "authorization": "Bearer sesame"})["type"] == "ready"
        assert line.sync(1)["type"] == "applied"


def test_its_address_says_how_it_is_reached(simulator: Simulator) -> None:
    assert simulator.url == f"tcp://127.0.0.1:{simulator.port}"


# -------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("fault", "replies", "applied"),
    [
        ({"name": "drop_before"}, [], []),
        ({"name": "drop_after"}, [], [501]),
        ({"name": "apply_late", "delay_ms": 1}, [], [501]),
        ({"name": "close_after"}, [b'{"type":"applied","number":501,"expected":502}'], [501]),
        ({"name": "http10"}, [b'{"type":"applied","number":501,"expected":502,"last":true}'], [501]),
        ({"name": "garbage", "reply": "not_json"}, [b"<html><body>It works!</body></html>"], [501]),
        ({"name": "garbage", "reply": "status"}, [b'{"type":"internal"}'], [501]),
        ({"name": "garbage", "reply": "other_nonce"}, [b'{"type":"applied","number":502,"expected":503}'], [501]),
        ({"name": "answer", "body": "what?", "nonce": "unused"}, [b"what?"], []),
        ({"name": "busy", "retry_after": 0.5}, [b'{"type":"busy","retry_after":0.5}'], []),
        ({"name": "say", "shift": -1}, [b'{"type":"applied","number":501,"expected":501}'], [501]),
        ({"name": "duplicate", "answer": "first"}, [b'{"type":"applied","number":501,"expected":502}'], [501]),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else "",
)
def test_a_fault_does_what_it_does_in_http(
    line: FrameLine, admin: AdminClient, fault: dict[str, Any], replies: list[bytes], applied: list[int]
) -> None:
    admin.fault(**fault)
    line.send(sync_frame(501))
    assert [line.receive_bytes()] == (replies or [b""])
    assert admin.applied_nonces(at_least=len(applied)) == applied


def test_a_reply_can_be_cut_in_the_middle(line: FrameLine, admin: AdminClient) -> None:
    admin.fault("cut_reply")
    line.send(sync_frame(501))
    assert len(line.receive_bytes()) < 46
    assert admin.applied_nonces(at_least=1) == [501]


def test_a_logon_and_an_outcome_can_be_hit_too(start: Callable[..., Simulator]) -> None:
    simulator = start(dialect="frame")
    simulator.control(lambda controls: controls.switch_on({"name": "busy", "on": "logon", "next": 1}))
    with FrameLine(simulator.url) as line:
        assert line.ready == {"type": "busy", "retry_after": 1}
        assert line.ask(LOGON)["type"] == "ready"


def slow_and_working(simulator: Simulator) -> None:
    for fault in ({"name": "slow", "extra_ms": 30}, {"name": "working", "every_ms": 8}):
        AdminClient(simulator.admin_url).fault(**fault, on="any")  # type: ignore[arg-type]


def test_a_slow_host_can_say_that_it_works(simulator: Simulator, line: FrameLine) -> None:
    slow_and_working(simulator)
    line.send(sync_frame(501))
    said = [line.receive_bytes()]
    while b"working" in said[-1]:
        said.append(line.receive_bytes())
    assert len(said) > 1
    assert set(said[:-1]) == {b'{"type":"working"}'}
    assert said[-1] == b'{"type":"applied","number":501,"expected":502}'


def test_a_slow_host_can_say_so_by_http_too(start: Callable[..., Simulator]) -> None:
    simulator = start()
    slow_and_working(simulator)
    with Line(simulator.url) as line:
        line.send(ASK_BYTES.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        interim, _, answer = line.receive_to_end().rpartition(b"HTTP/1.1 102 Processing\r\n\r\n")
    assert interim.replace(b"HTTP/1.1 102 Processing\r\n\r\n", b"") == b""
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
