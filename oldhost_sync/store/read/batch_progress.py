"""How far a batch is: its changes have the batch's key and their place, `key:0` and so on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

from oldhost_sync.policy.limits import BATCH_CHANGES_MAX
from oldhost_sync.store.ledger.reservation import HAS_NONCE
from oldhost_sync.store.outbox.pending_fates import JOIN_PENDING
from oldhost_sync.store.record import RECORD, described

# Each key is looked up in its index.
_STATES = text(
    f"SELECT o.source, COALESCE(p.outcome, o.outcome, IF({HAS_NONCE}, 'IN_FLIGHT', 'WAITING')) AS state, "
    "COUNT(*) AS changes "
    f"FROM outbox_events o {JOIN_PENDING} WHERE o.host = :host AND o.idempotency_key IN :keys GROUP BY o.source, state"
).bindparams(bindparam("keys", expanding=True))
_SCHEDULED = text(
    "SELECT source, IF(cancelled_at IS NULL, 'SCHEDULED', 'CANCELLED') AS state, COUNT(*) AS changes "
    "FROM scheduled_changes WHERE host = :host AND idempotency_key IN :keys AND recorded_at IS NULL "
    "GROUP BY source, state"
).bindparams(bindparam("keys", expanding=True))
_OPEN = frozenset({"WAITING", "IN_FLIGHT", "SCHEDULED"})


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How many changes of a batch are in each state."""

    __pydantic_config__ = RECORD
    EXAMPLE: ClassVar[dict[str, Any]] = {
        "idempotency_key": "housekeeping-2093",
        "changes": 3,
        "open": 1,
        "states": {"APPLIED": 1, "SUPERSEDED": 1, "WAITING": 1},
    }

    idempotency_key: str
    changes: int = field(metadata=described("How many are recorded"))
    open: int = field(metadata=described("How many of these have no fate yet"))
    states: dict[str, int] = field(
        metadata=described("SCHEDULED, CANCELLED, WAITING, IN_FLIGHT, or the fate: how many")
    )


def batch_progress(connection: Connection, host: str, key: str) -> list[tuple[str, str, int]]:
    """(source, state, how many) of the batch with this key."""
    values = {"host": host, "keys": [f"{key}:{index}" for index in range(BATCH_CHANGES_MAX)]}
    return [
        (str(row.source), str(row.state), int(row.changes))
        for query in (_STATES, _SCHEDULED)
        for row in connection.execute(query, values)
    ]


def summed(key: str, found: list[tuple[str, str, int]]) -> BatchProgress:
    """Over all sources."""
    states: dict[str, int] = {}
    for _, state, count in found:
        states[state] = states.get(state, 0) + count
    still = sum(count for state, count in states.items() if state in _OPEN)
    return BatchProgress(key, sum(states.values()), still, dict(sorted(states.items())))
