"""No test sees what another left, though they borrow the same databases one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pymysql
import pytest

from tests.conformance.database_pool import DatabasePool, contents
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.faults.product import connect_database

pytestmark = pytest.mark.mariadb

_numbers = itertools.count(1)


@pytest.fixture
def pool(mariadb_server: PrivateMariaDB) -> DatabasePool:
    """A pool with nothing in it."""
    prefix = f"pool{next(_numbers)}"
    return DatabasePool(prefix, mariadb_server._make_migrated, mariadb_server.drop_database, mariadb_server.connect)


@pytest.fixture
def root(mariadb_server: PrivateMariaDB) -> Iterator[pymysql.cursors.Cursor]:
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        yield cursor


def tables_of(root: pymysql.cursors.Cursor, name: str) -> list[str]:
    root.execute(f"SHOW TABLES FROM {name}")
    return [table for (table,) in root.fetchall()]


def write_into_every_table(root: pymysql.cursors.Cursor, name: str) -> None:
    """One row of what each column takes by itself."""
    root.execute("SET SESSION sql_mode = '', check_constraint_checks = OFF")
    for table in tables_of(root, name):
        assert root.execute(f"INSERT INTO {name}.{table} () VALUES ()") == 1


def test_the_next_borrower_finds_the_same_database_as_the_migration_leaves_it(
    pool: DatabasePool, root: pymysql.cursors.Cursor
) -> None:
    with pool.lent() as first:
        new = contents(root, first)
        assert {"oldhost_sync_revision", "event_rules", "host_mappings"} == set(new.rows)
        write_into_every_table(root, first)
        root.execute(f"UPDATE {first}.event_rules SET priority_class = 'TXN'")
    with pool.lent() as second:
        assert second == first
        assert contents(root, second) == new


def test_rows_that_were_taken_out_are_there_again_and_numbers_begin_at_1(
    pool: DatabasePool, root: pymysql.cursors.Cursor
) -> None:
    with pool.lent() as first:
        new = contents(root, first)
        write_into_every_table(root, first)
        for table in tables_of(root, first):
            root.execute(f"DELETE FROM {first}.{table}")
        assert "AUTO_INCREMENT=2" in contents(root, first).definitions["outbox_events"]
    with pool.lent() as second:
        assert second == first
        assert contents(root, second) == new


def test_what_is_written_after_its_return_is_gone_as_well(pool: DatabasePool, root: pymysql.cursors.Cursor) -> None:
    with pool.lent() as first:
        new = contents(root, first)
    write_into_every_table(root, first)
    with pool.lent() as second:
        assert (second, contents(root, second)) == (first, new)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE {name}.more (id INT)",
        "DROP TABLE {name}.alerts",
        "DROP INDEX ix_outbox_events_key ON {name}.outbox_events",
        "ALTER TABLE {name}.outbox_events STATS_AUTO_RECALC = 0",
    ],
)
def test_a_database_with_other_tables_is_dropped(pool: DatabasePool, root: pymysql.cursors.Cursor, change: str) -> None:
    with pool.lent() as first:
        root.execute(change.format(name=first))
    with pool.lent() as second:
        assert second != first
        root.execute("SHOW DATABASES LIKE %s", (first,))
        assert root.fetchall() == ()


def test_nobody_gets_a_database_to_which_somebody_is_still_connected(
    pool: DatabasePool, mariadb_server: PrivateMariaDB
) -> None:
    with pool.lent() as first:
        left = connect_database(mariadb_server.urls(first).app)
    with left, pool.lent() as second:
        assert second != first


def test_two_borrowers_have_two(pool: DatabasePool) -> None:
    with pool.lent() as one, pool.lent() as other:
        assert one != other
