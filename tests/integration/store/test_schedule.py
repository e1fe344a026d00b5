"""Changes for later: kept, cancelled, or recorded when due as if they came then."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.intake import schedule
from oldhost_sync.store.intake.change_recorder import RecordedChange
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.store.writing import HOST, change_sql, record, recorded, rows, wait_until, waiting_for_a_lock

pytestmark = pytest.mark.mariadb
TOMORROW = datetime.now(UTC) + timedelta(days=1)


def planned(engine: Engine, key: str, **changes: Any) -> RecordedChange:
    return recorded(engine, idempotency_key=key, **({"not_before": TOMORROW} | changes))


def fall_due(engine: Engine, key: str, seconds_ago: int = 1) -> None:
    change_sql(
        engine,
        f"UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - INTERVAL {seconds_ago} SECOND "
        f"WHERE idempotency_key = '{key}'",
    )


def record_all_due(engine: Engine) -> list[RecordedChange | None]:
    with engine.connect() as connection:
        due = schedule.due(connection, HOST, 100)
    return [run_in_transaction(engine, partial(schedule.record_due, due=each)) for each in due]


def test_a_change_for_later_leaves_the_shadow_alone(engine: Engine) -> None:
    answer = planned(engine, "k-1")
    assert (answer.change_id, answer.ref, answer.sync_status) == (None, None, "SCHEDULED")
    assert answer.scheduled_id is not None
    assert rows(engine, "SELECT id FROM units") == []
    assert rows(engine, "SELECT id FROM outbox_events") == []
    assert record_all_due(engine) == []


def test_a_time_that_has_passed_means_now(engine: Engine) -> None:
    answer = planned(engine, "k-1", not_before=datetime.now(UTC) - timedelta(seconds=5))
    assert answer.sync_status == "PENDING_SYNC"
    assert answer.change_id is not None
    assert rows(engine, "SELECT id FROM scheduled_changes") == []


def test_a_due_change_is_recorded_as_if_it_came_now(engine: Engine) -> None:
    accepted = planned(engine, "k-1", payload={"status": "Later"}, source="api")
    before = recorded(engine, payload={"status": "Before"})
    fall_due(engine, "k-1")
    (answer,) = record_all_due(engine)
    assert answer is not None
    assert answer.change_id is not None
    assert before.change_id is not None
    assert answer.change_id > before.change_id
    assert answer.accepted_at > accepted.accepted_at
    assert rows(engine, "SELECT status, newest_change_id FROM units") == [
        {"status": "Later", "newest_change_id": answer.change_id}
    ]
    (change,) = rows(engine, f"SELECT source, idempotency_key FROM outbox_events WHERE id = {answer.change_id}")
    assert change == {"source": "api", "idempotency_key": "k-1"}
    (kept,) = rows(engine, "SELECT change_id, recorded_at FROM scheduled_changes")
    assert kept["change_id"] == answer.change_id
    assert kept["recorded_at"] is not None
    assert record_all_due(engine) == []


def test_what_fell_due_meanwhile_is_recorded_in_due_order(engine: Engine) -> None:
    for key, seconds_ago in (("late", 5), ("latest", 1), ("first", 60)):
        planned(engine, key, payload={"status": key})
        fall_due(engine, key, seconds_ago)
    record_all_due(engine)
    order = [row["idempotency_key"] for row in rows(engine, "SELECT idempotency_key FROM outbox_events ORDER BY id")]
    assert order == ["first", "late", "latest"]
    assert rows(engine, "SELECT status FROM units") == [{"status": "latest"}]


def test_a_cancelled_change_is_never_recorded(engine: Engine) -> None:
    planned(engine, "k-1")
    with engine.begin() as connection:
        assert schedule.cancel(connection, HOST, "k-1")
        assert not schedule.cancel(connection, HOST, "k-1")
    fall_due(engine, "k-1")
    assert record_all_due(engine) == []
    assert planned(engine, "k-1").sync_status == "CANCELLED"


def test_a_recorded_change_can_no_longer_be_cancelled(engine: Engine) -> None:
    planned(engine, "k-1")
    fall_due(engine, "k-1")
    record_all_due(engine)
    with engine.begin() as connection:
        assert not schedule.cancel(connection, HOST, "k-1")


def test_two_relays_record_a_due_change_once(engine: Engine) -> None:
    planned(engine, "k-1")
    fall_due(engine, "k-1")
    with engine.connect() as first, ThreadPoolExecutor(1) as threads:
        (due,) = schedule.due(first, HOST, 10)
        assert schedule.record_due(first, due) is not None
        other = threads.submit(run_in_transaction, engine, lambda connection: schedule.record_due(connection, due))
        wait_until(lambda: waiting_for_a_lock(engine), "the other relay")
        first.commit()
        assert other.result() is None
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 1


def test_the_first_answer_comes_again_before_and_after_it_was_due(engine: Engine) -> None:
    first = planned(engine, "k-1")
    again = planned(engine, "k-1")
    assert again.duplicate
    assert (again.scheduled_id, again.sync_status) == (first.scheduled_id, "SCHEDULED")
    fall_due(engine, "k-1")
    (answer,) = record_all_due(engine)
    after = planned(engine, "k-1")
    assert answer is not None
    assert after.duplicate
    assert after.change_id == answer.change_id


def test_a_due_change_that_the_relay_has_not_reached_yet_is_no_second_change(engine: Engine) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    first = planned(engine, "k-1", not_before=soon)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION timestamp = UNIX_TIMESTAMP() + 7200")
        again = record(connection, idempotency_key="k-1", not_before=soon)
        connection.exec_driver_sql("SET SESSION timestamp = DEFAULT")
    assert again.duplicate
    assert again.scheduled_id == first.scheduled_id
    assert rows(engine, "SELECT id FROM outbox_events") == []
    assert rows(engine, "SELECT id FROM units") == []


def test_one_key_is_one_change_across_now_and_later(engine: Engine) -> None:
    planned(engine, "later")
    recorded(engine, idempotency_key="now")
    with pytest.raises(IdempotencyConflict):
        recorded(engine, idempotency_key="later", entity_id="102")
    with pytest.raises(IdempotencyConflict):
        planned(engine, "now")
    with pytest.raises(IdempotencyConflict):
        planned(engine, "later", not_before=TOMORROW + timedelta(hours=1))
    assert [row["id"] for row in rows(engine, "SELECT id FROM units")] == ["101"]
    assert (
        len(rows(engine, "SELECT id FROM outbox_events")) == len(rows(engine, "SELECT id FROM scheduled_changes")) == 1
    )


def test_what_is_planned_can_be_found(engine: Engine) -> None:
    planned(engine, "b", not_before=TOMORROW + timedelta(hours=1))
    planned(engine, "a")
    with engine.connect() as connection:
        found = schedule.scheduled_of_key(connection, HOST, "a")
        assert schedule.scheduled_of_key(connection, HOST, "c") is None
    assert found is not None
    assert found.not_before == TOMORROW


def test_two_relays_record_one_entity_s_changes_in_due_order(engine: Engine) -> None:
    for key, seconds_ago in (("sooner", 20), ("later", 10)):
        recorded(engine, idempotency_key=key, not_before=TOMORROW)
        fall_due(engine, key, seconds_ago)
    with ThreadPoolExecutor(1) as threads, engine.connect() as first:
        sooner, later = schedule.due(first, HOST, 10)
        assert schedule.record_due(first, sooner) is not None
        other = threads.submit(run_in_transaction, engine, partial(schedule.record_due, due=later))
        wait_until(lambda: waiting_for_a_lock(engine), "the other relay")
        first.commit()
        assert other.result() is not None
    found = rows(engine, "SELECT idempotency_key FROM outbox_events ORDER BY id")
    assert [row["idempotency_key"] for row in found] == ["sooner", "later"]


def test_a_change_is_not_recorded_before_an_older_one_of_its_entity(engine: Engine) -> None:
    for key, seconds_ago in (("sooner", 20), ("later", 10)):
        recorded(engine, idempotency_key=key, not_before=TOMORROW)
        fall_due(engine, key, seconds_ago)
    with engine.connect() as connection:
        _, later = schedule.due(connection, HOST, 10)
    assert run_in_transaction(engine, partial(schedule.record_due, due=later)) is None
    assert rows(engine, "SELECT id FROM outbox_events") == []


def test_what_is_due_comes_page_by_page(engine: Engine) -> None:
    for number in range(5):
        recorded(engine, idempotency_key=f"k{number}", not_before=TOMORROW)
    change_sql(engine, "UPDATE scheduled_changes SET not_before = UTC_TIMESTAMP(6) - INTERVAL 3 SECOND")
    found: list[int] = []
    with engine.connect() as connection:
        page = schedule.due(connection, HOST, 2)
        while page:
            found += [each.scheduled_id for each in page]
            page = schedule.due(connection, HOST, 2, page[-1])
    assert found == sorted(found)
    assert len(found) == 5
