"""The simulator behind TLS, and with credentials."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from oldhost_simulator.admin import Controls
from oldhost_simulator.simulator import Config, Simulator
from tests.certificates import Authority

ADDRESS = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def ask(simulator: Simulator, context: ssl.SSLContext, **headers: str) -> int:
    client = http.client.HTTPSConnection(ADDRESS, simulator.port, context=context, timeout=10)
    try:
        client.request("GET", "/oldhost/expected-nonce", headers=headers)
        return client.getresponse().status
    finally:
        client.close()


@pytest.fixture
def simulator(authority: Authority, tmp_path: Path) -> Iterator[Simulator]:
    (tmp_path / "auth").write_text("Bearer sesame\n")
    certificate, key = authority.sign(ADDRESS)
    config = Config(
        latency_ms=0,
        tls_cert=certificate,
        tls_key=key,
        client_ca=authority.file,
        authorization_file=tmp_path / "auth",
    )
    with Simulator(config) as simulator:
        yield simulator


def test_it_answers_clients_that_it_knows_over_tls(simulator: Simulator, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(*authority.sign("writer.example"))
    assert simulator.url.startswith("https://")
    assert ask(simulator, context, Authorization="Bearer sesame") == 200


def test_it_answers_401_without_the_right_credentials(simulator: Simulator, authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(*authority.sign("writer.example"))
    assert [ask(simulator, context), ask(simulator, context, Authorization="Bearer x")] == [401, 401]


def test_it_lets_nobody_in_without_a_certificate(simulator: Simulator, authority: Authority) -> None:
    with pytest.raises(OSError):
        ask(simulator, ssl.create_default_context(cafile=authority.file), Authorization="Bearer sesame")
    assert simulator.control(Controls.stats)["requests"] == 0


def test_certificates_of_clients_need_tls() -> None:
    with pytest.raises(ValueError, match="need tls_cert"):
        Config(client_ca=Path("ca.pem"))
