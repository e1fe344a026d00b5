"""The clock that a test sets is the database's, for statements and for the columns' defaults alike."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from oldhost_sync.stack.mariadb import DatabaseUrls, EmbeddedMariaDB
from tests.faults.database_clock import DatabaseClock
from tests.faults.product import connect_database

pytestmark = [pytest.mark.mariadb]


@pytest.mark.parametrize("offset_s", [0, -7200, -2, 120])
def test_a_statement_sees_the_clock_as_it_was_set(
    database: DatabaseUrls, mariadb_server: EmbeddedMariaDB, offset_s: int
) -> None:
    with DatabaseClock(mariadb_server.port) as clock:
        clock.offset_s = offset_s
        with contextlib.closing(connect_database(clock.url(database.app))) as connection, connection.cursor() as cursor:
            for _ in range(3):
                cursor.execute("SELECT UTC_TIMESTAMP(6) AS at, CURRENT_TIMESTAMP(6) AS default_at")
                (row,) = cursor.fetchall()
                expected = datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=offset_s)
                assert abs(row["at"] - expected) < timedelta(seconds=1)
                assert row["default_at"] == row["at"]
