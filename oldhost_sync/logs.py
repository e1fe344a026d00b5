"""What a role logs to stderr: lines for people, or one JSON object per line (SYNC_LOG_FORMAT). Never a payload.

Nothing waits for the log's reader. One that stops reading its pipe would stop whatever logs next: a session, the watch
over it, the API's event loop; and the worker would keep OldHost's only connection.

Modules use Python's own logging and pass the subject of a line as `extra`: `host`, `epoch`, `nonce`, `change_id`, … A
line from an activity or a workflow also holds its run, so that it can be found in Temporal's UI.
"""

from __future__ import annotations

import logging
import os
import select
import sys
from queue import SimpleQueue
from textwrap import indent
from threading import Event, RLock, Thread
from typing import Any

import structlog
from structlog.typing import EventDict
from temporalio import activity, workflow

from oldhost_sync.oldhost.errors import LedgerUnavailable
from oldhost_sync.policy.plain_text import plain
from oldhost_sync.settings import LogFormat
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, TransactionContended

# Lines that wait to be written; more are dropped, and counted.
LINES_WAITING_MAX = 10_000
# How long the end of the process waits until its last lines are written.
LAST_LINES_SECONDS = 1.0

_LINES = "%(asctime)s %(levelname)s %(name)s %(message)s"


def log_to_stderr(form: LogFormat) -> None:
    """Log everything from level INFO on; call it once, at the entry point."""
    handler = LineWriter(sys.__stderr__.fileno()) if sys.__stderr__ is not None else logging.NullHandler()
    handler.setFormatter(json_formatter() if form is LogFormat.JSON else PlainLines(_LINES))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    activity.logger.base_logger.addFilter(shorten)
    workflow.logger.workflow_info_on_message = form is LogFormat.TEXT
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs its plugins when it is imported


class PlainLines(logging.Formatter):
    """One line for each message, whatever it contains; a traceback follows in lines that are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return plain(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return indent(plain(super().formatException(ei), lines=True), "  ")


class LineWriter(logging.Handler):
    """Writes to a file descriptor, in a thread of its own. The thread that logs formats its line and goes on.

    Whatever a line needs may be done again in the middle of it: the garbage collector may run there, and what it frees
    may log. So a SimpleQueue, which allows that, and no lock of ours that the same thread can't take twice.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._waiting: SimpleQueue[str | Event] = SimpleQueue()
        self._dropped = 0
        self._counting = RLock()
        Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() >= LINES_WAITING_MAX:
            self._count_dropped(1)
            return
        try:
            self._waiting.put(self.format(record))
        except Exception:  # noqa: BLE001 - a line that can't be formatted; Python's handlers would write to stderr
            self._count_dropped(1)

    def flush(self) -> None:
        """Wait until all lines are written, but not for a reader that has stopped."""
        written = Event()
        self._waiting.put(written)
        written.wait(LAST_LINES_SECONDS)

    def _write_all(self) -> None:
        while True:
            line = self._waiting.get()
            if (dropped := self._count_dropped(0)) and self._write(self._tell(dropped)):
                self._count_dropped(-dropped)
            if isinstance(line, Event):
                line.set()
            elif not self._write(line):
                self._count_dropped(1)

    def _tell(self, dropped: int) -> str:
        text = "%s lines are missing: nobody read this log, or they could not be written"
        known = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": text, "args": (dropped,)}
        return self.format(logging.makeLogRecord(known))

    def _count_dropped(self, more: int) -> int:
        with self._counting:
            self._dropped += more
            return self._dropped

    def _write(self, line: str) -> bool:
        """Write a line, however long that takes; False if it can't be written."""
        left = f"{line}\n".encode(errors="backslashreplace")
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # whoever started us made the pipe non-blocking
                select.select([], [self._descriptor], [])
            except OSError:
                return False
        return True


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
