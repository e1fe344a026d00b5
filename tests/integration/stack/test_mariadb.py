"""The private MariaDB: quick to come, hard to lose, narrow in what it allows."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from sqlalchemy.exc import OperationalError

from oldhost_sync.stack.machine import PortTaken
from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from oldhost_sync.store.engine import check_server, create_engine
from tests.conformance.private_mariadb import PrivateMariaDB

pytestmark = pytest.mark.mariadb


def test_the_private_server_is_one_that_the_product_accepts(engine: Engine) -> None:
    check_server(engine)


@pytest.mark.parametrize("statement", ["DROP TABLE units", "CREATE TABLE more (id INT)", "SELECT * FROM mysql.user"])
def test_the_applications_account_works_on_rows_and_on_nothing_else(engine: Engine, statement: str) -> None:
    with pytest.raises(OperationalError, match="denied"), engine.begin() as connection:
        connection.execute(text(statement))


def test_root_can_not_be_reached_over_the_network(mariadb_server: EmbeddedMariaDB) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")


def test_what_was_committed_survives_kill_9_and_a_long_folder_name(tmp_path: Path) -> None:
    with EmbeddedMariaDB(tmp_path / ("long" * 30)) as server:
        engine = create_engine(server.migration_url)
        with engine.begin() as connection:
            connection.execute(text("CREATE TABLE kept (id INT PRIMARY KEY)"))
            connection.execute(text("INSERT INTO kept VALUES (7)"))
        address = server.url
        server.kill()
        server.start()
        assert server.url == address
        with create_engine(server.url).connect() as connection:
            assert connection.execute(text("SELECT id FROM kept")).scalars().all() == [7]


def test_a_taken_port_is_said_and_not_waited_for(mariadb_server: EmbeddedMariaDB, tmp_path: Path) -> None:
    with pytest.raises(PortTaken, match=f"port {mariadb_server.port} .* is taken, but is needed for MariaDB"):
        EmbeddedMariaDB(tmp_path, mariadb_server.port).start()


def test_every_test_has_a_database_of_its_own(database: DatabaseUrls, mariadb_server: PrivateMariaDB) -> None:
    other = mariadb_server.create_database("test_other")
    assert other.app != database.app
    mariadb_server.drop_database("test_other")
