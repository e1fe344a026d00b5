"""Claims, pages, counts and books of the outbox."""

from __future__ import annotations

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.outbox.books import count_books
from tests.integration.store.writing import HOST, change_sql, rows, write

pytestmark = pytest.mark.mariadb


def claim(engine: Engine, limit: int = 100, *, emergencies_only: bool = False) -> list[int]:
    with engine.connect() as connection:
        refs = outstanding_changes.claim_batch(connection, HOST, limit, emergencies_only=emergencies_only)
    return [ref.change_id for ref in refs]


def mark(engine: Engine, ids: list[int]) -> int:
    with engine.begin() as connection:
        return outstanding_changes.mark_relayed(connection, ids)


def test_a_claim_is_the_oldest_of_all_classes_in_id_order(engine: Engine) -> None:
    kinds = ["unit_status_changed", "booking_created", "guest_locked_out"] * 3
    ids = [write(engine, f"u{number}", kind) for number, kind in enumerate(kinds)]
    assert claim(engine, 5) == ids[:5]
    assert claim(engine) == ids


def test_a_claim_locks_nothing_and_is_repeated_until_marked(engine: Engine) -> None:
    ids = [write(engine, "a"), write(engine, "b")]
    assert claim(engine) == claim(engine) == ids
    assert mark(engine, ids[:1]) == 1
    assert claim(engine) == ids[1:]
    assert mark(engine, ids) == 1
    assert mark(engine, []) == 0
    assert claim(engine) == []


def test_a_mark_that_stands_is_not_moved(engine: Engine) -> None:
    ids = [write(engine, "a")]
    mark(engine, ids)
    before = rows(engine, "SELECT relayed_at FROM outbox_events")
    mark(engine, ids)
    assert rows(engine, "SELECT relayed_at FROM outbox_events") == before


def test_an_emergency_brings_only_its_own_entitys_older_changes(engine: Engine) -> None:
    older = write(engine, "x")
    write(engine, "y")
    booking = write(engine, "x", "booking_created")
    emergency = write(engine, "x", "guest_locked_out")
    write(engine, "x")
    assert claim(engine, emergencies_only=True) == [older, booking, emergency]


def test_two_emergencies_of_one_entity_bring_each_change_once(engine: Engine) -> None:
    ids = [
        write(engine, "x"),
        write(engine, "x", "guest_locked_out"),
        write(engine, "x"),
        write(engine, "x", "lock_emergency"),
    ]
    assert claim(engine, emergencies_only=True) == ids
    assert claim(engine, 1, emergencies_only=True) == ids[:2]


def test_no_emergency_no_claim(engine: Engine) -> None:
    write(engine, "x")
    assert claim(engine, emergencies_only=True) == []


def test_what_has_a_fate_is_never_claimed(engine: Engine) -> None:
    write(engine, "x")
    change_sql(engine, "UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'SUPERSEDED'")
    assert claim(engine) == []


def test_only_what_the_writer_was_given_is_counted(engine: Engine) -> None:
    first = write(engine, "a")
    write(engine, "b")
    mark(engine, [first])
    with engine.connect() as connection:
        assert outstanding_changes.unprocessed_up_to(connection, HOST, 10) == 1


def test_counting_stops_at_the_limit(engine: Engine) -> None:
    mark(engine, [write(engine, f"u{number}") for number in range(5)])
    with engine.connect() as connection:
        assert outstanding_changes.unprocessed_up_to(connection, HOST, 3) == 3


def test_the_books_balance_and_leave_refused_submissions_out(engine: Engine) -> None:
    outcomes = ["APPLIED", "SUPERSEDED", "NO_OP", "STALE", "DEAD", "DISCARDED", "WITHDRAWN", "REFUSED"]
    for number, outcome in enumerate(outcomes):
        change_id = write(engine, f"u{number}")
        change_sql(
            engine,
            f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = '{outcome}' WHERE id = {change_id}",
        )
    bound = write(engine, "bound")
    write(engine, "waiting")
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status) "
        f"VALUES ('oldhost', 1, 'k', {bound}, 1, '{{}}', 'SENT')",
    )
    with engine.connect() as connection:
        books = count_books(connection, HOST)
    assert books.balance
    assert (books.accepted, books.waiting, books.in_flight, books.refused) == (9, 1, 1, 1)


def test_claims_read_an_index_in_order_and_sort_no_backlog(engine: Engine) -> None:
    change_sql(
        engine,
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, relayed_at, processed_at, outcome) SELECT 'oldhost', CONCAT('k', seq), '', 'unit', seq, 'e', "
        "'{}', 'LWW', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6), 'APPLIED' FROM seq_1_to_20000",
    )
    for number in range(3):
        write(engine, f"u{number}")
    with engine.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        outstanding_changes.claim_batch(connection, HOST, 500)
        outstanding_changes.claim_batch(connection, HOST, 500, emergencies_only=True)
        outstanding_changes.outstanding_page(connection, HOST, 0, 500)
        outstanding_changes.unprocessed_up_to(connection, HOST, 100)
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < 200


def test_a_wait_for_changes_waits_for_no_row_of_a_transaction_that_is_not_committed(engine: Engine) -> None:
    """One host's change is being recorded, and may be for seconds; the other host's emergency is found meanwhile."""
    event = (
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, source, created_at) VALUES (%s, 'k', '', 'unit', 'a', 'e', '{}', %s, 'test', UTC_TIMESTAMP(6))"
    )
    for host in (HOST, "other"):
        change_sql(engine, f"INSERT INTO relay_lease (host, owner, expires_at) VALUES ('{host}', 'one', NOW())")
    looks = create_engine(engine.url.render_as_string(hide_password=False), pool_size=1, autocommit=True)
    with engine.connect() as recording, looks.connect() as asking:
        recording.exec_driver_sql(event, (HOST, "TXN"))
        asking.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
        assert not any(one.anything for one in outstanding_changes.await_unrelayed(asking, "one", [], 0.1).values())
        asking.exec_driver_sql(event, ("other", "EMERGENCY"))
        seen = outstanding_changes.await_unrelayed(asking, "one", [], 0.1)
        recording.rollback()
    looks.dispose()
    assert seen == {
        HOST: outstanding_changes.Unrelayed(),
        "other": outstanding_changes.Unrelayed(anything=True, emergency=True),
    }
