"""What may go wrong at the store's boundary; each leaf says whose fault it is and whether to try again.

StoreError
├── DatabaseUnavailable   the database's; yes, later (nothing was committed)
├── TransactionContended  nobody's; yes, later (nothing was committed)
├── CommitUncertain       the network's; look by unique key first (it may have been committed)
├── UnsuitableServer      the platform's; no, not before the server is set up as asked
└── InvalidChange         the caller's; no, not with this change
    └── IdempotencyConflict   the caller's; no, not under this key
"""

# ruff: noqa: N818 - a name says what happened, as `except DatabaseUnavailable` reads

from __future__ import annotations


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


class InvalidChange(StoreError):
    """The change is outside the limits or has the wrong shape; its message says which field and why."""


class IdempotencyConflict(InvalidChange):
    """The idempotency key was used for another change. Use a new key for a new change."""
