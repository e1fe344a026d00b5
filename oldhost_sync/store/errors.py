"""What may go wrong at the store's boundary; each leaf says whose fault it is and whether to try again.

StoreError
├── DatabaseUnavailable   the database's; yes, later (nothing was committed)
├── TransactionContended  nobody's; yes, later (nothing was committed)
├── CommitUncertain       the network's; look by unique key first (it may have been committed)
├── UnsuitableServer      the platform's; no, not before the server is set up as asked
├── SchemaTooOld          the platform's; no, not before `oldhost-sync migrate` ran
├── UnknownHost           the operator's; no, not under this name
├── UnknownName           the operator's; no, not under this name
└── InvalidChange         the caller's; no, not with this change
    ├── IdempotencyConflict   the caller's; no, not under this key
    ├── EntityRefused         the caller's; yes, when the other change of its entity is mended
    └── ChangesRefused        the caller's; each result says so for itself
"""

# ruff: noqa: N818 - a name says what happened, as `except DatabaseUnavailable` reads

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oldhost_sync.store.intake.change_recorder import RecordedChange


class StoreError(Exception):
    """Anything the store raises on purpose."""


class DatabaseUnavailable(StoreError):
    """MariaDB is away, shutting down, full or too slow. Nothing was committed; try again later."""


class TransactionContended(StoreError):
    """Deadlocks or lock waits outlasted all repetitions. Nothing was committed; try again later."""


class CommitUncertain(StoreError):
    """The connection was lost at COMMIT: it may have been committed. Look by unique key before repeating."""


class UnsuitableServer(StoreError):
    """The server can't keep the product's promises; its message says what to set."""


class SchemaTooOld(StoreError):
    """The database's schema is older than this release needs; its message says what to run."""


class UnknownHost(StoreError):
    """Nobody made this host known; its message says which are."""


class UnknownName(StoreError):
    """Nothing has this name; its message says what was looked for."""


class InvalidChange(StoreError):
    """The change is outside the limits or has the wrong shape; its message says which field and why."""


class IdempotencyConflict(InvalidChange):
    """The idempotency key was used for another change. Use a new key for a new change."""


class EntityRefused(InvalidChange):
    """Another change of the same batch and entity was refused: item `because_of`, counted from 0. Nothing is wrong with
    this one; it is recorded when it is sent without the other, or with the other mended.
    """

    def __init__(self, because_of: int) -> None:
        super().__init__(f"not recorded: item {because_of} of the batch is of the same entity and was refused")
        self.because_of = because_of


class ChangesRefused(InvalidChange):
    """Some changes of a batch were refused; `results` says of each what became of it, in the batch's order."""

    def __init__(self, results: Sequence[RecordedChange | StoreError]) -> None:
        refused = [(index, result) for index, result in enumerate(results) if isinstance(result, StoreError)]
        index, first = next((each for each in refused if not isinstance(each[1], EntityRefused)), refused[0])
        super().__init__(f"{len(refused)} of {len(results)} changes were refused; item {index}: {first}")
        self.results = list(results)
