"""What an application may get wrong around a change: each call is all or nothing, and each refusal says what to do."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, ExceptionContext
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine

from oldhost_sync import IdempotencyConflict, RecordedChange, TransactionNeeded, record_change, record_changes
from oldhost_sync.store.errors import DUPLICATE_KEY, error_code
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.callers import application
from tests.integration.store.writing import HOST, change_sql, record, recorded, rows

pytestmark = pytest.mark.mariadb
both_doors = pytest.mark.usefixtures("door")

ROOT = Path(__file__).resolve().parents[3]
TABLES = ("units", "entities", "outbox_events", "scheduled_changes", "submitted_keys")
DRIVERS = ("mysql+pymysql", "mysql+asyncmy")
DUE = datetime.now(UTC).replace(microsecond=0) + timedelta(days=30)
CHANGE: dict[str, Any] = {"entity_type": "unit", "entity_id": "a", "event_type": "checked_in", "payload": {}}


def tomorrow() -> datetime:
    return datetime.now(UTC) + timedelta(days=1)


def one(connection: Connection) -> None:
    record(connection, entity_id="new", idempotency_key="k")


def other(connection: Connection) -> None:
    record(connection, entity_type="booking", entity_id="new", idempotency_key="k")


def later(connection: Connection) -> None:
    record(connection, entity_id="new", idempotency_key="k", not_before=tomorrow())


def many(connection: Connection) -> None:
    record_changes(connection, [{**CHANGE, "idempotency_key": f"k{each}"} for each in range(3)], host=HOST)


def written(engine: Engine) -> dict[str, int]:
    counts = {table: rows(engine, f"SELECT COUNT(*) AS n FROM {table}")[0]["n"] for table in TABLES}
    return {table: count for table, count in counts.items() if count}


@contextmanager
def refusing(engine: Engine, table: str, event: str) -> Iterator[None]:
    """The database refuses to change this table."""
    text = "SET MESSAGE_TEXT = 'refused'"
    change_sql(engine, f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW SIGNAL SQLSTATE '45000' {text}")
    try:
        yield
    finally:
        change_sql(engine, "DROP TRIGGER refuse")


@both_doors
@pytest.mark.parametrize(
    ("call", "table", "event"),
    [
        *((call, table, "INSERT") for call in (one, many) for table in ("units", "submitted_keys", "outbox_events")),
        (one, "submitted_keys", "UPDATE"),
        (one, "units", "UPDATE"),
        (many, "submitted_keys", "UPDATE"),
        (many, "units", "UPDATE"),
        (other, "entities", "UPDATE"),
        (later, "submitted_keys", "INSERT"),
        (later, "submitted_keys", "UPDATE"),
        (later, "scheduled_changes", "INSERT"),
    ],
)
def test_an_error_at_any_step_that_is_caught_leaves_nothing(
    engine: Engine, call: Callable[[Connection], None], table: str, event: str
) -> None:
    with application(engine.url) as caller:
        with refusing(engine, table, event), caller.begin() as connection, pytest.raises(DBAPIError, match="refused"):
            call(connection)
        assert written(engine) == {}
        with caller.begin() as connection:
            call(connection)
    assert written(engine) != {}


@both_doors
def test_a_conflict_leaves_no_unit_behind(engine: Engine) -> None:
    recorded(engine, idempotency_key="k")
    before = written(engine)
    with application(engine.url) as caller, caller.begin() as connection:
        for entity_type in ("unit", "booking"):
            with pytest.raises(IdempotencyConflict):
                record(connection, entity_type=entity_type, entity_id="new", idempotency_key="k")
    assert written(engine) == before


def test_a_known_key_is_not_answered_in_a_transaction_that_the_server_has_rolled_back(engine: Engine) -> None:
    """As by a deadlock: what the caller wrote before is gone, so the caller must hear of it."""
    recorded(engine, idempotency_key="k")

    def roll_back(context: ExceptionContext) -> None:
        if error_code(context.original_exception) == DUPLICATE_KEY:
            context.connection.connection.dbapi_connection.rollback()  # type: ignore[union-attr]

    with application(engine.url) as caller, caller.connect() as connection, connection.begin():
        event.listen(caller, "handle_error", roll_back)
        with pytest.raises(OperationalError, match="SAVEPOINT oldhost_sync does not exist"):
            record(connection, idempotency_key="k")
    assert len(rows(engine, "SELECT id FROM outbox_events")) == 1


@both_doors
def test_what_was_recorded_before_an_error_stays(engine: Engine) -> None:
    with application(engine.url) as caller, caller.begin() as connection:
        record(connection, entity_id="first", idempotency_key="k")
        with pytest.raises(IdempotencyConflict):
            record(connection, entity_id="second", idempotency_key="k")
        record(connection, entity_id="third")
    assert [row["id"] for row in rows(engine, "SELECT id FROM units ORDER BY id")] == ["first", "third"]


@both_doors
def test_savepoints_of_the_caller_work_around_and_between_changes(engine: Engine) -> None:
    recorded(engine, idempotency_key="k")
    with application(engine.url) as caller, caller.begin() as connection:
        record(connection, entity_id="a")
        with connection.begin_nested() as outer:
            record(connection, entity_id="b")
            with connection.begin_nested():
                record(connection, entity_id="c")
            with pytest.raises(IdempotencyConflict), connection.begin_nested():
                record(connection, entity_id="d", idempotency_key="k")
            outer.rollback()
        with connection.begin_nested():
            record(connection, entity_id="e")
    assert [row["id"] for row in rows(engine, "SELECT id FROM units ORDER BY id")] == ["101", "a", "e"]


@both_doors
def test_a_key_can_be_used_again_after_its_change_was_rolled_back(engine: Engine) -> None:
    with application(engine.url) as caller, caller.begin() as connection:
        with connection.begin_nested() as nested:
            record(connection, idempotency_key="k", payload={"status": "Dirty"})
            nested.rollback()
        assert not record(connection, idempotency_key="k", payload={"status": "Clean"}).duplicate
    assert rows(engine, "SELECT status FROM units") == [{"status": "Clean"}]


# --------------------------------------------------------------------------------------------------------- connections


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("call", [one, later, many])
def test_a_connection_in_autocommit_mode_is_refused_whatever_its_driver(
    engine: Engine, database_of: Callable[[str], URL], driver: str, call: Callable[[Connection], None]
) -> None:
    def refused_and_then_taken_in_a_transaction(connection: Connection) -> None:
        with pytest.raises(TransactionNeeded, match="without isolation_level AUTOCOMMIT"):
            call(connection)
        assert written(engine) == {}
        connection.exec_driver_sql("START TRANSACTION")
        call(connection)
        connection.exec_driver_sql("ROLLBACK")

    on_a_connection(database_of(driver), refused_and_then_taken_in_a_transaction, isolation_level="AUTOCOMMIT")
    assert written(engine) == {}


@pytest.mark.parametrize("driver", DRIVERS)
def test_changes_are_recorded_with_any_driver(engine: Engine, database_of: Callable[[str], URL], driver: str) -> None:
    payload = {"status": "Clean", "note": 'é "quoted" \\ %s'}
    firsts: list[RecordedChange] = []

    def first(connection: Connection) -> None:
        firsts.append(record(connection, payload=payload, idempotency_key="k"))
        firsts.append(record(connection, idempotency_key="p", not_before=DUE))
        firsts.extend(record_changes(connection, [{**CHANGE, "idempotency_key": "b"}], host=HOST))
        connection.commit()

    def again(connection: Connection) -> None:
        repeated = [
            record(connection, payload=payload, idempotency_key="k"),
            record(connection, idempotency_key="p", not_before=DUE),
            *record_changes(connection, [{**CHANGE, "idempotency_key": "b"}], host=HOST),
        ]
        assert repeated == [replace(each, duplicate=True) for each in firsts]
        with pytest.raises(IdempotencyConflict):
            record(connection, entity_id="new", idempotency_key="k")
        connection.commit()

    on_a_connection(database_of(driver), first)
    on_a_connection(database_of(driver), again)
    (stored,) = rows(engine, "SELECT payload FROM outbox_events WHERE idempotency_key = 'k'")
    assert json.loads(stored["payload"]) == payload
    assert written(engine) == {"units": 2, "outbox_events": 2, "scheduled_changes": 1, "submitted_keys": 3}


def on_a_connection(url: URL, work: Callable[[Connection], None], **options: Any) -> None:
    """`work` with a connection of the driver; with asyncio as docs/recording.md says."""
    if url.drivername == "mysql+pymysql":
        with application(url, **options) as caller, caller.connect() as connection:
            work(connection)
        return

    async def run() -> None:
        caller = create_async_engine(url, **options)
        try:
            async with caller.connect() as connection:
                await connection.run_sync(work)
        finally:
            await caller.dispose()

    asyncio.run(run())


def test_an_async_session_records_in_its_own_transaction(engine: Engine, database_of: Callable[[str], URL]) -> None:
    async def run() -> None:
        caller = create_async_engine(database_of("mysql+asyncmy"))
        async with AsyncSession(caller) as session:
            with pytest.raises(TypeError, match=r"pass it by `await session\.run_sync\(record_change, host=…, …\)`"):
                record_change(session, host=HOST, **CHANGE)
            await session.run_sync(record_change, host=HOST, **CHANGE)
            await session.rollback()
            assert written(engine) == {}
            first = await session.run_sync(record_change, host=HOST, **CHANGE, idempotency_key="k")
            with pytest.raises(IdempotencyConflict):
                await session.run_sync(record_change, host=HOST, **{**CHANGE, "entity_id": "b"}, idempotency_key="k")
            (again,) = await session.run_sync(record_changes, [{**CHANGE, "idempotency_key": "k"}], host=HOST)
            assert (again.change_id, again.duplicate) == (first.change_id, True)
            await session.commit()
        await caller.dispose()

    asyncio.run(run())
    assert written(engine) == {"units": 1, "outbox_events": 1, "submitted_keys": 1}


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda engine: engine, r"pass the connection of `with engine\.begin\(\) as connection`"),
        (lambda engine: object.__new__(AsyncConnection), "run_sync"),
        (lambda engine: object.__new__(AsyncSession), "run_sync"),
        (lambda engine: None, "not on a NoneType"),
    ],
)
def test_anything_but_a_connection_is_refused_with_what_to_pass(
    engine: Engine, make: Callable[[Engine], Any], advice: str
) -> None:
    given = make(engine)
    with pytest.raises(TypeError, match=advice):
        record_change(given, host=HOST, **CHANGE)
    with pytest.raises(TypeError, match=advice):
        record_changes(given, [CHANGE], host=HOST)


@pytest.fixture
def database_of(mariadb_server: PrivateMariaDB, engine: Engine) -> Iterator[Callable[[str], URL]]:
    """Addresses of the test's database by driver, for an account with exactly the documented rights."""
    user = "'shop'@'%'"
    database = engine.url.database
    documented = re.findall(r"GRANT [^;]+;", (ROOT / "docs" / "recording.md").read_text())
    assert documented
    with mariadb_server._root() as cursor:
        cursor.execute(f"CREATE OR REPLACE USER {user} IDENTIFIED BY 'secret'")
        for statement in documented:
            cursor.execute(statement.replace("oldhost_sync.", f"`{database}`."))

    def url(driver: str) -> URL:
        return engine.url.set(
            drivername=driver,
            username="shop",
            password="secret",
            query={"unix_socket": mariadb_server._socket, "charset": "utf8mb4"},
        )

    yield url
    with mariadb_server._root() as cursor:
        cursor.execute(f"DROP USER {user}")


def test_the_documented_rights_suffice_and_none_can_be_left_out(
    engine: Engine, mariadb_server: PrivateMariaDB, database_of: Callable[[str], URL]
) -> None:
    database = engine.url.database
    with mariadb_server._root() as cursor:
        cursor.execute(
            "SELECT TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES "
            "WHERE GRANTEE = \"'shop'@'%%'\" AND TABLE_SCHEMA = %s",
            (database,),
        )
        rights = list(cursor.fetchall())

    def everything() -> None:
        # A new connection each time: rights are read when it begins.
        with application(database_of(DRIVERS[0])) as caller, caller.connect() as connection:
            for call in (one, later, many, other):
                for _ in range(2):
                    call_in_savepoint(connection, call)
            record(connection, entity_id="x", not_before=datetime.now(UTC) - timedelta(days=1))
            connection.rollback()

    everything()
    for table, right in rights:
        with mariadb_server._root() as cursor:
            cursor.execute(f"REVOKE {right} ON `{database}`.`{table}` FROM 'shop'@'%%'".replace("%%", "%"))
        with pytest.raises(DBAPIError, match="denied"):
            everything()
        with mariadb_server._root() as cursor:
            cursor.execute(f"GRANT {right} ON `{database}`.`{table}` TO 'shop'@'%'")
    everything()


def call_in_savepoint(connection: Connection, call: Callable[[Connection], None]) -> None:
    try:
        call(connection)
    except IdempotencyConflict:
        return


def test_the_readmes_example_works_as_it_is_written(engine: Engine, database_of: Callable[[str], URL]) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(examples) == 1
    with application(database_of(DRIVERS[0])) as caller:
        for _ in range(2):
            exec(compile(examples[0], "README.md", "exec"), {"engine": caller})
    assert written(engine) == {"units": 1, "outbox_events": 1, "submitted_keys": 1}


def test_the_pages_recipe_for_repeating_a_transaction_works(engine: Engine, database_of: Callable[[str], URL]) -> None:
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "recording.md").read_text(), re.DOTALL)
    assert len(examples) == 1
    with application(database_of(DRIVERS[0])) as caller:
        exec(compile(examples[0], "recording.md", "exec"), {"engine": caller})
    assert written(engine)["outbox_events"] == 1
