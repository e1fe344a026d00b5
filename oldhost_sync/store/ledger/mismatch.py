"""The text of a halt: why OldHost's expected nonce contradicts the ledger."""

from __future__ import annotations

from collections.abc import Sequence


def mismatch_of(expected: int, last_applied: int, next_nonce: int, sends: Sequence[int]) -> str | None:
    """Why OldHost's expected nonce contradicts the ledger, as a sentence for operators; None when the two agree."""
    if expected > next_nonce:
        return (
            f"OldHost expects nonce {expected}, the ledger has assigned none beyond {next_nonce - 1}: "
            "another client wrote to OldHost, or this database was restored. Decide by `resolve`."
        )
    if expected <= last_applied:
        return (
            f"OldHost expects nonce {expected}, but it answered {last_applied} before: "
            "it went back, as after a restore from a backup. Decide by `resolve`."
        )
    used_up = sends[: expected - last_applied - 1]
    if 0 in used_up:
        nonce = last_applied + 1 + used_up.index(0)
        return (
            f"OldHost expects nonce {expected}, but our operation {nonce} was refused each time it was sent: "
            "another client wrote to OldHost. Decide by `resolve`."
        )
    return None
