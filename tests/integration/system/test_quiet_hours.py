"""A host in its quiet hours gets nothing, until an operator resumes; the other host is not touched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.faults.product import Product, host_name
from tests.integration.system.test_hosts_file import applied

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

NORTH = host_name("north")


@pytest.fixture
def north() -> Iterator[Simulator]:
    with Simulator(Config()) as simulator:
        yield simulator


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, north: Simulator) -> Iterator[Product]:
    file = tmp_path / "hosts.toml"
    began = datetime.now(UTC) - timedelta(hours=1)
    file.write_text(f"""
[hosts.{NORTH}]
url = "{north.url}"
[[hosts.{NORTH}.quiet]]
from = "{began:%H:%M}"
for = "3h"
zone = "UTC"
""")
    with Product(tmp_path, database, temporal.address, given={"hosts_file": file}) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        yield product
        product.ask(lambda client: writer_handle(client, NORTH).terminate("the test is over"))


def test_a_host_in_its_quiet_hours_gets_nothing_until_an_operator_resumes(product: Product, north: Simulator) -> None:
    def pause() -> dict[str, Any] | None:
        workflow = product.api.call("GET", f"/api/hosts/{NORTH}/writer/status")[1]["workflow"]
        found: dict[str, Any] | None = workflow and workflow["paused"]
        return found

    change = {"entity_type": "unit", "entity_id": "a", "event_type": "unit_status_changed", "payload": {"status": "x"}}
    product.wait_for("the pause", pause)
    said = pause()
    assert said is not None
    assert said["operator"] == "quiet hours"
    assert 1.9 < said["remaining_ms"] / 3_600_000 < 2.1
    for path in (f"/api/hosts/{NORTH}/changes", "/api/changes"):
        assert product.api.call("POST", path, change)[0] == 202
    product.wait_for("the other host's change", lambda: len(product.applied()) == 1)
    assert applied(north) == []
    assert product.api.call("POST", f"/api/hosts/{NORTH}/writer/resume", {"reason": "the audit is over"})[0] == 200
    product.wait_for("the change", lambda: len(applied(north)) == 1)
    assert pause() is None
