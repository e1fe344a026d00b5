"""A batch beside other people's locks: what can be recorded is recorded, and the rest says why not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy import limits
from oldhost_sync.store import transactions
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, StatementRefused
from oldhost_sync.store.intake.batch_recorder import Item, Result
from oldhost_sync.store.intake.batch_submission import submit_changes
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change
from oldhost_sync.store.intake.validation import accept
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import (
    HOST,
    change_sql,
    recorded,
    refused_by_the_database,
    rows,
    wait_until,
    waiting_for_a_lock,
)

pytestmark = pytest.mark.mariadb


def item(entity_id: str, key: str | None = None, entity_type: str = "unit", **payload: Any) -> Item:
    payload = payload or {"status": "Clean"}
    return accept(HOST, entity_type, entity_id, "unit_status_changed", payload, key, None, None, "test")


def submit(engine: Engine, *items: Item, seconds_max: float = 0.3, **more: Any) -> list[Result]:
    return submit_changes(engine, HOST, items, seconds_max=seconds_max, **more)


def shown(results: list[Result]) -> list[str]:
    return ["recorded" if isinstance(result, RecordedChange) else type(result).__name__ for result in results]


@contextmanager
def held(engine: Engine, statement: str) -> Iterator[Connection]:
    """An application's own transaction, open for as long as it likes."""
    with engine.connect() as connection:
        connection.exec_driver_sql("SET SESSION idle_transaction_timeout = 0")
        connection.exec_driver_sql(statement)
        yield connection


@pytest.mark.parametrize("entity_type", ["unit", "booking"])
def test_a_held_row_keeps_only_its_own_entity_out(engine: Engine, entity_type: str) -> None:
    table = "units" if entity_type == "unit" else "entities"
    recorded(engine, entity_id="held", entity_type=entity_type)
    items = [item(unit, entity_type=entity_type) for unit in ("a", "held", "b", "held", "c")]
    with held(engine, f"SELECT * FROM {table} WHERE id = 'held' FOR UPDATE"):
        began = time.monotonic()
        results = submit(engine, *items)
        took = time.monotonic() - began
    late = "TransactionContended"
    assert shown(results) == ["recorded", late, "recorded", late, "recorded"]
    assert took < limits.LOCK_WAIT_SECONDS_MAX
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 4


def test_a_row_that_is_free_in_time_is_recorded_in_the_same_batch(engine: Engine) -> None:
    recorded(engine, entity_id="held")
    with held(engine, "SELECT * FROM units WHERE id = 'held' FOR UPDATE") as holder:

        def let_go(_seconds: float) -> None:
            holder.rollback()

        assert shown(submit(engine, item("held"), item("a"), seconds_max=30, pause=let_go)) == ["recorded", "recorded"]


def test_a_batch_holds_no_row_while_it_waits_for_another(engine: Engine) -> None:
    """Else single writes of the free entities would wait for the one that somebody holds."""
    recorded(engine, entity_id="held")
    seen: list[bool] = []

    def write_meanwhile(_seconds: float) -> None:
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "SELECT id FROM units WHERE host = 'oldhost' AND id = 'a' FOR UPDATE NOWAIT"
            ).one()
        seen.append(True)

    with held(engine, "SELECT * FROM units WHERE id = 'held' FOR UPDATE"):
        submit(engine, item("a"), item("held"), pause=write_meanwhile, seconds_max=3, clock=count().__next__)
    assert seen


def test_a_row_that_others_hold_in_turn_is_waited_for_in_its_turn(engine: Engine) -> None:
    """Only looking whether it is free would never find it so."""
    recorded(engine, entity_id="held")
    with held(engine, "SELECT * FROM units WHERE id = 'held' FOR UPDATE") as holder, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(submit, engine, item("a"), item("held"), seconds_max=20)
        wait_until(lambda: waiting_for_a_lock(engine), "the batch")
        holder.rollback()
        assert shown(waiting.result()) == ["recorded", "recorded"]


def test_a_key_that_an_open_transaction_has_written_keeps_only_its_own_entity_out(engine: Engine) -> None:
    with held(engine, "DO 0") as other:
        record_change(
            other, host=HOST, entity_type="unit", entity_id="x", event_type="e", payload={}, idempotency_key="k7"
        )
        results = submit(engine, *[item(f"u{number}", f"k{number}") for number in range(16)], seconds_max=2)
        assert [at for at, each in enumerate(shown(results)) if each != "recorded"] == [7]
        other.rollback()
    again = submit(engine, *[item(f"u{number}", f"k{number}") for number in range(16)])
    assert [each.duplicate for each in again if isinstance(each, RecordedChange)] == [at != 7 for at in range(16)]


def test_an_entity_that_an_open_transaction_is_making_keeps_only_itself_out(engine: Engine) -> None:
    with held(engine, "DO 0") as other:
        record_change(other, host=HOST, entity_type="unit", entity_id="u3", event_type="e", payload={})
        results = submit(engine, *[item(f"u{number}") for number in range(8)], seconds_max=4)
        assert [at for at, each in enumerate(shown(results)) if each != "recorded"] == [3]
        other.rollback()


def test_values_that_the_database_refuses_keep_only_their_own_entity_out(engine: Engine) -> None:
    change_sql(engine, "ALTER TABLE units ADD CONSTRAINT ck_test CHECK (status <> 'poison')")
    items = [item(f"u{number}", status="poison" if number == 5 else "Clean") for number in range(12)]
    results = submit(engine, *items, seconds_max=5)
    assert [at for at, each in enumerate(shown(results)) if each != "recorded"] == [5]
    assert "can't be stored by the database (MariaDB 4025)" in str(results[5])
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 11


def test_what_was_recorded_before_the_server_went_away_is_told_as_recorded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(engine, entity_id="held")
    commit = transactions._commit
    with held(engine, "SELECT * FROM units WHERE id = 'held' FOR UPDATE") as holder:

        def lose_the_next_commit(_seconds: float) -> None:
            holder.rollback()
            monkeypatch.setattr(transactions, "_commit", commit_and_lose_the_answer)

        results = submit(engine, item("a"), item("held", "k"), seconds_max=30, pause=lose_the_next_commit)
        monkeypatch.setattr(transactions, "_commit", commit)
    assert shown(results) == ["recorded", "CommitUncertain"]
    (again,) = submit(engine, item("held", "k"))
    assert isinstance(again, RecordedChange)
    assert again.duplicate


def test_what_was_recorded_before_an_unexpected_error_is_told_as_recorded(engine: Engine) -> None:
    recorded(engine, entity_id="held")
    with (
        refused_by_the_database(engine, "held"),
        held(engine, "SELECT * FROM units WHERE id = 'held' FOR UPDATE") as holder,
    ):

        def let_go(_seconds: float) -> None:
            holder.rollback()

        results = submit(engine, item("a"), item("held"), seconds_max=30, pause=let_go)
    assert shown(results) == ["recorded", "StatementRefused"]
    assert "(MariaDB 1644)" in str(results[1])
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 2


def test_an_unexpected_error_is_raised_where_nothing_was_recorded(engine: Engine) -> None:
    with refused_by_the_database(engine, "held"), pytest.raises(StatementRefused, match="1644"):
        submit(engine, item("held"))


def commit_and_lose_the_answer(connection: Connection) -> None:
    connection.commit()
    raise CommitUncertain("the answer was lost")


def test_where_nothing_was_recorded_the_error_is_raised(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "_commit", commit_and_lose_the_answer)
    with pytest.raises(CommitUncertain):
        submit(engine, item("a"))


@pytest.mark.parametrize("after", range(1, 9))
def test_a_server_that_goes_away_at_any_statement_leaves_nothing_half_done(
    engine: Engine, mariadb_server: PrivateMariaDB, after: int
) -> None:
    """The connection is killed before the statement of that number, and again when all is begun anew."""
    items = [item(f"u{number % 4}", f"k{number}", n=number) for number in range(8)]
    submit(engine, item("u0", "first"))
    left = [after, after]

    @event.listens_for(engine, "before_cursor_execute")
    def kill(connection: Connection, *_: Any) -> None:
        if not left:
            return
        left[0] -= 1
        if left[0] == 0:
            left.pop(0)
            driver = connection.connection.driver_connection
            assert driver is not None
            with mariadb_server.connect() as root, root.cursor() as cursor:
                cursor.execute(f"KILL {driver.thread_id()}")

    try:
        fates = set(shown(submit(engine, *items)))
    except DatabaseUnavailable:
        fates = set()
    finally:
        event.remove(engine, "before_cursor_execute", kill)
    assert fates == set()
    assert [row["idempotency_key"] for row in rows(engine, "SELECT idempotency_key FROM outbox_events")] == ["first"]
    assert rows(engine, "SELECT id FROM units") == [{"id": "u0"}]
    assert shown(submit(engine, *items)) == ["recorded"] * 8


@pytest.mark.parametrize("are_known", [True, False])
def test_batches_of_the_same_entities_at_once_are_all_recorded(engine: Engine, are_known: bool) -> None:
    for unit in range(40 if are_known else 0):
        recorded(engine, entity_id=f"u{unit}")
    start = threading.Barrier(3)

    def run(writer: int) -> list[str]:
        start.wait()
        items = [item(f"u{(unit * (writer + 3)) % 40}", n=unit) for unit in range(200)]
        return shown(submit(engine, *items, seconds_max=10))

    with ThreadPoolExecutor(3) as threads:
        for fates in threads.map(run, range(3)):
            assert set(fates) == {"recorded"}
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 640 if are_known else 600}]
