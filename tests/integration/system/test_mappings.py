"""A mapping that changes under load, on the real parts: bound bytes stay, and people see which mapping made them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from oldhost_simulator.simulator import Config, Simulator
from oldhost_sync.drivers.mapping import HostMapping
from oldhost_sync.stack.machine import free_port
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.mappings import install_mappings
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.client import writer_handle
from tests.conformance.mappings import LONGER, SHORT
from tests.faults.product import Product
from tests.integration.system.commands import oldhost_sync

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

NORTH = f"north-{free_port()}"
CHANGES = 60
FIELDS = {"short/1": {"unit_id", "status"}, "longer/1": {"unit_id", "status", "system"}}


@pytest.fixture
def north() -> Iterator[Simulator]:
    """It takes any body."""
    with Simulator(Config(latency_ms=20, check_operations=False)) as simulator:
        yield simulator


@pytest.fixture
def product(tmp_path: Path, database: DatabaseUrls, temporal: EmbeddedTemporal, north: Simulator) -> Iterator[Product]:
    file = tmp_path / "hosts.toml"
    file.write_text(f'[hosts.{NORTH}]\nurl = "{north.url}"\n')
    with Product(tmp_path, database, temporal.address, given={"hosts_file": file}) as product:
        product.start_simulator()
        product.start("relay")
        product.start_worker()
        product.start_api()
        yield product
        product.ask(lambda client: writer_handle(client, NORTH).terminate("the test is over"))


@pytest.fixture
def install(product: Product) -> Iterator[Callable[[HostMapping], None]]:
    """As `oldhost-sync migrate` does it."""
    engine = create_engine(product.database.migration)
    yield lambda mapping: run_in_transaction(engine, partial(install_mappings, mappings={NORTH: mapping}))
    engine.dispose()


@pytest.mark.timeout(240)
def test_a_mapping_that_changes_under_load_leaves_bound_bytes_and_a_resync_brings_the_new_form(
    product: Product, north: Simulator, install: Callable[[HostMapping], None]
) -> None:
    install(SHORT)
    is_over = threading.Event()
    changing = threading.Thread(target=change_again_and_again, args=(install, is_over))
    changing.start()
    try:
        for number in range(CHANGES):
            body = {"entity_type": "unit", "entity_id": f"u{number % 20}", "payload": {"status": f"s{number}"}}
            event_type = "booking_created" if number % 3 else "unit_status_changed"
            status, _ = product.api.call(
                "POST", f"/api/hosts/{NORTH}/changes", body | {"event_type": event_type}, key=f"k{number}"
            )
            assert status == 202
            if number == CHANGES // 2:
                product.children["worker"].kill()  # some operation is in doubt, and its mapping may be gone
                product.start_worker()
        product.wait_for("all fates", lambda: None not in fates(product), 60)
    finally:
        is_over.set()
        changing.join()
    bound = product.sql(
        "SELECT change_id, nonce, body, mapping FROM nonce_requests WHERE host = %s ORDER BY nonce", NORTH
    )
    assert {each["mapping"] for each in bound} == set(FIELDS), "both were at work"
    for each in bound:
        assert set(json.loads(each["body"])) == FIELDS[each["mapping"]]
    assert applied(north) == [json.loads(each["body"]) for each in bound]
    for each in bound[:: len(bound) // 5]:
        shown = oldhost_sync(product, "--host", NORTH, "change", "show", str(each["change_id"]))
        assert f"bytes by mapping {each['mapping']}" in shown

    install(LONGER)
    count = states_of_others(product)
    assert count > 0
    oldhost_sync(product, "--host", NORTH, "resync", "--all", "--reason", "a new form")
    product.wait_for("the new form of all", lambda: states_of_others(product) == 0, 60)
    stats = north.control(lambda controls: controls.stats())
    assert (stats["gaps"], stats["replays"], stats["bans"]) == (0, 0, 0)


def change_again_and_again(install: Callable[[HostMapping], None], is_over: threading.Event) -> None:
    for mapping in cycle((LONGER, SHORT)):
        if is_over.wait(0.2):
            return
        install(mapping)


def fates(product: Product) -> list[Any]:
    return [row["outcome"] for row in product.sql("SELECT outcome FROM outbox_events WHERE host = %s", NORTH)]


def states_of_others(product: Product) -> int:
    found: int = json.loads(oldhost_sync(product, "--host", NORTH, "status", "--json"))["states_of_other_mappings"]
    return found


def applied(simulator: Simulator) -> list[dict[str, Any] | None]:
    entries = simulator.control(lambda controls: controls.journal(0))
    return [one.body for one in entries if one.outcome == "applied"]
