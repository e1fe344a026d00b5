"""The life of an alert: opened, updated, acknowledged, closed; and what the webhook is to hear of it."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.engine import Connection, Engine

from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.store import alert_events, alerts, audit
from oldhost_sync.store.alerts import acknowledge_alert, close_alert_by_hand
from oldhost_sync.store.intake.change_recorder import record_refused
from tests.integration.store.writing import HOST, before, change_sql, rows

pytestmark = pytest.mark.mariadb


def raised(connection: Connection, kind: str = "ban", severity: str = "critical", **more: Any) -> bool:
    return alerts.raise_alert(connection, HOST, kind, severity, more.pop("message", "m"), **more)


def the_alert(connection: Connection) -> alerts.RaisedAlert:
    (alert,) = alerts.list_alerts(connection, HOST, state="all")
    return alert


def events(engine: Engine) -> list[tuple[str, str, int]]:
    found = rows(engine, "SELECT event, severity, occurrences FROM alert_events ORDER BY id")
    return [(row["event"], row["severity"], row["occurrences"]) for row in found]


# ------------------------------------------------------------------------------------------------------- how it changes


def test_an_open_alert_keeps_the_worst_severity_the_last_message_and_the_count(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection, severity="critical", message="first", count=3)
        assert not raised(connection, severity="warning", message="last", count=2)
        alert = the_alert(connection)
    assert (alert.severity, alert.message, alert.count) == ("critical", "last", 2)


def test_what_happens_again_is_added_up(engine: Engine) -> None:
    with engine.begin() as connection:
        for _ in range(3):
            raised(connection, "strays", "info", count=4, adds=True)
        assert the_alert(connection).count == 12


def test_an_alert_that_says_nothing_new_is_not_written(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection)
        before = the_alert(connection)
    with engine.begin() as connection:
        raised(connection)
        assert the_alert(connection) == before


def test_the_product_says_why_it_closed_an_alert(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection)
        alerts.close_alert(connection, HOST, "ban")
        assert (the_alert(connection).close_reason, the_alert(connection).closed_by) == (KINDS["ban"].ends, None)


# ------------------------------------------------------------------------------------------------------ what is told of


def test_the_webhook_hears_opening_escalation_and_closing_each_as_it_was(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection, "emergency-late", "warning", count=2)
        raised(connection, "emergency-late", "warning", count=3)
        raised(connection, "emergency-late", "critical", count=4)
        raised(connection, "emergency-late", "critical", count=10)
        alerts.close_alert(connection, HOST, "emergency-late")
    assert events(engine) == [
        ("opened", "warning", 2),
        ("escalated", "critical", 4),
        ("escalated", "critical", 10),
        ("closed", "critical", 10),
    ]


def test_a_count_that_goes_up_and_down_is_told_once_at_each_power_of_ten(engine: Engine) -> None:
    with engine.begin() as connection:
        for count in (9, 10, 9, 10, 9, 10, 100):
            raised(connection, count=count)
    assert [event for event, _, _ in events(engine)] == ["opened", "escalated", "escalated"]


def test_an_alert_counts_as_delivered_when_nothing_of_it_waits(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection)
        alerts.close_alert(connection, HOST, "ban")
        opened, closed = alert_events.undelivered(connection, HOST)
        alert_events.mark_delivered(connection, opened)
        assert the_alert(connection).delivered_at is None
        alert_events.mark_delivered(connection, closed)
        assert the_alert(connection).delivered_at is not None
        assert alert_events.undelivered(connection, HOST) == []
        assert alert_events.hosts_with_undelivered(connection, [HOST]) == {}


def test_an_alert_that_gets_worse_after_it_was_delivered_waits_again(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection, severity="warning")
        alert_events.mark_delivered(connection, *alert_events.undelivered(connection, HOST))
        raised(connection, severity="critical")
        assert the_alert(connection).delivered_at is None
        assert alert_events.hosts_with_undelivered(connection, [HOST, "other"]) == {HOST: 1}


# -------------------------------------------------------------------------------------------------------- people's acts


def test_a_person_acknowledges_an_open_alert_and_the_audit_knows(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection, change_id=7)
        done = acknowledge_alert(connection, HOST, 1, at_the_terminal("anna"), "on it")
        (act,) = audit.list_acts(connection, HOST)
    assert done.refused == ""
    assert done.alert is not None
    assert (done.alert.acknowledged_by, done.alert.acknowledge_reason, done.alert.closed_at) == ("anna", "on it", None)
    assert (act.action, act.operator, act.reason, act.change_id) == ("acknowledge-alert", "anna", "on it", 7)
    assert act.detail == {"alert": 1, "kind": "ban", "cause": "ban"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_closes_what_informs_and_nothing_that_the_product_sees_to_be_true(engine: Engine, kind: str) -> None:
    with engine.begin() as connection:
        raised(connection, kind)
        done = close_alert_by_hand(connection, HOST, 1, at_the_terminal("bob"), "the sender knows")
        acts = len(audit.list_acts(connection, HOST))
    assert done.alert is not None
    if KINDS[kind].informational:
        assert (done.refused, done.alert.closed_by, done.alert.close_reason) == ("", "bob", "the sender knows")
        assert [event for event, _, _ in events(engine)] == ["opened", "closed"]
    else:
        assert KINDS[kind].ends in done.refused
        assert done.alert.closed_at is None
    assert acts == KINDS[kind].informational


def test_nobody_acts_on_what_is_closed_or_another_hosts(engine: Engine) -> None:
    with engine.begin() as connection:
        raised(connection, "strays", "info")
        close_alert_by_hand(connection, HOST, 1, at_the_terminal("bob"), "seen")
        for act in (acknowledge_alert, close_alert_by_hand):
            assert "closed already" in act(connection, HOST, 1, at_the_terminal("anna"), "late").refused
            assert act(connection, "other", 1, at_the_terminal("anna"), "wrong host").alert is None
            assert (
                act(connection, HOST, 99, at_the_terminal("anna"), "no such").refused
                == f"there is no alert 99 of {HOST}"
            )
        assert len(audit.list_acts(connection, HOST)) == 1


def test_alerts_are_listed_by_state_and_kind(engine: Engine) -> None:
    with engine.begin() as connection:
        for kind in ("ban", "strays", "no-worker"):
            raised(connection, kind)
        alerts.close_alert(connection, HOST, "ban")

        def listed(**which: Any) -> list[str]:
            return [alert.kind for alert in alerts.list_alerts(connection, HOST, **which)]

        assert listed() == listed(state="open") == ["no-worker", "strays"]
        assert listed(state="closed") == ["ban"]
        assert listed(state="all", kind="strays") == ["strays"]
        assert listed(state="closed", kind="strays") == []


# ------------------------------------------------------------------------------------------- one for each cause


def test_submissions_refused_for_one_reason_are_one_alert_that_counts_them(engine: Engine) -> None:
    for number in range(12):
        with engine.begin() as connection:
            reason = f"payload is {number} bytes of JSON" if number < 10 else "no payload"
            record_refused(
                connection, host=HOST, idempotency_key=f"k{number}", change={}, reason=reason, source="signal"
            )
    found = rows(engine, "SELECT occurrences, change_id, message FROM alerts ORDER BY id")
    ids = [row["id"] for row in rows(engine, "SELECT id FROM outbox_events WHERE outcome = 'REFUSED' ORDER BY id")]
    assert [(row["occurrences"], row["change_id"]) for row in found] == [(10, ids[9]), (2, ids[11])]
    assert "payload is 9 bytes" in found[0]["message"]


def test_an_alert_and_its_events_are_forgotten_together_and_open_ones_never(engine: Engine) -> None:
    from oldhost_sync.store.retention import prune

    with engine.begin() as connection:
        raised(connection, "strays")
        raised(connection, "ban")
        alerts.close_alert(connection, HOST, "ban")
    change_sql(engine, "UPDATE alerts SET closed_at = closed_at - INTERVAL 91 DAY")
    change_sql(engine, "UPDATE alert_events SET created_at = created_at - INTERVAL 91 DAY WHERE alert_id = 2")
    with engine.begin() as connection:
        prune(connection, HOST, before(connection), rows=100)
        assert [alert.kind for alert in alerts.list_alerts(connection, HOST, state="all")] == ["strays"]
    assert [event for event, _, _ in events(engine)] == ["opened"]
