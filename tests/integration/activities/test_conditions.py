"""The activity that records what is the case at the writer: alerts are open that say so, and no others of its kinds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from activities.records import RecordingActivities
from oldhost_sync.policy.machine.actions import RecordConditions, WriterCondition
from oldhost_sync.policy.rules.alert_kinds import WRITER_KINDS
from oldhost_sync.store.alerts import raise_alert
from tests.called_by_writer import called_by_writer
from tests.conformance.maria_world import HOST, MariaWorld

pytestmark = pytest.mark.mariadb

BAN = WriterCondition("ban", "OldHost bans us.", "ban")
HALT = WriterCondition("halted", "Sending is halted.", "halt")
BLOCKED = WriterCondition("emergency-blocked", "2 wait.", "emergencies:ban", 7, 2)


def record(
    world: MariaWorld, sequence: int, *conditions: WriterCondition, **fields: tuple[WriterCondition | str, ...]
) -> None:
    told = RecordConditions(conditions, sequence=sequence, **fields)  # type: ignore[arg-type]
    called_by_writer().run(RecordingActivities(world.engine).record_conditions, told)


def open_causes(world: MariaWorld) -> list[str]:
    return [cause for (cause,) in world.read("SELECT dedupe_key FROM alerts WHERE is_open = 1 ORDER BY id")]


def test_what_is_the_case_is_a_row_with_its_kind_s_severity_until_it_is_no_more(world: MariaWorld) -> None:
    record(world, 1, BAN, BLOCKED)
    assert world.read("SELECT kind, severity, change_id, occurrences, delivered_at FROM alerts ORDER BY id") == [
        ("ban", "critical", None, 1, None),
        ("emergency-blocked", "critical", 7, 2, None),
    ]
    record(world, 2, HALT)
    assert world.read("SELECT kind, is_open FROM alerts ORDER BY id") == [
        ("ban", None),
        ("emergency-blocked", None),
        ("halted", 1),
    ]
    assert world.read("SELECT close_reason FROM alerts WHERE kind = 'ban'") == [("OldHost takes operations again",)]


def test_a_row_follows_its_words_and_its_count(world: MariaWorld) -> None:
    record(world, 1, BLOCKED)
    record(world, 2, replace(BLOCKED, why="3 wait.", count=3))
    assert world.read("SELECT message, occurrences, is_open FROM alerts") == [("3 wait.", 3, 1)]


def test_a_list_that_arrives_after_a_later_one_changes_nothing(world: MariaWorld) -> None:
    """An abandoned attempt runs on in its process."""
    record(world, 2, HALT)
    record(world, 1, BAN)
    assert open_causes(world) == ["halt"]


def test_alerts_of_kinds_that_the_writer_can_not_judge_stay_open(world: MariaWorld) -> None:
    record(world, 1, BAN, HALT)
    record(world, 2, unknown=("halted",))
    assert open_causes(world) == ["halt"]
    record(world, 3)
    assert open_causes(world) == []


def test_a_run_that_reports_everything_closes_what_a_lost_one_had_opened_whatever_its_cause(world: MariaWorld) -> None:
    record(world, 1, *(WriterCondition(kind, "since last week", f"{kind} of old") for kind in WRITER_KINDS))
    record(world, 2, unknown=())
    assert open_causes(world) == []


def test_alerts_of_others_stay_open(world: MariaWorld) -> None:
    with world.engine.begin() as connection:
        raise_alert(connection, HOST, "no-worker", "critical", "none is at work")
        raise_alert(connection, "another", "ban", "critical", "OldHost bans us")
    record(world, 1, HALT)
    assert open_causes(world) == ["no-worker", "ban", "halt"]


def test_what_happens_again_is_added_up_and_counts_once_when_it_is_repeated(world: MariaWorld) -> None:
    strays = WriterCondition("strays", "found", "strays", count=4)
    for sequence in (1, 2, 2, 1, 3):
        record(world, sequence, events=(strays,))
    assert world.read("SELECT kind, severity, occurrences, is_open FROM alerts") == [("strays", "info", 12, 1)]


def test_a_ban_s_alert_says_what_the_ledger_knows_of_its_cause(world: MariaWorld) -> None:
    epoch = world.ledger.take_over("first").epoch
    world.ledger.ban(epoch, 900)
    record(world, 1, BAN)
    ((message,),) = world.read("SELECT message FROM alerts")
    assert message.startswith("OldHost bans us. OldHost does not say why.")


@pytest.mark.parametrize("text", ["unit \ud800", "\x00", "\x1b[2J", "🏠", "x" * 5000], ids=ascii)
def test_no_text_breaks_an_alert_or_its_end(world: MariaWorld, text: str) -> None:
    record(world, 1, replace(BAN, why=text, cause=text))
    record(world, 2, replace(BAN, why=text, cause=text))
    assert world.read("SELECT is_open FROM alerts") == [(1,)]
    record(world, 3)
    assert world.read("SELECT is_open FROM alerts") == [(None,)]
