"""TLS and credentials, on real sockets: what is trusted is used, what is not is named, seldom tried and never shown."""

from __future__ import annotations

import base64
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.drivers.http.driver import HTTP
from oldhost_sync.drivers.http.requests import OLDHOST
from oldhost_sync.oldhost.access import Access
from oldhost_sync.oldhost.address import Address
from oldhost_sync.oldhost.connection import OldHostConnection
from oldhost_sync.oldhost.connector import Connector
from oldhost_sync.oldhost.errors import CertificateRefused, NoAccess, NoConnection
from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.oldhost.refusals import ConnectionPace
from tests.certificates import Authority
from tests.conformance.maria_world import MariaWorld
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.foreign_host.answer import Answer, Effect, page
from tests.foreign_host.host import ForeignHost
from tests.integration.session.foreign_stage import ForeignStage
from tests.integration.session.stage import LIMITS, Process, outcomes, send

pytestmark = pytest.mark.mariadb

ADDRESS = "127.0.0.1"
SECRET = "correct-horse-battery"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def stage(mariadb_server: PrivateMariaDB, authority: Authority) -> Iterator[ForeignStage]:
    with mariadb_server.fresh_database() as engine, ForeignHost(tls=authority.server(ADDRESS)) as host:
        stage = ForeignStage(MariaWorld(engine, LIMITS.settle_seconds), host)
        stage.access = Access(ca=authority.file)
        yield stage
        stage.close()


def written(folder: Path, line: str) -> Path:
    file = folder / "auth"
    file.write_text(line)
    return file


def test_operations_are_sent_over_tls_in_order_and_exactly_once(stage: ForeignStage) -> None:
    ids = [stage.world.record(f"u{number}") for number in range(12)]
    assert outcomes(send(stage.session(), ids)) == ["APPLIED"] * 12
    assert stage.applied_ids() == ids
    assert len(stage.host.connected_at) == 1
    stage.check_clean()


def test_an_answer_in_many_pieces_is_read_whole_over_tls(stage: ForeignStage) -> None:
    """A record that holds more than is read at once leaves nothing in the system's buffer to wait for."""
    stage.host.operations.append(lambda request: padded(stage.host.by_the_protocol(request), 40_000))
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]


def padded(answer: Answer, length: int) -> Answer:
    return replace(answer, fields={**(answer.fields or {}), "padding": "x" * length})


def test_a_lost_answer_is_decided_by_the_expected_nonce_over_tls_too(stage: ForeignStage) -> None:
    change_id = stage.world.record("u1")
    stage.host.operations.append(lambda request: replace(stage.host.by_the_protocol(request), cut=20))
    assert outcomes(send(stage.session(), [change_id])) == ["BOUND"]
    assert [fate.outcome for fate in stage.opening().event.fates] == ["APPLIED"]
    assert stage.applied_ids() == [change_id]
    stage.check_clean()


def test_a_host_that_hangs_up_while_idle_leaves_nothing_in_doubt(stage: ForeignStage) -> None:
    session = stage.session()
    stage.host.hang_up()
    stage.host.wait_until_free()
    assert outcomes(send(session, [stage.world.record("u1")])) == ["WAITING"]
    assert outcomes(send(stage.session(), [stage.world.record("u2")])) == ["APPLIED"]
    stage.check_clean()


@pytest.mark.parametrize(
    ("names", "ends", "why"),
    [
        (("other.example",), 2, "is for another address"),
        ((ADDRESS,), -2, "has expired"),
    ],
)
def test_a_certificate_of_another_name_or_time_is_named(
    stage: ForeignStage, authority: Authority, names: tuple[str, ...], ends: int, why: str
) -> None:
    stage.host.tls = authority.server(*names, ends=ends)
    outcome = stage.refused()
    assert (outcome.reason, why in outcome.message) == ("tls", True), outcome
    assert stage.host.requests == []


def test_a_certificate_of_an_unknown_authority_is_named(stage: ForeignStage, tmp_path: Path) -> None:
    stage.access = Access(ca=Authority(tmp_path, "another authority").file)
    outcome = stage.refused()
    assert outcome.reason == "tls"
    assert "authority that the CA file does not list" in outcome.message


def test_a_host_that_speaks_no_tls_is_named(stage: ForeignStage) -> None:
    with socket.create_server((ADDRESS, 0)) as plain:

        def answer() -> None:
            sock, _ = plain.accept()
            sock.recv(65536)  # all of it: an unread rest would turn the answer into a reset
            sock.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            sock.close()

        server = threading.Thread(target=answer)
        server.start()
        port = plain.getsockname()[1]
        with pytest.raises(NoAccess, match="speaks no TLS") as refused:
            Connector(Address(ADDRESS, port, tls=True), HTTP, Process().clock, access=stage.access).connect(
                lambda: None
            )
        server.join()
    assert refused.value.reason == "tls"


def test_a_host_that_is_not_trusted_is_connected_to_less_and_less_often(
    stage: ForeignStage, authority: Authority
) -> None:
    stage.host.tls = authority.server("other.example")
    waits = []
    for _ in range(4):
        waits.append(stage.refused().wait_ms)
        stage.pace._not_before = 0.0  # the pause is over
    assert waits == sorted(waits)
    assert waits[-1] >= 7_000


def test_a_client_certificate_is_shown_to_a_host_that_wants_one(stage: ForeignStage, authority: Authority) -> None:
    stage.host.tls = authority.server(ADDRESS, wants_certificate=True)
    certificate, key = authority.sign("writer.example")
    stage.access = Access(authority.file, certificate, key)
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", ["none", "another authority's"])
def test_a_client_certificate_that_the_host_refuses_is_named(
    stage: ForeignStage, authority: Authority, tmp_path: Path, shown: str, version: ssl.TLSVersion
) -> None:
    stage.host.tls = authority.server(ADDRESS, wants_certificate=True)
    stage.host.tls.maximum_version = version
    if shown != "none":
        stage.access = Access(authority.file, *Authority(tmp_path, "another authority").sign("writer.example"))
    outcome = stage.refused()
    if shown == "none" and version is ssl.TLSVersion.TLSv1_2:  # its alert says no more than that
        assert (outcome.reason, "may want a certificate of ours" in outcome.message) == ("tls", True), outcome
    else:
        assert (outcome.reason, "does not accept our certificate" in outcome.message) == ("credentials", True), outcome


def exchange(connection: OldHostConnection) -> None:
    try:
        connection.begin(OLDHOST.ask_expected(), timeout_seconds=5, while_waiting=lambda: None)
        connection.finish(while_waiting=lambda: None)
    finally:
        connection.close()


def lose(connection: OldHostConnection) -> None:
    """A byte that the closed host answers by a reset, which has arrived when this returns: nothing can be written."""
    sock = connection._socket
    assert sock is not None
    sock.send(b"P")
    poll = select.poll()
    poll.register(sock, 0)
    assert poll.poll(5_000)


def test_a_refusal_of_our_certificate_that_comes_before_our_first_write_is_named_too(
    stage: ForeignStage, authority: Authority
) -> None:
    """TLS 1.3 lets the client finish first; then it may write into a connection that the host has closed."""
    stage.host.tls = authority.server(ADDRESS, wants_certificate=True)
    connection = Connector(stage.address, HTTP, Process().clock, access=stage.access).connect(lambda: None)
    stage.host.wait_until_free()
    lose(connection)
    with pytest.raises(CertificateRefused):
        exchange(connection)


def test_a_host_that_closes_during_the_handshake_is_only_away(stage: ForeignStage) -> None:
    with socket.create_server((ADDRESS, 0)) as listener:

        def close() -> None:
            sock, _ = listener.accept()
            sock.recv(65536)
            sock.close()

        server = threading.Thread(target=close)
        server.start()
        address = Address(ADDRESS, listener.getsockname()[1], tls=True)
        with pytest.raises(NoConnection, match="closed during the TLS handshake") as away:
            Connector(address, HTTP, Process().clock, access=stage.access).connect(lambda: None)
        server.join()
    assert not isinstance(away.value, NoAccess)


def test_an_answer_without_a_length_that_is_cut_is_in_doubt(stage: ForeignStage) -> None:
    """Only TLS's own close says that nothing is missing (I14)."""
    half = b'HTTP/1.1 422 Unprocessable\r\nConnection: close\r\n\r\n{"error": "rejected", "reason": "no'
    stage.host.operations.append(lambda request: Answer(raw=half, effect=Effect.APPLIES))
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["BOUND"]
    assert [fate.outcome for fate in stage.opening().event.fates] == ["APPLIED"]


@pytest.mark.parametrize(
    ("line", "header"),
    [
        (f"basic writer:{SECRET}", f"Basic {base64.b64encode(f'writer:{SECRET}'.encode()).decode()}"),
        (f"bearer {SECRET}\n", f"Bearer {SECRET}"),
    ],
)
def test_each_request_carries_the_credentials(stage: ForeignStage, tmp_path: Path, line: str, header: str) -> None:
    stage.host.authorization = header
    stage.access = Access(stage.access.ca, auth=written(tmp_path, line))
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]
    assert {request.headers.get("authorization") for request in stage.host.requests} == {header}


def test_refused_credentials_are_named_and_a_renewed_file_is_used_without_a_restart(
    stage: ForeignStage, tmp_path: Path
) -> None:
    stage.host.authorization = f"Bearer {SECRET}"
    stage.access = Access(stage.access.ca, auth=written(tmp_path, "bearer old"))
    assert stage.refused().reason == "credentials"
    written(tmp_path, f"bearer {SECRET}")
    assert isinstance(stage.opening(), Opened)


def test_each_connection_has_the_credentials_and_the_certificate_of_now(
    stage: ForeignStage, authority: Authority, tmp_path: Path
) -> None:
    stage.host.tls = authority.server(ADDRESS, wants_certificate=True)
    certificate, key = authority.sign("writer.example")
    stage.access = Access(stage.access.ca, certificate, key, written(tmp_path, "bearer old"))
    connector = Connector(stage.address, HTTP, Process().clock, access=stage.access)
    exchange(connector.connect(lambda: None))
    stage.host.wait_until_free()
    written(tmp_path, "bearer renewed")
    for file, renewed in zip((certificate, key), Authority(tmp_path, "stranger").sign("renewed.example"), strict=True):
        file.write_bytes(renewed.read_bytes())
    connection = connector.connect(lambda: None)
    assert b"Authorization: Bearer renewed\r\n" in connection.wire.ask_expected(0)
    with pytest.raises(CertificateRefused):
        exchange(connection)


@pytest.mark.parametrize("line", ["", SECRET, f"digest {SECRET}", f"bearer {SECRET} x", f"basic {SECRET}", "x" * 9_000])
def test_a_file_without_valid_credentials_is_named_and_its_content_is_not(
    stage: ForeignStage, tmp_path: Path, line: str
) -> None:
    stage.access = Access(stage.access.ca, auth=written(tmp_path, line))
    outcome = stage.refused()
    assert outcome.reason == "credentials"
    assert "basic USER:PASSWORD" in outcome.message


def test_a_file_that_is_missing_is_named(stage: ForeignStage, tmp_path: Path) -> None:
    stage.access = Access(stage.access.ca, auth=tmp_path / "absent")
    assert "absent can't be read: No such file" in stage.refused().message
    stage.access, stage.pace = Access(tmp_path / "absent.pem"), ConnectionPace()
    assert "absent.pem can't be used: No such file" in stage.refused().message


def test_an_encrypted_key_is_named_and_nobody_is_asked_for_its_password(
    stage: ForeignStage, authority: Authority
) -> None:
    stage.access = Access(authority.file, *authority.sign("writer.example", password=SECRET.encode()))
    outcome = stage.refused()
    assert (outcome.reason, "encrypted" in outcome.message) == ("credentials", True), outcome


@pytest.mark.parametrize("answer", [page(200), page(302), Answer(303)])
def test_a_log_in_over_tls_is_named_and_not_taken_for_an_answer(stage: ForeignStage, answer: Answer) -> None:
    session = stage.session()
    stage.host.refuse_all(answer)
    assert outcomes(send(session, [stage.world.record("u1")])) == ["BOUND"]
    outcome = stage.refused()
    assert (outcome.reason, "perhaps one to sign in" in outcome.message) == ("credentials", True), outcome


def test_the_urls_path_comes_before_the_protocols_paths(stage: ForeignStage) -> None:
    stage.host.base = "/legal/v2"
    assert outcomes(send(stage.session(), [stage.world.record("u1")])) == ["APPLIED"]
    assert {request.target for request in stage.host.requests} == {
        "/legal/v2/oldhost/expected-nonce",
        "/legal/v2/oldhost/sync",
    }
