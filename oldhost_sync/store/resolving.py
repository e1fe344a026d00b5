"""How a halt ends (`resolve`): OldHost and the ledger disagree, and an operator has said who is to be followed.

resend: OldHost must get what the ledger has. adopt: OldHost's count is the truth. What is done depends on which way
they disagree; afterwards the ledger expects what OldHost expected when the halt was raised, and the next session
compares again: if OldHost has moved meanwhile, that is another halt.

| OldHost        | resend                                                       | adopt                                      |
|----------------|--------------------------------------------------------------|--------------------------------------------|
| went back      | its lost operations are bound again, byte-identical, or wait | they stay applied in the books, and lost   |
|                | again when the ledger has no unbroken row of them            | at OldHost; the numbers are used again     |
| went forward   | what is in doubt waits again                                 | what is in doubt counts as applied, unless |
|                |                                                              | each of its sends was refused; one that    |
|                |                                                              | was called a replay at its first send      |
|                |                                                              | counts, where nothing is used beyond it    |
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from oldhost_sync.store import decisions_sql as sql
from oldhost_sync.store import ledger_sql
from oldhost_sync.store.ledger_sql import LedgerRow
from oldhost_sync.store.pending_fates import FORGET_FROM
from oldhost_sync.store.settling import Ending, settle

SENDS_ANY = 2**31 - 1
NO_NONCE = -1


def resolve(connection: Connection, host: str, ledger: LedgerRow, *, resend: bool) -> str:
    """End the halt of `ledger`, a row that is locked and halted; gives a sentence that says what was done.

    The epoch moves on, so that whoever acted in the old one is fenced, and what was only reserved is released.
    """
    connection.exec_driver_sql(sql.NEW_EPOCH, (host,))
    connection.exec_driver_sql(ledger_sql.RELEASE_RESERVED, (host,))
    expected, last = ledger.halted_expected_nonce, ledger.last_applied_nonce
    if expected is None or last is None:
        return "the halt is lifted; the next session compares with OldHost"
    if expected <= last:
        return _went_back(connection, host, ledger, expected, resend=resend)
    return _went_forward(connection, host, expected, resend=resend)


def _went_back(connection: Connection, host: str, ledger: LedgerRow, expected: int, *, resend: bool) -> str:
    since = (host, expected)
    if not resend:
        lost = ledger.last_applied_nonce - expected + 1
        _archive_from(connection, host, expected, "OldHost's count was adopted")
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, expected, host))
        return f"OldHost's count is adopted: {lost} operations that it lost are not sent again"
    rows = connection.exec_driver_sql(sql.COUNT_ROWS_FROM, since).scalar_one()
    highest = connection.exec_driver_sql(ledger_sql.HIGHEST_NONCE, (host,)).scalar() or expected - 1
    unbroken = rows == highest - expected + 1
    connection.exec_driver_sql(FORGET_FROM, since)
    connection.exec_driver_sql(sql.REOPEN_FROM, since)
    if unbroken:
        connection.exec_driver_sql(sql.FORGET_APPLIED_FROM, since)
        # When each was sent and answered before is kept.
        connection.exec_driver_sql(sql.ARCHIVE_FROM, ("sent again by an operator's decision", *since))
        connection.exec_driver_sql(sql.SENT_AGAIN_FROM, since)
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, highest + 1, host))
    else:
        _archive_from(connection, host, expected, "OldHost went back; its change waits again")
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, expected, host))
    how = "are sent again as they were" if unbroken else "wait again and get new nonces"
    return f"{rows} operations from nonce {expected} on {how}"


def _went_forward(connection: Connection, host: str, expected: int, *, resend: bool) -> str:
    # (below, refused so often, but for this one)
    doubts = (expected, SENDS_ANY, NO_NONCE) if resend else (expected, 0, expected - 1)
    connection.exec_driver_sql(sql.FORGET_STATES_IN_DOUBT, (host, host, expected))
    why = "sent again by an operator's decision" if resend else "each of its sends was refused"
    again = connection.exec_driver_sql(sql.ARCHIVE_DOUBTS, (why, host, *doubts)).rowcount
    connection.exec_driver_sql(sql.DELETE_DOUBTS, (host, *doubts))
    applied = _settle_doubts(connection, host, expected)
    highest = connection.exec_driver_sql(ledger_sql.HIGHEST_NONCE, (host,)).scalar() or 0
    connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, max(highest + 1, expected), host))
    return f"the count goes on at nonce {expected}; {applied} in doubt count as applied, {again} wait again"


def _settle_doubts(connection: Connection, host: str, expected: int) -> int:
    doubts = [row for row in connection.exec_driver_sql(ledger_sql.SENT_ROWS, (host,)) if row.nonce < expected]
    for row in doubts:
        values = ("APPLIED", "counted as applied by an operator's decision", host, row.nonce)
        connection.exec_driver_sql(ledger_sql.COMPLETE_FOUND, values)
        settle(connection, host, Ending.found_applied(row))
    return len(doubts)


def _archive_from(connection: Connection, host: str, expected: int, why: str) -> None:
    connection.exec_driver_sql(sql.FORGET_APPLIED_FROM, (host, expected))
    connection.exec_driver_sql(sql.ARCHIVE_FROM, (why, host, expected))
    connection.exec_driver_sql(sql.DELETE_FROM, (host, expected))
