"""A server that was made read-only, in a planned switchover, counts as away, though it answers."""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from oldhost_sync.store.engine import check_server, create_engine
from oldhost_sync.store.errors import DatabaseUnavailable, is_demoted, translate
from oldhost_sync.store.outbox.outstanding_changes import await_unrelayed
from oldhost_sync.store.transactions import Packet, poll, run_in_transaction
from oldhost_sync.store.workers import WorkerPresence
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb


class Switch:
    """Makes the server read-only, and writable again."""

    def __init__(self, server: PrivateMariaDB) -> None:
        self._server = server

    def set_read_only(self, value: str) -> None:
        with self._server._root() as cursor:
            cursor.execute(f"SET GLOBAL read_only = {value}")


@pytest.fixture
def switch(mariadb_server: PrivateMariaDB) -> Iterator[Switch]:
    switch = Switch(mariadb_server)
    yield switch
    switch.set_read_only("OFF")


@pytest.fixture
def app(database_url: str) -> Iterator[Engine]:
    """The application's account, which has no right to write to a read-only server."""
    engine = create_engine(database_url, pool_size=2)
    yield engine
    engine.dispose()


@pytest.fixture
def reading(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url, pool_size=1, autocommit=True)
    yield engine
    engine.dispose()


def connection_id(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one())


SAY = f"INSERT INTO workers (host, name, knows_release) VALUES ('{HOST}', 'w', 1)"


def say(connection: Connection) -> None:
    connection.exec_driver_sql(SAY)


def test_a_refused_write_closes_all_connections_of_its_pool(app: Engine, switch: Switch) -> None:
    with app.connect() as _:
        other = connection_id(app)
    first = connection_id(app)
    switch.set_read_only("ON")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        run_in_transaction(app, say)
    switch.set_read_only("OFF")
    with app.connect() as _:
        assert connection_id(app) not in {first, other}


def test_a_packet_that_it_refuses_was_not_committed(app: Engine, switch: Switch) -> None:
    def say_in_a_packet(connection: Connection) -> None:
        packet = Packet(connection)
        packet.add(SAY)
        packet.commit()

    with app.connect() as _:
        pass
    switch.set_read_only("ON")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        run_in_transaction(app, say_in_a_packet)
    switch.set_read_only("OFF")
    run_in_transaction(app, say_in_a_packet)


def test_another_option_that_forbids_a_statement_is_named_and_is_no_demotion(app: Engine) -> None:
    before = connection_id(app)

    def sort_much(connection: Connection) -> None:
        connection.exec_driver_sql("SET SESSION max_session_mem_used = 8192")
        connection.exec_driver_sql("SELECT * FROM information_schema.columns ORDER BY column_comment")

    with pytest.raises(DatabaseUnavailable, match=r"the server's option max-session-mem-used forbids it"):
        run_in_transaction(app, sort_much)
    assert connection_id(app) == before


def test_a_table_that_innodb_holds_read_only_is_an_outage() -> None:
    refused = OperationalError("UPDATE", None, pymysql.err.OperationalError(1036, "Table 'units' is read only"))
    assert isinstance(translate(refused), DatabaseUnavailable)
    assert is_demoted(refused)


def test_a_new_connection_to_a_read_only_server_is_refused(app: Engine, switch: Switch) -> None:
    switch.set_read_only("ON")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        run_in_transaction(app, say)
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        check_server(app)


def test_the_relays_wait_ends_with_an_error_and_its_connection(reading: Engine, switch: Switch) -> None:
    before = connection_id(reading)
    switch.set_read_only("ON")
    with pytest.raises(DatabaseUnavailable, match="read-only"):
        poll(reading, lambda connection: await_unrelayed(connection, "relay", [], 0.1))
    switch.set_read_only("OFF")
    assert connection_id(reading) != before


def test_a_worker_that_says_it_is_at_work_survives_it(app: Engine, switch: Switch) -> None:
    presence = WorkerPresence(app, (HOST,), "w1")
    switch.set_read_only("ON")
    presence.report()
    switch.set_read_only("OFF")
    presence.begin()
    assert list(presence.known()) == [HOST]
