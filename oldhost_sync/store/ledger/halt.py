"""A halt: OldHost's count (the nonce that it expects) contradicts the ledger, and an operator decides which one to
follow.

`resolve` ends it. resend: OldHost must get what the ledger has. adopt: OldHost's count is the truth. What is done
depends on which way they disagree; afterwards the ledger's next nonce is the one that OldHost expects.

OldHost is probed first, as its count may have changed since the halt was shown. If it differs from the one that the
operator was shown, nothing is decided: the operator is shown both and decides again. If OldHost can't be probed (a ban,
no connection), the decision is stored, and the next session that can probe carries it out under the same condition: so
one `resolve` is enough to end a halt. Of a host of a kind that can't be asked the operator's word is the count: adopt
says that it has taken what is in doubt, resend that it has not.

- OldHost went back, resend: the operations that it lost are bound again, byte-identical; or they wait again, if there
  are more than SENT_AGAIN_MAX, or the ledger no longer has all of them.
- OldHost went back, adopt: they stay applied in the database, and missing at OldHost; their nonces are used again.
  OldHost's state of their keys then counts as unknown, so that a resync sends it again.
- OldHost's count fell in an answer that called our operation applied, either way: it has what it called applied, so
  nothing is sent again; the nonces are used again.
- OldHost went forward, resend: what is in doubt waits again.
- OldHost went forward, adopt: what is in doubt counts as applied, unless OldHost refused each of its sends. A first
  send that was called a replay counts as applied too, if no nonce beyond it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.expected_nonce import STALE_SECONDS_MAX
from oldhost_sync.oldhost.ledger import Count
from oldhost_sync.policy.limits import RESOLVED_AT_OPENING_MAX, SENT_AGAIN_MAX
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.fates import ADOPTED, end_used, others_of, shortened
from oldhost_sync.store.ledger.statements import LedgerRow
from oldhost_sync.store.outbox.pending_fates import AT_ONCE, FORGET_FROM

# --------------------------------------------------------------------------------------------------- whether they agree


def mismatch_of(expected: int, ledger: Any, sent: Sequence[Any]) -> str | None:
    """Why OldHost's expected nonce contradicts the ledger, as a sentence for operators; None when the two agree.

    `ledger`: its row. `sent`: the rows that are SENT, by nonce (`sql.SENT_ROWS`); nothing beyond them has one.
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
        how = "never written" if not_ours.said_send is None else "refused each time it was sent"
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


# How a halt begins about an operation whose fate only an operator can find out.
NOBODY_KNOWS = "nobody can say whether OldHost took change"

# ---------------------------------------------------------------------------------------------------------- how it ends

# Separates the reason of a halt from what OldHost was found to expect later.
SINCE_THEN = " Since then: "
SENDS_ANY = 2**31 - 1
NO_NONCE = -1

# The first opening after it says up to which id (`ACCEPT_LOSSES`).
_NEW_EPOCH = (
    "UPDATE nonce_ledger SET epoch = %s, resolved_epoch = %s, losses_accepted_at = UTC_TIMESTAMP(6), "
    "losses_accepted_id = NULL WHERE host = %s"
)
_END_HALT = (
    "UPDATE nonce_ledger SET halted = NULL, halted_expected_nonce = NULL, resolve_mode = NULL, count_fell_at = NULL, "
    "updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
# An operator has decided: what an answer said of these nonces before is not held against OldHost any more.
_FORGET_SAID = "UPDATE nonce_requests SET said_used = 0 WHERE host = %s AND status = 'SENT' AND said_used = 1"
_KEEP_DECISION = "UPDATE nonce_ledger SET resolve_mode = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
_COUNT_FROM = (
    "UPDATE nonce_ledger SET last_applied_nonce = %s, next_nonce = %s, updated_at = UTC_TIMESTAMP(6) WHERE host = %s"
)
# How many rows there are from nonce `expected` on.
_COUNT_ROWS_FROM = "SELECT COUNT(*) FROM nonce_requests WHERE host = %s AND nonce >= %s"
_REOPEN_TEMPLATE = (
    f"{AT_ONCE}UPDATE outbox_events o "
    "JOIN nonce_requests r ON r.change_id = o.id AND r.host = o.host AND o.nonce = r.nonce "
    "SET o.outcome = NULL, o.processed_at = NULL, o.nonce = NULL, o.error = NULL, o.unproven = 0, "
    "o.fate_sequence = NULL{also} "
    "WHERE r.host = %s AND r.nonce >= %s AND o.outcome IN ('APPLIED', 'DEAD')"
)
_REOPEN_FROM = _REOPEN_TEMPLATE.format(also="")
# The relay hands them over as the writer has room.
_RELAY_AGAIN_FROM = _REOPEN_TEMPLATE.format(also=", o.relayed_at = NULL")
_FORGET_APPLIED_FROM = "DELETE FROM applied_states WHERE host = %s AND nonce >= %s"
# OldHost had these states and lost them: no change counts as equal to what it has now, and a resync sends them again.
# Their nonces will be used again, so each gets a nonce lower than all that follow.
_FORGET_STATES_FROM = "UPDATE applied_states SET payload_hash = '', nonce = %s WHERE host = %s AND nonce >= %s"
_SENT_AGAIN_FROM = (
    "UPDATE nonce_requests SET status = 'SENT', sends = 0, completed_at = NULL, said_rejects = 0, "
    "said_send = NULL, said_used = 0, refused = 0, "
    "answer = 'to be sent again by an operator''s decision', sent_at = COALESCE(sent_at, UTC_TIMESTAMP(6)) "
    "WHERE host = %s AND nonce >= %s"
)
# For keys with an operation in doubt below `expected`: OldHost's state is unknown, so no change counts as equal to it.
_FORGET_STATES_IN_DOUBT = (
    "UPDATE applied_states SET payload_hash = '' WHERE host = %s AND (entity_type, entity_id, event_type) IN "
    "(SELECT o.entity_type, o.entity_id, o.event_type FROM nonce_requests r JOIN outbox_events o ON o.id = r.change_id "
    "WHERE r.host = %s AND r.status = 'SENT' AND r.nonce < %s)"
)
# In doubt below `expected`; `sends` 0: not applied, as far as we can know. One exception: an operation that was called
# a replay at its first send, with no nonce used beyond it, may have been delivered twice. `adopt` decides that it was.
_DOUBTS = (
    "status = 'SENT' AND nonce < %s AND sends <= %s "
    f"AND NOT (nonce = %s AND COALESCE(answer, '') = '{sql.CALLED_A_REPLAY}')"
)
# Marked but never written, because the operation before it was not answered.
_RELEASE_UNWRITTEN_FROM = "DELETE FROM nonce_requests WHERE host = %s AND nonce >= %s AND status = 'SENT' AND sends = 0"


def resolve(connection: Connection, host: str, ledger: LedgerRow, mode: str, count: Count) -> str:
    """End the halt of `ledger`, a locked row; returns a sentence that says what was done.

    The epoch is raised, so that the old session is fenced, and what was only reserved is released.
    """
    connection.exec_driver_sql(_NEW_EPOCH, (ledger.epoch + 1, ledger.epoch + 1, host))
    connection.exec_driver_sql(sql.RELEASE_RESERVED, (host,))
    if ledger.last_applied_nonce is None:
        connection.exec_driver_sql(_END_HALT, (host,))
        if count.nonce is None:
            return "the halt is lifted; OldHost was never asked what it expects"
        connection.exec_driver_sql(sql.ADOPT, (count.nonce, count.nonce - 1, "", host))
        return f"the count begins at nonce {count.nonce}"
    if count.never:
        return take_word(connection, host, ledger, mode, count.nonce)
    if count.nonce is None:
        connection.exec_driver_sql(_KEEP_DECISION, (mode, host))
        return _kept(ledger, mode, count)
    return _follow(connection, host, ledger, count.nonce, mode)


def carry_out(connection: Connection, host: str, ledger: LedgerRow, expected: int) -> None:
    """Carry out a decision that waited for a probe. `expected` must pass :func:`objection` first."""
    _follow(connection, host, ledger, expected, ledger.resolve_mode)


def take_word(connection: Connection, host: str, ledger: LedgerRow, mode: str, expected: int | None = None) -> str:
    """The host can't be asked, so the operator's word is its count: about the operation that the halt names, or from
    `expected` on, as the operator says it. A halt for another reason is lifted, and decides about no operation.
    """
    sent = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    doubtful = [row for row in sent if row.sends or row.answer == sql.CALLED_A_REPLAY]
    if expected is None:
        expected = ledger.halted_expected_nonce
    goes_again = expected is not None or mode == "resend"
    if expected is None and doubtful:
        expected = _by_word(doubtful[0], ledger, mode)
    if expected is None:
        connection.exec_driver_sql(_END_HALT, (host,))
        return "the halt is lifted; it was about no operation"
    if mismatch_of(expected, ledger, sent) is not None:
        return _follow(connection, host, ledger, expected, mode)
    connection.exec_driver_sql(_END_HALT, (host,))
    connection.exec_driver_sql(_FORGET_SAID, (host,))
    said = _went_forward(connection, host, expected, resend=False)
    if not goes_again:
        return said  # of what is in doubt behind one that it has, nothing is said
    again = connection.exec_driver_sql(_SENT_AGAIN_FROM, (host, expected)).rowcount
    return f"{said}, {again} are sent again as they were"


def _by_word(first: Any, ledger: LedgerRow, mode: str) -> int | None:
    """What the host wants next, by the operator's word about the first operation in doubt; None: the halt is not about
    that one.
    """
    is_replay = first.answer == sql.CALLED_A_REPLAY
    if not is_replay and not str(ledger.halted).startswith(NOBODY_KNOWS):
        return None
    is_used = is_replay or mode == "adopt"
    return int(first.nonce) + 1 if is_used else int(first.nonce)


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
    mismatch = _mismatch(connection, host, ledger, expected)
    fits = "That fits the ledger: both modes of `resolve` continue from there."
    first = str(ledger.halted).partition(SINCE_THEN)[0]
    text = shortened(f"{first}{SINCE_THEN}{why} {mismatch or fits}") or ""
    connection.exec_driver_sql(sql.COMPLETE_HALT, (text, expected, host))
    return text


def _kept(ledger: LedgerRow, mode: str, count: Count) -> str:
    shown = ledger.halted_expected_nonce
    condition = "" if shown is None else f", if that is still nonce {shown}, the one that you were shown"
    return (
        f"OldHost can't be asked what it expects now ({count.why}). The decision is stored: `{mode}` is carried out "
        f"as soon as OldHost says what it expects{condition}"
    )


def _follow(connection: Connection, host: str, ledger: LedgerRow, expected: int, mode: str) -> str:
    connection.exec_driver_sql(_END_HALT, (host,))
    connection.exec_driver_sql(_FORGET_SAID, (host,))
    if ledger.halted_expected_nonce is None and _mismatch(connection, host, ledger, expected) is None:
        return f"the halt is lifted: OldHost expects nonce {expected}, as the ledger does"
    if expected <= ledger.last_applied_nonce:
        return _went_back(connection, host, ledger, expected, resend=mode == "resend")
    return _went_forward(connection, host, expected, resend=mode == "resend")


def _mismatch(connection: Connection, host: str, ledger: LedgerRow, expected: int) -> str | None:
    """Compare as the next session will: what was only reserved no longer has a nonce."""
    sent = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    return mismatch_of(expected, ledger, sent)


def _went_back(connection: Connection, host: str, ledger: LedgerRow, expected: int, *, resend: bool) -> str:
    since = (host, expected)
    if ledger.count_fell_at is not None or not resend:
        lost = ledger.last_applied_nonce - expected + 1
        connection.exec_driver_sql(_FORGET_STATES_FROM, (expected - 1, *since))
        sql.archive(connection, host, "nonce >= %s", (expected,), "OldHost's count was adopted")
        connection.exec_driver_sql(_COUNT_FROM, (expected - 1, expected, host))
        which = "that it called applied" if ledger.count_fell_at is not None else "that it lost"
        return f"OldHost's count is adopted: {lost} operations {which} are not sent again"
    rows = connection.exec_driver_sql(_COUNT_ROWS_FROM, since).scalar_one()
    highest = connection.exec_driver_sql(sql.HIGHEST_NONCE, (host,)).scalar() or expected - 1
    as_they_were = are_sent_again(rows, highest, expected)
    connection.exec_driver_sql(FORGET_FROM, since)
    connection.exec_driver_sql(_REOPEN_FROM if as_they_were else _RELAY_AGAIN_FROM, since)
    connection.exec_driver_sql(_FORGET_APPLIED_FROM, since)
    if as_they_were:
        # The archive keeps when each was sent and answered before.
        connection.exec_driver_sql(f"{sql.ARCHIVE}nonce >= %s", ("sent again by an operator's decision", *since))
        connection.exec_driver_sql(_SENT_AGAIN_FROM, since)
        connection.exec_driver_sql(_COUNT_FROM, (expected - 1, highest + 1, host))
    else:
        sql.archive(connection, host, "nonce >= %s", (expected,), "OldHost went back; its change waits again")
        connection.exec_driver_sql(_COUNT_FROM, (expected - 1, expected, host))
    how = "are sent again as they were" if as_they_were else "wait again and get new nonces"
    return f"{rows} operations from nonce {expected} on {how}"


def _went_forward(connection: Connection, host: str, expected: int, *, resend: bool) -> str:
    # Which SENT rows wait again: those below a nonce, with at most this many sends, except a nonce called a replay.
    doubts = (expected, SENDS_ANY, NO_NONCE) if resend else (expected, 0, expected - 1)
    connection.exec_driver_sql(_FORGET_STATES_IN_DOUBT, (host, host, expected))
    why = "sent again by an operator's decision" if resend else "each of its sends was refused"
    again = sql.archive(connection, host, _DOUBTS, doubts, why)
    if again:  # those after it have lower nonces than its new one, and would overtake it
        connection.exec_driver_sql(_RELEASE_UNWRITTEN_FROM, (host, expected))
    applied = [row for row in connection.exec_driver_sql(sql.SENT_ROWS, (host,)) if row.nonce < expected]
    for row in applied:
        end_used(connection, host, row, others_of(connection, host, row), expected, otherwise=ADOPTED)
    highest = connection.exec_driver_sql(sql.HIGHEST_NONCE, (host,)).scalar() or 0
    connection.exec_driver_sql(_COUNT_FROM, (expected - 1, max(highest + 1, expected), host))
    return f"the count continues at nonce {expected}; {len(applied)} in doubt count as applied, {again} wait again"


# ------------------------------------------------------------------------------------------------- a cause that is gone

# OldHost may say a wrong count for a while, as after its restart, and then the right one. The halt stays an operator's
# to end, but it says so, and then both ways of ending it do the same.

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
    ledger = connection.exec_driver_sql(sql.LOCK_LEDGER, (host,)).one_or_none()
    if ledger is None or ledger.halted is None or ledger.resolve_mode is not None or ledger.last_applied_nonce is None:
        return ""
    shown = ledger.halted_expected_nonce
    if count.nonce is None or shown in {None, count.nonce} or count.nonce != ledger.last_applied_nonce + 1:
        return ""
    why = f"OldHost expects nonce {count.nonce} now; it was {shown} before."
    return show(connection, host, ledger, count.nonce, why)
