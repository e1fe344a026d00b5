"""Address, namespace, TLS and key of Temporal come from the environment, and nothing works without those it needs."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.service import RPCError

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import TemporalUnavailable, connect, start_writer
from tests.integration.stack.tls_proxy import NAME, Authority, tls_proxy
from workflows.messages import WriterPolicy

pytestmark = [pytest.mark.temporal]
ADDRESS, TLS, API_KEY = "TEMPORAL_ADDRESS", "TEMPORAL_TLS", "TEMPORAL_API_KEY"
CA, SERVER_NAME = "TEMPORAL_TLS_SERVER_CA_CERT_DATA", "TEMPORAL_TLS_SERVER_NAME"
CERTIFICATE, KEY = "TEMPORAL_TLS_CLIENT_CERT_PATH", "TEMPORAL_TLS_CLIENT_KEY_PATH"

# HTTP/2 compresses header values by this code (RFC 7541, appendix B); only what the test's value needs.
HUFFMAN = {" ": "010100", "B": "1011101", "r": "101100"} | dict(
    zip("012aceiost", (f"{number:05b}" for number in range(10)), strict=True)
)
SECRET = "saccoi0012tist"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.create(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", "/nowhere")
    return monkeypatch


def huffman(text: str) -> bytes:
    """The whole bytes of the code; the last one may go on with what follows."""
    bits = "".join(HUFFMAN[each] for each in text)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits) // 8 * 8, 8))


def connected(
    plain: str, authority: Authority, environment: pytest.MonkeyPatch, *, wants_certificate: bool = False
) -> bytes:
    """What the server heard from a client that connected by the environment. Raises TemporalUnavailable."""

    async def run() -> bytes:
        async with tls_proxy(plain, authority, wants_certificate=wants_certificate) as proxy:
            environment.setenv(ADDRESS, proxy.address)
            client = await connect()
            await client.service_client.check_health()
            return bytes(proxy.received)

    return asyncio.run(run())


def test_tls_with_the_cluster_s_ca_is_trusted(
    temporal_dev_server: EmbeddedTemporal, authority: Authority, environment: pytest.MonkeyPatch
) -> None:
    for name, value in {TLS: "true", CA: authority.certificate, SERVER_NAME: NAME}.items():
        environment.setenv(name, value)
    assert connected(temporal_dev_server.address, authority, environment)


@pytest.mark.parametrize("missing", [TLS, CA, SERVER_NAME])
def test_no_connection_without_one_of_tls_ca_and_name(
    missing: str, temporal_dev_server: EmbeddedTemporal, authority: Authority, environment: pytest.MonkeyPatch
) -> None:
    settings = {TLS: "true", CA: authority.certificate, SERVER_NAME: NAME, missing: None}
    if missing == TLS:
        settings = {TLS: "false"}
    for name, value in settings.items():
        if value is not None:
            environment.setenv(name, value)
    with pytest.raises(TemporalUnavailable):
        connected(temporal_dev_server.address, authority, environment)


@pytest.mark.parametrize("has_certificate", [True, False])
def test_a_cluster_with_mutual_tls_admits_only_who_has_a_certificate(
    temporal_dev_server: EmbeddedTemporal,
    authority: Authority,
    environment: pytest.MonkeyPatch,
    has_certificate: bool,
) -> None:
    for name, value in {TLS: "true", CA: authority.certificate, SERVER_NAME: NAME}.items():
        environment.setenv(name, value)
    if has_certificate:
        certificate, key = authority.issue("writer.test")
        environment.setenv(CERTIFICATE, str(certificate))
        environment.setenv(KEY, str(key))
        assert connected(temporal_dev_server.address, authority, environment, wants_certificate=True)
        return
    with pytest.raises(TemporalUnavailable):
        connected(temporal_dev_server.address, authority, environment, wants_certificate=True)


@pytest.mark.parametrize("key", [SECRET, None])
def test_the_api_key_reaches_the_server(
    key: str | None, temporal_dev_server: EmbeddedTemporal, authority: Authority, environment: pytest.MonkeyPatch
) -> None:
    for name, value in {TLS: "true", CA: authority.certificate, SERVER_NAME: NAME}.items():
        environment.setenv(name, value)
    if key:
        environment.setenv(API_KEY, key)
    heard = connected(temporal_dev_server.address, authority, environment)
    assert (huffman(f"Bearer {SECRET}") in heard) == (key is not None)


def test_an_api_key_alone_turns_tls_on(temporal_dev_server: EmbeddedTemporal, environment: pytest.MonkeyPatch) -> None:
    """So that no key goes out in the clear."""
    environment.setenv(ADDRESS, temporal_dev_server.address)
    environment.setenv(API_KEY, SECRET)
    with pytest.raises(TemporalUnavailable):
        asyncio.run(connect())


def test_the_writer_runs_in_the_namespace_that_is_set(
    temporal_dev_server: EmbeddedTemporal, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(ADDRESS, temporal_dev_server.address)
    environment.setenv("TEMPORAL_NAMESPACE", "second")

    async def run() -> tuple[str, str]:
        client = await connect()
        assert client.namespace == "second"
        with pytest.raises(RPCError, match="second"):  # where it does not exist nothing is started elsewhere
            await start_writer(client, "elsewhere", WriterPolicy())
        environment.delenv("TEMPORAL_NAMESPACE")
        started = await start_writer(await connect(), "elsewhere", WriterPolicy())
        description = await started.describe()
        await started.terminate("the test ends")
        return description.namespace or "", started.id

    assert asyncio.run(run()) == ("default", "sync-writer:elsewhere")
