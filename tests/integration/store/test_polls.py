"""A look: one round trip to the real server, by a connection that may have been lost meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine

from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.transactions import poll, run_in_transaction
from tests.conformance.private_mariadb import private_mariadb

pytestmark = pytest.mark.mariadb


@pytest.fixture
def looks(engine: Engine) -> Iterator[Engine]:
    looks = create_engine(engine.url.render_as_string(hide_password=False), pool_size=1, autocommit=True)
    yield looks
    looks.dispose()


def questions(connection: Connection) -> int:
    """How many statements this connection has sent so far, with this one; pings count, too."""
    return int(connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Questions'").one()[1])


def own_id(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one())


def test_a_look_is_one_statement(looks: Engine) -> None:
    first = poll(looks, questions)
    assert poll(looks, questions) - first == 1


def test_a_transaction_of_one_read_takes_more_than_a_look(engine: Engine) -> None:
    first = run_in_transaction(engine, questions)
    assert run_in_transaction(engine, questions) - first > 1


def test_a_look_sees_what_was_committed_since_the_last_one(engine: Engine, looks: Engine) -> None:
    def hosts(connection: Connection) -> list[str]:
        return list(connection.exec_driver_sql("SELECT host FROM relay_lease ORDER BY host").scalars())

    assert poll(looks, hosts) == []
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO relay_lease VALUES ('a', 'one', UTC_TIMESTAMP(6))")
    assert poll(looks, hosts) == ["a"]


def test_a_connection_that_was_lost_meanwhile_is_no_outage(engine: Engine, looks: Engine) -> None:
    lost = poll(looks, own_id)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"KILL {lost}")
    assert poll(looks, own_id) != lost


def test_a_server_that_is_away_is_an_outage_and_the_look_works_when_it_is_back() -> None:
    with private_mariadb() as server, server.fresh_database() as database:
        address = database.url.render_as_string(hide_password=False)
        looks = create_engine(address, pool_size=1, autocommit=True)
        poll(looks, own_id)
        server.kill()
        with pytest.raises(DatabaseUnavailable):
            poll(looks, own_id)
        server.start()
        assert poll(looks, own_id) > 0
        looks.dispose()
