"""How errors are told: one line on standard error that says what is wrong and what to do, and an exit code.

0 done · 1 it could not be done, or not all of it · 2 the command or a setting is wrong · 130 interrupted.
A traceback is for us: `--traceback` shows it.
"""

from __future__ import annotations

import sys

from sqlalchemy.exc import DBAPIError

from oldhost_sync.planner import ScenarioError
from oldhost_sync.settings import SettingsError
from oldhost_sync.store.errors import CommitUncertain, DatabaseUnavailable, InvalidChange, StoreError
from oldhost_sync.store.transactions import error_code

FAILED, WRONG, INTERRUPTED = 1, 2, 130

# MariaDB's words for "not set up for us".
_NOT_SET_UP = {1044: "access denied", 1045: "access denied", 1049: "unknown database", 1142: "access denied"}
_NOT_MIGRATED = {1054: "a column is missing", 1146: "a table is missing"}


class CliError(Exception):
    """What the user must know, as one line. `exit_code` as in the module's docstring."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def tell(message: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"oldhost-sync: {' '.join(message.split())}\n")


def explain(error: BaseException) -> CliError | None:
    """What to tell of `error`; None when it is not one that was foreseen."""
    if isinstance(error, CliError):
        return error
    if isinstance(error, SettingsError):
        return CliError(f"{error}. Set it in the environment or in .env.", WRONG)
    if isinstance(error, ScenarioError | InvalidChange):
        return CliError(str(error), WRONG)
    if isinstance(error, StoreError | DBAPIError):
        told = _told_of_the_database(error)
        return CliError(told) if told else None
    from oldhost_sync.stack.up import EXPECTED

    return CliError(str(error)) if isinstance(error, EXPECTED) else None


def _told_of_the_database(error: StoreError | DBAPIError) -> str:
    code = error_code(error)
    if isinstance(error, DatabaseUnavailable):
        return f"the database can't be reached: {error}. Start it, or check SYNC_DATABASE_URL; is `oldhost-sync up` running?"
    if isinstance(error, CommitUncertain):
        return f"{error}. Repeat the command: what was done already is not done twice."
    if isinstance(error, StoreError):
        return str(error)
    if code in _NOT_MIGRATED:
        return f"the database is not up to date ({_NOT_MIGRATED[code]}): run `oldhost-sync migrate`."
    if code in _NOT_SET_UP:
        return f"the database refuses us ({_NOT_SET_UP[code]}): check SYNC_DATABASE_URL."
    return ""
