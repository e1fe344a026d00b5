"""Two at once: what the locks and the UNIQUE indexes decide."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.errors import IdempotencyConflict
from oldhost_sync.store.outbox.outstanding_changes import claim_batch, mark_relayed
from tests.integration.store.writing import HOST, record, recorded, rows, stale_units, wait_until, waiting_for_a_lock

pytestmark = pytest.mark.mariadb
T = TypeVar("T")


def at_once(*calls: Callable[[], T]) -> list[Future[T]]:
    """Run all calls at the same moment, each in its own thread; returns when all have ended."""
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], T]) -> T:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [threads.submit(run, call) for call in calls]


def test_the_second_writer_of_an_entity_waits_and_gets_the_larger_id(engine: Engine) -> None:
    with engine.connect() as first, ThreadPoolExecutor(1) as threads:
        earlier = record(first, payload={"status": "first"})
        waiting = threads.submit(recorded, engine, payload={"status": "second"})
        wait_until(lambda: waiting_for_a_lock(engine), "the second writer")
        first.commit()
        later = waiting.result()
    assert earlier.change_id is not None
    assert later.change_id is not None
    assert earlier.change_id < later.change_id
    assert rows(engine, "SELECT status FROM units") == [{"status": "second"}]
    assert earlier.accepted_at < later.accepted_at


def test_an_entity_that_exists_is_locked_like_a_new_one(engine: Engine) -> None:
    recorded(engine)
    test_the_second_writer_of_an_entity_waits_and_gets_the_larger_id(engine)


def test_trap_13_outbox_polled_by_state_not_by_id(engine: Engine) -> None:
    with engine.connect() as slow:
        small = record(slow, entity_id="slow")
        large = recorded(engine, entity_id="quick")
        assert small.change_id is not None
        assert large.change_id is not None
        assert small.change_id < large.change_id
        assert claimed(engine) == [large.change_id]
        slow.commit()
    assert claimed(engine) == [small.change_id]
    assert claimed(engine) == []


def claimed(engine: Engine) -> list[int]:
    with engine.begin() as connection:
        ids = [ref.change_id for ref in claim_batch(connection, HOST, 100)]
        mark_relayed(connection, ids)
    return ids


def test_one_key_from_many_at_once_is_one_change(engine: Engine) -> None:
    for attempt in range(10):
        answers = [
            future.result()
            for future in at_once(*[lambda key=f"k-{attempt}": recorded(engine, idempotency_key=key)] * 4)
        ]
        assert len({answer.change_id for answer in answers}) == 1
        assert [answer.duplicate for answer in answers].count(False) == 1
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 10


def test_one_key_for_two_entities_at_once_is_one_change_and_one_conflict(engine: Engine) -> None:
    for attempt in range(10):
        futures = at_once(
            *[
                lambda unit=unit, key=f"k-{attempt}": recorded(engine, entity_id=unit, idempotency_key=key)
                for unit in (f"a-{attempt}", f"b-{attempt}")
            ]
        )
        errors = [future.exception() for future in futures]
        assert [type(error) for error in errors if error] == [IdempotencyConflict]
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 10
    assert len(rows(engine, "SELECT id FROM units")) == 10


def test_one_key_now_and_for_later_at_once_is_one_change_and_one_conflict(engine: Engine) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    for attempt in range(10):
        calls: list[dict[str, Any]] = [{"entity_id": f"u-{attempt}"}, {"not_before": later}]
        futures = at_once(
            *[lambda call=call, key=f"k-{attempt}": recorded(engine, idempotency_key=key, **call) for call in calls]
        )
        errors = [future.exception() for future in futures]
        assert [type(error) for error in errors if error] == [IdempotencyConflict]
    now, planned = rows(engine, "SELECT id FROM outbox_events"), rows(engine, "SELECT id FROM scheduled_changes")
    assert len(now) + len(planned) == 10
    assert len(rows(engine, "SELECT id FROM units")) == len(now)


def test_a_duplicate_waits_for_the_first_and_takes_over_when_that_rolls_back(engine: Engine) -> None:
    with engine.connect() as first, ThreadPoolExecutor(1) as threads:
        record(first, entity_id="a", idempotency_key="k")
        waiting = threads.submit(recorded, engine, entity_id="b", idempotency_key="k")
        wait_until(lambda: waiting_for_a_lock(engine), "the duplicate")
        first.rollback()
        assert not waiting.result().duplicate
    assert [row["entity_id"] for row in rows(engine, "SELECT entity_id FROM outbox_events")] == ["b"]


def test_many_writers_of_few_entities_lose_nothing_and_keep_the_newest(engine: Engine) -> None:
    def write(writer: int) -> None:
        for step in range(20):
            recorded(engine, entity_id=f"u{step % 3}", payload={"status": f"{writer}-{step}"})

    for future in at_once(*[lambda writer=writer: write(writer) for writer in range(4)]):
        future.result()
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 80}]
    assert stale_units(engine) == []
