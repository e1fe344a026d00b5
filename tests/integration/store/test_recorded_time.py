"""What a replay reads: one host's changes of a time, and what became of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.read.recorded_time import RecordedTime, id_range, pages, read_page
from oldhost_sync.store.transactions import run_in_transaction
from tests.integration.store.writing import HOST, change_sql, register, write

pytestmark = pytest.mark.mariadb
NOON = datetime(2026, 11, 3, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def recorded_at(engine: Engine, moment: datetime, event_type: str = "checked_out", host: str = HOST) -> int:
    change_id = write(engine, "u", event_type, host=host)
    change_sql(engine, f"UPDATE outbox_events SET created_at = '{moment:%F %T}' WHERE id = {change_id}")
    return change_id


def ended(engine: Engine, change_id: int, outcome: str, seconds: int = 7, superseded_by: int | None = None) -> None:
    by = "NULL" if superseded_by is None else superseded_by
    change_sql(
        engine,
        f"UPDATE outbox_events SET outcome = '{outcome}', superseded_by = {by}, "
        f"processed_at = created_at + INTERVAL {seconds} SECOND WHERE id = {change_id}",
    )


def read(engine: Engine, begin_at: datetime = NOON, end_at: datetime = NOON + HOUR) -> RecordedTime:
    into = RecordedTime()
    ids = run_in_transaction(engine, lambda connection: id_range(connection, begin_at, end_at))
    for page in pages(ids):
        run_in_transaction(engine, partial(read_page, host=HOST, ids=page, begin_at=begin_at, end_at=end_at, into=into))
    return into


def test_the_time_begins_with_from_and_ends_before_to(engine: Engine) -> None:
    moments = (NOON - timedelta(seconds=1), NOON, NOON + HOUR - timedelta(seconds=1), NOON + HOUR)
    ids = [recorded_at(engine, moment) for moment in moments]
    assert [ref.change_id for ref in read(engine).changes] == ids[1:3]


def test_another_hosts_changes_are_not_among_them(engine: Engine) -> None:
    register(engine, "annex")
    recorded_at(engine, NOON, host="annex")
    own = recorded_at(engine, NOON)
    assert [ref.change_id for ref in read(engine).changes] == [own]


def test_few_looks_find_the_ids_of_a_time(engine: Engine) -> None:
    """Those of an hour more on each side, since a change may have waited for a lock."""
    ids = [recorded_at(engine, NOON + number * HOUR) for number in range(-9, 10)]
    found = run_in_transaction(engine, lambda connection: id_range(connection, NOON, NOON + HOUR))
    assert found == range(ids[9] - 1, ids[9] + 2)


def test_what_was_sent_is_counted_by_class_with_its_times(engine: Engine) -> None:
    for event_type, seconds in (("guest_locked_out", 2), ("guest_locked_out", 40), ("checked_out", 90)):
        ended(engine, recorded_at(engine, NOON, event_type), "APPLIED", seconds)
    recorded_at(engine, NOON)
    found = read(engine)
    assert (found.operations[PriorityClass.EMERGENCY], found.operations[PriorityClass.TXN]) == (2, 1)
    assert sorted(found.emergencies_ms) == [2_000, 40_000]
    assert (found.oldest_ms, found.waiting, len(found.changes)) == (90_000, 1, 4)


def test_what_no_setting_would_have_sent_is_left_out_and_counted(engine: Engine) -> None:
    """A no-op, and the state that it replaced: OldHost had it already."""
    replaced, no_op, stale, discarded, kept = (recorded_at(engine, NOON, "unit_status_changed") for _ in range(5))
    ended(engine, replaced, "SUPERSEDED", superseded_by=no_op)
    for change_id, outcome in ((no_op, "NO_OP"), (stale, "STALE"), (discarded, "DISCARDED"), (kept, "APPLIED")):
        ended(engine, change_id, outcome)
    found = read(engine)
    assert ([ref.change_id for ref in found.changes], found.left_out) == ([kept], 4)


def test_an_empty_database_has_nothing_to_replay(engine: Engine) -> None:
    assert read(engine).changes == []
