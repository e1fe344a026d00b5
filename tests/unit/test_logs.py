"""What the roles log in JSON: one object a line, with what the line is about."""

from __future__ import annotations

import json
import logging
from typing import Any

from temporalio import activity
from temporalio.testing import ActivityEnvironment

from oldhost_sync.logs import json_formatter, shorten
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
