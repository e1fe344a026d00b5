"""Two unlike hosts in one deployment, by a file: each has its own address, access, mapping and timing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.certificates import Authority
from tests.faults.product import Product, host_name

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

NORTH = host_name("north")
SECRET = "correct-horse-battery"


@pytest.fixture
def north(tmp_path: Path) -> Iterator[Simulator]:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("127.0.0.1")
    (tmp_path / "authorization").write_text(f"Bearer {SECRET}")
    (tmp_path / "auth").write_text(f"bearer {SECRET}\n")
    config = Config(
        tls_cert=certificate,
        tls_key=key,
        authorization_file=tmp_path / "authorization",
        check_operations=False,  # it takes bodies that are not OldHost's
    )
    with Simulator(config) as simulator:
        yield simulator


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, north: Simulator) -> Iterator[Product]:
    (tmp_path / "rooms.toml").write_text("""
name = "rooms"
[rules."*"]
fields = { unit_id = "/entity_id", status = "/payload/status" }
""")
    file = tmp_path / "hosts.toml"
    file.write_text(f"""
[hosts.{NORTH}]
url = "{north.url}"
ca_file = "test authority.pem"
auth_file = "auth"
mapping_file = "rooms.toml"
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


def test_each_host_gets_its_changes_in_its_own_form_and_time_and_no_secret_is_told(
    product: Product, north: Simulator
) -> None:
    change: dict[str, Any] = {"entity_type": "unit", "payload": {"status": "Clean"}}
    for path in ("/api/changes", f"/api/hosts/{NORTH}/changes"):
        for event_type in ("unit_status_changed", "booking_created"):
            named = {"entity_id": f"of-{event_type}", "event_type": event_type}
            assert product.api.call("POST", path, change | named)[0] == 202
    assert product.api.call("POST", "/api/changes", change | named | {"payload": {}})[0] == 202
    assert product.api.call("POST", f"/api/hosts/{NORTH}/changes", change | named | {"payload": {}})[0] == 422
    product.wait_for("the plain host's changes", lambda: len(product.applied()) == 3)
    product.wait_for("the change of the host over TLS", lambda: applied(north))
    # The debounce of the other one is an hour.
    assert applied(north) == [{"unit_id": "of-booking_created", "status": "Clean"}]
    product.check_clean()
    assert SECRET not in product.logs()


def applied(simulator: Simulator) -> list[dict[str, Any]]:
    entries = simulator.control(lambda controls: controls.journal(0))
    return [one.body for one in entries if one.outcome == "applied" and one.body is not None]
