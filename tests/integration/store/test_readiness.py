"""A role is not ready while the table that it needs most takes no writes, and ready while another one takes none."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy.engine import Engine

from oldhost_sync.store.engine import check_writes
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.store.transactions import run_in_transaction

pytestmark = pytest.mark.mariadb
NEEDED = {"api": "outbox_events", "relay": "relay_lease", "worker": "nonce_ledger"}


def writes(engine: Engine, role: str) -> bool:
    try:
        run_in_transaction(engine, partial(check_writes, role=role))
    except DatabaseUnavailable:
        return False
    return True


@pytest.mark.parametrize("role", NEEDED)
def test_only_the_role_whose_table_is_locked_is_not_ready(engine: Engine, role: str) -> None:
    with engine.connect() as holder:
        holder.exec_driver_sql(f"LOCK TABLES {NEEDED[role]} READ")
        ready = [each for each in NEEDED if writes(engine, each)]
        holder.exec_driver_sql("UNLOCK TABLES")
    assert ready == [each for each in NEEDED if each != role]
    assert writes(engine, role)
