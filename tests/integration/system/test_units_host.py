"""Real processes against a host with an API of its own, behind a proxy, while a worker is killed; no secret is told."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.connect_proxy import ConnectProxy
from tests.faults.product import Product, host_name
from tests.foreign_host.units_host import KEY, UnitsHost, table, written

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

UNITS = host_name("units")
PASSWORD = "correct-horse-battery"
BASIC = f"Basic {base64.b64encode(f'proxied:{PASSWORD}'.encode()).decode()}"
UNIT_COUNT = 12


@pytest.fixture
def proxy(request: pytest.FixtureRequest) -> Iterator[ConnectProxy]:
    """Its parameter is what clients must show. It holds from the start: the writer connects before any change comes."""
    with ConnectProxy(getattr(request, "param", BASIC)) as proxy:
        yield proxy


@pytest.fixture
def host() -> Iterator[UnitsHost]:
    with UnitsHost() as host:
        host.always = lambda request: replace(host.by_the_protocol(request), delay=0.15)
        yield host


@pytest.fixture
def product(
    tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, host: UnitsHost, proxy: ConnectProxy
) -> Iterator[Product]:
    written(tmp_path)
    (tmp_path / "proxy-auth").write_text(f"basic proxied:{PASSWORD}\n")
    by_proxy = f'proxy = "http://{proxy.address.authority}"\nproxy_auth_file = "proxy-auth"\n'
    (tmp_path / "hosts.toml").write_text(table(UNITS, host.url, by_proxy + "debounce_seconds = 0.1\n"))
    with Product(tmp_path, database, temporal.address, given={"hosts_file": tmp_path / "hosts.toml"}) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        yield product
        product.ask(lambda client: writer_handle(client, UNITS).terminate("the test is over"))


def test_each_change_is_applied_once_though_the_worker_is_killed(
    product: Product, host: UnitsHost, proxy: ConnectProxy
) -> None:
    for number in range(UNIT_COUNT):
        change = {"entity_type": "unit", "entity_id": f"u{number}", "payload": {"status": "Clean"}}
        accepted, _ = product.api.call(
            "POST", f"/api/hosts/{UNITS}/changes", change | {"event_type": "unit_status_changed"}
        )
        assert accepted == 202
    product.wait_for("the first changes", lambda: len(host.applied()) >= 3)
    product.children["worker"].kill()
    product.start_worker()
    product.wait_for("all changes", lambda: len(host.applied()) == UNIT_COUNT, 60)
    assert sorted(host.states) == sorted(f"u{number}" for number in range(UNIT_COUNT))
    assert (len(set(host.applied())), host.gaps, host.replays, host.unsigned) == (UNIT_COUNT, 0, 0, 0)
    assert len(proxy.heads) == len(host.connected_at) >= 2


@pytest.mark.parametrize("proxy", ["Basic of-somebody-else"], indirect=True)
def test_refused_credentials_of_the_proxy_are_named_and_no_secret_is_told(
    product: Product, host: UnitsHost, proxy: ConnectProxy
) -> None:
    change = {"entity_type": "unit", "entity_id": "u1", "event_type": "unit_status_changed", "payload": {"status": "x"}}
    assert product.api.call("POST", f"/api/hosts/{UNITS}/changes", change)[0] == 202

    def told() -> str:
        paths = ("writer/status", "hosts", "alerts", "changes")
        asked = [f"/api/hosts/{UNITS}/{path}" if path != "hosts" else "/api/hosts" for path in paths]
        return "".join(str(product.api.call("GET", path)) for path in asked)

    product.wait_for("the reason in the status", lambda: f"the proxy {proxy.address.authority} refuses" in told(), 120)
    assert host.requests == []

    async def history(client: object) -> str:
        return str(await writer_handle(client, UNITS).fetch_history())  # type: ignore[arg-type]

    everything = told() + product.logs() + product.ask(history)
    for secret in (PASSWORD, KEY.decode(), BASIC.removeprefix("Basic ")):
        assert secret not in everything
