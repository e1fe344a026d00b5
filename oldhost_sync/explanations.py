"""What users are told about an error: what is wrong and what to do, as a CliError.

A module of its own, as it knows the errors of every part, and a command that succeeds needs none of them.
"""

from __future__ import annotations

import errno
import re
import traceback
from typing import TYPE_CHECKING, NoReturn

from sqlalchemy.exc import DBAPIError

from oldhost_sync.planner import ScenarioError
from oldhost_sync.settings import SettingsError
from oldhost_sync.settlement.settlement_file import SettlementError
from oldhost_sync.store.errors import (
    ACCESS_ERRORS,
    NOT_MIGRATED_ERRORS,
    CommitUncertain,
    DatabaseUnavailable,
    InvalidChange,
    StatementRefused,
    StatementTooSlow,
    StoreError,
    TlsFailed,
    error_code,
)
from oldhost_sync.user_errors import FAILED, WRONG, CliError, print_error, write_last_words

if TYPE_CHECKING:
    from oldhost_sync.temporal.writer_client import WriterError

START_TEMPORAL = "Start it, or check TEMPORAL_ADDRESS; is `oldhost-sync up` running?"

# Neither Python nor the SDK has a specific class for these errors.
_NO_THREAD = "can't start new thread"
_WORKER_REFUSED = "Worker validation failed: "
# The core's text for an answer that ends a worker's polling.
_REFUSED = re.compile(r'Status \{ code: (?:NotFound|PermissionDenied|Unauthenticated), message: "([^"]*)"')


def report_error(error: Exception, program: str) -> int:
    """Print an expected error and return the exit code; raise any other again."""
    known = explain(error)
    if known is None:
        raise error
    print_error(str(known), program, is_last=True)
    return known.exit_code


def leave_after(error: Exception, program: str) -> NoReturn:
    """Print the error, with its traceback if it is an unforeseen one, and end the process without the teardown."""
    from oldhost_sync.temporal.client import leave

    try:
        code = report_error(error, program)
    except Exception:  # noqa: BLE001 - its traceback is all that is left to do
        write_last_words(traceback.format_exc())
        code = FAILED
    leave(code)


def explain(error: BaseException) -> CliError | None:
    """The text for `error`; None when it is unexpected."""
    if isinstance(error, ExceptionGroup):  # of a role's tasks: the first one has ended the others
        known = [explain(each) for each in error.exceptions]
        return known[0] if all(known) else None
    if isinstance(error, CliError):
        return error
    if isinstance(error, SettingsError):
        return CliError(f"{error}. Set it in the environment or in .env.", WRONG)
    if isinstance(error, SettlementError):
        return CliError(f"{error}.")
    if isinstance(error, ScenarioError | InvalidChange):
        return CliError(str(error), WRONG)
    if isinstance(error, StoreError | DBAPIError):
        text = _explain_database(error)
        return CliError(text) if text else None
    if isinstance(error, OSError) or str(error) == _NO_THREAD:
        return CliError(_explain_machine(error))
    return _explain_servers(error)


def _explain_servers(error: BaseException) -> CliError | None:
    # Slow to import, and not needed by a command that succeeds.
    from temporalio.service import RPCError, RPCStatusCode

    from oldhost_sync.stack.machine import PortTaken, StackError
    from oldhost_sync.temporal.client import TemporalUnavailable
    from oldhost_sync.temporal.writer_client import WriterError

    if isinstance(error, WriterError):
        return CliError(_explain_writer(error))
    if isinstance(error, TemporalUnavailable):
        return CliError(f"{error}. {START_TEMPORAL}")
    if isinstance(error, RPCError):
        wrong = error.status in {
            RPCStatusCode.NOT_FOUND,
            RPCStatusCode.PERMISSION_DENIED,
            RPCStatusCode.UNAUTHENTICATED,
        }
        advice = "Check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY." if wrong else START_TEMPORAL
        return CliError(f"Temporal refused: {error.message.rstrip('.')}. {advice}")
    if isinstance(error, RuntimeError) and (refused := _REFUSED.search(str(error.__cause__))):
        return CliError(
            f"Temporal refused the worker: {refused[1].rstrip('.')}. Check TEMPORAL_NAMESPACE and TEMPORAL_API_KEY."
        )
    if isinstance(error, RuntimeError) and str(error).startswith(_WORKER_REFUSED):
        why = str(error).removeprefix(_WORKER_REFUSED).partition(": Status")[0]
        return CliError(f"Temporal refused the worker: {why}. Check TEMPORAL_NAMESPACE.")
    if isinstance(error, PortTaken):
        return CliError(f"{error}. Stop what listens there, or choose another port.")
    return CliError(str(error)) if isinstance(error, StackError) else None


def _explain_writer(error: WriterError) -> str:
    from oldhost_sync.temporal.writer_client import Cause, UpdateRefused, WriterBusy, WriterUnavailable
    from workflows.messages import workflow_id

    if isinstance(error, UpdateRefused):
        return f"the writer refused to {error.name}: {error}."
    note = " The act may still be carried out: look at the status before you repeat it."
    if isinstance(error, WriterBusy):
        todo = note if error.may_be_done else " Repeat it in a moment."
        return f"the writer is carrying out other requests: {error}.{todo}"
    if not isinstance(error, WriterUnavailable):
        return f"the writer can't answer this query: {error}."
    unreached = "Temporal can't be reached"
    unpause = f"`temporal workflow unpause -w {workflow_id(error.host)}`"
    texts = {
        Cause.NOT_CONNECTED: f"{str(error) or unreached}. {START_TEMPORAL}",
        Cause.NO_TEMPORAL: f"Temporal does not answer. {START_TEMPORAL}",
        Cause.NO_NAMESPACE: f"{error}. Check TEMPORAL_NAMESPACE, or create it again.",
        Cause.NO_WRITER: f"the writer of {error.host!r} is not running. A relay starts it, and so does "
        "`python starter.py`.",
        Cause.PAUSED_IN_TEMPORAL: f"the writer of {error.host!r} does nothing: {error}. Unpause it there: {unpause}.",
        Cause.FAILING: f"the writer of {error.host!r} is stuck: {error}. Restart a worker that is stuck, or deploy the "
        "release that the run began with. Only if neither helps, terminate the run: the relay starts another.",
        Cause.NO_WORKER: f"the writer of {error.host!r} does not answer: {error}. "
        + (f"{error.cure[:1].upper()}{error.cure[1:]}." if error.cure else "Start a worker: `oldhost-sync worker`."),
        Cause.TOO_SLOW: f"the writer of {error.host!r} did not answer in time. `oldhost-sync alerts` says whether "
        "something is wrong.",
    }
    return texts[error.cause] + (note if error.may_be_done else "")


def _explain_machine(error: BaseException) -> str:
    if not isinstance(error, OSError):
        return "the system gives this process no more threads: raise its limit (pids.max, RLIMIT_NPROC)."
    why = error.strerror or str(error)
    if error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES} and error.filename is None:
        return f"can't listen: {why}. Stop what listens there, or choose another SYNC_METRICS_BIND or SYNC_API_BIND."
    return f"{error.filename}: {why}." if error.filename is not None else f"{why}."


def _explain_database(error: StoreError | DBAPIError) -> str:
    code = error_code(error.__cause__ if isinstance(error, DatabaseUnavailable) and error.__cause__ else error)
    if code in ACCESS_ERRORS:
        return f"the database refuses us ({ACCESS_ERRORS[code]}): check SYNC_DATABASE_URL, and what its account may do."
    if isinstance(error, DatabaseUnavailable):
        return _explain_unavailable(error)
    if isinstance(error, CommitUncertain):
        return f"{error}. Repeat the command: nothing is done twice."
    if isinstance(error, StoreError):
        return str(error)
    if code in NOT_MIGRATED_ERRORS:
        return f"the database is not up to date ({NOT_MIGRATED_ERRORS[code]}): run `oldhost-sync migrate`."
    return ""


def _explain_unavailable(error: DatabaseUnavailable) -> str:
    if isinstance(error, TlsFailed):
        return f"{error}. Check its certificate, and the TLS options of SYNC_DATABASE_URL."
    if isinstance(error, StatementRefused):
        return f"{error}. Undo what was changed in the database without `oldhost-sync migrate`; ask its administrator."
    if isinstance(error, StatementTooSlow):
        return f"the database answers, but too slowly: {error}. Repeat the command when the database has less to do."
    advice = "Start it, or check SYNC_DATABASE_URL; is `oldhost-sync up` running?"
    return f"the database can't be reached: {error}. {advice}"
