"""The product's frame driver against the simulator's frames, over real sockets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator import Config, Simulator
from oldhost_simulator.behaviour import Behaviour
from oldhost_sync.drivers.capabilities import AskedOutcomes, Capabilities, Expects, RejectionUses, Repeats
from oldhost_sync.drivers.events import (
    Applied,
    Banned,
    Busy,
    ConnectionInUse,
    End,
    Expected,
    Gap,
    Malformed,
    NoService,
    OutcomeTold,
    Ready,
    Rejected,
    Replay,
    ToldFate,
    Unlisted,
)
from oldhost_sync.drivers.frame.driver import FrameDriver
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import parse_address
from oldhost_sync.oldhost.connection import OldHostConnection
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import ExchangeCut, Silent, Unreadable
from tests.certificates import Authority
from tests.simulator.client import AdminClient, operation

ADDRESS = "127.0.0.1"
BODY = b'{"entity_type":"x","entity_id":"1","event_type":"e","payload":{},"event_id":1,"idempotency_key":"key-1"}'
DEADLINE_SECONDS = 10.0
LIKE_OLDHOST = Capabilities(expected=Expects.USED, repeated=Repeats.PUNISHED)
# How a host is that claims these capabilities: its own words for them are the same.
OPTIONS = ("expected", "outcome", "repeated", "rejection_uses")


def beat() -> None:
    return None


class Client:
    """A session's connection. `greeted`: what the logon was answered with."""

    def __init__(self, url: str, capabilities: Capabilities, access: Access | None = None) -> None:
        connector = Connector(parse_address(url), FrameDriver(capabilities), time.monotonic, access=access)
        self.connection: OldHostConnection = connector.connect(beat)
        self.greeted = self.connection.greet(timeout_seconds=DEADLINE_SECONDS, while_waiting=beat)

    def exchange(self, request: bytes, timeout_seconds: float = DEADLINE_SECONDS, **how: float) -> End:
        self.connection.begin(request, timeout_seconds=timeout_seconds, while_waiting=beat)
        return self.connection.finish(while_waiting=beat, **how).event

    def operation(self, number: int, body: bytes = BODY) -> End:
        return self.exchange(self.connection.wire.operation(number, body, 0))

    def expected(self) -> End:
        return self.exchange(self.connection.wire.ask_expected(0))

    def outcome(self, number: int, key: str) -> End:
        return self.exchange(self.connection.wire.ask_outcome(number, key, self.connection.at_ms()))


Start = Callable[..., tuple[Client, AdminClient]]


@pytest.fixture
def meet() -> Iterator[Start]:
    """Starts a host that is as `capabilities` claim, and a client of it; both end with the test."""
    with ExitStack() as stack:

        def meet_one(capabilities: Capabilities = LIKE_OLDHOST, **config: Any) -> tuple[Client, AdminClient]:
            kind = {option: str(getattr(capabilities, option)) for option in OPTIONS}
            behaviour = Behaviour(**kind, modulus=capabilities.modulus, lowest=capabilities.lowest)  # type: ignore[arg-type]
            given = {"latency_ms": 1, "ban_seconds": 900, "first_nonce": 501, "check_operations": False, **config}
            simulator = stack.enter_context(Simulator(Config(dialect="frame", behaviour=behaviour, **given)))
            client = Client(simulator.url, capabilities)
            stack.callback(client.connection.close)
            return client, AdminClient(simulator.admin_url)

        yield meet_one


def test_a_logon_tells_the_expected_number_and_the_incarnation(meet: Start) -> None:
    client, admin = meet()
    assert isinstance(client.greeted, Ready)
    assert client.greeted.expected == 501
    assert client.greeted.incarnation != admin.post("/actions/restart")["incarnation"] != ""


def test_operations_and_questions_go_over_one_connection(meet: Start) -> None:
    client, admin = meet()
    for number in range(501, 521):
        assert client.operation(number) == Applied(number + 1)
    assert client.expected() == Expected(521)
    assert client.connection.is_alive()
    assert admin.stats()["connections"] == 1


def test_any_bytes_of_an_operation_arrive(meet: Start) -> None:
    client, admin = meet()
    body = '{"name": "Zoë\\n", "b": "\\u0000"}'.encode()
    assert client.operation(501, body) == Applied(502)
    assert admin.journal(at_least=1)[0]["body"] == {"name": "Zoë\n", "b": "\x00"}


def test_a_gap_uses_nothing(meet: Start) -> None:
    client, _ = meet()
    assert client.operation(503) == Gap(501)
    assert client.operation(501) == Applied(502)


def test_a_replay_is_told_and_bans(meet: Start) -> None:
    client, _ = meet()
    client.operation(501)
    assert client.operation(501) == Replay(502, 900.0)
    assert client.operation(502) == Banned(900.0)
    assert client.expected() == Banned(900.0)


def test_a_busy_host_says_for_how_long(meet: Start) -> None:
    client, admin = meet()
    admin.fault("busy", on="any", retry_after=0.5)
    assert [client.operation(501), client.expected()] == [Busy(0.5), Busy(0.5)]


def test_a_second_connection_is_told_so_and_closed(meet: Start) -> None:
    client, _ = meet()
    address = client.connection._socket.getpeername()  # type: ignore[union-attr]
    second = Client(f"tcp://{address[0]}:{address[1]}", LIKE_OLDHOST)
    assert second.greeted == ConnectionInUse()
    assert not second.connection.is_alive()
    assert client.connection.is_alive()


@pytest.mark.parametrize("uses", list(RejectionUses))
def test_a_rejection_uses_the_number_as_claimed(meet: Start, uses: RejectionUses) -> None:
    client, admin = meet(Capabilities(expected=Expects.USED, rejection_uses=uses))
    admin.fault("reject", reason="no such unit", next=1)
    consumed = uses is not RejectionUses.NO
    assert client.operation(501) == Rejected("no such unit", consumed=consumed)
    assert client.expected() == Expected(502 if consumed else 501)


def test_what_can_not_be_read_is_malformed(meet: Start) -> None:
    client, _ = meet()
    assert client.operation(501, b"") == Malformed("the body is no JSON")
    assert client.operation(501, b"{" + b" " * 65_535 + b"}") == Malformed("the body is over 64 KiB")
    assert client.expected() == Expected(501)


def test_the_last_answer_comes_again(meet: Start) -> None:
    client, admin = meet(Capabilities(repeated=Repeats.LAST_ANSWER))
    assert [client.operation(501), client.operation(501)] == [Applied(None), Applied(None)]
    client.operation(502)
    assert client.operation(501) == Replay(None, None)
    assert admin.applied_nonces(at_least=2) == [501, 502]


def test_a_used_number_is_refused_without_a_ban(meet: Start) -> None:
    client, _ = meet(Capabilities(expected=Expects.USED, repeated=Repeats.REFUSED))
    client.operation(501)
    assert client.operation(501) == Replay(502, None)
    assert client.operation(502) == Applied(503)


@pytest.mark.parametrize(
    ("outcome", "of_501", "of_502"),
    [
        (AskedOutcomes.BY_NUMBER, OutcomeTold(ToldFate.APPLIED, 501), OutcomeTold(ToldFate.NOT_TAKEN, 502)),
        (AskedOutcomes.BY_ID, OutcomeTold(ToldFate.APPLIED, 501), OutcomeTold(ToldFate.NOT_TAKEN, None)),
        (AskedOutcomes.LAST, OutcomeTold(ToldFate.APPLIED, 501), OutcomeTold(ToldFate.APPLIED, 501)),
    ],
)
def test_an_outcome_is_asked_for(meet: Start, outcome: AskedOutcomes, of_501: End, of_502: End) -> None:
    client, _ = meet(Capabilities(outcome=outcome))
    client.operation(501)
    assert [client.outcome(501, "key-1"), client.outcome(502, "key-2")] == [of_501, of_502]


def test_the_outcome_of_a_rejection_says_why_and_whether_the_number_is_used(meet: Start) -> None:
    client, admin = meet(Capabilities(outcome=AskedOutcomes.BY_NUMBER))
    admin.fault("reject", reason="no such unit", consume=False)
    client.operation(501)
    assert client.outcome(501, "") == OutcomeTold(ToldFate.REJECTED, 501, "no such unit", consumed=False)


def test_numbers_wrap(meet: Start) -> None:
    client, _ = meet(Capabilities(expected=Expects.USED, modulus=96, lowest=32), first_nonce=94)
    assert [client.operation(number) for number in (94, 95, 32)] == [Applied(95), Applied(32), Applied(33)]


def test_a_host_that_works_is_waited_for_beyond_the_usual_time(meet: Start) -> None:
    client, admin = meet()
    admin.fault("slow", extra_ms=1500)
    admin.fault("working", every_ms=100)
    request = client.connection.wire.operation(501, BODY, 0)
    assert client.exchange(request, reply_seconds=0.6) == Applied(502)


def test_a_host_that_only_works_is_given_up_at_the_deadline(meet: Start) -> None:
    client, admin = meet()
    admin.fault("hang")
    admin.fault("working", every_ms=50)
    with pytest.raises(Silent):
        client.exchange(client.connection.wire.operation(501, BODY, 0), timeout_seconds=0.4)


def test_a_sign_of_life_is_answered_by_nothing(meet: Start) -> None:
    client, _ = meet()
    client.connection._send_aside(client.connection._socket, client.connection.wire.idle(0))  # type: ignore[arg-type]
    assert client.operation(501) == Applied(502)
    assert client.connection.is_alive()


def test_a_client_that_leaves_says_bye(meet: Start) -> None:
    client, admin = meet()
    client.operation(501)
    client.connection.close()
    assert admin.stats()["requests"] == 2, "neither bye nor idle is a request"


@pytest.mark.parametrize("fault", ["drop_before", "drop_after", "apply_late", "cut_reply"])
def test_a_lost_answer_is_ambiguous(meet: Start, fault: str) -> None:
    client, admin = meet()
    admin.fault(fault)
    with pytest.raises(ExchangeCut):
        client.operation(501)


def test_garbage_is_ambiguous_or_not_in_the_protocol(meet: Start) -> None:
    for reply in ("not_json", "status", "other_nonce"):
        client, admin = meet()
        admin.fault("garbage", reply=reply)
        assert isinstance(client.operation(501), Unlisted)
    client, admin = meet()
    admin.fault("garbage", reply="bytes")
    with pytest.raises(Unreadable):
        client.operation(501)


def test_an_answer_may_be_the_last(meet: Start) -> None:
    client, admin = meet()
    admin.fault("http10")
    assert client.operation(501) == Applied(502)
    assert not client.connection.is_alive()


def test_tls_and_credentials(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign(ADDRESS)
    (tmp_path / "host").write_text("Bearer sesame\n")
    (tmp_path / "wrong").write_text("bearer open\n")
    (tmp_path / "right").write_text("bearer sesame\n")
    config = Config(
        latency_ms=1,
        dialect="frame",
        tls_cert=certificate,
        tls_key=key,
        authorization_file=tmp_path / "host",
    )
    with Simulator(config) as simulator:
        assert simulator.url == f"tls://{ADDRESS}:{simulator.port}"
        denied = Client(simulator.url, LIKE_OLDHOST, Access(ca=authority.file, auth=tmp_path / "wrong"))
        assert isinstance(denied.greeted, NoService)
        assert denied.greeted.reason == "credentials"
        client = Client(simulator.url, LIKE_OLDHOST, Access(ca=authority.file, auth=tmp_path / "right"))
        assert isinstance(client.greeted, Ready)
        assert client.operation(1, str(operation()).replace("'", '"').encode()) == Applied(2)
        client.connection.close()
