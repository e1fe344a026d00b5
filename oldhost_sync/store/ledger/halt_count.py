"""A halt whose cause may be gone: OldHost said a wrong count for a while, as after its restart, and now says the right
one. The halt stays an operator's to end, but it says so, and then both ways of ending it do the same.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.recovery import Count
from oldhost_sync.store.ledger import statements
from oldhost_sync.store.ledger.halt_resolution import show

# Halts by OldHost's count, which nobody has decided about, and which is not known to fit.
_HALTED = (
    "SELECT host FROM nonce_ledger WHERE halted IS NOT NULL AND resolve_mode IS NULL "
    "AND halted_expected_nonce <> last_applied_nonce + 1 ORDER BY host"
)


def halted_by_count(connection: Connection) -> list[str]:
    """The hosts whose count contradicts the ledger, as far as it is known."""
    return list(connection.exec_driver_sql(_HALTED).scalars())


def note_count(connection: Connection, host: str, count: Count) -> str:
    """Add to the halt's text that OldHost's count fits the ledger again; returns the text, empty if it does not."""
    ledger = connection.exec_driver_sql(statements.LOCK_LEDGER, (host,)).one_or_none()
    if ledger is None or ledger.halted is None or ledger.resolve_mode is not None or ledger.last_applied_nonce is None:
        return ""
    shown = ledger.halted_expected_nonce
    if count.nonce is None or shown in {None, count.nonce} or count.nonce != ledger.last_applied_nonce + 1:
        return ""
    why = f"OldHost expects nonce {count.nonce} now; it was {shown} before."
    return show(connection, host, ledger, count.nonce, why)
