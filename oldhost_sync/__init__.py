"""OldHost Sync keeps a single-connection, nonce-guarded legacy host in step with a fast application.

For applications that write to the same MariaDB:

    from oldhost_sync import record_change, record_changes

A name is loaded when it is first used, so that importing the package loads neither Temporal nor the API.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oldhost_sync.store.autogenerate import include_object
    from oldhost_sync.store.errors import (
        CommitUncertain,
        DatabaseUnavailable,
        EntityRefused,
        IdempotencyConflict,
        InvalidChange,
        StoreError,
        TransactionContended,
        TransactionNeeded,
        UnknownHost,
    )
    from oldhost_sync.store.intake.batch_recorder import ChangesRefused, record_changes
    from oldhost_sync.store.intake.change_recorder import RecordedChange, record_change
    from oldhost_sync.store.transactions import run_in_transaction

__all__ = [
    "ChangesRefused",
    "CommitUncertain",
    "DatabaseUnavailable",
    "EntityRefused",
    "IdempotencyConflict",
    "InvalidChange",
    "RecordedChange",
    "StoreError",
    "TransactionContended",
    "TransactionNeeded",
    "UnknownHost",
    "include_object",
    "record_change",
    "record_changes",
    "run_in_transaction",
]

_MODULES = {
    "include_object": "oldhost_sync.store.autogenerate",
    "ChangesRefused": "oldhost_sync.store.intake.batch_recorder",
    "RecordedChange": "oldhost_sync.store.intake.change_recorder",
    "record_change": "oldhost_sync.store.intake.change_recorder",
    "record_changes": "oldhost_sync.store.intake.batch_recorder",
    "run_in_transaction": "oldhost_sync.store.transactions",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "oldhost_sync.store.errors")), name)
