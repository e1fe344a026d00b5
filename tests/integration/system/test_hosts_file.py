"""Two unlike hosts in one deployment, by a file: each has its own address, access, and timing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.certificates import Authority
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

NORTH = f"north-{free_port()}"
SECRET = "correct-horse-battery"


@pytest.fixture
def north(tmp_path: Path) -> Iterator[Simulator]:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("127.0.0.1")
    (tmp_path / "authorization").write_text(f"Bearer {SECRET}")
    (tmp_path / "auth").write_text(f"bearer {SECRET}\n")
    config = Config(tls_cert=certificate, tls_key=key, authorization_file=tmp_path / "authorization")
    with Simulator(config) as simulator:
        yield simulator


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, north: Simulator) -> Iterator[Product]:
    file = tmp_path / "hosts.toml"
    file.write_text(f"""
[hosts.{NORTH}]
url = "{north.url}"
ca_file = "test authority.pem"
auth_file = "auth"
debounce_seconds = 3600
max_wait_seconds = 3600
""")
    with Product(tmp_path, database, temporal.address, given={"hosts_file": file}) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        yield product
        product.ask(lambda client: writer_handle(client, NORTH).terminate("the test is over"))


def test_each_host_gets_its_changes_at_its_own_time_and_no_secret_is_told(product: Product, north: Simulator) -> None:
    for path in ("/api/changes", f"/api/hosts/{NORTH}/changes"):
        for event_type in ("unit_status_changed", "booking_created"):
            change: dict[str, Any] = {
                "entity_type": "unit",
                "entity_id": f"of-{event_type}",
                "event_type": event_type,
                "payload": {},
            }
            assert product.api.call("POST", path, change)[0] == 202
    product.wait_for("the plain host's changes", lambda: len(product.applied()) == 2)
    product.wait_for("the change of the host over TLS", lambda: applied(north))
    assert applied(north) == ["booking_created"], "its debounce is an hour"
    product.check_clean()
    assert SECRET not in product.logs()


def applied(simulator: Simulator) -> list[str]:
    entries = simulator.control(lambda controls: controls.journal(0))
    return [one.body["event_type"] for one in entries if one.outcome == "applied" and one.body is not None]
