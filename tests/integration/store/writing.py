"""Short ways to record and to look, shared by the store's and the relay's tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change
from oldhost_sync.store.intake.rules import seed_rules, set_rule
from oldhost_sync.store.retention import Horizon, RetentionDays, horizon_of
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.testing.recorder import Recorder

HOST = "oldhost"
# For a test of what only a server has: locks, zones, sizes (conftest.py).
ON_MARIADB = pytest.mark.parametrize("engine", ["mariadb"], indirect=True)
WAIT_SECONDS_MAX = 20.0


# Of the engines that are no MariaDB's.
RECORDERS: WeakKeyDictionary[Engine, Recorder] = WeakKeyDictionary()


def register(engine: Engine, *hosts: str) -> None:
    """As `oldhost-sync migrate` does it for each host it is given."""
    for host in hosts:
        if engine in RECORDERS:
            RECORDERS[engine].add_host(host)
        else:
            run_in_transaction(engine, partial(seed_rules, host=host))


def give_rule(engine: Engine, event_type: str, priority_class: PriorityClass) -> None:
    if engine in RECORDERS:
        RECORDERS[engine].set_rule(event_type, priority_class)
    else:
        run_in_transaction(engine, lambda connection: set_rule(connection, HOST, event_type, priority_class))


# What `record` records with. The fixture `door` puts the stored procedure in its place.
Door = Callable[..., RecordedChange]
the_door: Door = record_change


def record(connection: Connection, **changes: Any) -> RecordedChange:
    """One LWW change of unit 101, but for what `changes` says."""
    values: dict[str, Any] = {
        "host": HOST,
        "entity_type": "unit",
        "entity_id": "101",
        "event_type": "unit_status_changed",
        "payload": {"status": "Clean"},
    }
    return the_door(connection, **(values | changes))


def recorded(engine: Engine, **changes: Any) -> RecordedChange:
    return run_in_transaction(engine, lambda connection: record(connection, **changes))


def write(engine: Engine, unit: str, event_type: str = "unit_status_changed", **changes: Any) -> int:
    """Record a change of this unit; gives its id."""
    change_id = recorded(engine, entity_id=unit, event_type=event_type, payload={}, **changes).change_id
    assert change_id is not None
    return change_id


def rows(engine: Engine, sql: str, **values: Any) -> list[dict[str, Any]]:
    with engine.connect() as connection:
        return [dict(row._mapping) for row in connection.exec_driver_sql(sql, values)]


def stale_units(engine: Engine) -> list[dict[str, Any]]:
    """Units whose row does not show their newest change."""
    return rows(
        engine,
        "SELECT u.id FROM units u JOIN (SELECT entity_id, MAX(id) AS newest FROM outbox_events GROUP BY entity_id) o "
        "ON o.entity_id = u.id JOIN outbox_events e ON e.id = o.newest "
        "WHERE u.newest_change_id <> o.newest OR u.status <> JSON_VALUE(e.payload, '$.status')",
    )


@contextmanager
def refused_by_the_database(engine: Engine, entity_id: str) -> Iterator[None]:
    """Recording a change of this entity is an error that no list of ours has (MariaDB 1644)."""
    change_sql(
        engine,
        "CREATE TRIGGER refuse BEFORE INSERT ON outbox_events FOR EACH ROW "
        f"IF NEW.entity_id = '{entity_id}' THEN SIGNAL SQLSTATE '45000'; END IF",
    )
    try:
        yield
    finally:
        change_sql(engine, "DROP TRIGGER refuse")


def change_sql(engine: Engine, sql: str) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(sql)


def wait_until(true: Callable[[], bool], what: str) -> None:
    """Look again and again, with a deadline. InnoDB renews its view of transactions only when left alone for 0.1 s."""
    until = time.monotonic() + WAIT_SECONDS_MAX
    while not true():
        assert time.monotonic() < until, f"waited too long for {what}"
        threading.Event().wait(0.15)


def before(connection: Connection) -> Horizon:
    """What retention may prune now where no settlement files are written."""
    return horizon_of(connection, HOST, RetentionDays())


# Who waits for another one's lock. InnoDB's view may be 0.1 s old; who is not in a statement any more does not wait.
LOCK_WAITS = (
    "SELECT t.trx_mysql_thread_id FROM information_schema.innodb_trx t "
    "JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id AND p.command = 'Query' "
    "WHERE t.trx_state = 'LOCK WAIT'"
)


def waiting_for_a_lock(engine: Engine) -> bool:
    """Whether some transaction waits for another one's lock now."""
    return bool(rows(engine, LOCK_WAITS))
