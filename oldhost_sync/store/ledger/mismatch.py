"""The text of a halt: why OldHost's expected nonce contradicts the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oldhost_sync.oldhost.expected_nonce import STALE_SECONDS_MAX


def mismatch_of(expected: int, ledger: Any, sent: Sequence[Any]) -> str | None:
    """Why OldHost's expected nonce contradicts the ledger, as a sentence for operators; None when the two agree.

    `ledger`: its row. `sent`: the rows that are SENT, by nonce (`statements.SENT_ROWS`); nothing beyond them has one.
    """
    last_applied = ledger.last_applied_nonce
    beyond = last_applied + len(sent)
    if expected > beyond + 1:
        return (
            f"OldHost expects nonce {expected}, the ledger has assigned none beyond {beyond}: "
            "another client wrote to OldHost, or this database was restored. Decide by `resolve`."
        )
    if expected <= last_applied and ledger.count_fell_at is not None:
        return (
            f"OldHost expects nonce {expected}: its count fell as it called our nonce {ledger.count_fell_at} applied. "
            "It has what it called applied; none of that is sent again. Decide by `resolve`."
        )
    if expected <= last_applied:
        return (
            f"OldHost expects nonce {expected}, but it answered {last_applied} before: "
            "it went back, as after a restore from a backup. Decide by `resolve`."
        )
    not_ours = next((row for row in sent if row.nonce < expected and not row.sends), None)
    if not_ours is not None:
        how = "never written" if not_ours.said_status is None else "refused each time it was sent"
        return (
            f"OldHost expects nonce {expected}, but our operation {not_ours.nonce} was {how}: "
            "another client wrote to OldHost. Decide by `resolve`."
        )
    denied = _denied(expected, sent)
    if denied is not None:
        return (
            f"OldHost expects nonce {expected}, but it said before that nonce {denied.nonce} is used: "
            "it went back, or an older answer comes from a cache. It is not sent again. Decide by `resolve`."
        )
    return None


def stale(expected: int, sent: Sequence[Any]) -> str | None:
    """Why this reading is an older answer: OldHost said a moment ago that it used a nonce, which the reading denies."""
    denied = _denied(expected, sent)
    if denied is None or denied.sent_ms_ago > 1000 * STALE_SECONDS_MAX:
        return None
    return f"OldHost said that nonce {denied.nonce} is used, and now it expects {expected}: an older answer"


def _denied(expected: int, sent: Sequence[Any]) -> Any:
    return next((row for row in sent if row.nonce >= expected and row.said_used), None)
