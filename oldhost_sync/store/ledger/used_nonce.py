"""What a used nonce proves about the operation that it is bound to, when no definite answer was recorded. Pure.

OldHost uses a nonce for an apply and for a rejection. A complete answer that the protocol does not have decides between
them as far as it can: 4xx is a rejection; any other leaves it open, and an operator decides. Only if no complete answer
arrived, the operation counts as applied, unconfirmed (I14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oldhost_sync.policy.changes import ChangeResult, Outcome
from oldhost_sync.store.ledger.completion import Ending

UNCONFIRMED = "unconfirmed: OldHost expected a later nonce, and its answer was lost"
# The first word of an unsure letter's text: such letters have groups and alerts of their own.
UNSURE = "unsure: "
ADOPTED = "counted as applied by an operator's decision"


@dataclass(frozen=True, slots=True)
class UsedNonce:
    """How the ledger's row ends (`status`, `answer`), and its change."""

    status: str
    answer: str
    ending: Ending

    @property
    def fate(self) -> ChangeResult:
        """For the writer, without OldHost's words: they may quote what was sent (I9)."""
        ending = self.ending
        error = None if ending.outcome is Outcome.APPLIED else "OldHost gave an answer that the protocol does not have"
        return ChangeResult(ending.change_id, ending.outcome.value, ending.nonce, error, unproven=ending.unproven)


def used(row: Any, otherwise: str = UNCONFIRMED, *, shared: bool = False) -> UsedNonce:
    """`row`: SENT, its nonce used (`statements.SENT_ROWS`). `otherwise`: why it counts as applied if no answer came.
    `shared`: another operation had the nonce before, and may have used it.
    """
    if not row.sends or row.said_send != row.sends:
        if shared:
            why = f"{UNSURE}its answer was lost, and another operation had nonce {row.nonce}, too"
            return UsedNonce("UNSURE", why, Ending.unsure(row, why))
        return UsedNonce("APPLIED", otherwise, Ending.unconfirmed(row))
    if 400 <= row.said_status < 500:
        ending = Ending.of(row, Outcome.DEAD, nonce=row.nonce, error=row.answer)
        return UsedNonce("FAILED", f"rejected: {row.answer}", ending)
    unsure = f"{UNSURE}{row.answer}"
    return UsedNonce("UNSURE", unsure, Ending.unsure(row, unsure))
