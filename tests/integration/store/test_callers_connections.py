"""Changes are recorded on the connection that an application has, and in the schema where our tables are."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import django
import pymysql
import pytest
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from oldhost_sync import IdempotencyConflict, TransactionNeeded, UnknownHost, record_change, record_changes
from oldhost_sync.store.callers_connection import in_schema
from oldhost_sync.store.tables import metadata
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql, rows

# Django looks for another driver; under its name it gets PyMySQL's own modules, which others here use, too.
pymysql.version_info = (2, 2, 1, "final", 0)
for part in ("", ".constants", ".constants.CLIENT", ".constants.FIELD_TYPE", ".converters", ".cursors", ".err"):
    sys.modules[f"MySQLdb{part}"] = import_module(f"pymysql{part}")
settings.configure(USE_TZ=True)
django.setup()
DatabaseWrapper = import_module("django.db.backends.mysql.base").DatabaseWrapper
pytestmark = pytest.mark.mariadb

CHANGE: dict[str, Any] = {"entity_type": "unit", "entity_id": "a", "event_type": "checked_in", "payload": {"guest": 7}}
APPLICATION = "an-application$s"
Begin = Callable[..., AbstractContextManager[Any]]


@contextmanager
def by_connection(database: str, socket: str, *, autocommit: bool = False) -> Iterator[Any]:
    with _engine(database, socket, autocommit=autocommit) as engine, engine.begin() as connection:
        yield connection


@contextmanager
def by_session(database: str, socket: str, *, autocommit: bool = False) -> Iterator[Any]:
    with _engine(database, socket, autocommit=autocommit) as engine, Session(engine) as session, session.begin():
        yield session


@contextmanager
def _engine(database: str, socket: str, *, autocommit: bool) -> Iterator[Engine]:
    url = f"mysql+pymysql://{getpass.getuser()}@localhost/{database}?unix_socket={socket}"
    engine = create_engine(url, isolation_level="AUTOCOMMIT" if autocommit else "REPEATABLE READ")
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def _driver(database: str, socket: str, cursor: Any, *, autocommit: bool) -> Iterator[Any]:
    connection = pymysql.connect(
        unix_socket=socket, user=getpass.getuser(), database=database, cursorclass=cursor, autocommit=autocommit
    )
    try:
        yield connection
        connection.commit()
    finally:
        connection.close()


def by_driver(database: str, socket: str, *, autocommit: bool = False) -> AbstractContextManager[Any]:
    return _driver(database, socket, pymysql.cursors.Cursor, autocommit=autocommit)


def by_driver_that_names_columns(
    database: str, socket: str, *, autocommit: bool = False
) -> AbstractContextManager[Any]:
    return _driver(database, socket, pymysql.cursors.DictCursor, autocommit=autocommit)


@contextmanager
def by_django(database: str, socket: str, *, autocommit: bool = False) -> Iterator[Any]:
    """Django's connection, over PyMySQL in place of the driver that Django looks for."""
    connections["default"] = made = DatabaseWrapper(
        {
            **dict.fromkeys(("PASSWORD", "HOST", "PORT"), ""),
            "NAME": database,
            "USER": getpass.getuser(),
            "OPTIONS": {"unix_socket": socket},
            "TIME_ZONE": None,
            "ATOMIC_REQUESTS": False,
            "AUTOCOMMIT": True,
            "CONN_MAX_AGE": 0,
            "CONN_HEALTH_CHECKS": False,
            "TEST": {},
        }
    )
    try:
        with nullcontext() if autocommit else transaction.atomic():
            yield connections["default"]
    finally:
        made.close()


ALL = (by_connection, by_session, by_driver, by_driver_that_names_columns, by_django)


@pytest.fixture(params=ALL, ids=lambda way: way.__name__)
def begin(request: pytest.FixtureRequest, engine: Engine, mariadb_server: PrivateMariaDB) -> Begin:
    """A transaction of the application, which commits unless it raises."""
    return lambda **given: request.param(engine.url.database, mariadb_server._socket, **given)


@pytest.fixture
def elsewhere(mariadb_server: PrivateMariaDB) -> Iterator[str]:
    """An application's schema with tables that have the names of ours."""
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{APPLICATION}`")
        for table in ("units", "outbox_events", "submitted_keys", "oldhost_sync_revision"):
            cursor.execute(f"CREATE TABLE `{APPLICATION}`.`{table}` (mine INT PRIMARY KEY)")
        cursor.execute(f"CREATE TABLE `{APPLICATION}`.`bookings` (id INT PRIMARY KEY)")
    yield APPLICATION
    mariadb_server.drop_database(APPLICATION)


def outbox(engine: Engine) -> list[str]:
    return [row["entity_id"] for row in rows(engine, "SELECT entity_id FROM outbox_events ORDER BY id")]


def test_a_change_exists_if_the_application_commits(engine: Engine, begin: Begin) -> None:
    with begin() as connection:
        recorded = record_change(connection, host=HOST, **CHANGE)
        assert outbox(engine) == []
    assert outbox(engine) == ["a"]
    assert recorded.accepted_at.tzinfo is UTC


def test_a_change_does_not_exist_if_the_application_rolls_back(engine: Engine, begin: Begin) -> None:
    def book() -> None:
        with begin() as connection:
            record_change(connection, host=HOST, **CHANGE)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        book()
    assert outbox(engine) == []


def test_a_key_gets_its_first_answer_or_a_conflict_and_the_transaction_goes_on(engine: Engine, begin: Begin) -> None:
    with begin() as connection:
        first = record_change(connection, host=HOST, **CHANGE, idempotency_key="k")
        again = record_change(connection, host=HOST, **CHANGE, idempotency_key="k")
        assert (again.change_id, again.duplicate) == (first.change_id, True)
        with pytest.raises(IdempotencyConflict):
            record_change(connection, host=HOST, **{**CHANGE, "entity_id": "b"}, idempotency_key="k")
        record_change(connection, host=HOST, **{**CHANGE, "entity_id": "c"})
    assert outbox(engine) == ["a", "c"]


def test_a_batch_and_a_scheduled_change_are_recorded_too(engine: Engine, begin: Begin) -> None:
    with begin() as connection:
        changes = [{**CHANGE, "entity_id": f"u{each}"} for each in range(3)]
        record_changes(connection, changes, host=HOST)
        later = record_change(connection, host=HOST, **CHANGE, not_before=datetime.now(UTC) + timedelta(days=1))
        assert later.sync_status == "SCHEDULED"
    assert outbox(engine) == ["u0", "u1", "u2"]


def test_an_unknown_host_is_refused(begin: Begin) -> None:
    with begin() as connection, pytest.raises(UnknownHost, match="the database knows no host 'nowhere'"):
        record_change(connection, host="nowhere", **CHANGE)


def test_a_connection_that_commits_each_statement_is_refused(engine: Engine, begin: Begin) -> None:
    with begin(autocommit=True) as connection:
        with pytest.raises(TransactionNeeded):
            record_change(connection, host=HOST, **CHANGE)
        with pytest.raises(TransactionNeeded):
            record_changes(connection, [CHANGE], host=HOST)
    assert outbox(engine) == []


@pytest.fixture
def deadlock(engine: Engine) -> Iterator[None]:
    """Each change meets one."""
    raising = "CREATE TRIGGER refuse BEFORE INSERT ON outbox_events FOR EACH ROW SIGNAL SQLSTATE '45000' "
    change_sql(engine, f"{raising} SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'a deadlock'")
    yield
    change_sql(engine, "DROP TRIGGER refuse")


def test_errors_of_the_database_are_those_of_the_application_s_driver(begin: Begin, deadlock: None) -> None:
    with begin() as connection:
        with pytest.raises(Exception, match="a deadlock") as raised:
            record_change(connection, host=HOST, **CHANGE)
        drivers = type(connection).__module__.partition(".")[0]
    assert (raised.type.__module__.partition(".")[0], raised.type.__name__) == (drivers, "OperationalError")


@pytest.mark.parametrize("way", ALL, ids=lambda way: way.__name__)
def test_our_tables_may_be_in_a_schema_of_their_own(
    engine: Engine, mariadb_server: PrivateMariaDB, elsewhere: str, way: Begin
) -> None:
    with way(elsewhere, mariadb_server._socket) as connection:
        sql = "INSERT INTO bookings (id) VALUES (7)"
        if hasattr(connection, "cursor"):
            with connection.cursor() as cursor:
                cursor.execute(sql)
        else:
            (connection.connection() if hasattr(connection, "get_bind") else connection).exec_driver_sql(sql)
        given: dict[str, Any] = {"host": HOST, "schema": engine.url.database}
        for key in ("k", "k"):
            record_change(connection, **CHANGE, idempotency_key=key, **given)
        record_change(connection, **{**CHANGE, "entity_type": "booking"}, **given)
        record_change(connection, **CHANGE, not_before=datetime.now(UTC) + timedelta(days=1), **given)
        changes = [{**CHANGE, "entity_id": "b", "idempotency_key": key} for key in ("l", "l", "m")]
        record_changes(connection, changes, **given)
        with pytest.raises(UnknownHost):
            record_change(connection, host="nowhere", **CHANGE, schema=engine.url.database)
    assert outbox(engine) == ["a", "a", "b", "b"]
    mine = f"SELECT (SELECT COUNT(*) FROM `{elsewhere}`.outbox_events) AS ours, id FROM `{elsewhere}`.bookings"
    assert rows(engine, mine) == [{"ours": 0, "id": 7}]


@pytest.mark.parametrize("schema", ["", "a.b", "a`b", "x" * 65])
def test_a_schema_is_a_name(schema: str) -> None:
    with pytest.raises(ValueError, match="give the name of our tables' schema"):
        record_change(None, host=HOST, **CHANGE, schema=schema)


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_each_table_is_named_with_its_schema(table: str) -> None:
    def statement(place: str) -> str:
        return f"SELECT {table}.id FROM {place} JOIN {place} t STRAIGHT_JOIN {place} u FOR UPDATE"

    assert in_schema(statement(table), "s") == statement(f"`s`.{table}")
