"""A relay that is killed between its signal and its mark signals the batch again, and the writer
knows each change by its id."""

from __future__ import annotations

import pytest

from tests.faults.database_proxy import Action, DatabaseProxy
from tests.faults.product import Product
from tests.integration.system.changes import record

pytestmark = [pytest.mark.mariadb, pytest.mark.temporal, pytest.mark.processes, pytest.mark.slow]

MARKS_RELAYED = r"UPDATE outbox_events SET relayed_at"


def unmarked(product: Product) -> int:
    rows = product.sql("SELECT COUNT(*) AS n FROM outbox_events WHERE relayed_at IS NULL")
    return int(rows[0]["n"])


def received(product: Product) -> int:
    return int(product.status()["counters"]["received"])


def test_relay_killed_between_signal_and_mark_signals_again_and_each_change_is_applied_once(
    product: Product, proxy: DatabaseProxy
) -> None:
    product.admin("POST", "/actions/latency", {"latency_ms": 150})
    product.start_worker()
    trap = proxy.set_trap(Action.HOLD_STATEMENT, MARKS_RELAYED)
    record(product, 40)
    first = product.start("relay", "first", database_url=proxy.url(product.database.app))
    trap.wait()
    product.wait_for("the signal", lambda: received(product) == 40)
    first.kill()
    assert unmarked(product) == 40
    assert not product.all_have_fates(40), "some of it must still be with the writer when it is signalled again"

    product.start("relay", "second")
    product.wait_for("all fates", lambda: product.all_have_fates(40))
    product.check_clean()
    assert [change_id for _, change_id in product.applied()] == sorted(product.fates())
    assert set(product.fates().values()) == {"APPLIED"}
