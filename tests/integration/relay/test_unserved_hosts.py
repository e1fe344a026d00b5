"""A host that is registered but in no relay's settings: somebody hears of it."""

from __future__ import annotations

import asyncio
import logging

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Engine

from oldhost_sync.relay.relay_health import UnservedHosts
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.telemetry import RelayMetrics
from tests.integration.store.writing import HOST, change_sql, recorded, register

pytestmark = pytest.mark.mariadb

LEASE = "INSERT INTO relay_lease VALUES ('{host}', 'one', UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND)"


class Scene:
    def __init__(self, engine: Engine) -> None:
        self.registry = CollectorRegistry()
        self.duty = UnservedHosts(Transactions(engine), RelayMetrics(self.registry))

    def looks(self, times: int = 1) -> set[str]:
        """The hosts that the metric has after so many looks."""

        async def look() -> None:
            for _ in range(times):
                await self.duty.run_once(0.0)

        asyncio.run(look())
        return {
            sample.labels["host"]
            for metric in self.registry.collect()
            for sample in metric.samples
            if sample.name == "oldhost_sync_unserved_host"
        }


def test_a_host_whose_changes_wait_without_a_relay_is_told_of_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    register(engine, "north", "idle")
    change_sql(engine, LEASE.format(host=HOST, seconds=60))
    for host in (HOST, "north"):
        recorded(engine, host=host)
    scene = Scene(engine)
    assert scene.looks() == set()
    with caplog.at_level(logging.WARNING):
        assert scene.looks(2) == {"north"}
    assert [each.message for each in caplog.records] == [
        "changes of north wait, and no relay serves it: name it in the relays' settings"
    ]
    change_sql(engine, LEASE.format(host="north", seconds=60))
    assert scene.looks() == set()


def test_a_lease_that_has_run_out_serves_nobody(engine: Engine) -> None:
    change_sql(engine, LEASE.format(host=HOST, seconds=-1))
    recorded(engine)
    assert Scene(engine).looks(2) == {HOST}
