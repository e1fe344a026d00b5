"""Trap 20: what MariaDB really does, and that the store's ways hold against it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from select import poll
from typing import Any

import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DBAPIError, OperationalError, StatementError

from oldhost_sync.policy.limits import PACKET_BYTES_MIN
from oldhost_sync.store.engine import _require_suitable, check_server, create_engine
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, UnsuitableServer, error_code
from oldhost_sync.store.tables import alerts, event_rules, units
from oldhost_sync.store.transactions import run_in_transaction
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import change_sql, recorded, rows, wait_until

pytestmark = pytest.mark.mariadb


def test_trap_20_mariadb_deadlock_is_retried_as_a_whole_function(engine: Engine) -> None:
    """Two transfers in opposite directions: after the deadlock both have happened, wholly, and once."""
    change_sql(engine, "CREATE TABLE purses (id INT PRIMARY KEY, amount INT) ENGINE=InnoDB")
    change_sql(engine, "INSERT INTO purses VALUES (1, 100), (2, 100)")
    both_hold_one = threading.Barrier(2)
    attempts: list[int] = []

    def transfer(source: int, target: int) -> None:
        first = True

        def fn(connection: Connection) -> None:
            nonlocal first
            attempts.append(source)
            connection.exec_driver_sql("UPDATE purses SET amount = amount - 10 WHERE id = %s", (source,))
            if first:
                first = False
                both_hold_one.wait()
            connection.exec_driver_sql("UPDATE purses SET amount = amount + 10 WHERE id = %s", (target,))

        run_in_transaction(engine, fn)

    with ThreadPoolExecutor(2) as threads:
        for future in [threads.submit(transfer, 1, 2), threads.submit(transfer, 2, 1)]:
            future.result()
    assert len(attempts) == 3
    assert [row["amount"] for row in rows(engine, "SELECT amount FROM purses ORDER BY id")] == [100, 100]


def test_a_process_that_stood_still_in_a_transaction_begins_it_anew(engine: Engine) -> None:
    """It got no CPU for as long as the server lets a transaction idle: no outage, and none of it is there twice."""
    change_sql(engine, "CREATE TABLE notes (id INT PRIMARY KEY AUTO_INCREMENT, note TEXT) ENGINE=InnoDB")
    notes: list[str] = []

    def fn(connection: Connection) -> None:
        notes.append(f"attempt {len(notes) + 1}")
        connection.exec_driver_sql("INSERT INTO notes (note) VALUES (%s)", (notes[-1],))
        if len(notes) == 1:
            _wait_for_its_end(connection)
        connection.exec_driver_sql("INSERT INTO notes (note) VALUES ('and more')")

    brief = create_engine(engine.url.render_as_string(hide_password=False), idle_transaction_seconds=1)
    run_in_transaction(brief, fn, attempts=1)
    brief.dispose()
    assert [row["note"] for row in rows(engine, "SELECT note FROM notes ORDER BY id")] == ["attempt 2", "and more"]


def test_a_transaction_that_is_ended_each_time_is_an_outage(engine: Engine) -> None:
    attempts: list[int] = []

    def fn(connection: Connection) -> None:
        attempts.append(len(attempts))
        connection.exec_driver_sql("SELECT id FROM units FOR UPDATE")
        _wait_for_its_end(connection)
        connection.exec_driver_sql("SELECT id FROM units")

    brief = create_engine(engine.url.render_as_string(hide_password=False), idle_transaction_seconds=1)
    with pytest.raises(DatabaseUnavailable, match="2006"):
        run_in_transaction(brief, fn)
    brief.dispose()
    assert len(attempts) == 2


def _wait_for_its_end(connection: Connection) -> None:
    """Until the server has reset the connection."""
    driver: Any = connection.connection.driver_connection
    only_errors = poll()
    only_errors.register(driver._sock, 0)
    assert only_errors.poll(10_000), "the server has not ended it"


def test_trap_20_mariadb_lock_wait_is_retried_until_the_lock_is_free(engine: Engine) -> None:
    recorded(engine)
    with engine.connect() as holder, ThreadPoolExecutor(1) as threads:
        holder.exec_driver_sql("SELECT id FROM units FOR UPDATE")
        waited = threading.Event()

        def fn(connection: Connection) -> None:
            connection.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 0")
            connection.exec_driver_sql("UPDATE units SET name = 'x'")

        def pause(_: float) -> None:
            holder.rollback()
            waited.set()

        threads.submit(run_in_transaction, engine, fn, pause=pause).result()
        assert waited.is_set()
    assert rows(engine, "SELECT name FROM units") == [{"name": "x"}]


def test_trap_20_mariadb_check_violation_is_error_4025_and_not_repeated(engine: Engine) -> None:
    calls: list[int] = []

    def fn(connection: Connection) -> None:
        calls.append(1)
        connection.execute(insert(event_rules).values(host="h", event_type="e", priority_class="PERHAPS"))

    with pytest.raises(OperationalError) as caught:
        run_in_transaction(engine, fn)
    assert error_code(caught.value) == 4025
    assert "ck_event_rules_priority_class" in str(caught.value)
    assert calls == [1]


def test_trap_20_mariadb_datetime_keeps_microseconds_and_utc(engine: Engine) -> None:
    here = datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    with engine.begin() as connection:
        connection.execute(insert(units).values(host="h", id="1", state={}, created_at=here))
        stored = connection.execute(text("SELECT CAST(created_at AS CHAR) FROM units")).scalar_one()
        assert stored == "2026-05-01 07:00:15.123456"
        got = connection.execute(select(units.c.created_at)).scalar_one()
    assert got == here
    assert got.utcoffset() == timedelta(0)


def test_trap_20_mariadb_takes_no_time_without_a_zone(engine: Engine) -> None:
    naive = datetime(2026, 5, 1)  # noqa: DTZ001
    with engine.begin() as connection, pytest.raises(StatementError, match="zone"):
        connection.execute(insert(units).values(host="h", id="1", state={}, created_at=naive))


def test_trap_20_mariadb_keys_compare_byte_by_byte(engine: Engine) -> None:
    ids = ["Abc", "abc", "abc ", "äbc", "abс"]  # the last has a Cyrillic letter
    answers = [recorded(engine, entity_id=each, idempotency_key=f"K{each.encode().hex()}") for each in ids]
    assert len({answer.change_id for answer in answers}) == len(ids)
    assert {row["id"] for row in rows(engine, "SELECT id FROM units")} == set(ids)
    assert not recorded(engine, idempotency_key="key").duplicate
    assert not recorded(engine, idempotency_key="KEY").duplicate


def test_trap_20_mariadb_counts_matched_rows_not_changed_ones(engine: Engine) -> None:
    recorded(engine)
    with engine.begin() as connection:
        same = connection.exec_driver_sql("UPDATE units SET status = 'Clean' WHERE status = 'Clean'")
        assert same.rowcount == 1


def test_trap_20_mariadb_claim_with_skip_locked_blocks_no_producer_under_read_committed(engine: Engine) -> None:
    recorded(engine, entity_id="a")
    with engine.connect() as claimer:
        claimer.exec_driver_sql(
            "SELECT id FROM outbox_events WHERE relayed_at IS NULL ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED"
        )
        recorded(engine, entity_id="b")
    assert rows(engine, "SELECT COUNT(*) AS n FROM outbox_events") == [{"n": 2}]


def test_every_session_keeps_the_stores_rules(engine: Engine) -> None:
    (session,) = rows(
        engine,
        "SELECT @@session.time_zone AS zone, @@session.tx_isolation AS isolation, @@session.sql_mode AS mode, "
        "@@session.max_statement_time AS longest, @@session.autocommit AS autocommit",
    )
    assert session["zone"] == "+00:00"
    assert session["isolation"] == "READ-COMMITTED"
    assert "STRICT_TRANS_TABLES" in session["mode"]
    assert 0 < session["longest"] < 10
    assert session["autocommit"] == 0


def test_too_long_a_text_is_an_error_and_never_cut_silently(engine: Engine) -> None:
    with engine.begin() as connection, pytest.raises(Exception, match="too long"):
        connection.execute(insert(alerts).values(host="h", kind="x" * 65, severity="info", message="", dedupe_key="k"))


def test_a_statement_that_takes_too_long_ends_as_an_unavailable_database(
    mariadb_server: PrivateMariaDB, engine: Engine
) -> None:
    quick = create_engine(mariadb_server.root_url(str(engine.url.database)), statement_seconds=0.2)
    with pytest.raises(DatabaseUnavailable, match="too long"):
        run_in_transaction(quick, lambda connection: connection.exec_driver_sql("SELECT SLEEP(30)"))
    quick.dispose()


def test_a_connection_killed_at_commit_leaves_the_outcome_uncertain(engine: Engine) -> None:
    """The server is told to end the session after the last statement, so COMMIT never gets its answer."""

    def fn(connection: Connection) -> None:
        connection_id = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
        with engine.connect() as killer:
            killer.exec_driver_sql(f"KILL {connection_id}")

    with pytest.raises(CommitUncertain):
        run_in_transaction(engine, fn)


def test_a_connection_killed_between_transactions_is_replaced_unnoticed(engine: Engine) -> None:
    with engine.connect() as connection:
        connection_id = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    admin = create_engine(str(engine.url.render_as_string(hide_password=False)))
    with admin.connect() as killer:
        killer.exec_driver_sql(f"KILL {connection_id}")
    admin.dispose()
    assert recorded(engine).change_id


@pytest.mark.parametrize("ending", [None, KeyboardInterrupt])
def test_a_connection_goes_back_to_the_pool_without_its_transaction(
    engine: Engine, ending: type[BaseException] | None
) -> None:
    def use() -> None:
        with engine.connect() as connection:
            connection.exec_driver_sql("INSERT INTO units (host, id, state) VALUES ('h', '1', '{}')")
            if ending is not None:
                raise ending

    if ending is None:
        use()
    else:
        with pytest.raises(ending):
            use()
    with engine.connect() as connection:
        connection.commit()
    assert rows(engine, "SELECT id FROM units") == []


def test_a_server_that_forgets_commits_is_refused(mariadb_server: PrivateMariaDB, engine: Engine) -> None:
    check_server(engine)
    with mariadb_server.variable("innodb_flush_log_at_trx_commit", 2):
        with pytest.raises(UnsuitableServer, match="innodb_flush_log_at_trx_commit is 2; set it to 1"):
            check_server(engine)
        engine.dispose()
        with pytest.raises(UnsuitableServer, match="innodb_flush_log_at_trx_commit is 2; set it to 1"):
            recorded(engine)
    assert recorded(engine).change_id is not None


def test_a_server_that_takes_no_large_batch_is_refused(
    mariadb_server: PrivateMariaDB, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.dispose()
    with (
        mariadb_server.variable("max_allowed_packet", 1024 * 1024),
        pytest.raises(UnsuitableServer, match="max_allowed_packet is 1048576; set it to 16M"),
    ):
        check_server(engine)
    assert caplog.records == []  # nor does the pool complain about its connection
    check_server(engine)


def test_an_errors_text_holds_nothing_of_what_was_to_be_written(engine: Engine) -> None:
    with engine.connect() as connection, pytest.raises(DBAPIError) as caught:
        connection.exec_driver_sql(
            "INSERT INTO units (host, id, newest_change_id) VALUES ('oldhost', %s, %s)", ("a secret", 1)
        )
    assert "secret" not in str(caught.value)


def test_an_absent_server_is_unavailable_at_once() -> None:
    engine = create_engine("mysql://root@127.0.0.1:1/sync")
    with pytest.raises(DatabaseUnavailable):
        check_server(engine)
    with pytest.raises(DatabaseUnavailable):
        recorded(engine)


def test_the_databases_clock_is_utc(engine: Engine) -> None:
    (row,) = rows(engine, "SELECT UTC_TIMESTAMP(6) AS utc, CURRENT_TIMESTAMP(6) AS now")
    assert row["utc"] == row["now"]
    assert abs(row["utc"].replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_server_whose_lock_waits_undo_a_whole_transaction_is_refused() -> None:
    """It can only be set at the server's start."""
    with pytest.raises(UnsuitableServer, match="innodb_rollback_on_timeout is ON; set it to OFF"):
        _require_suitable("10.11.6-MariaDB", 1, 0, "MIXED", 1, PACKET_BYTES_MIN)
    _require_suitable("10.11.6-MariaDB", 1, 0, "MIXED", 0, PACKET_BYTES_MIN)


def test_the_server_counts_who_waits_for_a_row(engine: Engine, mariadb_server: PrivateMariaDB) -> None:
    """So a test need not look at the clock."""
    recorded(engine)
    waiting = mariadb_server.row_lock("waits")
    with engine.connect() as holder, engine.connect() as other:
        holder.exec_driver_sql("SELECT id FROM units FOR UPDATE")
        other.exec_driver_sql("SET SESSION innodb_lock_wait_timeout = 1")
        with pytest.raises(OperationalError, match="Lock wait timeout"):
            other.exec_driver_sql("UPDATE units SET status = 'Dirty'")
        with pytest.raises(OperationalError, match="Lock wait timeout"):
            other.exec_driver_sql("SELECT id FROM units FOR UPDATE NOWAIT")
    assert mariadb_server.row_lock("waits") == waiting + 1


def test_the_parts_of_a_statement_read_one_snapshot_though_another_commits_meanwhile(engine: Engine) -> None:
    """The books rest on it. The statement waits at a lock between its parts; the last one is a look-up by key."""
    parts = (
        "SELECT COUNT(*) FROM units", "SELECT GET_LOCK('gate', 20)", "SELECT COUNT(*) FROM units",
        "SELECT COUNT(*) FROM units WHERE host = 'oldhost' AND id = '101'",
    )  # fmt: skip
    waits = "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'"
    with engine.connect() as gate, engine.connect() as reader, ThreadPoolExecutor(1) as threads:
        gate.exec_driver_sql("SELECT GET_LOCK('gate', 0)")
        found = threads.submit(lambda: reader.exec_driver_sql(" UNION ALL ".join(parts)).scalars().all())
        wait_until(lambda: bool(rows(engine, waits)), "the statement to come to the lock")
        recorded(engine)
        gate.exec_driver_sql("SELECT RELEASE_LOCK('gate')")
        assert found.result() == [0, 1, 0, 0]


def test_our_transactions_write_whatever_the_servers_default_is(engine: Engine, mariadb_server: PrivateMariaDB) -> None:
    """A pooled connection would keep that default for ten minutes after it is over."""
    with mariadb_server.variable("tx_read_only", 1):
        own = create_engine(engine.url.render_as_string(hide_password=False))
        try:
            assert recorded(own).change_id is not None
        finally:
            own.dispose()


@pytest.mark.parametrize(
    ("name", "value", "ours"),
    [
        ("completion_type", 2, "NO_CHAIN"),
        ("sql_safe_updates", 1, 0),
        ("sql_select_limit", 1, 2**64 - 1),
        ("unique_checks", 0, 1),
        ("check_constraint_checks", 0, 1),
        ("foreign_key_checks", 0, 1),
    ],
)
def test_a_variable_that_changes_our_statements_is_ours(
    mariadb_server: PrivateMariaDB, engine: Engine, name: str, value: int, ours: object
) -> None:
    with mariadb_server.variable(name, value):
        own = create_engine(engine.url.render_as_string(hide_password=False))
        try:
            with own.connect() as connection:
                assert connection.exec_driver_sql(f"SELECT @@SESSION.{name}").scalar_one() == ours
        finally:
            own.dispose()


def test_our_joins_run_whatever_the_servers_limit_is(mariadb_server: PrivateMariaDB, engine: Engine) -> None:
    with mariadb_server.variable("max_join_size", 1):
        own = create_engine(engine.url.render_as_string(hide_password=False))
        try:
            with own.connect() as connection:
                join = "SELECT COUNT(*) FROM event_rules a JOIN event_rules b JOIN event_rules c"
                assert connection.exec_driver_sql(join).scalar_one() > 1
        finally:
            own.dispose()
