"""The figures of a host, as its relay's exporter shows them, from a real database; and the alerts that follow state."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy.engine import Connection, Engine

from bench.far_database import FarDatabase
from oldhost_sync.policy.forecast.rates import FateRates
from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.policy.rules.host_state import HOST_STATES
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.relay import host_watch
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.host_watch import (
    BOOKS_SECONDS,
    OVERDUE_SECONDS_MAX,
    PAUSE_FOR_EACH_SECOND,
    POLL_SECONDS,
    HostChecks,
    HostWatch,
)
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.stack.mariadb import DatabaseUrls
from oldhost_sync.store import alerts
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.engine import create_engine
from oldhost_sync.store.workers import WorkerPresence
from oldhost_sync.telemetry import HostMetrics
from tests.conformance.mappings import SHORT, install
from tests.conformance.private_mariadb import PrivateMariaDB
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb


class Stage:
    """Checks and a watch that are active for the host. `troubles`: of its writer; `registry`: what is shown."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        change_sql(engine, f"INSERT INTO nonce_ledger (host, epoch) VALUES ('{HOST}', 7)")
        transactions = Transactions(engine)
        self.now = 0.0
        self.troubles: dict[str, str] = {}
        self.fate_rates = {HOST: FateRates(0.0)}
        self.leadership = Leadership(transactions, HOST, "one", 1e6)
        self.registry = CollectorRegistry()
        leaderships = {HOST: self.leadership}
        self.conditions = Conditions()
        self.checks = HostChecks(transactions, leaderships, self.conditions)
        self.keeper = ConditionKeeper(transactions, self.conditions)
        metrics = HostMetrics(self.registry, lambda: self.now)
        self.watch = HostWatch(
            transactions, leaderships, "one", metrics, lambda: self.troubles, self.fate_rates, self.checks
        )

    def poll(self) -> float:
        """The checks know what the look before found."""

        async def look() -> float:
            await self.leadership.hold(self.now)
            await self.checks.run_once(self.now)
            await self.keeper.run_once(self.now)
            return await self.watch.run_once(self.now)

        self.now += POLL_SECONDS
        return asyncio.run(look())

    def looks_at_distances(self) -> None:
        self.now += host_watch.DISTANCE_SECONDS
        self.poll()

    def open_alerts(self, kind: str) -> list[dict[str, Any]]:
        return rows(self.engine, f"SELECT severity, message FROM alerts WHERE kind = '{kind}' AND is_open = 1")

    def figure(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"oldhost_sync_{name}", {"host": HOST} | labels)

    def states(self) -> list[str]:
        return [state for state in HOST_STATES if self.figure("writer_state", state=state)]


@pytest.fixture
def stage(engine: Engine) -> Stage:
    return Stage(engine)


def ledger(engine: Engine, **values: str) -> None:
    change_sql(engine, "UPDATE nonce_ledger SET " + ", ".join(f"{name} = {value}" for name, value in values.items()))


def act(engine: Engine, action: str) -> None:
    with engine.begin() as connection:
        record_act(connection, host=HOST, action=action, operator=at_the_terminal("anna"), reason="because")


def ended(engine: Engine, change_id: int | None, outcome: str, error: str = "") -> None:
    values = f"outcome = '{outcome}', processed_at = UTC_TIMESTAMP(6), error = '{error}'"
    change_sql(engine, f"UPDATE outbox_events SET {values} WHERE id = {change_id}")


def test_one_state_is_shown_whatever_happens(stage: Stage, engine: Engine) -> None:
    stage.poll()
    assert stage.states() == ["waiting"]
    ledger(engine, fate_sequence="5")
    stage.poll()
    assert stage.states() == ["sending"]
    stage.troubles[f"writer {HOST}"] = "NO_WORKER"
    stage.poll()
    assert stage.states() == ["no-writer"]
    ledger(engine, banned_until="UTC_TIMESTAMP(6) + INTERVAL 600 SECOND")
    stage.poll()
    assert stage.states() == ["banned"]
    assert 500 < (stage.figure("ban_seconds_left") or 0) <= 600
    act(engine, "pause")
    stage.poll()
    assert stage.states() == ["paused"]
    ledger(engine, halted="'OldHost went back'")
    stage.poll()
    assert stage.states() == ["halted"]
    act(engine, "resume")
    ledger(engine, halted="NULL", banned_until="UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
    stage.troubles.clear()
    stage.poll()
    assert (stage.states(), stage.figure("ban_seconds_left"), stage.figure("pause_seconds")) == (["waiting"], 0, 0)


def test_a_pause_is_shown_with_its_age(stage: Stage, engine: Engine) -> None:
    act(engine, "pause")
    change_sql(engine, "UPDATE operator_audit SET created_at = created_at - INTERVAL 90 SECOND")
    stage.poll()
    assert (stage.figure("pause_seconds") or 0) >= 90


def test_what_waits_is_shown_by_class_with_the_age_of_the_oldest(stage: Stage, engine: Engine) -> None:
    old = recorded(engine, entity_id="a", event_type="checked_in").change_id
    recorded(engine, entity_id="b", event_type="checked_in")
    recorded(engine, entity_id="c", event_type="guest_locked_out")
    change_sql(engine, f"UPDATE outbox_events SET created_at = created_at - INTERVAL 120 SECOND WHERE id = {old}")
    stage.poll()
    found = {cls: stage.figure("waiting_changes", priority_class=cls) for cls in ("EMERGENCY", "TXN", "LWW")}
    assert found == {"EMERGENCY": 1, "TXN": 2, "LWW": 0}
    assert (stage.figure("oldest_waiting_seconds", priority_class="TXN") or 0) >= 120
    assert (stage.figure("oldest_waiting_seconds", priority_class="EMERGENCY") or 0) < 120
    assert stage.figure("oldest_waiting_seconds", priority_class="LWW") == 0


def test_dead_letters_what_they_hold_and_their_alert_follow_the_outbox(stage: Stage, engine: Engine) -> None:
    dead = recorded(engine, entity_id="a", event_type="checked_in").change_id
    recorded(engine, entity_id="a", event_type="checked_out")
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    ended(engine, dead, "DEAD", "no such door")
    stage.poll()
    assert (stage.figure("dead_letters"), stage.figure("held_changes")) == (1, 1)
    assert stage.figure("open_alerts", severity="warning") == 0
    stage.poll()
    assert stage.figure("open_alerts", severity="warning") == 1
    ended(engine, dead, "DISCARDED")
    stage.poll()
    assert (stage.figure("dead_letters"), stage.figure("held_changes")) == (0, 0)
    stage.poll()
    assert [row["is_open"] for row in rows(engine, "SELECT is_open FROM alerts")] == [None]


def test_the_pace_gives_the_time_to_drain_without_what_is_held(stage: Stage, engine: Engine) -> None:
    for number in range(4):
        recorded(engine, entity_id=str(number), event_type="checked_in")
    stage.poll()
    assert stage.figure("drain_seconds") == float("inf")
    stage.fate_rates[HOST].saw(stage.now, 20, 10)
    stage.poll()
    assert stage.figure("drain_seconds") == pytest.approx(4 / 20 * 20)
    assert stage.figure("compression_ratio") == 2


def test_books_that_do_not_balance_are_shown_at_the_next_look_at_them(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_id = recorded(engine).change_id
    stage.poll()
    assert (stage.figure("books_imbalance"), stage.figure("sessions_opened")) == (0, 7)
    for nonce in (1, 2):  # an invariant is broken: one change is on its way twice
        change_sql(
            engine,
            "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status) "
            f"VALUES ('{HOST}', {nonce}, 'k{nonce}', {change_id}, 1, '', 'SENT')",
        )
    stage.now += 100 * BOOKS_SECONDS
    stage.poll()
    assert stage.figure("books_imbalance") == 1


def test_kept_books_that_are_wrong_are_shown_and_set_right(stage: Stage, engine: Engine) -> None:
    change_sql(engine, f"INSERT INTO counted_fates (host, sequence) VALUES ('{HOST}', 0)")
    stage.poll()
    assert stage.figure("books_imbalance") == 0
    change_sql(engine, "UPDATE counted_fates SET applied = applied + 3")
    found = []
    for _ in range(2):
        stage.now += 100 * BOOKS_SECONDS
        stage.poll()
        found.append(stage.figure("books_imbalance"))
    assert found == [3, 0]


def test_a_relay_that_is_not_active_any_more_shows_nothing_of_the_host(stage: Stage) -> None:
    stage.poll()
    assert stage.states()
    stage.leadership._leased_until = float("-inf")
    stage.leadership._tried_at = float("inf")
    stage.poll()
    assert stage.figure("dead_letters") is None


def test_figures_that_are_overdue_are_shown_no_more(stage: Stage) -> None:
    due = stage.poll()
    stage.now += due + OVERDUE_SECONDS_MAX
    assert stage.states()
    stage.now += 0.1
    assert (stage.states(), stage.figure("dead_letters")) == ([], None)


def test_books_that_can_not_be_checked_are_told_of_shown_no_more_and_left_until_they_are_due_again(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    counted: list[str] = []

    def too_slow(connection: Connection, host: str) -> int:
        counted.append(host)
        many = "seq_1_to_1000000000 WHERE seq MOD 7 = 3"
        count = f"SET STATEMENT max_statement_time = 0.1 FOR SELECT COUNT(*) FROM {many}"
        return int(connection.exec_driver_sql(count).scalar_one())

    stage.poll()
    assert stage.figure("books_imbalance") == 0
    monkeypatch.setattr(host_watch, "check_books", too_slow)
    stage.now += 100 * BOOKS_SECONDS
    for _ in range(3):
        stage.poll()
    assert (counted, stage.figure("books_imbalance"), stage.states()) == ([HOST], None, ["waiting"])
    assert [record.getMessage() for record in caplog.records] == [
        f"the books of {HOST} could not be checked: statement took too long (MariaDB 1969)"
    ]
    stage.now += 100 * BOOKS_SECONDS
    stage.poll()
    assert counted == [HOST, HOST]


def test_an_informational_alert_that_hears_no_more_of_its_cause_closes_itself(stage: Stage, engine: Engine) -> None:
    with engine.begin() as connection:
        for kind in ("strays", "submission-refused", "ban"):
            alerts.raise_alert(connection, HOST, kind, "info", "m")
    change_sql(
        engine,
        "UPDATE alerts SET created_at = created_at - INTERVAL 8 DAY, "
        "updated_at = IF(kind = 'submission-refused', updated_at, updated_at - INTERVAL 8 DAY)",
    )
    stage.poll()
    with engine.connect() as connection:
        left = [alert.kind for alert in alerts.list_alerts(connection, HOST)]
        (closed,) = alerts.list_alerts(connection, HOST, state="closed")
    assert left == ["ban", "submission-refused"]
    assert (closed.kind, closed.closed_by, closed.close_reason) == ("strays", None, "it did not recur for 7 days")


def test_polls_take_a_small_share_of_the_time_however_long_each_takes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stage.poll() >= POLL_SECONDS
    clock: list[Any] = [0.0]

    def slow() -> float:
        clock[0] += 1.0
        return float(clock[0])

    monkeypatch.setattr(stage.watch, "monotonic", slow)
    assert stage.poll() >= PAUSE_FOR_EACH_SECOND


def test_people_are_told_of_states_that_another_mapping_made_until_there_are_none(stage: Stage) -> None:
    install(stage.engine, SHORT)
    change_sql(
        stage.engine,
        "INSERT INTO applied_states (host, entity_type, entity_id, event_type, change_id, payload_hash, nonce, mapping)"
        f" VALUES ('{HOST}', 'unit', '1', 'unit_status_changed', 1, '', 1, 'oldhost/1')",
    )
    stage.poll()
    why = "Another mapping than short/1 made 1 state that OldHost has."
    assert stage.open_alerts("mapping-changed") == [{"severity": "info", "message": why}]
    change_sql(stage.engine, "UPDATE applied_states SET mapping = 'short/1'")
    stage.now += host_watch.MAPPING_SECONDS
    stage.poll()
    assert stage.open_alerts("mapping-changed") == []


@pytest.mark.parametrize(("each_way_ms", "severity"), [(25, "warning"), (200, "critical")])
def test_a_worker_that_is_far_from_mariadb_is_told_of_until_it_is_near(
    database: DatabaseUrls, mariadb_server: PrivateMariaDB, each_way_ms: float, severity: str
) -> None:
    near = create_engine(database.app)
    stage = Stage(near)
    WorkerPresence(near, [HOST], "near").report()
    with FarDatabase(mariadb_server.port, each_way_ms) as way:
        far = create_engine(way.url(database.app))
        WorkerPresence(far, [HOST], "far-one").report()
        far.dispose()
    for _ in range(2):
        assert not stage.open_alerts("database-far")  # one look proves nothing
        stage.looks_at_distances()
    (alert,) = stage.open_alerts("database-far")
    assert alert["severity"] == severity
    distance = re.match(r"Worker far-one is (\d+) ms from MariaDB", alert["message"])
    assert distance
    assert int(distance[1]) >= 2 * each_way_ms
    WorkerPresence(near, [HOST], "far-one").report()
    stage.looks_at_distances()
    assert not stage.open_alerts("database-far")
    near.dispose()
