"""How a halt ends (`resolve`): OldHost and the ledger disagree, and an operator has decided which one to follow.

resend: OldHost must get what the ledger has. adopt: OldHost's count (the nonce it expects) is the truth. What is done
depends on which way they disagree; afterwards the ledger's next nonce is the one that OldHost expects.

OldHost is probed first, as its count may have changed since the halt was shown. If it differs from the one that the
operator was shown, nothing is decided: the operator is shown both and decides again. If OldHost can't be probed (a ban,
no connection), the decision is stored, and the next session that can probe carries it out under the same condition: so
one `resolve` is enough to end a halt.

- OldHost went back, resend: the operations that it lost are bound again, byte-identical; or they wait again, if there
  are more than SENT_AGAIN_MAX, or the ledger no longer has all of them.
- OldHost went back, adopt: they stay applied in the database, and lost at OldHost; their nonces are used again.
  OldHost's state of their keys then counts as unknown, so that a resync sends it again.
- OldHost's count fell in an answer that called our operation applied, either way: it has what it called applied, so
  nothing is sent again; the nonces are used again.
- OldHost went forward, resend: what is in doubt waits again.
- OldHost went forward, adopt: what is in doubt counts as applied, unless OldHost refused each of its sends. A first
  send that was called a replay counts as applied too, if no nonce beyond it is used.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.recovery import Count
from oldhost_sync.policy.limits import RESOLVED_AT_OPENING_MAX, SENT_AGAIN_MAX
from oldhost_sync.store.ledger import operator_statements as sql
from oldhost_sync.store.ledger import statements
from oldhost_sync.store.ledger.completion import record_fate, shortened
from oldhost_sync.store.ledger.mismatch import mismatch_of
from oldhost_sync.store.ledger.setting_apart import end_others, others_of
from oldhost_sync.store.ledger.statements import LedgerRow
from oldhost_sync.store.ledger.used_nonce import ADOPTED, used
from oldhost_sync.store.outbox.pending_fates import FORGET_FROM

# Separates the reason of a halt from what OldHost was found to expect later.
SINCE_THEN = " Since then: "
SENDS_ANY = 2**31 - 1
NO_NONCE = -1


def resolve(connection: Connection, host: str, ledger: LedgerRow, mode: str, count: Count) -> str:
    """End the halt of `ledger`, a locked row; returns a sentence that says what was done.

    The epoch is raised, so that the old session is fenced, and what was only reserved is released.
    """
    connection.exec_driver_sql(sql.NEW_EPOCH, (ledger.epoch + 1, ledger.epoch + 1, host))
    connection.exec_driver_sql(statements.RELEASE_RESERVED, (host,))
    if ledger.last_applied_nonce is None:
        connection.exec_driver_sql(sql.END_HALT, (host,))
        return "the halt is lifted; OldHost was never asked what it expects"
    if count.nonce is None:
        connection.exec_driver_sql(sql.KEEP_DECISION, (mode, host))
        return _kept(ledger, mode, count)
    return _follow(connection, host, ledger, count.nonce, mode)


def carry_out(connection: Connection, host: str, ledger: LedgerRow, expected: int) -> None:
    """Carry out a decision that waited for a probe. `expected` must pass :func:`objection` first."""
    _follow(connection, host, ledger, expected, ledger.resolve_mode)


def are_sent_again(kept: int, highest: int, expected: int) -> bool:
    """Whether what OldHost lost is bound again as it was. `kept`: how many the ledger has, `expected` to `highest`."""
    return kept == highest - expected + 1 and kept <= SENT_AGAIN_MAX


def objection(ledger: LedgerRow, expected: int) -> str:
    """Why nothing may be decided yet: OldHost's count is not the one that the operator was shown. Empty if it is, or if
    it is the ledger's: then both ways do the same, and nothing is given up.
    """
    shown, last = ledger.halted_expected_nonce, ledger.last_applied_nonce
    if shown is not None and shown != expected and expected != (last or 0) + 1:
        return f"OldHost expects nonce {expected} now; it was {shown} when the halt was shown, so nothing was decided."
    if shown is None and last is not None and expected <= last:
        return (
            f"OldHost expects nonce {expected}, though it answered {last} before; "
            "the operator was not shown that, so nothing was decided."
        )
    return ""


def too_many(ledger: LedgerRow, expected: int) -> str:
    """Why the opening of a session can't carry out the decision that waits for it; empty if it can."""
    lost = (ledger.last_applied_nonce or 0) - expected + 1
    if lost <= RESOLVED_AT_OPENING_MAX:
        return ""
    return f"The decision concerns {lost} operations, too many for the opening of a session: decide again by `resolve`."


def show(connection: Connection, host: str, ledger: LedgerRow, expected: int, why: str) -> str:
    """Add to the halt's text what OldHost expects now, and why nothing was decided; returns the text."""
    found = _mismatch(connection, host, ledger, expected)
    fits = "That fits the ledger: both modes of `resolve` continue from there."
    first = str(ledger.halted).partition(SINCE_THEN)[0]
    text = shortened(f"{first}{SINCE_THEN}{why} {found or fits}") or ""
    connection.exec_driver_sql(statements.COMPLETE_HALT, (text, expected, host))
    return text


def _kept(ledger: LedgerRow, mode: str, count: Count) -> str:
    shown = ledger.halted_expected_nonce
    condition = "" if shown is None else f", if that is still nonce {shown}, the one that you were shown"
    return (
        f"OldHost can't be asked what it expects now ({count.why}). The decision is stored: `{mode}` is carried out "
        f"as soon as OldHost says what it expects{condition}"
    )


def _follow(connection: Connection, host: str, ledger: LedgerRow, expected: int, mode: str) -> str:
    connection.exec_driver_sql(sql.END_HALT, (host,))
    connection.exec_driver_sql(sql.FORGET_SAID, (host,))
    if ledger.halted_expected_nonce is None and _mismatch(connection, host, ledger, expected) is None:
        return f"the halt is lifted: OldHost expects nonce {expected}, as the ledger does"
    if expected <= ledger.last_applied_nonce:
        return _went_back(connection, host, ledger, expected, resend=mode == "resend")
    return _went_forward(connection, host, expected, resend=mode == "resend")


def _mismatch(connection: Connection, host: str, ledger: LedgerRow, expected: int) -> str | None:
    """Compare as the next session will: what was only reserved no longer has a nonce."""
    sent = connection.exec_driver_sql(statements.SENT_ROWS, (host,)).all()
    return mismatch_of(expected, ledger, sent)


def _went_back(connection: Connection, host: str, ledger: LedgerRow, expected: int, *, resend: bool) -> str:
    since = (host, expected)
    if ledger.count_fell_at is not None or not resend:
        lost = ledger.last_applied_nonce - expected + 1
        connection.exec_driver_sql(sql.FORGET_STATES_FROM, (expected - 1, *since))
        _archive_from(connection, host, expected, "OldHost's count was adopted")
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, expected, host))
        which = "that it called applied" if ledger.count_fell_at is not None else "that it lost"
        return f"OldHost's count is adopted: {lost} operations {which} are not sent again"
    rows = connection.exec_driver_sql(sql.COUNT_ROWS_FROM, since).scalar_one()
    highest = connection.exec_driver_sql(statements.HIGHEST_NONCE, (host,)).scalar() or expected - 1
    as_they_were = are_sent_again(rows, highest, expected)
    connection.exec_driver_sql(FORGET_FROM, since)
    connection.exec_driver_sql(sql.REOPEN_FROM if as_they_were else sql.RELAY_AGAIN_FROM, since)
    connection.exec_driver_sql(sql.FORGET_APPLIED_FROM, since)
    if as_they_were:
        # The archive keeps when each was sent and answered before.
        connection.exec_driver_sql(sql.ARCHIVE_FROM, ("sent again by an operator's decision", *since))
        connection.exec_driver_sql(sql.SENT_AGAIN_FROM, since)
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, highest + 1, host))
    else:
        _archive_from(connection, host, expected, "OldHost went back; its change waits again")
        connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, expected, host))
    how = "are sent again as they were" if as_they_were else "wait again and get new nonces"
    return f"{rows} operations from nonce {expected} on {how}"


def _went_forward(connection: Connection, host: str, expected: int, *, resend: bool) -> str:
    # Which SENT rows wait again: those below a nonce, with at most this many sends, except a nonce called a replay.
    doubts = (expected, SENDS_ANY, NO_NONCE) if resend else (expected, 0, expected - 1)
    connection.exec_driver_sql(sql.FORGET_STATES_IN_DOUBT, (host, host, expected))
    why = "sent again by an operator's decision" if resend else "each of its sends was refused"
    again = connection.exec_driver_sql(sql.ARCHIVE_DOUBTS, (why, host, *doubts)).rowcount
    connection.exec_driver_sql(sql.DELETE_DOUBTS, (host, *doubts))
    if again:  # those after it have lower nonces than its new one, and would overtake it
        connection.exec_driver_sql(sql.RELEASE_UNWRITTEN_FROM, (host, expected))
    applied = _count_as_applied(connection, host, expected)
    highest = connection.exec_driver_sql(statements.HIGHEST_NONCE, (host,)).scalar() or 0
    connection.exec_driver_sql(sql.COUNT_FROM, (expected - 1, max(highest + 1, expected), host))
    return f"the count continues at nonce {expected}; {applied} in doubt count as applied, {again} wait again"


def _count_as_applied(connection: Connection, host: str, expected: int) -> int:
    doubts = [row for row in connection.exec_driver_sql(statements.SENT_ROWS, (host,)) if row.nonce < expected]
    for row in doubts:
        others = others_of(connection, host, row)
        found = used(row, ADOPTED, shared=bool(others))
        values = (found.status, shortened(found.answer), host, row.nonce)
        connection.exec_driver_sql(statements.COMPLETE_FOUND, values)
        record_fate(connection, host, found.ending)
        end_others(connection, host, others, expected)
    return len(doubts)


def _archive_from(connection: Connection, host: str, expected: int, why: str) -> None:
    connection.exec_driver_sql(sql.ARCHIVE_FROM, (why, host, expected))
    connection.exec_driver_sql(sql.DELETE_FROM, (host, expected))
