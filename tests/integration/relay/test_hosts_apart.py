"""What fails for one host of a relay ends nothing for its others: a foreign transaction has locked one host's rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.relay import host_watch
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import Duty, HostsFailed
from oldhost_sync.relay.fates import FateWriter
from oldhost_sync.relay.host_watch import BOOKS_SECONDS, HostChecks, HostWatch
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.promises import PromiseWatch
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.alerts import raise_alert
from oldhost_sync.store.errors import DatabaseUnavailable
from oldhost_sync.telemetry import HostMetrics
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import change_sql, recorded, register, rows

pytestmark = pytest.mark.mariadb

LOCKED, FREE = "a", "b"
HOSTS = (LOCKED, FREE, "c")


@contextmanager
def locked(engine: Engine, table: str) -> Iterator[None]:
    """Another program holds the rows of LOCKED in `table`."""
    with engine.connect() as connection:
        connection.exec_driver_sql("SET SESSION idle_transaction_timeout = 0")
        assert connection.exec_driver_sql(f"SELECT * FROM {table} WHERE host = '{LOCKED}' FOR UPDATE").all()
        yield


class Stage:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.transactions = engine, Transactions(engine)
        self.leaderships = {host: Leadership(self.transactions, host, "one", 1e6) for host in HOSTS}
        register(engine, *HOSTS)
        for host in HOSTS:
            change_sql(engine, f"INSERT INTO nonce_ledger (host) VALUES ('{host}')")

    def failed(self, duty: Duty, now: float = 0.0) -> list[str]:
        """The hosts for which one round of `duty` failed."""

        async def look() -> None:
            for leadership in self.leaderships.values():
                await leadership.hold(now)
            await duty.run_once(now)

        try:
            asyncio.run(look())
        except HostsFailed as error:
            return list(error.by_host)
        return []


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)


def test_a_late_emergency_is_told_of_while_another_host_s_cursor_is_locked(
    stage: Stage, engine: Engine, mariadb_server: PrivateMariaDB
) -> None:
    conditions = Conditions()
    watch = PromiseWatch(stage.transactions, stage.leaderships, conditions, owner="one")
    assert stage.failed(watch) == []
    for host in HOSTS:
        recorded(engine, host=host, event_type="guest_locked_out")
    change_sql(engine, "UPDATE outbox_events SET created_at = UTC_TIMESTAMP(6) - INTERVAL 31 SECOND")
    with locked(engine, "counted_fates"):
        waits = mariadb_server.row_lock("waits")
        assert stage.failed(watch, 1.0) == [LOCKED]
        assert mariadb_server.row_lock("waits") == waits + 1, "a round waits once for a locked row, not five times"
        assert stage.failed(ConditionKeeper(stage.transactions, conditions), 1.0) == []
        late = rows(engine, "SELECT host FROM alerts WHERE kind = 'emergency-late' ORDER BY host")
        assert [row["host"] for row in late] == [FREE, "c"]


def test_fates_are_written_while_another_host_s_ledger_is_locked(stage: Stage, engine: Engine) -> None:
    for host in HOSTS:
        change_id = recorded(engine, host=host).change_id
        change_sql(
            engine,
            "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome) "
            f"VALUES ('{host}', {change_id}, 'unit', '101', 'APPLIED')",
        )
    with locked(engine, "nonce_ledger"):
        assert stage.failed(FateWriter(stage.transactions, HOSTS)) == [LOCKED]
        written = rows(engine, "SELECT host FROM outbox_events WHERE outcome = 'APPLIED' ORDER BY host")
        assert [row["host"] for row in written] == [FREE, "c"]


def test_a_quiet_alert_is_closed_while_another_host_s_is_locked(stage: Stage, engine: Engine) -> None:
    with engine.begin() as connection:
        for host in HOSTS:
            raise_alert(connection, host, "strays", "info", "m")
    change_sql(engine, "UPDATE alerts SET updated_at = updated_at - INTERVAL 8 DAY")
    with locked(engine, "alerts"):
        assert stage.failed(HostChecks(stage.transactions, stage.leaderships, Conditions())) == [LOCKED]
        is_open = rows(engine, "SELECT host FROM alerts WHERE is_open")
        assert [row["host"] for row in is_open] == [LOCKED]


def test_books_are_checked_while_another_host_s_can_not_be(stage: Stage, engine: Engine) -> None:
    checks = HostChecks(stage.transactions, stage.leaderships, Conditions())
    for host in HOSTS:
        change_sql(engine, f"INSERT INTO counted_fates (host, sequence, applied) VALUES ('{host}', 0, 3)")
    change_sql(engine, "UPDATE counted_fates SET booked_sequence = 0, resolved_epoch = 0")
    with locked(engine, "counted_fates"):
        assert stage.failed(checks) == []
    assert [checks.imbalance(host) for host in HOSTS] == [None, 3, 3]


def test_the_figure_for_the_books_stays_while_they_are_counted_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = HostChecks(stage.transactions, stage.leaderships, Conditions(), monotonic=lambda: 0.0)
    seen: list[int | None] = []

    def counting(_: Connection, host: str) -> int:
        seen.append(checks.imbalance(host))
        return 3

    monkeypatch.setattr(host_watch, "check_books", counting)
    for now in (0.0, BOOKS_SECONDS):
        assert stage.failed(checks, now) == []
    assert seen == [None, None, None, 3, 3, 3]


def test_after_an_unforeseen_error_the_books_have_no_figure(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def unforeseen(*_: object) -> int:
        raise ValueError

    checks = HostChecks(stage.transactions, stage.leaderships, Conditions(), monotonic=lambda: 0.0)
    assert stage.failed(checks) == []
    monkeypatch.setattr(host_watch, "check_books", unforeseen)
    assert stage.failed(checks, BOOKS_SECONDS) == list(HOSTS)
    assert [checks.imbalance(host) for host in HOSTS] == [None, None, None]


def test_an_outage_ends_the_check_of_the_books_at_the_first_host(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def away(_: Connection, host: str) -> int:
        asked.append(host)
        raise DatabaseUnavailable

    monkeypatch.setattr(host_watch, "check_books", away)
    with pytest.raises(DatabaseUnavailable):
        stage.failed(HostChecks(stage.transactions, stage.leaderships, Conditions()))
    assert len(asked) == 1


def test_figures_are_read_without_a_lock(stage: Stage, engine: Engine, mariadb_server: PrivateMariaDB) -> None:
    registry = CollectorRegistry()
    checks = HostChecks(stage.transactions, stage.leaderships, Conditions())
    watch = HostWatch(stage.transactions, stage.leaderships, "one", HostMetrics(registry, float), dict, {}, checks)
    assert stage.failed(watch) == []
    change_sql(engine, "UPDATE nonce_ledger SET halted = 'OldHost went back'")
    with locked(engine, "nonce_ledger"), mariadb_server.nobody_waits():
        assert stage.failed(watch, 10.0) == []
    for host in HOSTS:
        labels = {"host": host, "state": "halted"}
        assert registry.get_sample_value("oldhost_sync_writer_state", labels) == 1, host
