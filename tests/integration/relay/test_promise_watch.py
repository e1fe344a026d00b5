"""The promise to emergencies, watched from the database: warned at half, a breach at all of it, once an incident."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from sqlalchemy.engine import Engine

from oldhost_sync.policy.rules.conditions import Conditions
from oldhost_sync.policy.tuning import Promises
from oldhost_sync.relay.conditions import ConditionKeeper
from oldhost_sync.relay.duty import HostsFailed
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.promises import ClockDifference, PromiseWatch
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.errors import TransactionContended
from oldhost_sync.store.read import late_emergencies
from oldhost_sync.telemetry import AppliedWaits, FateMetrics
from tests.integration.store.writing import HOST, change_sql, recorded, rows

pytestmark = pytest.mark.mariadb


class Stage:
    """A watch that is active for the host, with a clock of its own that moves with the database's."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        transactions = Transactions(engine)
        self.leadership = Leadership(transactions, HOST, "one", 1e6)
        self.registry = CollectorRegistry()
        waits, fates = AppliedWaits(self.registry), FateMetrics(self.registry)
        conditions = Conditions()
        self.keeper = ConditionKeeper(transactions, conditions)
        leaderships = {HOST: self.leadership}
        self.watch = PromiseWatch(transactions, leaderships, conditions, owner="one", waits=waits, metrics=fates)

    def looks(self, *times: float) -> None:
        async def look() -> None:
            for now in times:
                await self.leadership.hold(now)
                await self.watch.run_once(now)
                await self.keeper.run_once(now)

        asyncio.run(look())


def emergency(engine: Engine, age_s: float, unit: str = "u") -> int:
    change_id = recorded(engine, entity_id=unit, event_type="guest_locked_out").change_id
    assert change_id is not None
    age(engine, change_id, age_s)
    return change_id


def age(engine: Engine, change_id: int, age_s: float) -> None:
    us = round(age_s * 1e6)
    change_sql(
        engine,
        f"UPDATE outbox_events SET created_at = UTC_TIMESTAMP(6) - INTERVAL {us} MICROSECOND WHERE id = {change_id}",
    )


def end(engine: Engine, *change_ids: int, outcome: str = "APPLIED") -> None:
    """As the ledger does it: the fates of one transaction share a number."""
    change_sql(engine, f"UPDATE nonce_ledger SET fate_sequence = fate_sequence + 1 WHERE host = '{HOST}'")
    listed = ", ".join(map(str, change_ids))
    change_sql(
        engine,
        f"UPDATE outbox_events SET processed_at = UTC_TIMESTAMP(6), outcome = '{outcome}', "
        f"fate_sequence = (SELECT fate_sequence FROM nonce_ledger WHERE host = '{HOST}') WHERE id IN ({listed})",
    )


def alerts(engine: Engine) -> list[dict[str, Any]]:
    return rows(engine, "SELECT severity, message, is_open, delivered_at FROM alerts ORDER BY id")


def incidents(engine: Engine) -> list[dict[str, Any]]:
    return rows(engine, "SELECT * FROM late_emergencies ORDER BY id")


@pytest.fixture
def stage(engine: Engine) -> Stage:
    change_sql(engine, f"INSERT INTO nonce_ledger (host) VALUES ('{HOST}')")
    return Stage(engine)


def test_emergencies_in_time_make_no_incident(stage: Stage, engine: Engine) -> None:
    emergency(engine, 14)
    stage.looks(0, 1)
    assert (alerts(engine), incidents(engine)) == ([], [])


def test_each_host_is_watched_by_its_own_promise(stage: Stage, engine: Engine) -> None:
    stage.watch.promises = lambda host: Promises(consistency_ms=60_000, emergency_ms=6_000 if host == HOST else 1)
    emergency(engine, 4)
    stage.looks(0, 1)
    (alert,) = alerts(engine)
    assert (alert["severity"], "waited longer than 3 s" in alert["message"]) == ("warning", True)
    change_id = emergency(engine, 61, "v")
    end(engine, change_id)
    stage.looks(2, 13)
    (alert,) = alerts(engine)
    assert "waited longer than the promised 6 s" in alert["message"]
    count = {
        promise: stage.registry.get_sample_value(
            "oldhost_sync_promise_breaches_total", {"host": HOST, "promise": promise}
        )
        for promise in ("emergency", "consistency")
    }
    assert count == {"emergency": 1, "consistency": 1}


def test_late_emergencies_are_one_alert_that_gets_critical_and_closes_after_a_calm_while(
    stage: Stage, engine: Engine
) -> None:
    ids = [emergency(engine, 16, f"u{number}") for number in range(3)]
    stage.looks(0, 1)
    (alert,) = alerts(engine)
    assert (alert["severity"], alert["is_open"]) == ("warning", 1)
    change_sql(engine, "UPDATE alerts SET delivered_at = UTC_TIMESTAMP(6)")
    for change_id in ids:
        age(engine, change_id, 31)
    stage.looks(2, 3)
    (alert,) = alerts(engine)
    assert (alert["severity"], alert["delivered_at"]) == ("critical", None)
    assert "3 emergencies waited longer than the promised 30 s" in alert["message"]
    end(engine, *ids)
    stage.looks(4, 20)
    assert alerts(engine)[0]["is_open"] == 1
    stage.looks(40)
    assert alerts(engine)[0]["is_open"] is None
    (incident,) = incidents(engine)
    assert (incident["warned_ended"], incident["breached_ended"], incident["breached_waiting"]) == (3, 3, 0)
    assert incident["worst_ms"] >= 31_000
    assert incident["ended_at"] is not None


def test_a_breach_between_two_looks_is_found_in_the_fates(stage: Stage, engine: Engine) -> None:
    stage.looks(0)
    end(engine, emergency(engine, 45))
    stage.looks(20)
    (incident,) = incidents(engine)
    assert (incident["breached_ended"], incident["breached_waiting"]) == (1, 0)


def test_a_restart_counts_nothing_twice_and_loses_nothing(stage: Stage, engine: Engine) -> None:
    stage.looks(0)
    end(engine, emergency(engine, 45, "a"))
    stage.looks(20)
    end(engine, emergency(engine, 50, "b"))
    again = Stage(engine)
    again.looks(0, 20, 40)
    Stage(engine).looks(0)
    with engine.connect() as connection:
        found = late_emergencies.breaches(connection, HOST)
    assert (found.incidents, found.breaches) == (1, 2)
    page = generate_latest(again.registry).decode()
    bucket = 'oldhost_sync_accepted_to_applied_seconds_bucket{host="oldhost",le="%s",priority_class="EMERGENCY"} %s'
    assert bucket % ("30.0", "0.0") in page
    assert bucket % ("60.0", "2.0") in page
    assert bucket % ("+Inf", "2.0") in page


def test_a_look_whose_transaction_failed_shows_and_keeps_nothing_of_it(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TransactionContended("deadlock")

    stage.looks(0)
    end(engine, emergency(engine, 45))
    counted = 'oldhost_sync_accepted_to_applied_seconds_count{host="oldhost",priority_class="EMERGENCY"} 1.0'
    with monkeypatch.context() as patch:
        patch.setattr(late_emergencies, "open_incident", fail)
        with pytest.raises(HostsFailed):
            stage.looks(20)
    assert counted not in generate_latest(stage.registry).decode()
    stage.looks(40)
    assert counted in generate_latest(stage.registry).decode()


def test_what_ended_before_the_first_look_is_history(stage: Stage, engine: Engine) -> None:
    end(engine, emergency(engine, 45))
    stage.looks(0, 20)
    assert incidents(engine) == []


def test_more_fates_than_fit_into_a_look_are_read_by_the_next_ones(
    stage: Stage, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_emergencies, "SEQUENCES_MAX", 2)
    stage.looks(0)
    for number in range(5):
        end(engine, emergency(engine, 45, f"u{number}"))
    stage.looks(20, 21, 22)
    assert incidents(engine)[0]["breached_ended"] == 5


@pytest.mark.parametrize(
    ("hindrance", "cause"),
    [
        ("UPDATE nonce_ledger SET halted = 'a foreign write'", "a halt: a foreign write"),
        ("UPDATE nonce_ledger SET banned_until = UTC_TIMESTAMP(6) + INTERVAL 5 MINUTE", "a ban by OldHost"),
        ("UPDATE nonce_ledger SET banned_until = UTC_TIMESTAMP(6) - INTERVAL 10 SECOND", "a ban by OldHost"),
        ("UPDATE nonce_ledger SET banned_until = UTC_TIMESTAMP(6) - INTERVAL 20 SECOND", "no fault found"),
        (
            (
                "INSERT INTO operator_audit (channel, host, action, operator, reason) "
                "VALUES ('api', 'oldhost', 'pause', 'anna', 'x')"
            ),
            "a pause by anna: x",
        ),
        (
            (
                "INSERT INTO operator_audit (channel, host, action, operator, reason, created_at) VALUES "
                "('api', 'oldhost', 'pause', 'anna', 'x', UTC_TIMESTAMP(6) - INTERVAL 60 SECOND), "
                "('api', 'oldhost', 'resume', 'bob', 'y', UTC_TIMESTAMP(6) - INTERVAL 2 SECOND)"
            ),
            "a pause by anna: x",
        ),
        (
            (
                "INSERT INTO operator_audit (channel, host, action, operator, reason, created_at) VALUES "
                "('api', 'oldhost', 'pause', 'anna', 'x', UTC_TIMESTAMP(6) - INTERVAL 60 SECOND), "
                "('api', 'oldhost', 'resume', 'bob', 'y', UTC_TIMESTAMP(6) - INTERVAL 30 SECOND)"
            ),
            "no fault found",
        ),
        (
            (
                "INSERT INTO alerts (host, kind, severity, message, dedupe_key) "
                "VALUES ('oldhost', 'no-worker', 'critical', 'm', 'no-worker')"
            ),
            "see the alert no-worker",
        ),
        (
            (
                "INSERT INTO alerts (host, kind, severity, message, dedupe_key) VALUES "
                "('oldhost', 'over-quota', 'critical', 'm', 'q'), ('oldhost', 'signals-lost', 'critical', 'm', 's')"
            ),
            "no fault found",
        ),
        (
            (
                "INSERT INTO alerts (host, kind, severity, message, dedupe_key, is_open, closed_at) VALUES "
                "('oldhost', 'no-worker', 'critical', 'm', 'no-worker', NULL, UTC_TIMESTAMP(6) - INTERVAL 3 SECOND), "
                "('oldhost', 'no-session', 'critical', 'm', 'session', NULL, UTC_TIMESTAMP(6) - INTERVAL 60 SECOND), "
                "('oldhost', 'emergency-blocked', 'critical', 'm', 'e', 1, NULL)"
            ),
            "see the alert no-worker (closed by now)",
        ),
        (
            (
                "INSERT INTO host_sessions (host, epoch, owner, opened_at, opened_at_nonce, ended_at, ended_because) "
                "VALUES ('oldhost', 7, 'w', UTC_TIMESTAMP(6) - INTERVAL 1 HOUR, 1, UTC_TIMESTAMP(6), 'silent')"
            ),
            "the session with OldHost ended (silent), and another was needed",
        ),
        (
            (
                "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sent_at) "
                "VALUES ('oldhost', 1, 'k', 1, 1, '', 'SENT', UTC_TIMESTAMP(6) - INTERVAL 9 SECOND)"
            ),
            "it took up to 9 s until an answer was recorded; OldHost or MariaDB was slow",
        ),
        ("UPDATE outbox_events SET relayed_at = NULL", "1 of 1 could not be handed to the writer yet"),
        ("UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)", "no fault found"),
    ],
)
def test_the_cause_is_told(stage: Stage, engine: Engine, hindrance: str, cause: str) -> None:
    emergency(engine, 16)
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    change_sql(engine, hindrance)
    stage.looks(0)
    assert incidents(engine)[0]["cause"].startswith(cause)


def answered(engine: Engine, change_id: int) -> None:
    change_sql(
        engine,
        "INSERT INTO nonce_requests (host, nonce, idempotency_key, change_id, epoch, body, status, sent_at, "
        f"completed_at) SELECT 'oldhost', COUNT(*) + 1, 'k{change_id}', {change_id}, 1, '', 'APPLIED', "
        "UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) FROM nonce_requests",
    )


@pytest.mark.parametrize(
    ("other_sent", "told"), [(False, "no fault found; nothing else was sent"), (True, "no fault found; others were")]
)
def test_others_were_sent_first_only_if_one_was(stage: Stage, engine: Engine, told: str, *, other_sent: bool) -> None:
    stage.looks(0)
    late, other = emergency(engine, 16), emergency(engine, 1, "v")
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    for change_id in (late, other) if other_sent else (late,):
        answered(engine, change_id)
        end(engine, change_id)
    stage.looks(11)
    assert incidents(engine)[0]["cause"].startswith(told)


def test_how_far_the_database_s_clock_is_ahead_is_shown(stage: Stage) -> None:
    difference = Gauge("difference", "", registry=stage.registry)
    stage.watch.clocks = ClockDifference(difference, wall=lambda: time.time() - 7200)
    stage.looks(0)
    shown = stage.registry.get_sample_value("difference")
    assert shown is not None
    assert 7190 < shown < 7210


def test_a_cause_that_is_over_is_told_until_the_incident_ends(stage: Stage, engine: Engine) -> None:
    late = emergency(engine, 16)
    stage.looks(0)
    change_sql(engine, "UPDATE outbox_events SET relayed_at = UTC_TIMESTAMP(6)")
    stage.looks(1)
    end(engine, late)
    stage.looks(5)
    assert incidents(engine)[0]["cause"] == "1 of 1 could not be handed to the writer yet"


def test_a_fate_that_only_waits_to_be_written_is_not_late(stage: Stage, engine: Engine) -> None:
    change_id = emergency(engine, 40)
    change_sql(
        engine,
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome) "
        f"VALUES ('oldhost', {change_id}, 'unit', 'u', 'APPLIED')",
    )
    stage.looks(0)
    assert incidents(engine) == []


def set_clock(stage: Stage, seconds: float) -> None:
    """Set the server's clock: what was stored before moves, and the watch is told what the clock showed."""
    assert stage.watch._clock.shown_s is not None
    stage.watch._clock.shown_s -= seconds
    us = round(seconds * 1e6)
    change_sql(stage.engine, f"UPDATE outbox_events SET created_at = created_at - INTERVAL {us} MICROSECOND")


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_clock_that_is_set_by_hours_breaks_no_promise_and_hides_no_late_emergency(
    stage: Stage, engine: Engine, hours: int
) -> None:
    change_id = emergency(engine, 5)
    stage.looks(0)
    set_clock(stage, hours * 3600)
    stage.looks(1)
    assert incidents(engine) == []
    age(engine, change_id, hours * 3600 + 31)
    stage.looks(2)
    (incident,) = incidents(engine)
    assert 30_000 <= incident["worst_ms"] < 40_000


@pytest.mark.parametrize("hours", [-2, 2])
def test_an_emergency_accepted_between_two_steps_of_the_clock_has_waited_as_long_as_it_did(
    stage: Stage, engine: Engine, hours: int
) -> None:
    emergency(engine, 5, "before")
    stage.looks(0)
    set_clock(stage, hours * 3600)
    stage.looks(1)
    between = emergency(engine, 1, "between")
    stage.looks(2)
    set_clock(stage, -hours * 3600)
    stage.looks(3)
    assert incidents(engine) == []
    age(engine, between, -hours * 3600 + 31)
    stage.looks(4)
    (incident,) = incidents(engine)
    assert 30_000 <= incident["worst_ms"] < 40_000
    age(engine, between, -hours * 3600 + 32)
    end(engine, between)
    stage.looks(5)
    assert 30_000 <= incidents(engine)[0]["worst_ms"] < 40_000
    breaches = f'oldhost_sync_promise_breaches_total{{host="{HOST}",promise="emergency"}} 1.0'
    assert breaches in generate_latest(stage.registry).decode()


def test_a_look_reads_what_waits_and_not_the_backlog(engine: Engine, stage: Stage) -> None:
    insert = (
        "INSERT INTO outbox_events (host, idempotency_key, request_hash, entity_type, entity_id, event_type, payload, "
        "priority_class, relayed_at) SELECT 'oldhost', CONCAT('{cls}', seq), '', 'unit', seq, 'e', '{{}}', '{cls}', "
        "IF(seq MOD 2, UTC_TIMESTAMP(6), NULL) FROM seq_1_to_{count}"
    )
    for cls, count in (("LWW", 20_000), ("TXN", 5_000), ("EMERGENCY", 50)):
        change_sql(engine, insert.format(cls=cls, count=count))
    stage.looks(0)
    with engine.connect() as connection:
        connection.exec_driver_sql("FLUSH STATUS")
        found, _ = late_emergencies.host_states(connection, "one")
        assert found[HOST].emergencies
        assert len(late_emergencies.waiting_emergencies(connection, HOST)) == 50
        read = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'").all()
    assert sum(int(value) for _, value in read) < 300


def test_each_fate_is_counted_once_and_those_that_broke_a_promise_as_such(stage: Stage, engine: Engine) -> None:
    stage.looks(0)
    late, in_time = emergency(engine, 31), emergency(engine, 5, "v")
    old = recorded(engine, entity_id="w", event_type="checked_in").change_id
    assert old is not None
    age(engine, old, 4 * 3600 + 60)
    end(engine, late)
    end(engine, in_time, old)
    stage.looks(11, 22)
    page = generate_latest(stage.registry).decode()
    shown = f'oldhost_sync_fates_total{{{{host="{HOST}",outcome="APPLIED",priority_class="{{}}"}}}}'.format
    assert f"{shown('EMERGENCY')} 2.0" in page
    assert f"{shown('TXN')} 1.0" in page
    for promise in ("emergency", "consistency"):
        assert f'oldhost_sync_promise_breaches_total{{host="{HOST}",promise="{promise}"}} 1.0' in page
    assert stage.watch.fate_rates[HOST].compression_ratio() == 1.0
