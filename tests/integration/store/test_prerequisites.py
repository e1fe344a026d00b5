"""A schema that is older than the release, and a host that nobody made known, are refused; a newer schema is not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

from oldhost_sync.environment import in_database
from oldhost_sync.settings import load_settings
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.store.engine import check_database, create_engine, needed_revision
from oldhost_sync.store.errors import SchemaTooOld, UnknownHost
from oldhost_sync.store.intake.rules import known_hosts
from oldhost_sync.store.schema_migration import migrate
from tests.architecture.project_files import ROOT
from tests.integration.store.writing import change_sql

pytestmark = pytest.mark.mariadb


@pytest.fixture
def migrated(database: DatabaseUrls) -> Iterator[Engine]:
    engine = create_engine(database.app)
    yield engine
    engine.dispose()


def test_what_is_needed_is_the_newest_migration() -> None:
    assert needed_revision() == ScriptDirectory(str(ROOT / "migrations")).get_current_head()


def test_an_older_schema_is_refused_with_what_to_run(migrated: Engine) -> None:
    change_sql(migrated, "UPDATE oldhost_sync_revision SET version_num = '0000'")
    with pytest.raises(SchemaTooOld, match=r"at revision 0000.*needs \d{4}: run `oldhost-sync migrate`"):
        check_database(migrated, ("oldhost",))


def test_a_host_of_the_second_setting_is_named_by_that_one(migrated: Engine) -> None:
    with pytest.raises(UnknownHost, match="SYNC_OLDHOST_URLS or SYNC_HOSTS_FILE: the database knows no host 'nrth'"):
        check_database(migrated, ("oldhost", "nrth"))


def test_the_next_release_s_schema_is_no_trouble(migrated: Engine) -> None:
    newer = f"{int(needed_revision()) + 1:04}"
    change_sql(migrated, f"UPDATE oldhost_sync_revision SET version_num = '{newer}'")
    check_database(migrated, ("oldhost",))


def test_an_unknown_host_is_refused_with_those_that_are_known(migrated: Engine) -> None:
    with pytest.raises(UnknownHost, match="no host 'nonsense', only oldhost"):
        check_database(migrated, ("oldhost", "nonsense"))


def test_migrate_makes_a_host_known(database: DatabaseUrls, migrated: Engine) -> None:
    migrate(database.migration, ("north",))
    check_database(migrated, ("north",))
    with migrated.connect() as connection:
        assert known_hosts(connection) == ["north", "oldhost"]


def test_a_command_shows_no_empty_books_of_a_mistyped_host(database: DatabaseUrls) -> None:
    settings = load_settings(database_url=database.app, host="oldhots")
    with pytest.raises(UnknownHost):
        in_database(settings, lambda _connection: None)


@pytest.mark.parametrize("role", ["api", "relay", "worker", "status", "alerts"])
def test_no_role_and_no_command_begins_for_a_mistyped_host(role: str, database: DatabaseUrls) -> None:
    given = {"SYNC_DATABASE_URL": database.app, "SYNC_HOST": "oldhots", "SYNC_OLDHOST_URL": "http://127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-m", "oldhost_sync.cli", role],
        env=dict(os.environ) | given | {"SYNC_API_BIND": "127.0.0.1:0", "TEMPORAL_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "the database knows no host 'oldhots', only oldhost." in done.stderr
