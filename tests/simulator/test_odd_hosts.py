"""Hosts and proxies that behave oddly: what a client sees of each, and what OldHost's own records say."""

import socket
from unittest.mock import Mock, create_autospec

import pytest

from oldhost_simulator import Simulator
from oldhost_simulator.dialects.dialect import Reader
from oldhost_simulator.server import Connection
from tests.simulator.client import AdminClient, Line, operation, sync_bytes


def test_a_host_can_close_quietly_after_each_second_reply(simulator: object, line: Line, admin: AdminClient) -> None:
    admin.fault("close_after", every=2, on="any")
    assert line.sync(1).status == 200
    reply = line.sync(2)
    assert (reply.status, "Connection" in reply.headers) == (200, False)
    assert line.receive_to_end() == b""
    assert admin.applied_nonces(at_least=2) == [1, 2]


@pytest.mark.parametrize(("closes", "flags"), [(True, socket.MSG_MORE), (False, 0)])
def test_the_last_answer_leaves_together_with_the_end_of_its_connection(closes: bool, flags: int) -> None:
    """A host without CPU between the two would look like one that closes later, which is another fault."""
    sock: Mock = create_autospec(socket.socket, instance=True)
    Connection(sock, create_autospec(Reader, instance=True)).write(b"answer", closes=closes)
    sock.send.assert_called_once_with(b"answer", flags)


@pytest.mark.parametrize("length", [True, False])
def test_a_host_can_speak_http_1_0_one_request_a_connection(line: Line, admin: AdminClient, length: bool) -> None:
    admin.fault("http10", on="any", length=length)
    line.send(sync_bytes(1, b'{"entity_type":"x","entity_id":"1","event_type":"e","payload":{},'
                            b'"event_id":1,"idempotency_key":"k"}'))  # fmt: skip
    reply = line.receive_to_end()
    assert reply.startswith(b"HTTP/1.0 200 OK\r\n")
    assert (b"Content-Length" in reply) is length
    assert reply.endswith(b'{"nonce": 1, "expected_nonce": 2}')


@pytest.mark.parametrize(("answer", "status"), [("first", 200), ("second", 400)])
def test_a_proxy_can_deliver_a_request_twice(line: Line, admin: AdminClient, answer: str, status: int) -> None:
    admin.fault("duplicate", answer=answer, next=1)
    assert line.sync(1).status == status
    assert (admin.stats()["replays"], admin.applied_nonces(at_least=1)) == (1, [1])


def test_a_reply_can_be_swallowed_while_the_host_goes_on(line: Line, admin: AdminClient) -> None:
    admin.fault("swallow", next=1)
    line.send(sync_bytes(1, operation()))
    assert admin.applied_nonces(at_least=1) == [1]
    assert line.sync(2).body == {"nonce": 2, "expected_nonce": 3}


def test_a_host_whose_reply_was_swallowed_notices_at_once_that_the_client_leaves(
    simulator: Simulator, line: Line, admin: AdminClient
) -> None:
    admin.fault("swallow", next=1)
    line.send(sync_bytes(1, operation()))
    assert admin.applied_nonces(at_least=1) == [1]
    line.close()
    with Line(simulator.url) as second:
        assert second.expected_nonce() == 2


def test_a_host_can_say_another_expected_nonce_each_second_time(line: Line, admin: AdminClient) -> None:
    admin.fault("say", on="ask", status=200, shift=5, every=2)
    assert [line.expected_nonce() for _ in range(4)] == [1, 6, 1, 6]


def test_one_reading_can_be_low(line: Line, admin: AdminClient) -> None:
    line.sync(1)
    admin.fault("say", on="ask", shift=-1, next=1)
    assert [line.expected_nonce() for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("retry_after", [86_400, "soon", -5, None, 1e300])
def test_a_ban_can_say_anything_of_its_length(line: Line, admin: AdminClient, retry_after: object) -> None:
    admin.fault("say", status=403, on="any", fields={"retry_after": retry_after})
    admin.post("/actions/ban", {"seconds": 60})
    assert line.ask().body == {"error": "banned", "retry_after": retry_after}


def test_the_answer_to_a_replay_can_expect_a_nonce_beyond_64_bits(line: Line, admin: AdminClient) -> None:
    admin.fault("say", status=400, fields={"expected_nonce": 2**63})
    admin.fault("foreign_write", next=1)
    assert line.sync(1).body["expected_nonce"] == 2**63
    assert admin.stats()["expected_nonce"] == 2


def test_oddity_is_off_unless_it_is_switched_on(line: Line, simulator: object, admin: AdminClient) -> None:
    assert admin.get("/faults")["faults"] == []
    assert [line.sync(nonce).status for nonce in (1, 2, 3)] == [200, 200, 200]
    assert admin.stats()["connections"] == 1
