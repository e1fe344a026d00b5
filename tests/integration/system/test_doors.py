"""The table of changes at the workflow's doors: updates and signals, in a real worker, with a real database."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.common import RawValue

from oldhost_sync.temporal.client import writer_handle
from tests.faults.product import Product
from tests.integration.change_forms import NO_JSON, REFUSED, TAKEN, Form, differing

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]


def raw(form: Form) -> RawValue:
    """The very bytes, as a program in any language may send them."""
    return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=form.text))


def asked(product: Product, update: str, forms: list[Form]) -> dict[str, str | None]:
    """Why each form was refused; None: taken."""

    async def ask(client: Client) -> dict[str, str | None]:
        said: dict[str, str | None] = {}
        for form in forms:
            try:
                await writer_handle(client, product.host).execute_update(update, raw(form))
                said[form.name] = None
            except WorkflowUpdateFailedError as failed:
                said[form.name] = str(failed.cause.message)  # type: ignore[attr-defined]
        return said

    return product.ask(ask)


@pytest.fixture
def writer(product: Product) -> Product:
    product.start("relay")
    product.start_worker()
    product.start_writer()
    return product


@pytest.mark.timeout(600)
def test_an_update(writer: Product) -> None:
    forms = [*TAKEN, *REFUSED, *NO_JSON]
    assert not differing(forms, asked(writer, "submit", forms))


@pytest.mark.timeout(600)
def test_an_update_that_waits_for_the_fate(writer: Product) -> None:
    """It takes emergencies only, and none for later."""
    forms = [
        form for form in [*TAKEN, *REFUSED, *NO_JSON]
        if b"guest_locked_out" in form.text and not form.name.startswith("not_before")
    ]  # fmt: skip
    assert len(forms) > 50
    assert not differing(forms, asked(writer, "apply_now", forms))


@pytest.mark.timeout(600)
def test_a_signal(writer: Product) -> None:
    """It has no answer: what is refused is kept, with the words."""
    forms = [*TAKEN, *REFUSED, *NO_JSON]

    async def send(client: Client) -> None:
        for form in forms:
            await writer_handle(client, writer.host).signal("submit_change", raw(form))

    def recorded() -> list[dict[str, Any]]:
        return writer.sql("SELECT outcome, error FROM outbox_events ORDER BY id")

    writer.ask(send)
    writer.wait_for("all of them", lambda: len(recorded()) == len(forms), 120)
    said = {
        form.name: row["error"] if row["outcome"] == "REFUSED" else None
        for form, row in zip(forms, recorded(), strict=True)
    }
    assert not differing(forms, said)
