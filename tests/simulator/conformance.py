"""What every OldHost does, whoever made it: the protocol (docs/protocol.md) as tests over a real socket.

`NonceRules` needs only `host.connect()` with `sync` and `ask`, so that a model without a socket can pass it as well;
`WireRules` needs the socket. A suite uses them by inheritance and gives a fixture `host`. The host may expect any
nonce; each test begins by asking.
"""

import itertools
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pytest

from tests.simulator.client import (
    ASK_BYTES,
    Line,
    Reply,
    ask_until_unbanned,
    connect_when_free,
    operation,
    sync_bytes,
)

BAN_SECONDS_MAX = 30.0
"""A longer ban is not waited for: its tests are skipped."""

SLACK_SECONDS = 2.0
"""How much later than promised a ban may be seen to end on a loaded machine."""


class AnyLine(Protocol):
    """One connection, or what stands for it."""

    def sync(self, nonce: int | str | None, body: Any = None) -> Reply: ...

    def ask(self) -> Reply: ...

    def expected_nonce(self) -> int: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class HostUnderTest:
    url: str
    ban_seconds: float

    def connect(self) -> Line:
        return connect_when_free(self.url)


class Banned(NamedTuple):
    line: AnyLine
    expected_nonce: int
    replay: Reply


class NonceRules:
    @pytest.fixture
    def line(self, host: Any) -> Any:
        line = host.connect()
        yield line
        line.close()

    @pytest.fixture
    def banned(self, host: Any, line: Any) -> Any:
        """A line that has just been banned for a replay."""
        if host.ban_seconds > BAN_SECONDS_MAX:
            pytest.skip("the host's ban is too long to be waited for")
        nonce = line.expected_nonce()
        assert line.sync(nonce).status == 200
        replay = line.sync(nonce)
        yield Banned(line, nonce + 1, replay)
        ask_until_unbanned(line)

    def test_the_expected_nonce_is_applied_and_answered_with_the_next(self, line: AnyLine) -> None:
        nonce = line.expected_nonce()
        reply = line.sync(nonce)
        assert (reply.status, reply.body) == (200, {"nonce": nonce, "expected_nonce": nonce + 1})

    def test_nonces_are_consumed_one_by_one(self, line: AnyLine) -> None:
        first = line.expected_nonce()
        for nonce in range(first, first + 5):
            assert line.sync(nonce, operation(nonce)).body["expected_nonce"] == nonce + 1
        assert line.expected_nonce() == first + 5

    def test_asking_consumes_no_nonce(self, line: AnyLine) -> None:
        reply = line.ask()
        assert reply.status == 200
        assert list(reply.body) == ["expected_nonce"]
        assert line.ask().body == reply.body

    def test_an_operation_on_something_else_than_a_unit_is_applied(self, line: AnyLine) -> None:
        body = {name: value for name, value in operation().items() if name not in {"unit_id", "status"}}
        assert line.sync(line.expected_nonce(), {**body, "entity_type": "guest"}).status == 200

    def test_the_same_body_under_two_nonces_is_applied_twice(self, line: AnyLine) -> None:
        nonce = line.expected_nonce()
        assert line.sync(nonce, operation(7)).status == 200
        assert line.sync(nonce + 1, operation(7)).status == 200

    # ------------------------------------------------------------------------------------------------------ gap

    def test_a_gap_is_told_with_the_expected_nonce(self, line: AnyLine) -> None:
        nonce = line.expected_nonce()
        reply = line.sync(nonce + 1)
        assert (reply.status, reply.body) == (400, {"error": "nonce_gap", "expected_nonce": nonce})

    def test_a_gap_does_no_other_harm(self, line: AnyLine) -> None:
        nonce = line.expected_nonce()
        line.sync(nonce + 5)
        assert line.expected_nonce() == nonce
        assert line.sync(nonce).status == 200

    # ------------------------------------------------------------------------------------------- replay and ban

    def test_a_replay_is_told_and_consumes_nothing(self, host: Any, banned: Banned) -> None:
        assert banned.replay.status == 400
        assert banned.replay.body["error"] == "nonce_replay"
        assert banned.replay.body["expected_nonce"] == banned.expected_nonce
        assert banned.replay.body["retry_after"] >= host.ban_seconds
        assert ask_until_unbanned(banned.line).body == {"expected_nonce": banned.expected_nonce}

    @pytest.mark.parametrize("what", ["sync", "ask", "malformed", "gap", "replay"])
    def test_any_request_during_a_ban_is_told_how_long_it_lasts(self, host: Any, banned: Banned, what: str) -> None:
        nonces = {"sync": banned.expected_nonce, "malformed": None, "gap": banned.expected_nonce + 1, "replay": 1}
        reply = banned.line.ask() if what == "ask" else banned.line.sync(nonces[what])
        assert reply.status == 403
        assert reply.body["error"] == "banned"
        assert 0 < reply.body["retry_after"] <= max(1.0, host.ban_seconds)
        assert int(reply.headers["Retry-After"]) >= reply.body["retry_after"]

    def test_asking_does_not_extend_a_ban(self, host: Any, banned: Banned) -> None:
        begun = time.monotonic()
        ask_until_unbanned(banned.line)
        assert time.monotonic() - begun < host.ban_seconds + SLACK_SECONDS

    def test_a_replay_during_a_ban_does_not_extend_it(self, host: Any, banned: Banned) -> None:
        begun = time.monotonic()
        assert banned.line.sync(banned.expected_nonce - 1).status == 403
        ask_until_unbanned(banned.line)
        assert time.monotonic() - begun < host.ban_seconds + SLACK_SECONDS

    def test_a_right_nonce_refused_by_a_ban_is_right_after_it(self, banned: Banned) -> None:
        assert banned.line.sync(banned.expected_nonce).status == 403
        ask_until_unbanned(banned.line)
        assert banned.line.sync(banned.expected_nonce).status == 200

    # -------------------------------------------------------------------------------------------------- malformed

    @pytest.mark.parametrize("nonce", [None, "", "x", "1.0", "-1", "0x10", "1 2", "١"])
    def test_a_request_without_a_whole_nonce_is_malformed(self, line: AnyLine, nonce: str | None) -> None:
        _is_malformed_and_harmless(line, line.sync(nonce))

    @pytest.mark.parametrize(
        "body",
        [b"", b"{", b"[]", b"1", b'"text"', b"null", b"\xff\xfe", b'{"a":NaN}', b"[" * 20_000],
        ids=["empty", "half", "list", "number", "text", "null", "no UTF-8", "NaN", "deep"],
    )
    def test_a_body_that_is_no_json_object_is_malformed(self, line: AnyLine, body: bytes) -> None:
        _is_malformed_and_harmless(line, line.sync(line.expected_nonce(), body))

    def test_a_body_over_64_kib_is_malformed(self, line: AnyLine) -> None:
        _is_malformed_and_harmless(line, line.sync(line.expected_nonce(), _operation_of(64 * 1024 + 1)))

    def test_a_body_of_64_kib_is_applied(self, line: AnyLine) -> None:
        assert line.sync(line.expected_nonce(), _operation_of(64 * 1024)).status == 200


def _is_malformed_and_harmless(line: AnyLine, reply: Reply) -> None:
    assert reply.status == 400
    assert reply.body["error"] == "malformed"
    assert isinstance(reply.body["reason"], str)
    assert line.sync(line.expected_nonce()).status == 200


def _operation_of(size: int) -> bytes:
    """An operation of exactly so many bytes."""
    body = sync_bytes(None, {**operation(), "note": ""}).split(b"\r\n\r\n", 1)[1]
    return body.replace(b'"note": ""', b'"note": "%s"' % (b"x" * (size - len(body))))


class WireRules:
    @pytest.fixture
    def line(self, host: Any) -> Any:
        with host.connect() as line:
            yield line

    def test_many_requests_go_over_one_connection(self, line: Line) -> None:
        first = line.expected_nonce()
        assert [line.sync(nonce).status for nonce in range(first, first + 20)] == [200] * 20

    def test_a_request_that_comes_in_pieces_is_served(self, line: Line) -> None:
        nonce = line.expected_nonce()
        data = sync_bytes(nonce, operation())
        cuts = [*range(0, len(data) - 1, 40), len(data) - 1, len(data)]
        for start, end in itertools.pairwise(cuts):
            line.send(data[start:end])
        assert line.receive().status == 200

    def test_requests_sent_at_once_are_answered_strictly_one_after_the_other(self, line: Line) -> None:
        nonce = line.expected_nonce()
        line.send(sync_bytes(nonce, operation(1)) + sync_bytes(nonce + 1, operation(2)) + ASK_BYTES)
        assert line.receive().body == {"nonce": nonce, "expected_nonce": nonce + 1}
        assert line.receive().body == {"nonce": nonce + 1, "expected_nonce": nonce + 2}
        assert line.receive().body == {"expected_nonce": nonce + 2}

    def test_a_second_connection_is_refused_and_closed_while_one_is_open(self, host: HostUnderTest, line: Line) -> None:
        with Line(host.url) as second:
            second.send(ASK_BYTES)
            reply = second.receive()
            assert (reply.status, reply.body) == (503, {"error": "connection_in_use"})
            assert second.receive_to_end() == b""
        assert line.ask().status == 200

    def test_a_second_connection_is_told_at_once_even_before_it_asks(self, host: HostUnderTest, line: Line) -> None:
        with Line(host.url) as second:
            assert second.receive().body == {"error": "connection_in_use"}

    def test_a_second_connection_is_refused_while_a_request_of_the_first_is_in_process(
        self, host: HostUnderTest, line: Line
    ) -> None:
        nonce = line.expected_nonce()
        line.send(sync_bytes(nonce, operation()))
        with Line(host.url) as second:
            assert second.receive().status == 503
        assert line.receive().status == 200

    def test_refused_connections_do_no_harm_however_many(self, host: HostUnderTest, line: Line) -> None:
        for _ in range(20):
            with Line(host.url) as second:
                assert second.receive().status == 503
        assert line.ask().status == 200

    def test_the_next_connection_is_served_when_the_first_is_closed(self, host: HostUnderTest, line: Line) -> None:
        line.close()
        with connect_when_free(host.url) as second:
            assert second.ask().status == 200

    def test_a_request_read_whole_is_applied_after_its_client_has_gone(self, host: HostUnderTest, line: Line) -> None:
        nonce = line.expected_nonce()
        line.send(sync_bytes(nonce, operation()))
        line.close()
        assert _settled_nonce(host, nonce + 1) == nonce + 1

    def test_a_request_that_is_not_whole_is_not_applied(self, host: HostUnderTest, line: Line) -> None:
        nonce = line.expected_nonce()
        line.send(sync_bytes(nonce, operation())[:-1])
        line.close()
        with connect_when_free(host.url) as second:
            assert second.sync(nonce).status == 200


def _settled_nonce(host: HostUnderTest, wanted: int) -> int:
    """The expected nonce, asked until it is the wanted one or the deadline is over."""
    deadline = time.monotonic() + 10
    with connect_when_free(host.url) as line:
        while (nonce := line.expected_nonce()) != wanted and time.monotonic() < deadline:
            pass
    return nonce
