"""Errors are one line that says what to do, with an exit code; help and plans need no server."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy.exc import OperationalError, ProgrammingError
from temporalio.service import RPCError, RPCStatusCode

from oldhost_sync.cli.main import app, run
from oldhost_sync.environment import adopt, settings_of_a_new_stack
from oldhost_sync.explanations import explain
from oldhost_sync.roles import starter, worker
from oldhost_sync.settings import parse_api_tokens
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, StatementTooSlow, TlsFailed
from oldhost_sync.temporal.client import TemporalUnavailable
from oldhost_sync.temporal.writer_client import Cause, QueryRefused, UpdateRefused, WriterError, WriterUnavailable

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


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("fly", "--help"),
        ("alerts list", "`oldhost-sync alerts` has: ack, close."),
        ("status --host north", "It stands before the command: `oldhost-sync --host … status`."),
        ("resolve Adopt --reason x", "Invalid value for 'mode': 'Adopt' is not one of 'resend', 'adopt'."),
        ("pause", "oldhost-sync pause --help"),
        ("pause -r x --for 40", "40m"),
        ("pause -r x --for 32d", "up to 31d"),
        ("pause -r x --for -1h", "90s, 40m, 2h or 1d"),
        ("status --watch --json", "can't be combined"),
        ("status --watch", "--watch needs a terminal"),
        ("plan --capacity --from-now", "can't be combined"),
        ("plan --units 0", "units is 0"),
        ("plan --replay 2026-11-08..2026-11-01", "ends before it begins"),
        ("plan --replay 2026-11-01", "--replay 2026-11-01..2026-11-08"),
        ("plan --replay 2026-11-01..2026-11-08 --units 4 --seed 2", "can't be combined with --seed, --units"),
        ("alerts", "SYNC_DATABASE_URL is not set"),
        ("dead-letters list", "SYNC_DATABASE_URL is not set"),
        ("change show k", "SYNC_DATABASE_URL is not set"),
        ("rules list", "SYNC_DATABASE_URL is not set"),
    ],
)
def test_what_can_not_be_done_is_one_line_that_says_what_can(
    command: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command.split()) == 2
    assert says in one_line(capsys)


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


@pytest.mark.parametrize("program", [starter.main, worker.main], ids=["starter.py", "worker.py"])
def test_a_program_that_takes_no_arguments_says_so(
    program: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["it", "--help"])
    with pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 2
    assert "takes no arguments: its settings are SYNC_" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("mysql+pymysql://a:b@127.0.0.1:abc/c", "the database address is not a URL"),
        ("mysql+pymysql://a:b@127.0.0.1:1/c?ssl_verify=true", "an option that PyMySQL does not know"),
        (
            "mysql+pymysql://a:b@127.0.0.1:{port}/c",
            "malformed packet (MariaDB 2027). Start it, or check SYNC_DATABASE_URL",
        ),
    ],
    ids=["port", "option", "another service"],
)
def test_a_wrong_database_address_is_no_bug_of_ours(
    address: str, says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> None:
        with other.accept()[0] as caller:
            caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as other:
        Thread(target=answer, daemon=True).start()
        monkeypatch.setenv("SYNC_DATABASE_URL", address.format(port=other.getsockname()[1]))
        assert run(["alerts"]) != 0
    assert says in one_line(capsys)


def test_a_limit_of_threads_is_told_also_as_the_end_of_a_role_s_tasks() -> None:
    assert "raise its limit (pids.max, RLIMIT_NPROC)" in str(
        explain(ExceptionGroup("tasks", [RuntimeError("can't start new thread")]))
    )


def test_an_error_nobody_foresaw_is_one_line_and_its_traceback_can_be_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError("never seen before")

    monkeypatch.setattr("oldhost_sync.cli.plan.rehearse", break_down)
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
    assert str(explain(StatementTooSlow("statement took too long (MariaDB 1969)"))) == (
        "the database answers, but too slowly: statement took too long (MariaDB 1969). "
        "Repeat the command when the database has less to do."
    )
    expired = TlsFailed("TLS to the database failed: certificate has expired")
    assert str(explain(expired)).endswith("expired. Check its certificate, and the TLS options of SYNC_DATABASE_URL.")
    denied = DatabaseUnavailable("denied")
    denied.__cause__ = refused
    assert "access denied" in str(explain(denied))
    assert "Repeat the command" in str(explain(CommitUncertain("lost at COMMIT")))
    assert explain(ZeroDivisionError()) is None


def test_temporals_errors_say_what_to_do() -> None:
    assert "TEMPORAL_ADDRESS" in str(explain(TemporalUnavailable("Temporal can't be reached at x:7233")))
    unknown = RPCError("Namespace nix is not found.", RPCStatusCode.NOT_FOUND, b"")
    assert str(explain(unknown)).startswith("Temporal refused: Namespace nix is not found. Check TEMPORAL_NAMESPACE")
    worker = RuntimeError("Worker validation failed: Namespace nix was not found: Status { code: 5 }")
    assert str(explain(worker)) == (
        "Temporal refused the worker: Namespace nix was not found. Check TEMPORAL_NAMESPACE."
    )
    assert explain(RuntimeError("a fault of ours")) is None
    ended = RuntimeError("Workflow worker failed")
    ended.__cause__ = RuntimeError('Poll failure: Status { code: NotFound, message: "Namespace nix is not found." }')
    assert str(explain(ended)) == (
        "Temporal refused the worker: Namespace nix is not found. Check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY."
    )


def test_a_taken_port_of_the_metrics_names_the_setting() -> None:
    assert "SYNC_METRICS_BIND" in str(explain(OSError(errno.EADDRINUSE, "Address already in use")))


def test_a_folder_that_cant_be_made_is_told_by_its_name() -> None:
    error = PermissionError(errno.EACCES, "Permission denied", "there/var")
    assert str(explain(error)) == "there/var: Permission denied."


def test_the_api_on_a_taken_port_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("SYNC_API_BIND", f"127.0.0.1:{taken.getsockname()[1]}")
        assert run(["api"]) == 1
    assert "is needed for the API (SYNC_API_BIND)" in one_line(capsys)


def test_up_takes_temporals_address_from_the_env_file_and_nothing_from_the_last_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("TEMPORAL_ADDRESS=127.0.0.1:2\n")
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "up.env").write_text("SYNC_OLDHOST_URL=http://127.0.0.1:3\n")
    monkeypatch.setattr("os.environ", {})
    assert settings_of_a_new_stack().oldhost_url is None
    assert os.environ == {"TEMPORAL_ADDRESS": "127.0.0.1:2"}


def test_the_env_file_may_also_say_where_traces_go() -> None:
    environment = {"OTEL_SERVICE_NAME": "mine"}
    adopt(environment, {"OTEL_EXPORTER_OTLP_ENDPOINT": "dotenv", "OTEL_SERVICE_NAME": "dotenv", "OTHER": "dotenv"}, {})
    assert environment == {"OTEL_EXPORTER_OTLP_ENDPOINT": "dotenv", "OTEL_SERVICE_NAME": "mine"}


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
    assert "shown only this once" in capsys.readouterr().out


def test_a_new_token_may_be_for_some_hosts_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "new", "shop", "--on", "north", "--on", "south", "--json"]) == 0
    (token,) = parse_api_tokens(json.loads(capsys.readouterr().out)["setting"])
    assert (token.is_for("north"), token.is_for("south"), token.is_for("west")) == (True, True, False)
    assert run(["tokens", "new", "shop", "--on", "no host"]) == 2
    one_line(capsys)


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


def test_a_plan_says_how_long_all_units_dirty_at_once_take(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "--units", "50000", "--changes", "100", "--bursts", "0"])
    (line,) = [each for each in capsys.readouterr().out.splitlines() if each.startswith("all 50,000 units dirty")]
    assert "5.6 h" in line
    run(["plan", "--units", "50000", "--changes", "100", "--bursts", "0", "--json"])
    assert json.loads(capsys.readouterr().out)["all_units_dirty_s"] == 20_000


@pytest.mark.slow
def test_the_capacity_is_between_a_rate_that_is_kept_and_one_that_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--capacity", "--latency-ms", "8000", "--units", "100", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    kept = [one["changes_per_s"] for one in figures["tried"] if one["kept"]]
    broken = [one["changes_per_s"] for one in figures["tried"] if not one["kept"]]
    assert figures["changes_per_s"] == max(kept) < min(broken) < figures["ceiling_per_s"]


def test_a_plan_that_breaks_a_promise_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--changes", "400", "--units", "100", "--bursts", "0", "--latency-ms", "90000"]) == 1
    assert "BROKEN" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (WriterUnavailable("h", Cause.NOT_CONNECTED), "Temporal can't be reached. Start it"),
        (WriterUnavailable("h", Cause.NO_TEMPORAL), "Temporal does not answer. Start it"),
        (
            WriterUnavailable("h", Cause.NO_NAMESPACE, "Temporal has no namespace of this name"),
            "Temporal has no namespace of this name. Check TEMPORAL_NAMESPACE",
        ),
        (WriterUnavailable("h", Cause.NO_WRITER), "the writer of 'h' is not running. A relay starts it"),
        (
            WriterUnavailable("h", Cause.FAILING, "its task fails"),
            "the writer of 'h' is stuck: its task fails. Restart a worker",
        ),
        (
            WriterUnavailable("h", Cause.PAUSED_IN_TEMPORAL, "a person paused its run in Temporal"),
            "the writer of 'h' does nothing: a person paused its run in Temporal. Unpause it there: `temporal workflow",
        ),
        (
            WriterUnavailable("h", Cause.NO_WORKER, "nobody takes its task"),
            "the writer of 'h' does not answer: nobody takes its task. Start a worker: `oldhost-sync worker`.",
        ),
        (
            WriterUnavailable("h", Cause.NO_WORKER, "its tasks go to others", cure="`temporal …` brings them back"),
            "the writer of 'h' does not answer: its tasks go to others. `temporal …` brings them back.",
        ),
        (WriterUnavailable("h", Cause.TOO_SLOW), "the writer of 'h' did not answer in time. `oldhost-sync alerts`"),
        (UpdateRefused("h", "resume", "it is not paused"), "the writer refused to resume: it is not paused."),
        (QueryRefused("h", "no such query"), "the writer can't answer this query: no such query."),
    ],
)
def test_a_writer_that_does_not_answer_is_told_with_what_to_do(error: WriterError, says: str) -> None:
    assert str(explain(error)).startswith(says)
