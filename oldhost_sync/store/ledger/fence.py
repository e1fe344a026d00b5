"""The first step of each transaction: lock the host's ledger row, and refuse a session whose epoch is stale."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.errors import Fenced, LedgerHalted, check
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.statements import LedgerRow


def lock(connection: Connection, host: str, epoch: int) -> LedgerRow:
    row = connection.exec_driver_sql(sql.LOCK_LEDGER, (host,)).one_or_none()
    if row is None or row.epoch != epoch:
        current = "there is none" if row is None else f"the current epoch is {row.epoch}"
        raise Fenced(f"epoch {epoch} is stale; {current}")
    return row


def lock_sending(connection: Connection, host: str, epoch: int) -> LedgerRow:
    """Also raises LedgerHalted while the ledger is halted."""
    row = lock(connection, host, epoch)
    if row.halted is not None:
        raise LedgerHalted(row.halted)
    check(row.next_nonce is not None, "the ledger has no next nonce: OldHost was never asked which one it expects")
    return row


def write_sending(connection: Connection, host: str, epoch: int) -> None:
    """As :func:`lock_sending`, and it writes the row: so a takeover on another server of a cluster conflicts."""
    if connection.exec_driver_sql(sql.WRITE_FENCE, (host, epoch)).rowcount != 1:
        lock_sending(connection, host, epoch)
        check(False, "the ledger's row allows sending, but could not be written")
