"""Book-keeping that somebody holds up (a row, a table) holds up neither sending nor the next run of the writer."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest
from temporalio.client import Client

from oldhost_sync.temporal.client import writer_handle, writer_policy
from tests.faults.product import Product

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


@contextlib.contextmanager
def held(product: Product, statement: str) -> Iterator[None]:
    """Somebody's transaction, which holds what `statement` takes."""
    connection: pymysql.Connection[Any] = product.connect_database()
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(statement)
        yield
        connection.rollback()


def submit(product: Product, unit: str, event_type: str = "booking_created") -> None:
    change = {"entity_type": "unit", "entity_id": unit, "event_type": event_type, "payload": {"of": unit}}

    async def signal(client: Client) -> None:
        await writer_handle(client, product.host).signal("submit_change", change)

    product.ask(signal)


def begin_new_run(product: Product) -> None:
    async def run_id(client: Client) -> str | None:
        return (await writer_handle(client, product.host).describe()).run_id

    async def configure(client: Client) -> None:
        policy = dataclasses.replace(writer_policy(product.settings.of_host(product.host)), probe_ms=7_000)
        await writer_handle(client, product.host).signal("configure", policy)

    before = product.ask(run_id)
    product.ask(configure)
    product.wait_for("a new run", lambda: product.ask(run_id) != before, 10)


def fate_of(product: Product, unit: str) -> list[str | None]:
    rows = product.sql("SELECT outcome FROM outbox_events WHERE entity_id = %s ORDER BY id", unit)
    return [row["outcome"] for row in rows]


@pytest.fixture
def at_work(product: Product) -> Product:
    product.start("relay")
    product.start_worker()
    product.start_writer()
    submit(product, "held")
    product.wait_for("the first fate", lambda: fate_of(product, "held") == ["APPLIED"])
    return product


def test_a_row_held_under_one_submission_holds_up_no_other_and_no_new_run(at_work: Product) -> None:
    product = at_work
    with held(product, f"SELECT * FROM units WHERE host = '{product.host}' AND id = 'held' FOR UPDATE"):
        submit(product, "held")
        submit(product, "held", "checked_out")
        submit(product, "free")
        product.wait_for("the other unit's fate", lambda: fate_of(product, "free") == ["APPLIED"], 10)
        begin_new_run(product)
        submit(product, "free", "guest_locked_out")
        product.wait_for("its emergency's fate", lambda: fate_of(product, "free") == ["APPLIED"] * 2, 10)
        assert fate_of(product, "held") == ["APPLIED"]
    product.wait_for("the held ones' fates", lambda: fate_of(product, "held") == ["APPLIED"] * 3, 90)
    sent = [one["body"]["event_type"] for one in product.journal() if one["body"]["entity_id"] == "held"]
    assert sent == ["booking_created", "booking_created", "checked_out"]
    product.check_clean()


def test_alerts_that_nobody_can_write_hold_up_no_new_run(at_work: Product) -> None:
    product = at_work

    async def send_nonsense(client: Client) -> None:
        await writer_handle(client, product.host).signal("nobody_knows_this", 1)

    with held(product, "SELECT * FROM alerts FOR UPDATE"):  # with the gaps between them: nobody adds one
        product.ask(send_nonsense)
        begin_new_run(product)
        submit(product, "free")
        product.wait_for("a change's fate", lambda: fate_of(product, "free") == ["APPLIED"], 10)
    product.wait_for("the alert", lambda: "unreadable-signal" in product.open_alerts(), 60)
