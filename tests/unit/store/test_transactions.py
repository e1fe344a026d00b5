"""How a transaction is repeated, and what is never repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NoReturn

import pymysql
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from oldhost_sync.store.errors import (
    ACCESS_ERRORS,
    AWAY_ERRORS,
    RETRIABLE_ERRORS,
    CommitUncertain,
    DatabaseUnavailable,
    StatementRefused,
    TransactionContended,
    in_words,
    is_passing,
)
from oldhost_sync.store.transactions import run_in_transaction


def driver_error(code: int) -> OperationalError:
    return OperationalError("SELECT 1", {}, pymysql.err.OperationalError(code, "said the server"))


def failing(codes: list[int]) -> Callable[[Connection], int]:
    """A function that fails once with each code, then answers how often it was called."""
    calls = 0

    def fn(connection: Connection) -> int:
        nonlocal calls
        calls += 1
        connection.execute(text("INSERT INTO seen VALUES (:n)"), {"n": calls})
        if codes:
            raise driver_error(codes.pop(0))
        return calls

    return fn


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE seen (n INTEGER)"))
    yield engine
    engine.dispose()


def seen(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return [row.n for row in connection.execute(text("SELECT n FROM seen ORDER BY n"))]


def raise_lost_connection() -> NoReturn:
    raise driver_error(2013)


@pytest.mark.parametrize("code", sorted(RETRIABLE_ERRORS))
def test_a_conflict_repeats_the_whole_function_in_a_new_transaction(engine: Engine, code: int) -> None:
    pauses: list[float] = []
    assert run_in_transaction(engine, failing([code, code]), pause=pauses.append, chance=lambda: 0.5) == 3
    assert seen(engine) == [3]
    assert len(pauses) == 2
    assert pauses[0] < pauses[1]


def test_repetition_is_bounded(engine: Engine) -> None:
    pauses: list[float] = []
    with pytest.raises(TransactionContended, match="deadlock"):
        run_in_transaction(engine, failing([1213] * 100), attempts=4, pause=pauses.append)
    assert len(pauses) == 3
    assert seen(engine) == []


def test_a_connection_that_the_server_had_ended_is_repeated_once_without_a_pause(engine: Engine) -> None:
    def must_not(_: float) -> None:
        pytest.fail("must not wait")

    assert run_in_transaction(engine, failing([2006]), attempts=1, pause=must_not) == 2
    assert seen(engine) == [2]
    with pytest.raises(DatabaseUnavailable, match="gone away"):
        run_in_transaction(engine, failing([2006, 2006]), pause=must_not)


def test_a_statement_that_a_hanging_server_did_not_take_is_not_repeated(engine: Engine) -> None:
    calls: list[int] = []

    def fn(_: Connection) -> None:
        calls.append(1)
        unsent = pymysql.err.OperationalError(2006, "MySQL server has gone away (timed out)")
        unsent.__context__ = TimeoutError()
        raise OperationalError("SELECT 1", {}, unsent)

    with pytest.raises(DatabaseUnavailable):
        run_in_transaction(engine, fn)
    assert calls == [1]


@pytest.mark.parametrize("code", sorted((AWAY_ERRORS | ACCESS_ERRORS).keys() - {2006}))
def test_an_absent_server_is_said_at_once_and_not_repeated(engine: Engine, code: int) -> None:
    codes = [code, code]
    with pytest.raises(DatabaseUnavailable):
        run_in_transaction(engine, failing(codes), pause=lambda _: pytest.fail("must not wait"))
    assert codes == [code]


def test_a_full_pool_is_an_absent_server(engine: Engine) -> None:
    def fn(_: Connection) -> None:
        raise PoolTimeout("full")

    with pytest.raises(DatabaseUnavailable, match="free"):
        run_in_transaction(engine, fn)


def test_a_connection_lost_at_commit_is_uncertain_and_never_repeated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(Connection, "commit", lambda _: raise_lost_connection())
    with pytest.raises(CommitUncertain):
        run_in_transaction(engine, lambda _: calls.append(1))
    assert calls == [1]


def test_other_errors_come_through_as_they_are_and_leave_nothing(engine: Engine) -> None:
    def fn(connection: Connection) -> None:
        connection.execute(text("INSERT INTO seen VALUES (1)"))
        raise IntegrityError("INSERT", {}, pymysql.err.IntegrityError(1062, "duplicate"))

    with pytest.raises(IntegrityError):
        run_in_transaction(engine, fn)
    assert seen(engine) == []


def test_a_refused_statement_does_not_pass_by_itself() -> None:
    assert is_passing(DatabaseUnavailable("away"))
    assert not is_passing(StatementRefused("refused"))
    assert not is_passing(OperationalError("SELECT", {}, pymysql.err.OperationalError(1305, "no such function")))


def test_a_conversion_s_error_is_told_without_the_value_that_it_names() -> None:
    text = "Truncated incorrect INTEGER value: 'Mrs Smith'"
    error = OperationalError("INSERT", {}, pymysql.err.OperationalError(1292, text))
    assert in_words(error) == "MariaDB refuses a statement (MariaDB 1292)"
