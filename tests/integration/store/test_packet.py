"""Several writes in one packet: wholly or not at all, and what is said of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import ProgrammingError

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import AccessRefused, RowLocked, StatementTooSlow
from oldhost_sync.store.transactions import Packet, run_in_transaction
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import rows, wait_until

pytestmark = pytest.mark.mariadb

SAY = "INSERT INTO notes (note) VALUES (%s)"
CHANGE = "UPDATE notes SET note = %s WHERE note = %s"


class Missing(Exception):
    pass


def missing() -> NoReturn:
    raise Missing


@pytest.fixture
def notes(engine: Engine) -> Iterator[Engine]:
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE notes (id BIGINT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(80) UNIQUE)")
        connection.exec_driver_sql(SAY, ("old",))
    yield engine
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE notes")


def said(engine: Engine) -> list[str]:
    return [row["note"] for row in rows(engine, "SELECT note FROM notes ORDER BY id")]


def sent(engine: Engine, *statements: tuple[str, tuple[Any, ...]], attempts: int = 1) -> None:
    def fn(connection: Connection) -> None:
        packet = Packet(connection)
        for statement, values in statements:
            packet.add(statement, values)
        packet.commit()

    run_in_transaction(engine, fn, attempts=attempts, pause=lambda _: None)


def test_a_packet_is_committed_as_a_whole(notes: Engine) -> None:
    sent(notes, (SAY, ("one",)), (SAY, ("two",)))
    assert said(notes) == ["old", "one", "two"]


def test_nothing_after_a_row_that_is_missing_is_run_and_nothing_before_it_is_kept(notes: Engine) -> None:
    def fn(connection: Connection) -> None:
        packet = Packet(connection)
        packet.require(CHANGE, ("new", "old"), missing)
        packet.add(SAY, ("before",))
        packet.require(CHANGE, ("new", "nobody"), missing)
        packet.add(SAY, ("after",))
        try:
            packet.commit()
        finally:
            seen.extend(connection.exec_driver_sql("SELECT note FROM notes ORDER BY id").scalars().all())

    seen: list[str] = []
    with pytest.raises(Missing):
        run_in_transaction(notes, fn)
    assert seen == ["new", "before"]
    assert said(notes) == ["old"]


def test_a_row_that_has_the_value_already_is_not_missing(notes: Engine) -> None:
    def fn(connection: Connection) -> None:
        packet = Packet(connection)
        packet.require(CHANGE, ("old", "old"), missing)
        packet.commit()

    run_in_transaction(notes, fn)


def test_after_a_refused_statement_the_rest_does_not_run_and_the_connection_works(notes: Engine) -> None:
    with notes.connect() as connection:
        packet = Packet(connection)
        packet.add(SAY, ("one",))
        packet.add("INSERT INTO nowhere VALUES (1)")
        packet.add(SAY, ("two",))
        with pytest.raises(ProgrammingError):
            packet.commit()
        assert connection.exec_driver_sql("SELECT note FROM notes ORDER BY id").scalars().all() == ["old", "one"]
    assert said(notes) == ["old"]


def test_a_packet_that_waits_too_long_for_a_row_is_repeated_as_a_whole(notes: Engine) -> None:
    with notes.connect() as holder:
        holder.exec_driver_sql("SELECT id FROM notes FOR UPDATE")
        at_once = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR UPDATE notes SET note = 'mine' WHERE note = 'old'"
        with pytest.raises(RowLocked):
            sent(notes, (SAY, ("one",)), (at_once, ()), (SAY, ("two",)), attempts=3)
    assert said(notes) == ["old"]
    sent(notes, (SAY, ("one",)), (at_once, ()), (SAY, ("two",)))
    assert said(notes) == ["mine", "one", "two"]


def test_a_statement_that_takes_too_long_is_no_uncertain_commit(notes: Engine) -> None:
    hurried = create_engine(notes.url.render_as_string(hide_password=False), statement_seconds=0.2)
    with pytest.raises(StatementTooSlow):
        sent(hurried, (SAY, ("one",)), ("UPDATE notes SET note = SLEEP(5)", ()))
    hurried.dispose()
    assert said(notes) == ["old"]


def test_a_right_that_is_missing_is_no_uncertain_commit(database_url: str) -> None:
    app = create_engine(database_url)
    with pytest.raises(AccessRefused):
        sent(app, ("UPDATE nonce_ledger SET owner = owner", ()), ("CREATE TABLE mine (id INT)", ()))
    app.dispose()


def test_what_looks_like_the_end_of_a_statement_is_data(notes: Engine) -> None:
    evil = "x'); COMMIT; END; DROP TABLE notes; -- \\' %s"
    sent(notes, (SAY, (evil,)), (SAY, ("two",)))
    assert said(notes) == ["old", evil, "two"]


def test_no_connection_takes_a_second_statement(notes: Engine) -> None:
    with notes.connect() as connection, pytest.raises(ProgrammingError):
        connection.exec_driver_sql("SELECT 1; DELETE FROM notes")


def test_locks_of_a_transaction_that_only_read_end_with_it(notes: Engine) -> None:
    """Its statements do not say that it is open."""
    lock = "SELECT id FROM notes FOR UPDATE"
    with notes.connect() as other:
        other.exec_driver_sql("SELECT 1")
        run_in_transaction(notes, lambda connection: connection.exec_driver_sql(lock).all())
        assert other.exec_driver_sql(f"{lock} SKIP LOCKED").all()


def test_a_connection_that_the_server_has_closed_is_replaced(database_url: str, mariadb_server: PrivateMariaDB) -> None:
    far = create_engine(database_url, pool_size=1)  # by TCP, where a closed connection still takes a statement
    with far.connect() as connection:
        before = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    with mariadb_server._root() as root:
        root.execute(f"KILL {before}")
        wait_until(lambda: not _is_there(root, before), "the connection to be closed")
    sent(far, ("UPDATE nonce_ledger SET owner = owner", ()))
    far.dispose()


def _is_there(root: Any, connection_id: int) -> bool:
    root.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (connection_id,))
    return root.fetchone() is not None
