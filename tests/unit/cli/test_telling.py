"""Errors are one line that says what to do, with an exit code; help and plans need no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError

from oldhost_sync.cli import run
from oldhost_sync.cli.main import app
from oldhost_sync.cli.surroundings import adopt
from oldhost_sync.cli.telling import explain
from oldhost_sync.settings import parse_api_tokens
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable

COMMANDS = [
    "up",
    "demo",
    "relay",
    "api",
    "worker",
    "simulator",
    "migrate",
    "status",
    "submit",
    "change",
    "find",
    "dead-letters",
    "pause",
    "resume",
    "flush",
    "resolve",
    "plan",
    "tokens",
    "rules",
    "alerts",
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder's `.env` or running stack gets in."""
    monkeypatch.chdir(tmp_path)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr().err
    assert told.startswith("oldhost-sync: ")
    assert told.count("\n") == 1
    assert "Traceback" not in told
    return told


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert not [command for command in COMMANDS if command not in shown]


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "simulator"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_an_unknown_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fly"]) == 2
    assert "--help" in one_line(capsys)


def test_a_missing_option_is_one_line_that_names_the_commands_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pause"]) == 2
    assert "oldhost-sync pause --help" in one_line(capsys)


@pytest.mark.parametrize("command", [["alerts"], ["dead-letters", "list"], ["change", "show", "k"], ["rules", "list"]])
def test_a_database_that_is_not_set_is_told(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command) == 2
    assert "SYNC_DATABASE_URL is not set" in one_line(capsys)


def test_a_bad_setting_is_told_by_its_name(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_SETTLE_SECONDS", "1")
    assert run(["alerts"]) == 2
    assert "SYNC_SETTLE_SECONDS" in one_line(capsys)


def test_a_database_that_is_away_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", "mysql+pymysql://u:secret@127.0.0.1:1/d")
    assert run(["alerts"]) == 1
    told = one_line(capsys)
    assert "can't be reached" in told
    assert "secret" not in told


def test_temporal_that_is_away_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run(["resume", "--reason", "x"]) == 1
    assert "Temporal can't be reached" in one_line(capsys)


def test_an_act_without_a_reason_is_refused_before_anybody_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pause", "--reason", "  "]) == 2
    assert "say why" in one_line(capsys)


def test_watching_and_json_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--watch", "--json"]) == 2
    assert "exclude each other" in one_line(capsys)


def test_an_error_nobody_foresaw_is_one_line_and_its_traceback_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("never seen before")

    monkeypatch.setattr("oldhost_sync.cli.planning.rehearse", break_down)
    assert run(["plan"]) == 1
    assert "ZeroDivisionError: never seen before" in one_line(capsys)
    assert run(["--traceback", "plan"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_databases_errors_say_what_to_do() -> None:
    missing = ProgrammingError("SELECT", {}, Exception(1146, "no table"))
    refused = OperationalError("SELECT", {}, Exception(1045, "denied"))
    assert "oldhost-sync migrate" in str(explain(missing))
    assert "SYNC_DATABASE_URL" in str(explain(refused))
    assert "Start it" in str(explain(DatabaseUnavailable("away")))
    assert "Repeat the command" in str(explain(CommitUncertain("lost at COMMIT")))
    assert explain(ZeroDivisionError()) is None


def test_a_running_stack_is_used_only_when_nothing_else_is_set() -> None:
    stack = {"SYNC_DATABASE_URL": "d", "TEMPORAL_ADDRESS": "t"}
    found: dict[str, str] = {}
    adopt(found, {}, stack)
    assert found == stack
    for own in ({"SYNC_DATABASE_URL": "mine"}, {"TEMPORAL_ADDRESS": "mine"}):
        environment = dict(own)
        adopt(environment, {}, stack)
        assert environment == own
    environment = {}
    adopt(environment, {"TEMPORAL_ADDRESS": "dotenv"}, stack)
    assert environment == {"TEMPORAL_ADDRESS": "dotenv"}


def test_a_new_token_is_shown_once_beside_the_setting_that_knows_only_its_hash(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tokens", "new", "shop", "--role", "app", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"] not in made["setting"]
    (token,) = parse_api_tokens(made["setting"])
    assert (token.name, token.role) == ("shop", "app")
    assert run(["tokens", "new", "shop"]) == 0
    assert "shown this once" in capsys.readouterr().out


def test_a_token_with_a_bad_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "new", "a:b"]) == 2
    one_line(capsys)


def test_a_plan_prints_figures_and_a_picture(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--changes", "400", "--units", "100", "--bursts", "0", "--duration-s", "300"]) == 0
    shown = capsys.readouterr().out
    assert "operations" in shown
    assert "█" in shown


def test_a_plan_as_json_says_which_promises_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--changes", "400", "--units", "100", "--bursts", "0", "--duration-s", "300", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["operations"] >= figures["operations_lower_bound"]
    assert all(figures["promises"].values())


def test_a_plan_that_breaks_a_promise_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--changes", "400", "--units", "100", "--bursts", "0", "--latency-ms", "90000"]) == 1
    assert "BROKEN" in capsys.readouterr().out


def test_a_plan_that_makes_no_sense_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--units", "0"]) == 2
    assert "units is 0" in one_line(capsys)


def test_submit_wants_a_file_or_one_change(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYNC_DATABASE_URL", "mysql+pymysql://u:p@127.0.0.1:1/d")
    assert run(["submit"]) == 2
    assert "give a file" in one_line(capsys)
    assert run(["submit", "nowhere.jsonl"]) == 2
    assert "can't be read" in one_line(capsys)
    assert run(["submit", "nowhere.jsonl", "--entity", "12B"]) == 2
    assert "either a file, or one change" in one_line(capsys)


def test_the_application_is_what_the_script_runs() -> None:
    assert app.info.help
