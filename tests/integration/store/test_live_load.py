"""What a plan from now begins with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.read.host_condition import LiveLoad, read_live_load
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.store.writing import HOST, change_sql, recorded

pytestmark = pytest.mark.mariadb
TOMORROW = datetime.now(UTC) + timedelta(days=1)
EMERGENCY, TXN, LWW = PriorityClass.EMERGENCY, PriorityClass.TXN, PriorityClass.LWW


def live(engine: Engine, at_most: int = 1_000) -> LiveLoad:
    return run_in_transaction(engine, lambda connection: read_live_load(connection, HOST, at_most))


def test_what_has_no_fate_is_outstanding_with_its_age(engine: Engine) -> None:
    done, waiting = (recorded(engine, entity_id=unit, event_type="checked_out").change_id for unit in "ab")
    change_sql(
        engine, f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'APPLIED' WHERE id = {done}"
    )
    change_sql(engine, f"UPDATE outbox_events SET created_at = created_at - INTERVAL 1 HOUR WHERE id = {waiting}")
    found = live(engine)
    (one,) = found.outstanding
    assert (one.change_id, one.priority_class) == (waiting, TXN)
    assert 3_600_000 <= found.now_ms - one.accepted_at_ms < 3_700_000


def test_what_is_scheduled_has_the_class_of_todays_rules_and_its_time(engine: Engine) -> None:
    for key, event_type in (("k-1", "guest_locked_out"), ("k-2", "unit_status_changed"), ("k-3", "nobody_knows_it")):
        recorded(engine, event_type=event_type, idempotency_key=key, not_before=TOMORROW)
    recorded(engine, idempotency_key="k-4", not_before=TOMORROW)
    change_sql(engine, "UPDATE scheduled_changes SET cancelled_at = UTC_TIMESTAMP(6) WHERE idempotency_key = 'k-4'")
    found = live(engine)
    assert [one.priority_class for one in found.scheduled] == [EMERGENCY, LWW, TXN]
    assert {one.accepted_at_ms for one in found.scheduled} == {int(TOMORROW.timestamp() * 1000)}
    assert found.outstanding == []


def test_what_waits_for_an_operator_is_told_and_not_planned(engine: Engine) -> None:
    dead, _ = (recorded(engine, entity_id="u", event_type="checked_out").change_id for _ in range(2))
    change_sql(engine, f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'DEAD' WHERE id = {dead}")
    found = live(engine)
    assert (found.outstanding, found.dead_letters, found.stopped) == ([], 1, "")


def test_more_than_can_be_planned_is_said_to_be_more(engine: Engine) -> None:
    ids = [recorded(engine, entity_id=f"u{number}").change_id for number in range(5)]
    found = live(engine, 3)
    assert [one.change_id for one in found.outstanding] == ids[:3]
    assert found.cut
    assert not live(engine).cut
