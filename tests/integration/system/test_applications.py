"""Applications speak to the writer itself: by plain signals from any language, by `apply_now`; and
I9, what nobody may read."""

from __future__ import annotations

from typing import Any

import pytest
from temporalio.client import Client

from oldhost_sync.temporal.client import writer_handle
from tests.faults.history import holds
from tests.faults.product import Product
from tests.integration.system.changes import MARKER, record
from tests.integration.system.commands import signal_writer

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

PAGES = "load_outstanding"  # the activity by which a writer reads the outstanding changes


def change(entity_id: str, event_type: str = "booking_created", **payload: Any) -> dict[str, Any]:
    return {"entity_type": "unit", "entity_id": entity_id, "event_type": event_type, "payload": payload}


def apply_now(product: Product, one: dict[str, Any]) -> dict[str, Any]:
    async def ask(client: Client) -> dict[str, Any]:
        answer: dict[str, Any] = await writer_handle(client, product.host).execute_update("apply_now", one)
        return answer

    return product.ask(ask)


def test_change_signalled_by_temporals_own_command_is_applied_and_nonsense_is_refused_visibly(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    product.start_writer()
    signal_writer(product, "submit_change", change("U1", number=1) | {"idempotency_key": "from-the-shell"})
    signal_writer(product, "submit_change", {"entity_type": "unit", "what": "is this"})
    signal_writer(product, "submit_change", "nothing that makes sense")
    signal_writer(product, "submit_change", change("U1", number=2))
    product.wait_for("all fates", lambda: product.all_have_fates(4))

    rows = product.sql("SELECT idempotency_key, outcome, error FROM outbox_events ORDER BY id")
    assert [row["outcome"] for row in rows] == ["APPLIED", "REFUSED", "REFUSED", "APPLIED"]
    assert rows[0]["idempotency_key"] == "from-the-shell"
    assert "unknown fields: what" in rows[1]["error"]
    assert product.open_alerts() == ["submission-refused", "submission-refused"]
    assert [entry["body"]["payload"] for entry in product.journal()] == [{"number": 1}, {"number": 2}]
    product.check_clean()


def test_apply_now_returns_the_nonce_of_the_emergency(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    record(product, 3)
    product.wait_for("the first changes", lambda: product.all_have_fates(3))
    one = change("U9", "guest_locked_out", door=1) | {"idempotency_key": "locked-out"}
    answer = apply_now(product, one)
    assert (answer["status"], answer["nonce"]) == ("APPLIED", 4)
    assert product.applied()[-1] == (4, answer["change_id"])
    assert apply_now(product, one) == answer | {"message": ""}, "the same key gets the same answer, and nothing is sent"
    product.check_clean()


def test_apply_now_answers_at_once_during_a_ban_and_the_emergency_goes_first_after_it(product: Product) -> None:
    product.start("relay")
    product.start_worker()
    record(product, 1)
    product.wait_for("the first change", lambda: product.all_have_fates(1))
    product.admin("POST", "/actions/ban", {"seconds": 8})
    record(product, 3, entity="waiting")
    product.wait_for("the breaker", lambda: product.status()["breaker"]["state"] == "OPEN")

    answer = apply_now(product, change("U9", "guest_locked_out", door=1))
    assert (answer["status"], answer["nonce"]) == ("WAITING", None), "it would be APPLIED, had it waited for the ban"
    assert "ban" in answer["message"]
    assert len(product.applied()) == 1
    product.wait_for("all fates", lambda: product.all_have_fates(5))
    order = [change_id for _, change_id in product.applied()]
    # One was on its way when the ban came, and is bound to its nonce; so may be the one marked behind it.
    assert order.index(answer["change_id"]) <= 3
    stats = product.stats()
    assert (stats["gaps"], stats["replays"]) == (0, 0)


def test_order_is_kept_when_a_submission_meets_older_changes_that_no_relay_has_brought_yet(product: Product) -> None:
    product.start_worker()
    product.start_writer()
    # What the writer reads at its start holds what no relay has brought, too: that must be over.
    product.wait_for("both parts of the first reading", lambda: pages_read(product) == 2)
    older = record(product, 1) + record(product, 1) + record(product, 1)
    signal_writer(product, "submit_change", change("U0", number=4))
    signal_writer(product, "submit_change", change("another", number=5))
    product.wait_for("the other unit's change", lambda: len(product.applied()) == 1)
    fates = product.fates()
    newer, other = sorted(fates)[-2:]
    assert [change_id for _, change_id in product.applied()] == [other]

    product.start("relay")
    product.wait_for("all fates", lambda: product.all_have_fates(5))
    assert [change_id for _, change_id in product.applied()] == [other, *older, newer]
    product.check_clean()


def test_no_payload_is_in_the_writers_history_nor_in_a_log(product: Product) -> None:
    product.fault("reject", rule={"field": "payload.refuse", "equals": True})
    product.start("relay")
    product.start_worker()
    product.start_api()
    for event_type in ("unit_status_changed", "booking_created", "guest_locked_out"):
        product.api.change("U1", event_type, {"status": MARKER, "note": MARKER})
    product.api.change("U2", "booking_created", {"note": MARKER, "refuse": True})
    status, problem = product.api.call("POST", "/api/changes", change("U3", note=MARKER) | {"unknown": MARKER})
    assert status == 422, problem
    product.wait_for("all fates", lambda: product.all_have_fates(4))
    assert "DEAD" in product.fates().values()

    assert MARKER not in product.logs()
    assert not in_history(product, MARKER)
    # A signalled change is the one exception (I9), and shows that the search finds what is there.
    product.ask(lambda client: writer_handle(client, product.host).signal("submit_change", change("U4", note=MARKER)))
    product.wait_for("all fates", lambda: product.all_have_fates(5))
    assert in_history(product, MARKER)
    assert MARKER not in product.logs()


def pages_read(product: Product) -> int:
    async def fetch(client: Client) -> int:
        events = (await writer_handle(client, product.host).fetch_history()).events
        started = [event.activity_task_scheduled_event_attributes for event in events]
        asked = {
            event.event_id for event, each in zip(events, started, strict=True) if each.activity_type.name == PAGES
        }
        ended = [event.activity_task_completed_event_attributes.scheduled_event_id for event in events]
        return sum(each in asked for each in ended)

    return product.ask(fetch)


def in_history(product: Product, text: str) -> bool:
    async def fetch(client: Client) -> bool:
        return holds(await writer_handle(client, product.host).fetch_history(), text)

    return product.ask(fetch)
