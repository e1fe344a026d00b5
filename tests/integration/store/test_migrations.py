"""The migrations make exactly the tables of store/tables.py, one at a time and again after a crash."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Column, Integer, MetaData, Table
from sqlalchemy.engine import Engine, make_url

from oldhost_sync.store.access import APP_RIGHTS, MIGRATION_RIGHTS
from oldhost_sync.store.autogenerate import REVISION_TABLE, include_object
from oldhost_sync.store.engine import create_engine, needed_revision
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.intake.rules import DEFAULT_RULES
from oldhost_sync.store.outbox.outstanding_changes import claim_batch, mark_relayed
from oldhost_sync.store.schema_migration import (
    migrate,
)
from oldhost_sync.store.tables import metadata
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb


@pytest.fixture
def empty(mariadb_server: PrivateMariaDB) -> str:
    """The address of a database without tables."""
    name = f"m_{uuid.uuid4().hex[:12]}"
    with mariadb_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET latin1")
    return mariadb_server.root_url(name)


@pytest.fixture
def migrated(empty: str) -> Iterator[Engine]:
    migrate(empty)
    engine = create_engine(empty)
    yield engine
    engine.dispose()


def definitions(engine: Engine) -> dict[str, list[str]]:
    """Each table as the server describes it, line by line, in no particular order of its indexes."""
    with engine.connect() as connection:
        return {
            name: sorted(
                line.strip().rstrip(",")
                for line in connection.exec_driver_sql(f"SHOW CREATE TABLE {name}").one()[1].splitlines()
            )
            for name in metadata.tables
        }


def test_migrations_equal_tables(migrated: Engine, engine: Engine) -> None:
    assert definitions(migrated) == definitions(engine)
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": REVISION_TABLE})
        assert compare_metadata(context, metadata) == []


def test_an_application_in_the_same_schema_keeps_its_tables_and_its_alembic_leaves_ours_alone(migrated: Engine) -> None:
    """It has an `alembic_version` of its own, at a revision of its own."""
    change_sql(migrated, "CREATE TABLE alembic_version (version_num VARCHAR(32) PRIMARY KEY)")
    change_sql(migrated, "INSERT INTO alembic_version VALUES ('applications')")
    migrate(migrated.url.render_as_string(hide_password=False))
    assert rows(migrated, "SELECT version_num FROM alembic_version") == [{"version_num": "applications"}]
    own = MetaData()
    Table("bookings", own, Column("id", Integer, primary_key=True))
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": include_object})
        assert [(what, table.name) for what, table in compare_metadata(context, own)] == [("add_table", "bookings")]


def test_migrating_again_changes_nothing(migrated: Engine) -> None:
    change_sql(migrated, "UPDATE event_rules SET priority_class = 'TXN' WHERE event_type = 'rate_changed'")
    before = definitions(migrated)
    assert migrate(migrated.url.render_as_string(hide_password=False)) == needed_revision()
    assert definitions(migrated) == before
    found = rows(migrated, "SELECT priority_class FROM event_rules WHERE event_type = 'rate_changed'")
    assert found == [{"priority_class": "TXN"}]


def test_a_migration_that_was_killed_half_way_is_finished_by_the_next(migrated: Engine) -> None:
    wanted = definitions(migrated)
    change_sql(migrated, "DELETE FROM oldhost_sync_revision")
    change_sql(migrated, "DROP TABLE alerts")
    change_sql(migrated, "DROP INDEX ix_outbox_events_key ON outbox_events")
    migrate(migrated.url.render_as_string(hide_password=False))
    assert definitions(migrated) == wanted


def test_a_step_that_waits_for_a_long_transaction_lets_others_write(
    migrated: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """A backup, say: whatever comes after a waiting step stands behind it, for a day if nobody gives up."""
    caplog.set_level("INFO")
    change_sql(migrated, "DELETE FROM oldhost_sync_revision")
    change_sql(migrated, "DROP INDEX ix_nonce_requests_completed ON nonce_requests")
    with ThreadPoolExecutor(1) as thread, migrated.connect() as backup:
        backup.exec_driver_sql("SET SESSION idle_transaction_timeout = 0")
        backup.exec_driver_sql("SELECT * FROM nonce_requests")
        migrating = thread.submit(migrate, migrated.url.render_as_string(hide_password=False))
        while not rows(
            migrated, "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table meta%%'"
        ):
            assert not migrating.done()
        change_sql(migrated, "DELETE FROM nonce_requests WHERE nonce = 1")
        backup.rollback()
        assert migrating.result() == needed_revision()
    assert "a table is in use by other transactions" in caplog.text
    assert "ix_nonce_requests_completed" in "".join(definitions(migrated)["nonce_requests"])


def test_two_migrations_at_once_do_not_collide(empty: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(migrate, empty) for _ in range(3)]
        assert {future.result() for future in futures} == {needed_revision()}


def test_the_default_rules_are_rows_for_every_host(empty: str) -> None:
    migrate(empty, hosts=("oldhost", "second"))
    engine = create_engine(empty)
    found = rows(engine, "SELECT host, COUNT(*) AS rules FROM event_rules GROUP BY host ORDER BY host")
    engine.dispose()
    assert found == [{"host": host, "rules": len(DEFAULT_RULES)} for host in ("oldhost", "second")]


def test_an_absent_database_is_said_clearly() -> None:
    with pytest.raises(DatabaseUnavailable):
        migrate("mysql://root@127.0.0.1:1/sync")


def test_the_roles_need_no_more_than_the_documented_grants(mariadb_server: PrivateMariaDB, empty: str) -> None:
    database = make_url(empty).database
    with mariadb_server.connect() as root, root.cursor() as cursor:
        for user, grants in (("migrator", MIGRATION_RIGHTS), ("app", APP_RIGHTS)):
            cursor.execute(f"CREATE OR REPLACE USER {user}@localhost IDENTIFIED BY 'pw'")
            cursor.execute(f"GRANT {grants} ON {database}.* TO {user}@localhost")
        cursor.execute("FLUSH PRIVILEGES")
    migrate(empty.replace("root@", "migrator:pw@"))
    engine = create_engine(empty.replace("root@", "app:pw@"))
    change_id = recorded(engine, idempotency_key="k").change_id
    assert change_id is not None
    with engine.begin() as connection:
        assert [ref.change_id for ref in claim_batch(connection, HOST, 10)] == [change_id]
        mark_relayed(connection, [change_id])
    with pytest.raises(Exception, match="denied"):
        change_sql(engine, "DROP TABLE units")
    engine.dispose()


def test_a_newer_schema_stays_as_it_is_so_that_a_way_back_does_not_fail_here(migrated: Engine, empty: str) -> None:
    change_sql(migrated, "UPDATE oldhost_sync_revision SET version_num = '9001'")
    before = definitions(migrated)
    assert migrate(empty, ["another"]) == "9001"
    assert definitions(migrated) == before
    assert rows(migrated, "SELECT version_num FROM oldhost_sync_revision") == [{"version_num": "9001"}]
    seeded = rows(migrated, "SELECT COUNT(*) AS rules FROM event_rules WHERE host = 'another'")
    assert seeded == [{"rules": len(DEFAULT_RULES)}]
