"""A proxy on the way to the host, on real sockets: what it says is named, seldom tried, and under one deadline."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.oldhost import connector as connector_module
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import NoAccess, NoConnection
from oldhost_sync.oldhost.proxy import HEAD_BYTES_MAX
from tests.certificates import Authority
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.connect_proxy import YES, ConnectProxy, Script, says
from tests.foreign_host.answer import page
from tests.foreign_host.host import ForeignHost
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import LIMITS, Process, outcomes, send

pytestmark = pytest.mark.mariadb

ADDRESS = "127.0.0.1"
SECRET = "correct-horse-battery"
BASIC = f"Basic {base64.b64encode(f'proxied:{SECRET}'.encode()).decode()}"


class ProxiedStage(ForeignStage):
    proxy: ConnectProxy


@pytest.fixture(params=["http", "https"])
def stage(request: pytest.FixtureRequest, mariadb_server: PrivateMariaDB, tmp_path: Path) -> Iterator[ProxiedStage]:
    authority = Authority(tmp_path)
    tls = authority.server(ADDRESS) if request.param == "https" else None
    with mariadb_server.fresh_database() as engine, ForeignHost(tls=tls) as host, ConnectProxy() as proxy:
        stage = ProxiedStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        stage.proxy = proxy
        stage.access = Access(ca=authority.file if tls else None, proxy=proxy.address)
        yield stage
        stage.close()


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    with ConnectProxy() as proxy:
        yield proxy


def connect(proxy: ConnectProxy, host: Address, access: Access | None = None) -> None:
    process, access = Process(), replace(access or Access(), proxy=proxy.address)
    Connector(host, HTTP, process.clock, access=access).connect(lambda: None).close()


NOWHERE = Address("oldhost.invalid", 8443, tls=True)


def test_operations_pass_the_proxy_in_order_and_exactly_once(stage: ProxiedStage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(12)]
    assert outcomes(send(stage.session(), ids)) == ["APPLIED"] * 12
    assert stage.applied_ids() == ids
    assert len(stage.proxy.heads) == len(stage.host.connected_at) == 1
    assert stage.proxy.heads[0].startswith(f"CONNECT {ADDRESS}:{stage.host.port} HTTP/1.1\r\nHost: {ADDRESS}:")
    stage.check_clean()


def test_an_answer_that_the_proxy_loses_is_decided_by_the_expected_nonce(stage: ProxiedStage) -> None:
    change_id = stage.world.record("u1")
    stage.host.operations.append(lambda request: replace(stage.host.by_the_protocol(request), cut=20))
    assert outcomes(send(stage.session(), [change_id])) == ["BOUND"]
    assert [fate.outcome for fate in stage.opening().event.fates] == ["APPLIED"]
    stage.check_clean()


def test_the_proxys_credentials_are_the_proxys_only(stage: ProxiedStage, tmp_path: Path) -> None:
    stage.proxy.authorization, stage.host.authorization = BASIC, "Bearer of-the-host"
    (tmp_path / "proxy").write_text(f"basic proxied:{SECRET}\n")
    (tmp_path / "auth").write_text("bearer of-the-host\n")
    stage.access = replace(stage.access, auth=tmp_path / "auth", proxy_auth=tmp_path / "proxy")
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]
    assert "of-the-host" not in "".join(stage.proxy.heads)
    assert all("proxy-authorization" not in request.headers for request in stage.host.requests)


def test_a_host_that_asks_for_the_proxys_credentials_does_not_get_them(stage: ProxiedStage, tmp_path: Path) -> None:
    (tmp_path / "proxy").write_text(f"basic proxied:{SECRET}\n")
    stage.access = replace(stage.access, proxy_auth=tmp_path / "proxy")
    stage.host.refuse_all(page(407))
    assert stage.refused().reason == "credentials"
    assert [request.headers.get("proxy-authorization") for request in stage.host.requests] == [None]


def test_refused_credentials_are_named_seldom_tried_and_a_renewed_file_is_used(
    stage: ProxiedStage, tmp_path: Path
) -> None:
    stage.proxy.authorization = BASIC
    (tmp_path / "proxy").write_text("basic proxied:old\n")
    stage.access = replace(stage.access, proxy_auth=tmp_path / "proxy")
    process = Process()
    while process.clock_offset < 60:
        waiting = stage.refused(process)
        assert waiting.reason == "credentials"
        assert waiting.message == (
            f"the proxy {stage.proxy.address.authority} refuses our credentials or our address: status 407"
        )
        process.clock_offset += waiting.wait_ms / 1000
    assert len(stage.proxy.heads) == 6
    (tmp_path / "proxy").write_text(f"basic proxied:{SECRET}\n")
    process.clock_offset += 60
    assert outcomes(send(stage.session(process), [stage.world.record("u1")])) == ["APPLIED"]


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "credentials", "status 401"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\n<h1>", "credentials", "status 403"),
        (b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n", "credentials", "status 407"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\n\r\n", "credentials", "status 302"),
        (b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n<h1>", "refused", "status 502"),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n<h1>no such name</h1>", "refused", "status 503"),
        (b"HTTP/1.1 504\r\n\r\n", "refused", "status 504"),
        (b"HTTP/1.1 400 Bad Request\n\n", "refused", "status 400"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "unreadable", "not HTTP"),
        (b"<html>sign in</html>", "unreadable", "not HTTP"),
        (b"HTTP/1.1 999 Odd\r\n\r\n", "unreadable", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * HEAD_BYTES_MAX, "unreadable", "too long"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "unreadable", "not HTTP"),
    ],
)
def test_each_other_answer_is_a_refusal_that_is_named(
    proxy: ConnectProxy, answer: bytes, reason: str, words: str
) -> None:
    proxy.script = says(answer)
    with pytest.raises(NoAccess) as refused:
        connect(proxy, NOWHERE)
    assert (refused.value.reason, words in str(refused.value)) == (reason, True), refused.value
    assert f"the proxy {proxy.address.authority}" in str(refused.value)
    assert len(proxy.heads) == 1


def test_the_proxys_retry_after_is_kept(stage: ProxiedStage) -> None:
    stage.proxy.script = says(b"HTTP/1.1 503 Busy\r\nRetry-After: 120\r\n\r\n")
    assert stage.refused().wait_ms == 120_000


@pytest.mark.parametrize(
    "answer",
    [
        YES,
        b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 299 Odd\r\nVia: 1.1 other\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_yes_of_any_form_and_in_any_pieces_is_a_tunnel(stage: ProxiedStage, answer: bytes, size: int) -> None:
    stage.proxy.script = says(*(answer[at : at + size] for at in range(0, len(answer), size)), goes_on=True)
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]


def test_bytes_behind_a_yes_are_the_hosts_and_not_taken_for_its_answer(stage: ProxiedStage) -> None:
    stage.proxy.script = says(YES + b"<html>sign in</html>", goes_on=True)
    waiting = stage.refused()
    assert waiting.reason in {"unreadable", "tls"}, waiting
    assert waiting.wait_ms >= 1_000


def test_a_refusal_of_a_second_connection_comes_through(stage: ProxiedStage) -> None:
    """OldHost says it without being asked, so its bytes come right behind the proxy's."""
    with socket.create_connection((stage.host.address, stage.host.port)):
        stage.wait_for(lambda: len(stage.host.connected_at) == 1)
        stage.host._free.set()
        assert stage.refused().reason == "in-use"


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1", b"HTTP/1.1 200 OK\r\nVia: me\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"]
)
def test_a_proxy_that_closes_before_its_yes_is_whole_is_only_away(proxy: ConnectProxy, answer: bytes) -> None:
    proxy.script = says(answer)
    with pytest.raises(NoConnection, match="it closed before its answer was complete") as away:
        connect(proxy, NOWHERE)
    assert not isinstance(away.value, NoAccess)


def test_a_proxy_that_is_down_is_named(stage: ProxiedStage) -> None:
    stage.proxy.stop()
    waiting = stage.refused()
    assert waiting.reason == "connection"
    assert waiting.message == f"the proxy {ADDRESS}:{stage.proxy.address.port}: [Errno 111] Connection refused"


def silent(sock: socket.socket) -> bool:
    return bool(sock.recv(1))


def endless(sock: socket.socket) -> bool:
    """Interim answers, one after the other, for longer than the deadline."""
    for _ in range(50_000):
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    return False


TRICKLE = [b"HTTP/1.1 200 OK\r\n", *(b"X: y\r\n" for _ in range(90))]


@pytest.mark.parametrize("script", [silent, says(*TRICKLE, pause=0.1), endless])
def test_a_proxy_that_is_silent_or_trickles_is_given_up_at_the_deadline(
    proxy: ConnectProxy, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector_module, "TUNNEL_SECONDS_MAX", 0.6)
    proxy.script = script
    began = time.monotonic()
    with pytest.raises(NoConnection, match="no whole answer in time") as late:
        connect(proxy, NOWHERE)
    assert not isinstance(late.value, NoAccess)
    assert time.monotonic() - began < 5


def test_the_heart_beats_while_the_proxy_is_silent(proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_module, "TUNNEL_SECONDS_MAX", 1.2)
    proxy.script = silent
    beats: list[int] = []
    connector = Connector(NOWHERE, HTTP, Process().clock, access=Access(proxy=proxy.address))
    with pytest.raises(NoConnection):
        connector.connect(lambda: beats.append(1))
    assert len(beats) >= 2


@pytest.mark.parametrize(
    ("host", "asked"),
    [
        (Address("::1", 443, tls=True), "[::1]:443"),
        (Address("oldhost.example", 80, "oldhost.example"), "oldhost.example:80"),
    ],
)
def test_the_proxy_is_asked_for_name_and_port(proxy: ConnectProxy, host: Address, asked: str) -> None:
    """The name is the proxy's to look up; an IPv6 address has brackets."""
    proxy.script = says(b"HTTP/1.1 502 No\r\n\r\n")
    with pytest.raises(NoAccess):
        connect(proxy, host)
    assert proxy.heads == [f"CONNECT {asked} HTTP/1.1\r\nHost: {asked}\r\n\r\n"]


def test_the_environments_proxy_is_not_used(
    stage: ProxiedStage, proxy: ConnectProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{proxy.address.authority}")
    monkeypatch.setenv("no_proxy", "*")
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]
    assert proxy.heads == []
    assert len(stage.proxy.heads) == 1
