"""Forget what ended long ago, a bounded batch at a time, so that no lock is held for long and tables stay small.

Never forgotten: changes without a fate, dead letters that nobody decided on, the rows of nonces that may still be
compared with OldHost, open alerts, operators' acts. With a change its idempotency key is forgotten, too.
"""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import Connection

# The last rows of the ledger stay, however old: a host that went back is sent them again.
NONCES_KEPT = 10_000

_BEFORE = "UTC_TIMESTAMP(6) - INTERVAL :days DAY"
_PRUNE = (
    text(
        f"DELETE FROM outbox_events WHERE host = :host AND processed_at < {_BEFORE} AND outcome <> 'DEAD' "
        "AND NOT EXISTS (SELECT 1 FROM nonce_requests r WHERE r.host = outbox_events.host "
        "AND r.change_id = outbox_events.id) ORDER BY processed_at LIMIT :rows"
    ),
    text(f"DELETE FROM scheduled_changes WHERE host = :host AND recorded_at < {_BEFORE} LIMIT :rows"),
    text(
        f"DELETE FROM scheduled_changes WHERE host = :host AND recorded_at IS NULL AND cancelled_at < {_BEFORE} "
        "LIMIT :rows"
    ),
    text(f"DELETE FROM alerts WHERE host = :host AND closed_at < {_BEFORE} LIMIT :rows"),
)
# Nonces end in their order, so only the lowest can be old: a look at them alone, not at all there are.
_PRUNE_NONCES = text(
    "DELETE r FROM nonce_requests r JOIN (SELECT host, nonce FROM nonce_requests "
    "WHERE host = :host AND nonce < :below ORDER BY nonce LIMIT :rows) lowest USING (host, nonce) "
    f"WHERE r.completed_at < {_BEFORE}"
)
_SETTLED = text("SELECT last_applied_nonce FROM nonce_ledger WHERE host = :host")


def prune(connection: Connection, host: str, *, days: int, rows: int) -> int:
    """Delete at most `rows` rows of each kind that ended more than `days` days ago; returns how many went."""
    values = {"host": host, "days": days, "rows": rows}
    settled = connection.execute(_SETTLED, {"host": host}).scalar()
    gone = 0
    if settled is not None:
        gone += connection.execute(_PRUNE_NONCES, values | {"below": settled - NONCES_KEPT}).rowcount
    for statement in _PRUNE:
        gone += connection.execute(statement, values).rowcount
    return gone
