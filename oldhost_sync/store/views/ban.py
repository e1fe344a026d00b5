"""The current ban: its beginning and end, and what the ledger shows about its cause.

OldHost bans for a replay, and does not say for which request. A send of ours can be a replay only if OldHost may have
had its nonce before and did not answer: such an operation is still in doubt, as nothing is sent during a ban.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.engine import Connection

from oldhost_sync.store.columns import UtcDateTime
from oldhost_sync.store.ledger.statements import CALLED_A_REPLAY

_BAN = text(
    "SELECT l.banned_at, l.banned_until, l.halted_expected_nonce, r.nonce, r.answer FROM nonce_ledger l "
    "LEFT JOIN nonce_requests r FORCE INDEX (ix_nonce_requests_status) ON r.host = l.host AND r.status = 'SENT' "
    # An operation in doubt has an answer if it was called a replay, or is sent again by an operator's decision.
    "AND (r.sends > 1 OR (r.sends = 1 AND r.answer IS NOT NULL) OR r.answer = :replay) "
    "WHERE l.host = :host AND NOT l.ban_is_over AND UTC_TIMESTAMP(6) BETWEEN l.banned_at AND l.banned_until "
    "ORDER BY r.nonce LIMIT 1"
).columns(banned_at=UtcDateTime(), banned_until=UtcDateTime())
_BY_ANOTHER = (
    "OldHost does not say why. By the ledger no send of ours was a replay: another program with our account sent one, "
    "or a proxy repeated one of ours."
)


@dataclass(frozen=True, slots=True)
class Ban:
    """`cause`: sentences for people."""

    began_at: datetime
    until: datetime
    cause: str


def read_ban(connection: Connection, host: str) -> Ban | None:
    """None if the ledger has no current ban."""
    row = connection.execute(_BAN, {"host": host, "replay": CALLED_A_REPLAY}).one_or_none()
    if row is None:
        return None
    return Ban(row.banned_at, row.banned_until, _cause(row.nonce, row.answer, row.halted_expected_nonce))


def _cause(nonce: int | None, answer: str | None, expected: int | None) -> str:
    """`expected`: the nonce that OldHost expected at the halt, if known."""
    if nonce is None:
        return _BY_ANOTHER
    if answer != CALLED_A_REPLAY:
        return f"We sent nonce {nonce} more than once, as no answer arrived: OldHost may have taken that for a replay."
    said = f"OldHost called our first send of nonce {nonce} a replay: another program with our account had used it"
    only_that = expected is not None and expected > nonce + 1
    return f"{said}." if only_that else f"{said}, or a proxy delivered our operation twice."
