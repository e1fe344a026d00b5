"""Hosts of each kind in one deployment, on the real parts, with a worker killed in the middle: exactly once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from oldhost_simulator.behaviour import Behaviour
from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.faults.product import Product, host_name
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

CHANGES = 30  # more than the numbers of one that wraps
KINDS: dict[str, dict[str, Any]] = {
    "used": {"expected": "used", "repeated": "punished"},
    "applied": {"expected": "applied", "rejection_uses": "no"},
    "outcome": {"expected": "never", "outcome": "by_number"},
    "key": {"expected": "never", "outcome": "by_id"},
    "last": {"expected": "never", "outcome": "last"},
    "refuses": {"expected": "never", "repeated": "refused"},
    "wraps": {"expected": "used", "modulus": 24, "lowest": 4},
    "repeats": {"expected": "never", "repeated": "last_answer"},
}


@dataclass
class Deployment:
    product: Product
    hosts: dict[str, Simulator]


@pytest.fixture
def deployment(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal) -> Iterator[Deployment]:
    lines, hosts = [], {}
    with ExitStack() as stack:
        for kind, claims in KINDS.items():
            first = max(claims.get("lowest", 0), 1)
            config = Config(latency_ms=30, dialect="frame", behaviour=Behaviour(**claims), first_nonce=first)
            name = host_name(kind)
            hosts[name] = stack.enter_context(Simulator(config))
            options = ", ".join(f"{key} = {json.dumps(value)}" for key, value in claims.items())
            address = f"tcp://{config.host}:{hosts[name].port}"
            lines += [f"[hosts.{name}]", f'url = "{address}"', 'driver = "frame"', f"options = {{{options}}}"]
        file = tmp_path / "hosts.toml"
        file.write_text("\n".join(lines) + "\n")
        with Product(tmp_path, database, temporal.address, given={"hosts_file": file}) as product:
            product.start_simulator()
            product.start("relay")
            product.start_worker()
            product.start_api()
            yield Deployment(product, hosts)
            for name in hosts:
                product.ask(partial(end_writer, name))


@pytest.mark.timeout(300)
def test_hosts_of_each_kind_get_every_change_once_though_a_worker_is_killed(deployment: Deployment) -> None:
    product, hosts = deployment.product, deployment.hosts
    for number in range(CHANGES):
        body: dict[str, Any] = {"entity_type": "unit", "entity_id": f"u{number}", "event_type": "booking_created"}
        body["payload"] = {"n": number}
        for name in hosts:
            status, _ = product.api.call("POST", f"/api/hosts/{name}/changes", body, key=f"{name}-{number}")
            assert status == 202
        if number == CHANGES // 2:
            product.wait_for("operations at each host", lambda: all(map(applied, hosts.values())), 60)
            product.children["worker"].kill()
            product.start_worker()
    product.wait_for("all fates", lambda: not waiting(product), 120)
    for name, host in hosts.items():
        assert Counter(applied(host)) == Counter(range(CHANGES)), name
        stats = host.control(lambda controls: controls.stats())
        assert (stats["gaps"], stats["bans"]) == (0, 0), name
    fates = product.sql("SELECT host, outcome, COUNT(*) AS n FROM outbox_events GROUP BY host, outcome")
    assert {(each["host"], each["outcome"], each["n"]) for each in fates} == {
        (name, "APPLIED", CHANGES) for name in hosts
    }
    shown = oldhost_sync(product, "hosts")
    assert all(name in shown for name in hosts)


async def end_writer(host: str, client: Client) -> None:
    await writer_handle(client, host).terminate("the test is over")


def waiting(product: Product) -> list[Any]:
    return product.sql("SELECT id FROM outbox_events WHERE outcome IS NULL")


def applied(host: Simulator) -> list[int]:
    entries = host.control(lambda controls: controls.journal(0))
    return [one.body["payload"]["n"] for one in entries if one.outcome == "applied" and one.body is not None]
