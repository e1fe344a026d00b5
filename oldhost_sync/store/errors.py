"""The errors that the store raises; for each: where the fault is, and whether a retry helps.

StoreError
├── DatabaseUnavailable   the database; yes, later (nothing was committed)
│   ├── StatementTooSlow      this statement; yes, later (nothing was committed)
│   ├── TlsFailed             a certificate; yes, when it was corrected (nothing was committed)
│   ├── AccessRefused         the account; yes, when it was corrected (nothing was committed)
│   └── StatementRefused      the platform: the database was changed; yes, when it was corrected (nothing was committed)
├── TransactionContended  no fault; yes, later (nothing was committed)
│   └── RowLocked             who holds the row; yes, later (nothing was committed)
├── CommitUncertain       the network; look it up by its unique key first (it may have been committed)
├── UnsuitableServer      the platform; no, not before the server is set up as the message says
├── SchemaTooOld          the platform; no, not before `oldhost-sync migrate` ran
├── UnknownHost           who named it; no, not under this name
├── UnknownName           the operator; no, not under this name
└── InvalidChange         the caller; no, not with this change
    ├── IdempotencyConflict   the caller; no, not under this key
    ├── EntityRefused         the caller; yes, when the other change of its entity is corrected
    └── ChangesRefused        the caller; see each result
"""

# ruff: noqa: N818 - a name says what happened, as `except DatabaseUnavailable` reads

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oldhost_sync.store.intake.change_recorder import RecordedChange


class StoreError(Exception):
    """The base of all errors that the store raises itself."""


class DatabaseUnavailable(StoreError):
    """MariaDB is unreachable, shutting down, full or too slow. Nothing was committed; try again later."""


class StatementTooSlow(DatabaseUnavailable):
    """MariaDB ended a statement that took too long. It answers, so other statements may work."""


class TlsFailed(DatabaseUnavailable):
    """The server's certificate or ours was refused; the message says why."""


class AccessRefused(DatabaseUnavailable):
    """MariaDB refuses our account, or what it may do. New connections work as soon as that was corrected."""


class StatementRefused(DatabaseUnavailable):
    """MariaDB refuses a statement of ours as it is: somebody added a column or a trigger, or a limit of its own. Others
    may work.
    """


class TransactionContended(StoreError):
    """All attempts ended in a deadlock or a lock wait timeout. Nothing was committed; try again later."""


class RowLocked(TransactionContended):
    """Another transaction held a row for longer than we wait."""


class CommitUncertain(StoreError):
    """COMMIT was not confirmed: it may have been committed. Look it up by its unique key before repeating.

    `reason`: why, if that is known, in words that anybody may read.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class UnsuitableServer(StoreError):
    """The server's settings do not allow the product's promises; the message says what to set."""


class SchemaTooOld(StoreError):
    """The database's schema is older than this release needs; the message says what to run."""


class UnknownHost(StoreError):
    """No such host was registered; the message says which were."""


class UnknownName(StoreError):
    """Nothing has this name; the message says what was looked for."""


class TransactionNeeded(StoreError):
    """The connection commits each statement, so a change could be recorded although its caller fails."""


class InvalidChange(StoreError):
    """The change is outside the limits or has a field of the wrong type; the message says which `field` and why."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class IdempotencyConflict(InvalidChange):
    """The idempotency key was used for another change. Use a new key for a new change."""


class EntityRefused(InvalidChange):
    """Another change of the same batch and entity was refused: item `because_of`, counted from 0. This one is valid; it
    will be recorded if it is submitted without the other one, or after that was corrected.
    """

    def __init__(self, because_of: int) -> None:
        super().__init__(f"not recorded: item {because_of} of the batch is of the same entity and was refused")
        self.because_of = because_of


class ChangesRefused(InvalidChange):
    """Some changes of a batch were refused; `results` has the result of each, in the batch's order."""

    def __init__(self, results: Sequence[RecordedChange | StoreError]) -> None:
        refused = [(index, result) for index, result in enumerate(results) if isinstance(result, StoreError)]
        index, first = next((each for each in refused if not isinstance(each[1], EntityRefused)), refused[0])
        super().__init__(f"{len(refused)} of {len(results)} changes were refused; item {index}: {first}")
        self.results = list(results)
