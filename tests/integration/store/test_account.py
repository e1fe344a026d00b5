"""The database's account: refused for a while, it counts as an outage, and nothing outlives the correction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Engine, make_url

from oldhost_sync.store import transactions
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import AccessRefused
from oldhost_sync.store.transactions import poll, run_in_transaction
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST

pytestmark = pytest.mark.mariadb

USER = "'borrowed'@'%'"


class Account:
    """An account of its own on a database with our tables, for the administrator to change."""

    def __init__(self, server: PrivateMariaDB, database_url: str) -> None:
        self._server = server
        url = make_url(database_url)
        self.database = url.database
        self.url = url.set(username="borrowed", password="secret").render_as_string(hide_password=False)

    def do(self, *statements: str) -> None:
        with self._server._root() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def grant(self, rights: str) -> None:
        self.do(f"GRANT {rights} ON `{self.database}`.* TO {USER}")

    def close_connections(self) -> None:
        self.do(f"KILL CONNECTION USER {USER}")


@pytest.fixture
def account(mariadb_server: PrivateMariaDB, database_url: str) -> Iterator[Account]:
    account = Account(mariadb_server, database_url)
    account.do(f"CREATE OR REPLACE USER {USER} IDENTIFIED BY 'secret'")
    account.grant("SELECT, INSERT")
    yield account
    account.do(f"DROP USER {USER}")


@pytest.fixture
def pooled(account: Account) -> Iterator[Engine]:
    engine = create_engine(account.url, pool_size=1)
    yield engine
    engine.dispose()


@pytest.fixture
def reading(account: Account) -> Iterator[Engine]:
    engine = create_engine(account.url, pool_size=1, autocommit=True)
    yield engine
    engine.dispose()


def say(connection: Connection) -> None:
    connection.exec_driver_sql(f"REPLACE INTO workers (host, name, knows_release) VALUES ('{HOST}', 'w', 1)")


def count(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT COUNT(*) FROM workers").scalar_one())


def test_what_is_granted_after_a_refusal_works_at_once(account: Account, pooled: Engine) -> None:
    with pytest.raises(AccessRefused, match=r"access denied to a table: DELETE on workers \(MariaDB 1142\)"):
        run_in_transaction(pooled, say)
    account.grant("DELETE")
    run_in_transaction(pooled, say)


def test_a_refusal_leaves_the_other_connections_of_its_pool_alone(account: Account) -> None:
    engine = create_engine(account.url, pool_size=2)
    with engine.connect() as connection:
        before = connection.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one()
    with engine.connect() as first, engine.connect() as second:
        ids = [each.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one() for each in (first, second)]
    with pytest.raises(AccessRefused):
        run_in_transaction(engine, say)
    with engine.connect() as first, engine.connect() as second:
        kept = [each.exec_driver_sql("SELECT CONNECTION_ID()").scalar_one() for each in (first, second)]
    assert before in ids
    assert len(set(ids) & set(kept)) == 1
    engine.dispose()


def test_a_look_that_its_connection_refuses_is_repeated_over_a_new_one(account: Account, reading: Engine) -> None:
    account.do(f"REVOKE SELECT ON `{account.database}`.* FROM {USER}")
    with pytest.raises(AccessRefused):
        poll(reading, count)
    with reading.connect():  # a connection that began without the right
        account.grant("SELECT")
    assert poll(reading, count) == 0


@pytest.mark.parametrize(
    ("by", "undone_by", "told"),
    [
        ("ACCOUNT LOCK", "ACCOUNT UNLOCK", "the account is locked"),
        ("PASSWORD EXPIRE", "IDENTIFIED BY 'secret'", "password"),
        ("IDENTIFIED BY 'another'", "IDENTIFIED BY 'secret'", "wrong account or password"),
    ],
    ids=["locked", "expired", "another password"],
)
def test_an_account_that_is_refused_for_a_while_is_told_of_and_works_again(
    account: Account, pooled: Engine, by: str, undone_by: str, told: str
) -> None:
    assert run_in_transaction(pooled, count) == 0
    account.do(f"ALTER USER {USER} {by}")
    account.close_connections()
    for _ in range(2):
        with pytest.raises(AccessRefused, match=told):
            run_in_transaction(pooled, count)
    account.do(f"ALTER USER {USER} {undone_by}")
    assert run_in_transaction(pooled, count) == 0


def test_an_init_connect_that_fails_is_told_of(
    mariadb_server: PrivateMariaDB, account: Account, pooled: Engine
) -> None:
    with mariadb_server._root() as cursor:
        cursor.execute("SET GLOBAL init_connect = 'nonsense'")
        try:
            with pytest.raises(AccessRefused, match="init_connect"):
                run_in_transaction(pooled, count)
        finally:
            cursor.execute("SET GLOBAL init_connect = ''")
    assert run_in_transaction(pooled, count) == 0


def test_a_refusal_is_logged_once_a_minute_without_the_account(
    account: Account, pooled: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "_logged_at", {})
    for _ in range(3):
        with pytest.raises(AccessRefused):
            run_in_transaction(pooled, say)
    assert [each.message for each in caplog.records if each.levelname == "WARNING"] == [
        "MariaDB refuses our account: access denied to a table: DELETE on workers (MariaDB 1142)"
    ]
