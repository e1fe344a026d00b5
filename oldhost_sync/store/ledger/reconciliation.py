"""How a session begins: its owner takes the host over and compares what is in doubt with the nonce OldHost expects.

The takeover raises the epoch, releases what was only reserved, and lists what is in doubt. The comparison finds the
nonce of each operation in doubt either used (`used_nonce` says what that proves) or still bound; where OldHost's
expected nonce contradicts the ledger, it halts.
"""

from __future__ import annotations

from sqlalchemy.engine import Connection

from oldhost_sync.oldhost.errors import check
from oldhost_sync.oldhost.ledger import BOUND_MAX, InDoubt, Reconciled, TakenOver
from oldhost_sync.policy.changes import ChangeResult
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.completion import record_fate, shortened
from oldhost_sync.store.ledger.fence import lock
from oldhost_sync.store.ledger.halt_resolution import carry_out, objection, show, too_many
from oldhost_sync.store.ledger.machine_clock import MachineClock
from oldhost_sync.store.ledger.mismatch import mismatch_of, stale
from oldhost_sync.store.ledger.setting_apart import end_others, others_of, set_apart
from oldhost_sync.store.ledger.used_nonce import used
from oldhost_sync.store.outbox.relay_queue import as_ref


def take_over(connection: Connection, host: str, owner: str, *, settle_ms: int, clock: MachineClock) -> TakenOver:
    connection.exec_driver_sql(sql.CREATE_LEDGER, (host,))
    row = connection.exec_driver_sql(sql.LOCK_LEDGER, (host,)).one()
    epoch = row.epoch + 1
    changed = connection.exec_driver_sql(sql.NEXT_EPOCH, (epoch, shortened(owner), host, row.epoch))
    check(changed.rowcount == 1, "the epoch changed although the ledger row was locked")
    released = connection.exec_driver_sql(sql.RESERVED_CHANGES, (host,)).scalars().all()
    connection.exec_driver_sql(sql.RELEASE_RESERVED, (host,))
    next_nonce = _lower_next_nonce(connection, host, row.next_nonce, row.last_applied_nonce)
    in_doubt = connection.exec_driver_sql(sql.IN_DOUBT, (host, BOUND_MAX)).all()
    age_ms = _doubt_age_ms(connection, host, clock)
    return TakenOver(
        epoch=epoch,
        next_nonce=next_nonce,
        last_applied_nonce=row.last_applied_nonce,
        in_doubt=[InDoubt(*row) for row in in_doubt],
        released=list(released),
        banned_ms=max(0, row.banned_ms or 0),
        ban_told_ms_ago=-1 if row.ban_told_ms_ago is None else row.ban_told_ms_ago,
        settle_wait_ms=0 if age_ms is None else max(0, settle_ms - age_ms),
        halted=None if row.resolve_mode else row.halted,
        halt_knows_expected=row.halted_expected_nonce is not None,
    )


def _doubt_age_ms(connection: Connection, host: str, clock: MachineClock) -> int | None:
    """The minimum age of the youngest send in doubt, allowing for a database clock that was set forward."""
    youngest = connection.exec_driver_sql(sql.YOUNGEST_SENT_MS, (host,)).scalar()
    ahead_us = clock.ahead_us(connection, host)  # after reading the age, so that a step before it is noticed
    connection.exec_driver_sql(sql.BRING_SENT_AT_FORWARD, (ahead_us, host))
    return None if youngest is None else max(0, youngest - ahead_us // 1000)


def _lower_next_nonce(
    connection: Connection, host: str, next_nonce: int | None, last_applied: int | None
) -> int | None:
    """Free nonces whose reservation was released or that OldHost did not consume, so that no gap remains."""
    if next_nonce is None or last_applied is None:
        return None
    highest = connection.exec_driver_sql(sql.HIGHEST_NONCE, (host,)).scalar()
    lowered = max(last_applied, last_applied if highest is None else highest) + 1
    check(lowered <= next_nonce, f"nonce {lowered - 1} is bound, but the ledger's next nonce is {next_nonce}")
    connection.exec_driver_sql(sql.SET_NEXT_NONCE, (lowered, host))
    return lowered


def reconcile(connection: Connection, host: str, epoch: int, expected: int, *, final: bool) -> Reconciled:
    ledger = lock(connection, host, epoch)
    if ledger.halted is not None and ledger.resolve_mode is not None:
        why = objection(ledger, expected) or too_many(ledger, expected)
        if why and not final:
            return Reconciled(mismatch=why)
        if why:
            return Reconciled(halted=show(connection, host, ledger, expected, why))
        carry_out(connection, host, ledger, expected)
        ledger = lock(connection, host, epoch)
    if ledger.halted is not None:
        return Reconciled(halted=ledger.halted)
    sent = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    nonces = [row.nonce for row in sent]
    due = list(range(ledger.last_applied_nonce + 1, ledger.next_nonce))
    check(nonces == due, f"SENT are the nonces {nonces[:5]}; by the ledger row, {len(due)} should be: {due[:5]}")
    why_stale = stale(expected, sent) if expected > ledger.last_applied_nonce else None
    if why_stale is not None:
        return Reconciled(stale=why_stale)
    mismatch = mismatch_of(expected, ledger, sent)
    if mismatch is not None and not final:
        return Reconciled(mismatch=mismatch)
    if mismatch is not None:
        connection.exec_driver_sql(sql.HALT, (expected, shortened(mismatch), host))
        return Reconciled(halted=mismatch)
    if ledger.count_fell_at is not None:
        connection.exec_driver_sql(sql.COUNT_FELL, (None, host))
    if not ledger.ban_is_over:
        connection.exec_driver_sql(sql.END_BAN, (host,))
    fates, left = _end_used(connection, host, epoch, expected, list(sent))
    given_up, apart = set_apart(connection, host, expected, expected - 1, left)
    fates += given_up
    rows = connection.exec_driver_sql(sql.BOUND_REFS, (host, expected, BOUND_MAX + 1)).all()
    return Reconciled(fates, [as_ref(row) for row in rows[:BOUND_MAX]], more_bound=len(rows) > BOUND_MAX, apart=apart)


def _end_used(
    connection: Connection, host: str, epoch: int, expected: int, sent: list[sql.SentRow]
) -> tuple[list[ChangeResult], list[sql.SentRow]]:
    """The fates of the operations below `expected`, and what is in doubt then: with them another may lose its nonce."""
    used_up = [row for row in sent if row.nonce < expected]
    if not used_up:
        return [], sent
    fates = [fate for row in used_up for fate in _found_used(connection, host, epoch, row, expected)]
    return fates, list(connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all())


def _found_used(connection: Connection, host: str, epoch: int, row: sql.SentRow, expected: int) -> list[ChangeResult]:
    """OldHost expects a later nonce: the operation in doubt has used its own, or one that had the nonce before."""
    others = others_of(connection, host, row)
    found = used(row, shared=bool(others))
    advanced = connection.exec_driver_sql(sql.LAST_APPLIED, (row.nonce, host, epoch, row.nonce - 1))
    check(advanced.rowcount == 1, f"nonce {row.nonce} is not the next to be used up")
    values = (found.status, shortened(found.answer), host, row.nonce)
    check(connection.exec_driver_sql(sql.COMPLETE_FOUND, values).rowcount == 1, f"nonce {row.nonce} was not SENT")
    record_fate(connection, host, found.ending, numbered=True)
    return [found.fate, *end_others(connection, host, others, expected)]


def complete_halt(connection: Connection, host: str, epoch: int, expected: int) -> str:
    row = lock(connection, host, epoch)
    if row.halted is None or row.halted_expected_nonce is not None or row.next_nonce is None:
        return row.halted or ""
    sent = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    mismatch = mismatch_of(expected, row, sent)
    if mismatch is None:
        return str(row.halted)
    why = shortened(f"{row.halted} And: {mismatch}") or ""
    connection.exec_driver_sql(sql.COMPLETE_HALT, (why, expected, host))
    return why
