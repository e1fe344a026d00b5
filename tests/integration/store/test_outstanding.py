"""The pages of what is outstanding: which changes, in which order, and how many rows they look at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.changes import EntityKey
from oldhost_sync.store.outbox import outstanding_changes
from oldhost_sync.store.outbox.outstanding_changes import IdPage, mark_relayed
from oldhost_sync.store.read.dead_letters import HELD_COUNTED_MAX, list_dead_letters
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql, recorded, write

pytestmark = pytest.mark.mariadb

X = EntityKey("unit", "x")


def mark(engine: Engine, ids: list[int]) -> None:
    with engine.begin() as connection:
        mark_relayed(connection, ids)


def reject(engine: Engine, change_id: int) -> None:
    change_sql(
        engine, f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'DEAD' WHERE id = {change_id}"
    )


def ids_of(page: IdPage) -> list[int]:
    return [ref.change_id for ref in page.refs]


def test_pages_cover_all_that_is_outstanding_once_whatever_the_relay_has_marked(engine: Engine) -> None:
    ids = [write(engine, f"u{number}") for number in range(7)]
    mark(engine, ids[:3])
    change_sql(
        engine, f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = 'NO_OP' WHERE id = {ids[2]}"
    )
    found: list[int] = []
    after, more = 0, True
    with engine.connect() as connection:
        while more:
            page = outstanding_changes.outstanding_page(connection, HOST, after, 2)
            found += ids_of(page)
            after, more = page.last_id, page.more
    assert found == [each for each in ids if each != ids[2]]


def test_the_sweep_leaves_what_was_relayed_just_now_or_not_at_all_alone(engine: Engine) -> None:
    ids = [write(engine, unit) for unit in "abc"]
    mark(engine, ids[:2])
    change_sql(
        engine, f"UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6) - INTERVAL 10 SECOND WHERE id = {ids[1]}"
    )
    with engine.connect() as connection:
        page = outstanding_changes.outstanding_page(connection, HOST, 0, 10, quiet_ms=5000)
    assert (ids_of(page), page.more) == ([ids[1]], False)


def test_changes_relayed_before_the_clock_was_set_back_are_found_by_rebuild_and_sweep(engine: Engine) -> None:
    change_id = recorded(engine).change_id
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6) + INTERVAL 2 HOUR")
    with engine.connect() as connection:
        for quiet_ms in (0, 30_000):
            page = outstanding_changes.outstanding_page(connection, HOST, 0, 10, quiet_ms=quiet_ms)
            assert ids_of(page) == [change_id]


def test_an_empty_page_keeps_its_place(engine: Engine) -> None:
    with engine.connect() as connection:
        assert outstanding_changes.outstanding_page(connection, HOST, 41, 10) == IdPage([], 41, more=False)
        assert outstanding_changes.emergencies_page(connection, HOST, 41, 10) == IdPage([], 41, more=False)


def test_what_is_held_behind_a_dead_letter_is_in_no_page(engine: Engine) -> None:
    before, dead = write(engine, "x", "checked_in"), write(engine, "x", "checked_in")
    held, lww = write(engine, "x", "checked_in"), write(engine, "x")
    urgent, other = write(engine, "x", "guest_locked_out"), write(engine, "y", "checked_in")
    reject(engine, dead)
    with engine.connect() as connection:
        assert ids_of(outstanding_changes.outstanding_page(connection, HOST, 0, 10)) == [before, lww, urgent, other]
        assert ids_of(outstanding_changes.entity_page(connection, HOST, X, 0, 10)) == [before, lww, urgent]
        assert ids_of(outstanding_changes.emergencies_page(connection, HOST, 0, 10)) == [before, lww, urgent]
        change_sql(engine, f"UPDATE outbox_events SET outcome = 'DISCARDED' WHERE id = {dead}")
    with engine.connect() as connection:
        assert held in ids_of(outstanding_changes.entity_page(connection, HOST, X, 0, 10))


@pytest.mark.parametrize("event_type", ["checked_in", "unit_status_changed", "guest_locked_out"])
def test_a_dead_letter_of_any_class_holds_what_comes_after_it(engine: Engine, event_type: str) -> None:
    dead = write(engine, "x", event_type)
    write(engine, "x", "checked_in")
    reject(engine, dead)
    with engine.connect() as connection:
        assert ids_of(outstanding_changes.outstanding_page(connection, HOST, 0, 10)) == []


def test_a_dead_letter_whose_fate_waits_for_its_row_holds_what_comes_after_it(engine: Engine) -> None:
    before, dead, _ = (write(engine, "x", "checked_in") for _ in range(3))
    change_sql(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome) "
        f"VALUES ('{HOST}', {dead}, 'unit', 'x', 'DEAD')",
    )
    with engine.connect() as connection:
        assert ids_of(outstanding_changes.outstanding_page(connection, HOST, 0, 10)) == [before]


def test_emergencies_come_page_by_page_each_with_what_goes_before_it(engine: Engine) -> None:
    older, later = write(engine, "x", "checked_in"), write(engine, "y", "checked_in")
    first = write(engine, "x", "guest_locked_out")
    write(engine, "x", "checked_in")
    second = write(engine, "y", "guest_locked_out")
    with engine.connect() as connection:
        page = outstanding_changes.emergencies_page(connection, HOST, 0, 1)
        assert page == IdPage(page.refs, first, more=True)
        assert ids_of(page) == [older, first]
        assert ids_of(outstanding_changes.emergencies_page(connection, HOST, page.last_id, 1)) == [later, second]


# ------------------------------------------------------------------------------------- 50,000 held, 10,000 dead letters

_EVENT = (
    "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
    "priority_class, relayed_at, processed_at, outcome)"
)
_MARKED = "UTC_TIMESTAMP(6) - INTERVAL 60 SECOND"
_CROWD = (
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('d', seq), '', 'unit', CONCAT('d', seq), 'e', '{{}}', 'TXN', {_MARKED}, "
        "UTC_TIMESTAMP(6) - INTERVAL seq SECOND, 'DEAD' FROM seq_1_to_10000"
    ),
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('h', seq), '', 'unit', 'd1', 'e', '{{}}', 'TXN', {_MARKED}, NULL, NULL "
        "FROM seq_1_to_50000"
    ),
    (
        f"{_EVENT} SELECT 'oldhost', CONCAT('e', seq), '', 'unit', CONCAT('d', seq), 'e', '{{}}', 'EMERGENCY', "
        f"{_MARKED}, "
        "NULL, NULL FROM seq_1_to_3"
    ),
    "ANALYZE TABLE outbox_events",
)


@pytest.fixture(scope="module")
def crowded(mariadb_server: PrivateMariaDB) -> Iterator[Engine]:
    with mariadb_server.fresh_database() as engine:
        for statement in _CROWD:
            change_sql(engine, statement)
        yield engine


def rows_read(connection: Connection) -> int:
    read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    return sum(int(value) for _, value in read)


def test_fifty_thousand_held_changes_are_passed_over_in_one_page(crowded: Engine) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        page = outstanding_changes.outstanding_page(connection, HOST, 0, 1000)
        assert rows_read(connection) < 200_000
    assert (len(page.refs), page.more) == (3, False)


def test_what_is_held_behind_listed_letters_is_counted_up_to_a_limit(crowded: Engine) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        letters = list_dead_letters(connection, HOST, after_id=0, limit=50)
        assert rows_read(connection) < 2 * HELD_COUNTED_MAX + 500
    assert [letter["held"] for letter in letters] == [HELD_COUNTED_MAX] + [0] * 49


def test_a_page_reads_what_it_gives_and_not_all_dead_letters_of_the_host(engine: Engine) -> None:
    for statement in (_CROWD[0], _CROWD[1].replace("'d1'", "CONCAT('w', seq)").replace("50000", "1000")):
        change_sql(engine, statement)
    with engine.connect() as connection:
        for quiet_ms in (0, 30_000):
            connection.exec_driver_sql("FLUSH STATUS")
            page = outstanding_changes.outstanding_page(connection, HOST, 0, 500, quiet_ms=quiet_ms)
            assert rows_read(connection) < 20 * len(page.refs)
            assert (len(page.refs), page.more) == (500, True)


def test_a_page_of_emergencies_reads_what_waits_once(crowded: Engine) -> None:
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        page = outstanding_changes.emergencies_page(connection, HOST, 0, 1000)
        assert rows_read(connection) < 70_000
    assert len(page.refs) == 3


def test_a_released_entity_is_read_page_by_page(crowded: Engine) -> None:
    change_sql(crowded, "UPDATE outbox_events SET outcome = 'DISCARDED' WHERE entity_id = 'd1' AND outcome = 'DEAD'")
    with crowded.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        page = outstanding_changes.entity_page(connection, HOST, EntityKey("unit", "d1"), 0, 1000)
        assert rows_read(connection) < 150_000
    assert (len(page.refs), page.more) == (1000, True)
