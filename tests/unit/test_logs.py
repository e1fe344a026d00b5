"""What the roles log in JSON: one object a line, with what the line is about."""

from __future__ import annotations

import fcntl
import gc
import json
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from temporalio import activity
from temporalio.testing import ActivityEnvironment

from oldhost_sync.logs import LineWriter, json_formatter, shorten
from oldhost_sync.store.errors import DatabaseUnavailable

logger = logging.getLogger("oldhost_sync.test")


def logged(**more: Any) -> dict[str, Any]:
    record = logger.makeRecord(logger.name, logging.WARNING, "file", 1, "nonce %s is open", (7,), None, **more)
    line = json_formatter().format(record)
    assert "\n" not in line
    read: dict[str, Any] = json.loads(line)
    return read


def test_a_line_has_time_level_logger_and_message() -> None:
    line = logged()
    assert (line["level"], line["logger"], line["message"]) == ("warning", "oldhost_sync.test", "nonce 7 is open")
    assert line["time"].endswith("Z")


def test_what_a_line_is_about_is_a_field_of_its_own() -> None:
    line = logged(extra={"host": "north", "epoch": 3, "nonce": 7})
    assert (line["host"], line["epoch"], line["nonce"]) == ("north", 3, 7)


def test_a_line_of_an_activity_names_its_run() -> None:
    @activity.defn
    def says() -> dict[str, Any]:
        return logged()

    environment = ActivityEnvironment()
    line = environment.run(says)
    assert (line["workflow_id"], line["run_id"]) == (environment.info.workflow_id, environment.info.workflow_run_id)
    assert line["activity"] == environment.info.activity_type


def test_a_line_of_the_workflow_names_its_run_and_nothing_else_of_temporal() -> None:
    told = {"workflow_id": "sync-writer:north", "run_id": "r", "attempt": 1, "namespace": "default"}
    line = logged(extra={"temporal_workflow": told, "state": "BANNED"})
    assert (line["workflow_id"], line["run_id"], line["state"]) == ("sync-writer:north", "r", "BANNED")
    assert "temporal_workflow" not in line


def test_an_exception_is_text_in_the_same_line() -> None:
    try:
        int("no")
    except ValueError as error:
        problem = (ValueError, error, error.__traceback__)
    record = logger.makeRecord(logger.name, logging.ERROR, "file", 1, "failed", (), problem)
    line = json.loads(json_formatter().format(record))
    assert "ValueError: invalid literal" in line["exception"]


def failed_activity(error: Exception) -> dict[str, Any]:
    problem = (type(error), error, error.__traceback__)
    record = logger.makeRecord(logger.name, logging.WARNING, "file", 1, "an activity failed", (), problem)
    assert shorten(record)
    line: dict[str, Any] = json.loads(json_formatter().format(record))
    return line


def test_a_database_that_is_away_is_told_without_a_traceback() -> None:
    line = failed_activity(DatabaseUnavailable("the account is locked (MariaDB 4151)"))
    assert line["message"] == "an activity failed: DatabaseUnavailable: the account is locked (MariaDB 4151)"
    assert "exception" not in line


def test_an_error_that_nobody_expected_keeps_its_traceback() -> None:
    assert "ZeroDivisionError" in failed_activity(ZeroDivisionError())["exception"]


class UnreadPipe:
    """A pipe for 4 kB, which nobody reads until `read`."""

    def __init__(self) -> None:
        self.out, self.descriptor = os.pipe()
        fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, 4096)

    def read(self, is_all: Callable[[list[str]], bool]) -> list[str]:
        found = ""
        while not (found.endswith("\n") and is_all(found.splitlines())):
            found += os.read(self.out, 65536).decode()
        return found.splitlines()


@pytest.fixture
def pipe() -> Iterator[UnreadPipe]:
    pipe = UnreadPipe()
    yield pipe
    os.close(pipe.out)


def line_of(text: str) -> logging.LogRecord:
    return logger.makeRecord(logger.name, logging.INFO, "file", 1, text, (), None)


def missing_in(lines: list[str]) -> int:
    return sum(int(line.split()[0]) for line in lines if "lines are missing" in line)


def written(lines: list[str]) -> list[str]:
    return [line for line in lines if "lines are missing" not in line]


def test_lines_are_written_in_order(pipe: UnreadPipe) -> None:
    writer = LineWriter(pipe.descriptor)
    for number in range(3):
        writer.handle(line_of(f"line {number}"))
    assert pipe.read(lambda lines: len(lines) == 3) == ["line 0", "line 1", "line 2"]


def test_nothing_waits_for_a_reader_that_has_stopped_and_what_is_missing_is_counted(
    pipe: UnreadPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oldhost_sync.logs.LINES_WAITING_MAX", 10)
    monkeypatch.setattr("oldhost_sync.logs.LAST_LINES_SECONDS", 0.01)
    writer = LineWriter(pipe.descriptor)
    for number in range(1_000):
        writer.handle(line_of(f"{number} {'x' * 1_000}"))
    writer.flush()
    lines = pipe.read(lambda lines: missing_in(lines) + len(written(lines)) == 1_000)
    assert 4 < len(written(lines)) < 100


def test_a_log_that_can_t_be_written_disturbs_nothing() -> None:
    out, descriptor = os.pipe()
    os.close(out)
    writer = LineWriter(descriptor)
    writer.handle(line_of("to nobody"))
    writer.flush()
    assert writer._count_dropped(0) == 1
    os.close(descriptor)


class LogsWhenFreed:
    def __init__(self, writer: LineWriter) -> None:
        self.writer, self.itself = writer, self

    def __del__(self) -> None:
        self.writer.handle(line_of("freed"))


def test_what_the_garbage_collector_frees_in_the_middle_of_a_line_may_log(
    pipe: UnreadPipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each allocation frees something here that logs, in the thread that logs and in the one that writes."""
    monkeypatch.setattr("oldhost_sync.logs.LAST_LINES_SECONDS", 30)
    writer = LineWriter(os.open(os.devnull, os.O_WRONLY))
    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        for number in range(20_000):
            LogsWhenFreed(writer)
            writer.handle(line_of(f"line {number}"))
    finally:
        gc.set_threshold(*before)
    writer.flush()
    assert writer._waiting.empty()
