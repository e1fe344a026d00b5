"""Bring the schema up to date: `oldhost-sync migrate`, safe to run twice and from two machines at once.

MariaDB has no transactional DDL, so a step that was killed half-way must be able to run again, and two migrations must
not run at the same time: a named lock of the server makes the second one wait, and then it finds nothing to do.

Use two accounts (docs/operations.md has the GRANTs): only the migration changes tables.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

import oldhost_sync
from oldhost_sync.drivers.mapping import HostMapping
from oldhost_sync.store.autogenerate import REVISION_TABLE
from oldhost_sync.store.engine import check_server, create_engine, needed_revision
from oldhost_sync.store.errors import LOCK_WAIT_TIMEOUT, TransactionContended, error_code, translate
from oldhost_sync.store.intake.procedure import install_procedures
from oldhost_sync.store.intake.rules import seed_rules
from oldhost_sync.store.mappings import install_mappings
from oldhost_sync.store.transactions import lock_wait

logger = logging.getLogger(__name__)

# How long one step may take (a new index on a large table takes long), and the wait for another migration or a table.
STATEMENT_SECONDS = 3600
LOCK_WAIT_SECONDS = 600
# How long a step waits for a table that other transactions use, as later ones queue up behind it; and the pause before
# the next attempt.
TABLE_WAIT_SECONDS = 1
PAUSE_SECONDS = 2.0
DEFAULT_HOST = "oldhost"


def migrate(
    database_url: str, hosts: Sequence[str] = (DEFAULT_HOST,), mappings: Mapping[str, HostMapping] | None = None
) -> str:
    """Upgrade the schema to the newest revision, write the default event rules of `hosts`, and install `mappings`, by
    host; returns the revision.

    A schema that is newer than this release's is not changed: this release works with it, and going back to this
    release must not fail here.

    Raises UnsuitableServer, DatabaseUnavailable, MappingVersionTaken, or TransactionContended when another migration
    holds the lock.
    """
    engine = create_engine(database_url, pool_size=1, statement_seconds=STATEMENT_SECONDS)
    try:
        check_server(engine)
        with engine.connect() as connection:
            return _migrate_locked(connection, hosts, mappings or {})
    except DBAPIError as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error
    finally:
        engine.dispose()


def _migrate_locked(connection: Connection, hosts: Sequence[str], mappings: Mapping[str, HostMapping]) -> str:
    name = "oldhost-sync:migrate:" + str(connection.execute(text("SELECT LEFT(SHA1(DATABASE()), 16)")).scalar_one())
    is_locked = connection.execute(
        text("SELECT GET_LOCK(:name, :wait)"), {"name": name, "wait": LOCK_WAIT_SECONDS}
    ).scalar()
    if is_locked != 1:
        raise TransactionContended(
            "another `migrate` has been running for too long; SHOW PROCESSLIST shows what it waits for"
        )
    try:
        connection.commit()
        config = _config()
        config.attributes["connection"] = connection
        revision = (
            MigrationContext.configure(connection, opts={"version_table": REVISION_TABLE}).get_current_revision() or ""
        )
        connection.commit()
        if revision > needed_revision():
            logger.warning("the schema is newer than this release's %s: it stays as it is", needed_revision())
        else:
            connection.execute(text("SET SESSION lock_wait_timeout = :seconds"), {"seconds": TABLE_WAIT_SECONDS})
            connection.commit()
            _retried(connection, lambda: command.upgrade(config, "head"))
            install_procedures(connection)
        for host in hosts:
            seed_rules(connection, host)
        connection.commit()
        _retried(connection, lambda: install_mappings(connection, mappings))
        return max(revision, needed_revision())
    finally:
        connection.rollback()
        connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})


def _retried(connection: Connection, step: Callable[[], object]) -> None:
    """A step that waits for other transactions blocks all that come after it, so it waits at most a second, and is
    tried again after a pause in which they can run.
    """
    until = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            with lock_wait(connection, TABLE_WAIT_SECONDS):
                step()
            connection.commit()
        except DBAPIError as error:
            if error_code(error) != LOCK_WAIT_TIMEOUT:
                raise
            connection.rollback()
            if time.monotonic() > until:
                raise TransactionContended(
                    "other transactions have used a table for too long, such as a backup or a forgotten transaction; "
                    "look at SHOW PROCESSLIST, and run `migrate` again"
                ) from error
            logger.info("a table is in use by other transactions; trying again in %s s", PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)
        else:
            return


def _config() -> Config:
    """Alembic's configuration without a file: the scripts are next to the package."""
    config = Config()
    scripts = Path(oldhost_sync.__file__).parent.parent / "migrations"
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    return config
