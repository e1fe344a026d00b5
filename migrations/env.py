"""Alembic's entry: on the connection it is handed (`oldhost-sync migrate`), or on SYNC_DATABASE_URL (`alembic …`)."""

from __future__ import annotations

import os

from alembic import context
from sqlalchemy.engine import Connection

from oldhost_sync.store.autogenerate import REVISION_TABLE
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.tables import metadata


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=metadata,
        version_table=REVISION_TABLE,
        compare_type=True,
        compare_server_default=False,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    database_url = os.environ.get("SYNC_DATABASE_URL")
    if not database_url:
        raise SystemExit("set SYNC_DATABASE_URL to the database that Alembic should work on")
    with create_engine(database_url).connect() as opened:
        _run(opened)
