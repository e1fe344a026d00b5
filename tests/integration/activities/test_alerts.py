"""The activity that raises alerts: rows, whatever comes, and nothing else that could keep the writer waiting."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from sqlalchemy import text

from activities.alerts import AlertActivities
from oldhost_sync.policy.machine.actions import RaiseAlert, RecordAlerts
from oldhost_sync.store import dead_letter_alerts
from tests.called_by_writer import called_by_writer
from tests.conformance.maria_world import HOST, MariaWorld

pytestmark = pytest.mark.mariadb

BAN = RaiseAlert("ban", "critical", "OldHost bans us", "ban")


def raise_alert(world: MariaWorld, alert: RaiseAlert) -> None:
    called_by_writer().run(AlertActivities(world.engine).record_alerts, RecordAlerts((alert,)))


def test_an_alert_is_a_row_once_per_cause_until_it_is_closed(world: MariaWorld) -> None:
    raise_alert(world, BAN)
    raise_alert(world, BAN)
    assert world.read("SELECT kind, severity, is_open FROM alerts") == [("ban", "critical", 1)]
    raise_alert(world, replace(BAN, message="", close=True))
    raise_alert(world, BAN)
    assert world.read("SELECT is_open FROM alerts ORDER BY id") == [(None,), (1,)]


def test_an_alert_that_is_raised_waits_to_be_delivered(world: MariaWorld) -> None:
    raise_alert(world, BAN)
    assert world.read("SELECT delivered_at FROM alerts") == [(None,)]


def test_a_ban_s_alert_says_what_the_ledger_knows_of_its_cause(world: MariaWorld) -> None:
    epoch = world.ledger.take_over("first").epoch
    world.ledger.ban(epoch, 900)
    raise_alert(world, BAN)
    ((message,),) = world.read("SELECT message FROM alerts")
    assert message.startswith("OldHost bans us OldHost does not say why.")


def test_what_the_sweep_finds_again_and_again_is_one_alert_that_counts_it(world: MariaWorld) -> None:
    for number in (1, 2):
        stray = RaiseAlert("strays", "info", "found", f"strays:{number}", count=3, sequence=number)
        called_by_writer().run(AlertActivities(world.engine).record_alerts, RecordAlerts((stray,)))
    assert world.read("SELECT dedupe_key, occurrences FROM alerts") == [("strays", 6)]


def test_what_the_writer_tells_of_dead_letters_follows_the_outbox(world: MariaWorld) -> None:
    tell = AlertActivities(world.engine).record_alerts
    dead = RaiseAlert("dead-letter", "warning", "rejected", "dead:7", 7, sequence=1)
    called_by_writer().run(tell, RecordAlerts((dead,)))
    assert world.read("SELECT * FROM alerts") == []
    world.execute(
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, error) "
        f"VALUES ('{HOST}', 7, 'unit', 'u', 'DEAD', 'no such door')"
    )
    called_by_writer().run(tell, RecordAlerts((dead,)))
    assert world.read("SELECT kind, dedupe_key, change_id, is_open FROM alerts") == [
        ("dead-letters", "dead-letters:no such door", 7, 1)
    ]
    world.execute("DELETE FROM pending_fates")
    over = replace(dead, close=True, sequence=2)
    called_by_writer().run(tell, RecordAlerts((over,)))
    assert world.read("SELECT is_open FROM alerts") == [(None,)]


def test_a_ban_is_told_of_though_the_dead_letters_take_too_long_and_these_are_with_the_next(
    world: MariaWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell = AlertActivities(world.engine).record_alerts
    world.execute(
        "INSERT INTO pending_fates (host, change_id, entity_type, entity_id, outcome, error) "
        f"VALUES ('{HOST}', 7, 'unit', 'u', 'DEAD', 'no such door')"
    )
    dead = RaiseAlert("dead-letter", "warning", "rejected", "dead:7", 7, sequence=1)
    ban = RaiseAlert("ban", "critical", "OldHost bans us", "ban", sequence=1)
    with monkeypatch.context() as slow, caplog.at_level(logging.WARNING, "activities.alerts"):
        too_slow = text("SET STATEMENT max_statement_time = 0.001 FOR SELECT SLEEP(1), :host")
        slow.setattr(dead_letter_alerts, "_BY_TEXT", too_slow)
        called_by_writer().run(tell, RecordAlerts((dead, ban)))
    assert world.read("SELECT kind FROM alerts") == [("ban",)]
    assert "dead letters of oldhost could not be brought in line: statement took too long" in caplog.text
    called_by_writer().run(tell, RecordAlerts((dead,)))
    assert world.read("SELECT kind FROM alerts ORDER BY id") == [("ban",), ("dead-letters",)]


@pytest.mark.parametrize("text", ["unit \ud800", "\x00", "\x1b[2J", "🏠", "x" * 5000], ids=ascii)
def test_no_text_breaks_an_alert_or_its_end(world: MariaWorld, text: str) -> None:
    alert = replace(BAN, message=text, dedupe_key=text)
    raise_alert(world, alert)
    raise_alert(world, alert)
    assert world.read("SELECT is_open FROM alerts") == [(1,)]
    raise_alert(world, replace(alert, close=True))
    assert world.read("SELECT is_open FROM alerts") == [(None,)]
