"""Group commit: who waits is recorded with the others that wait, and none of them for the trouble of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import OperationalError

from oldhost_sync.api import http_limits
from oldhost_sync.api.database import Database, connect_for_api
from oldhost_sync.api.writes import GroupCommit
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.store import transactions
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.errors import CommitUncertain, IdempotencyConflict, TransactionContended
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_accepted
from oldhost_sync.store.intake.validation import Acceptable, accept
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.api.conftest import HOST
from tests.integration.api.test_writes import count_changes, rows
from tests.integration.store.writing import change_sql, refused_by_the_database

pytestmark = pytest.mark.mariadb

MAKE_UNIT = text(
    "INSERT INTO units (host, id, state, created_at, updated_at) VALUES (:host, :id, '{}', NOW(6), NOW(6))"
)


def a_change(unit: str, key: str | None = None, status: str = "Clean") -> Acceptable:
    return accept(HOST, "unit", unit, "unit_status_changed", {"status": status}, key, None, None, "api:shop")


@asynccontextmanager
async def recording(database_url: str) -> AsyncIterator[GroupCommit]:
    database = Database(connect_for_api(database_url))
    try:
        yield GroupCommit(database)
    finally:
        database.close()


@contextmanager
def held(engine: Engine, *units: str) -> Iterator[Connection]:
    """The units' rows are locked until the connection's transaction ends."""
    keys = [{"host": HOST, "id": unit} for unit in units]
    with engine.begin() as connection:
        connection.execute(MAKE_UNIT, keys)
    with engine.connect() as connection:
        for key in keys:
            connection.execute(text("SELECT 1 FROM units WHERE host = :host AND id = :id FOR UPDATE"), key)
        yield connection


async def asked(commits: GroupCommit, *changes: Acceptable) -> list[asyncio.Task[RecordedChange]]:
    """Each is asked for in this order, and has got as far as it can without an answer."""
    tasks = [asyncio.create_task(commits.record(change)) for change in changes]
    await asyncio.sleep(0)
    return tasks


async def tried_together(commits: GroupCommit, tasks: list[asyncio.Task[RecordedChange]]) -> None:
    """Until none of them waits for a common transaction; what that could not record is being recorded alone."""
    while commits.waiting:
        await asyncio.wait(tasks, timeout=0.01)


def test_changes_that_come_during_a_transaction_are_recorded_together_in_the_next(
    database_url: str, engine: Engine
) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            tasks = await asked(commits, *(a_change(f"u{number}") for number in range(21)))
            assert commits.waiting == 20
            answers = await asyncio.gather(*tasks)
        assert [answer.duplicate for answer in answers] == [False] * 21
        found = rows(engine, "SELECT id, created_at FROM outbox_events ORDER BY id")
        assert [row.id for row in found] == [answer.change_id for answer in answers]
        # One statement has one time.
        assert len({row.created_at for row in found[1:]}) == 1
        shown = rows(engine, "SELECT status, newest_change_id FROM units ORDER BY newest_change_id")
        assert [tuple(row) for row in shown] == [("Clean", row.id) for row in found]

    asyncio.run(scenario())


def test_a_unit_that_somebody_holds_delays_its_own_change_alone(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            with held(engine, "slow") as holder:
                first, slow, quick = await asked(commits, *(a_change(unit) for unit in ("first", "slow", "quick")))
                await asyncio.gather(first, quick)
                assert not slow.done()
                holder.rollback()
                assert not (await slow).duplicate

    asyncio.run(scenario())


def test_however_many_changes_wait_for_a_held_unit_others_are_recorded(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            with held(engine, "slow") as holder:
                slow = await asked(commits, *(a_change("slow") for _ in range(2 * http_limits.DATABASE_THREADS)))
                await tried_together(commits, slow)
                await commits.record(a_change("quick"))
                assert not any(task.done() for task in slow)
                holder.rollback()
                await asyncio.gather(*slow)

    asyncio.run(scenario())


def test_however_many_units_are_held_what_waits_for_no_lock_has_threads(database_url: str, engine: Engine) -> None:
    """Reads, and what is recorded alone for another reason: here a key that was used for another change."""

    async def scenario() -> None:
        with closing(Database(connect_for_api(database_url))) as database:
            commits = GroupCommit(database)
            await commits.record(a_change("free", "k"))
            units = [f"slow-{number}" for number in range(http_limits.DATABASE_THREADS + 1)]
            with held(engine, *units):
                slow = await asked(commits, *(a_change(unit) for unit in units))
                await tried_together(commits, slow)
                assert await database.run(lambda connection: connection.scalar(text("SELECT 1"))) == 1
                with pytest.raises(IdempotencyConflict):
                    await commits.record(a_change("free", "k", status="Dirty"))
                assert not any(task.done() for task in slow)
            await asyncio.gather(*slow)

    asyncio.run(scenario())


def test_however_many_changes_wait_for_one_unit_those_of_another_wait_for_theirs_alone(
    database_url: str, engine: Engine
) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            with held(engine, "long"), held(engine, "short") as holder:
                long = await asked(commits, *(a_change("long") for _ in range(2 * http_limits.LOCK_WAITS_AT_ONCE)))
                (short,) = await asked(commits, a_change("short"))
                await tried_together(commits, [short])
                holder.rollback()
                assert not (await short).duplicate
                assert not any(task.done() for task in long)
            await asyncio.gather(*long)

    asyncio.run(scenario())


def test_a_change_whose_unit_stays_held_is_told_so(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            with held(engine, "long"):
                tasks = await asked(commits, *(a_change("long") for _ in range(3)))
                answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(answer, TransactionContended) for answer in answers] == [True] * 3

    asyncio.run(scenario())


def test_a_unit_that_somebody_is_making_delays_its_own_changes_alone(database_url: str, engine: Engine) -> None:
    """However many they are: its row is not to be seen yet, so it is no held row."""

    async def scenario() -> None:
        async with recording(database_url) as commits:
            with engine.connect() as holder:
                holder.execute(MAKE_UNIT, {"host": HOST, "id": "slow"})
                slow = await asked(commits, *(a_change("slow") for _ in range(2 * http_limits.DATABASE_THREADS)))
                await tried_together(commits, slow)
                first, late, quick = await asked(commits, *(a_change(unit) for unit in ("first", "slow", "quick")))
                await asyncio.gather(first, quick)
                assert not any(task.done() for task in (*slow, late))
                holder.rollback()
                await asyncio.gather(*slow, late)

    asyncio.run(scenario())


def test_a_key_that_is_being_recorded_elsewhere_delays_its_own_change_alone(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            with engine.connect() as holder:
                record_accepted(holder, a_change("u1", "k"))
                tasks = await asked(commits, a_change("first"), a_change("u2", "k"), a_change("quick"))
                first, same_key, quick = tasks
                await asyncio.gather(first, quick)
                assert not same_key.done()
                holder.rollback()
                assert not (await same_key).duplicate

    asyncio.run(scenario())


def test_a_repeated_key_whose_change_is_locked_delays_itself_alone(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            original = await commits.record(a_change("u1", "k"))
            with engine.connect() as holder:
                lock = text("SELECT 1 FROM outbox_events WHERE id = :id FOR UPDATE")
                holder.execute(lock, {"id": original.change_id})
                repeat, quick = await asked(commits, a_change("u1", "k"), a_change("quick"))
                await quick
                assert not repeat.done()
                holder.rollback()
                assert (await repeat).change_id == original.change_id

    asyncio.run(scenario())


def test_changes_of_one_unit_are_recorded_in_the_order_of_asking(database_url: str, engine: Engine) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            await asyncio.gather(*await asked(commits, *(a_change("u", status=str(number)) for number in range(6))))
        found = rows(engine, "SELECT JSON_VALUE(payload, '$.status') AS status FROM outbox_events ORDER BY id")
        assert [row.status for row in found] == ["0", "1", "2", "3", "4", "5"]
        assert rows(engine, "SELECT status FROM units")[0].status == "5"

    asyncio.run(scenario())


def test_a_key_that_was_used_gets_its_first_answer_or_is_refused_and_no_other_is(
    database_url: str, engine: Engine
) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            original = await commits.record(a_change("u1", "k"))
            first, same, other, new = await asked(
                commits, a_change("u0"), a_change("u1", "k"), a_change("u1", "k", "Dirty"), a_change("u1", "new")
            )
            assert not (await first).duplicate
            assert ((await same).change_id, (await same).duplicate) == (original.change_id, True)
            with pytest.raises(IdempotencyConflict, match="idempotency key k was used for another change"):
                await other
            assert not (await new).duplicate
        assert count_changes(engine) == 3

    asyncio.run(scenario())


def test_a_value_that_the_database_refuses_fails_its_own_change_alone(
    database: DatabaseUrls, database_url: str, engine: Engine
) -> None:
    owner = create_engine(database.migration)
    change_sql(owner, "ALTER TABLE units ADD CONSTRAINT ck_test CHECK (status <> 'poison')")
    owner.dispose()

    async def scenario() -> None:
        async with recording(database_url) as commits:
            changes = [a_change("u0"), a_change("u1", status="poison"), a_change("u2")]
            answers = await asyncio.gather(*await asked(commits, *changes), return_exceptions=True)
        assert [type(answer) for answer in answers] == [RecordedChange, OperationalError, RecordedChange]
        assert count_changes(engine) == 2

    asyncio.run(scenario())


def test_when_the_end_of_the_commit_is_unknown_each_is_told_so(
    database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Connection] = []

    def commit(connection: Connection) -> None:
        connection.commit()
        seen.append(connection)
        if len(seen) == 2:
            raise CommitUncertain("the answer was lost")

    async def scenario() -> None:
        monkeypatch.setattr(transactions, "_commit", commit)
        async with recording(database_url) as commits:
            tasks = await asked(commits, *(a_change(unit) for unit in ("first", "u1", "u2")))
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [RecordedChange, CommitUncertain, CommitUncertain]
        assert count_changes(engine) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("units", [("a", "wrong", "b"), ("a", "slow", "wrong", "b"), ("wrong", "a", "slow", "b")])
def test_an_unexpected_error_is_answered_to_its_own_change_alone(
    database_url: str, engine: Engine, mariadb_server: PrivateMariaDB, units: tuple[str, ...]
) -> None:
    """Also where the group is tried in halves, since somebody is making one of its units."""

    async def scenario() -> None:
        async with recording(database_url) as commits:
            with engine.connect() as holder:
                holder.execute(MAKE_UNIT, {"host": HOST, "id": "slow"})
                tasks = await asked(commits, *(a_change(unit) for unit in ("first", *units)))
                quick = [task for unit, task in zip(("first", *units), tasks, strict=True) if unit != "slow"]
                await asyncio.gather(*quick, return_exceptions=True)
                holder.rollback()
            answers = await asyncio.gather(*tasks, return_exceptions=True)
        failed = [unit for unit, answer in zip(units, answers[1:], strict=True) if isinstance(answer, Exception)]
        assert (failed, count_changes(engine)) == (["wrong"], len(units))

    root = create_engine(mariadb_server.root_url(str(engine.url.database)))
    with refused_by_the_database(root, "wrong"):
        asyncio.run(scenario())
    root.dispose()


def test_the_change_of_a_request_that_was_cancelled_while_it_waited_is_not_recorded(
    database_url: str, engine: Engine
) -> None:
    async def scenario() -> None:
        async with recording(database_url) as commits:
            first, cancelled, last = await asked(commits, *(a_change(unit) for unit in ("first", "cancelled", "last")))
            cancelled.cancel()
            await asyncio.gather(first, last)
            assert cancelled.cancelled()
        assert [row.entity_id for row in rows(engine, "SELECT entity_id FROM outbox_events ORDER BY id")] == [
            "first",
            "last",
        ]

    asyncio.run(scenario())
