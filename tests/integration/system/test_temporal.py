"""Temporal's server goes away and comes back, the writer is terminated and started again: the
backlog goes on where it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from oldhost_sync.stack.temporal import EmbeddedTemporal
from oldhost_sync.temporal.client import writer_handle
from tests.faults.product import Product
from tests.integration.system.changes import record
from tests.integration.system.commands import starter

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


@pytest.fixture
def restarted(temporal: EmbeddedTemporal) -> Iterator[EmbeddedTemporal]:
    """The session's server; whatever the test did to it, it runs again afterwards."""
    yield temporal
    if not temporal.child.running:
        temporal.start()


def write(product: Product, first: int, count: int) -> list[int]:
    """Bookings of ten units in turn, by HTTP."""
    return [
        product.api.change(f"U{number % 10}", "booking_created", {"number": number})
        for number in range(first, first + count)
    ]


def check_order(product: Product) -> None:
    """All applied once, and each unit's in the order in which they were accepted (I4)."""
    product.check_clean()
    applied: dict[str, list[int]] = {}
    for entry in product.journal():
        applied.setdefault(entry["body"]["entity_id"], []).append(entry["body"]["event_id"])
    assert sorted(change_id for ids in applied.values() for change_id in ids) == sorted(product.fates())
    assert all(ids == sorted(ids) for ids in applied.values())


def test_temporal_killed_in_the_middle_of_a_backlog_goes_on_where_it_was_and_the_api_never_stops_accepting(
    product: Product, restarted: EmbeddedTemporal
) -> None:
    product.admin("POST", "/actions/latency", {"latency_ms": 60})
    for role in ("relay", "worker"):
        product.start(role)
    product.start_api()
    write(product, 0, 50)
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)

    restarted.kill()
    write(product, 50, 20)
    assert None in product.fates().values()
    restarted.start()
    product.wait_for("all fates", lambda: product.all_have_fates(70), 60)
    check_order(product)


def test_terminated_writer_is_started_by_the_next_change_and_rebuilds_itself(product: Product) -> None:
    product.admin("POST", "/actions/latency", {"latency_ms": 60})
    product.start("relay")
    product.start_worker()
    record(product, 40)
    product.wait_for("work under way", lambda: len(product.applied()) >= 5)
    before = run_id(product)
    product.ask(lambda client: writer_handle(client, product.host).terminate("somebody's mistake"))
    assert None in product.fates().values()

    record(product, 1, entity="the-next-")
    product.wait_for("all fates", lambda: product.all_have_fates(41))
    product.check_clean()
    assert sorted(change_id for _, change_id in product.applied()) == sorted(product.fates())
    assert run_id(product) != before


@pytest.mark.parametrize("end", ["terminate", "cancel"])
def test_writer_that_ended_sends_again_within_15_s_though_no_new_change_comes(product: Product, end: str) -> None:
    product.admin("POST", "/actions/latency", {"latency_ms": 400})
    product.start("relay")
    product.start_worker()
    record(product, 60)
    product.wait_for("work under way", lambda: len(product.applied()) >= 3)
    record(product, 2, "guest_locked_out", entity="emergency-")
    ending = product.ask(lambda client: _end(writer_handle(client, product.host), end))
    assert ending is None
    sent = len(product.applied())
    product.wait_for("sending again", lambda: len(product.applied()) >= sent + 3, 15)
    product.wait_for("all fates", lambda: product.all_have_fates(62), 60)
    product.check_clean()


async def _end(handle: WorkflowHandle[object, object], how: str) -> None:
    await (handle.terminate(reason="somebody's mistake") if how == "terminate" else handle.cancel())


def test_starter_is_safe_to_run_twice(product: Product) -> None:
    product.start_worker()
    first = starter(product)
    assert "RUNNING" in first
    assert starter(product) == first
    product.wait_for("the writer", lambda: product.status()["state"] == "SENDING")
    assert product.status()["session"]["epoch"] == 1


def run_id(product: Product) -> str:
    description = product.ask(lambda client: writer_handle(client, product.host).describe())
    assert description.status is WorkflowExecutionStatus.RUNNING
    return description.run_id
