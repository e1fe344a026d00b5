"""What a role logs to stderr: lines for people, or one JSON object per line (SYNC_LOG_FORMAT). Never a payload.

Modules use Python's own logging and pass the subject of a line as `extra`: `host`, `epoch`, `nonce`, `change_id`, … A
line from an activity or a workflow also holds its run, so that it can be found in Temporal's UI.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog
from structlog.typing import EventDict
from temporalio import activity, workflow

from oldhost_sync.oldhost.errors import LedgerUnavailable
from oldhost_sync.settings import LogFormat
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, TransactionContended

_LINES = "%(asctime)s %(levelname)s %(name)s %(message)s"


def log_to_stderr(form: LogFormat) -> None:
    """Log everything from level INFO on; call it once, at the entry point."""
    handler = logging.StreamHandler()
    handler.setFormatter(json_formatter() if form is LogFormat.JSON else logging.Formatter(_LINES))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    activity.logger.base_logger.addFilter(shorten)
    workflow.logger.workflow_info_on_message = form is LogFormat.TEXT
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs its plugins when it is imported


def shorten(line: logging.LogRecord) -> bool:
    """A filter that keeps every line. An activity that fails because of the database is repeated until it succeeds, in
    an outage many times: the reason is enough then, without a traceback of fifty lines.
    """
    error = line.exc_info[1] if line.exc_info else None
    if isinstance(error, DatabaseUnavailable | TransactionContended | CommitUncertain | LedgerUnavailable):
        line.msg, line.args = f"{line.getMessage()}: {type(error).__name__}: {error}", ()
        line.exc_info = line.exc_text = None
    return True


def json_formatter() -> logging.Formatter:
    """`time` (UTC), `level`, `logger`, `message`, the line's own fields, and `exception` as text."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.stdlib.ExtraAdder(),
            _temporal,
        ],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.EventRenamer("message"),
            structlog.processors.JSONRenderer(default=str, sort_keys=True),
        ],
    )


def _temporal(_logger: Any, _name: str, line: EventDict) -> EventDict:
    """Add where in Temporal a line was logged. The workflow's logger adds it itself, with much else that is dropped."""
    line.pop("temporal_log", None)  # repeats the message of the SDK's core
    from_workflow = line.pop("temporal_workflow", None)
    if from_workflow:
        return {**line, "workflow_id": from_workflow["workflow_id"], "run_id": from_workflow["run_id"]}
    if activity.in_activity():
        info = activity.info()
        run = {"workflow_id": info.workflow_id, "run_id": info.workflow_run_id}
        return {**line, **run, "activity": info.activity_type, "attempt": info.attempt}
    return line
