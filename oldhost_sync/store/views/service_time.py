"""How long OldHost usually takes for an operation: the median of a sample, spread over the last twenty thousand.

At 400 ms each these are two hours of sending, so that a slowdown of OldHost shows against it.
"""

from __future__ import annotations

from math import ceil
from statistics import median

from sqlalchemy import bindparam, text
from sqlalchemy.engine import Connection

OPERATIONS, LOOKED_AT = 20_000, 100
# The smallest sample that counts.
LOOKED_AT_MIN = 10

_NONCES = text("SELECT MIN(nonce) AS first, MAX(nonce) AS last FROM nonce_requests WHERE host = :host")
# An operation is marked while the one before it is on the wire; its own time begins at that one's answer.
_TIMES = text(
    "SELECT TIMESTAMPDIFF(MICROSECOND, GREATEST(o.sent_at, COALESCE(b.completed_at, o.sent_at)), o.completed_at) "
    "FROM nonce_requests o FORCE INDEX (PRIMARY) LEFT JOIN nonce_requests b ON b.host = o.host "
    "AND b.nonce = o.nonce - 1 WHERE o.host = :host AND o.nonce IN :nonces AND o.status = 'APPLIED' AND o.sends = 1"
).bindparams(bindparam("nonces", expanding=True))


def usual_service_ms(connection: Connection, host: str) -> float | None:
    """None while too few operations were answered."""
    known = connection.execute(_NONCES, {"host": host}).one()
    if known.last is None:
        return None
    first = max(known.first, known.last - OPERATIONS + 1)
    step = ceil((known.last - first + 1) / LOOKED_AT)
    nonces = list(range(known.last, first - 1, -step))
    times = connection.execute(_TIMES, {"host": host, "nonces": nonces}).scalars().all()
    return median(times) / 1000 if len(times) >= LOOKED_AT_MIN else None
