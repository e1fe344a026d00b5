"""Tables stay copyable on a narrow screen, and what is wrong stands first."""

from __future__ import annotations

from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata
from io import StringIO
from typing import Any

import pytest

from oldhost_sync.api.situation import Observations, Situation, Stop, Tone, Word, judge
from oldhost_sync.cli import submission
from oldhost_sync.cli.main import run
from oldhost_sync.cli.output import Screen, rows
from oldhost_sync.cli.status import StatusFindings, picture
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.tuning import WriterPolicy
from oldhost_sync.store.alerts import RaisedAlert
from oldhost_sync.store.intake.rules import DEFAULT_RULES
from workflows import status_report

KEY = "housekeeping-2026-05-01-seaview-building-north-12B-unit-status-changed-" + "x" * 40


def printed(what: Any, width: int) -> list[str]:
    page = StringIO()
    Screen(file=page, width=width).print(what)
    return page.getvalue().splitlines()


def test_a_key_stays_whole_where_the_table_is_too_wide() -> None:
    table = rows("Changes", ("change", "event type", "key"), [("4711", "unit_status_changed", KEY), ("5", "e", "k")])
    lines = printed(table, 80)
    assert f"key         {KEY}" in lines
    assert lines[0] == "Changes"
    assert lines[1] == "change      4711"
    assert "" in lines


def test_a_table_that_fits_is_a_table() -> None:
    table = rows("", ("change", "event type", "key"), [("4711", "unit_status_changed", "k")])
    assert printed(table, 80)[0].split() == ["change", "event", "type", "key"]
    assert len(printed(table, 80)) == 2


def test_figures_with_their_names_are_folded_and_not_taken_apart() -> None:
    assert len(printed(rows("", ("writer", ""), [("reason", "word " * 40)]), 80)) > 2


def an_alert(severity: str, kind: str, **more: Any) -> RaisedAlert:
    values: dict[str, Any] = dict.fromkeys(each.name for each in fields(RaisedAlert))
    known = {"severity": severity, "kind": kind, "message": f"about {kind}", "created_at": datetime.now(UTC)}
    return RaisedAlert(**(values | known | more))


def test_the_banner_and_the_open_alerts_come_first() -> None:
    writer = status_report.status(Machine(WriterPolicy(), 0), "oldhost", 0)
    alerts = [an_alert("critical", "ban"), an_alert("warning", "forecast", acknowledged_by="ada")]
    books = dict.fromkeys(("accepted", "waiting"), 0) | {"balance": True}
    figures = {"books": books, "ledger": None, "oldest_waiting_at": None, "open_alerts": 3,
               "emergency_breaches": {"incidents": 0},
               "mapping": "rooms/3", "states_of_other_mappings": 1}  # fmt: skip
    since, until = datetime(2026, 11, 27, 3, tzinfo=UTC), datetime(2026, 11, 27, 4, tzinfo=UTC)
    ban = Stop(Word.BANNED, "OldHost refuses everything.", since, until)
    told = Situation(Word.PAUSED, Tone.BAD, "anna paused it: quiet.", "Resume it.", since, also=(ban,))
    found = StatusFindings("oldhost", writer, figures, alerts, situation=told)
    lines = [line for line in printed(picture(found), 100) if line.strip()]
    assert lines[:4] == [
        "oldhost  PAUSED  anna paused it: quiet.",
        "and BANNED  OldHost refuses everything.",
        "BANNED, at least until 2026-11-27 04:00:00 UTC",
        "Next: Resume it.",
    ]
    assert lines[4:8] == [
        "3 open alerts",
        "critical ban: about ban",
        "warning forecast: about forecast (ada is handling it)",
        "and 1 more: oldhost-sync alerts",
    ]
    assert lines[8].startswith("lane")
    (mapping,) = (line for line in lines if line.strip().startswith("mapping"))
    assert mapping.split(maxsplit=1)[1].strip() == "rooms/3; another one made 1 state that OldHost has"


def test_a_writer_that_can_t_be_asked_is_told_first() -> None:
    told = judge(Observations(datetime.now(UTC), writer_away="Temporal does not answer"))
    found = StatusFindings("oldhost", troubles=["Temporal is away"], situation=told)
    lines = [line for line in printed(picture(found), 200) if line.strip()]
    assert lines[0] == "oldhost  NO WRITER  Temporal does not answer."
    assert lines[1].startswith("Next: Check that Temporal and a worker are running.")
    assert lines[2:] == ["Temporal is away"]


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    said = capsys.readouterr().out.strip()
    try:
        assert said == f"oldhost-sync {metadata.version('oldhost-sync')}"
    except metadata.PackageNotFoundError:
        assert said == "oldhost-sync run from its source"


def test_event_types_are_completed_without_a_database_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", "mysql+pymysql://nobody:x@127.0.0.1:1/none")
    assert submission.event_types("booking") == [name for name in sorted(DEFAULT_RULES) if name.startswith("booking")]


@pytest.mark.parametrize("arguments", [["--help"], ["scheduled", "--help"], ["audit", "--help"], ["search", "--help"]])
def test_the_new_commands_tell_how_they_are_used(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 0
    assert "Usage" in capsys.readouterr().out
