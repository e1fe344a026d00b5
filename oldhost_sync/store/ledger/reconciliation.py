"""How a session begins: its owner takes the host over and compares what is in doubt with the nonce OldHost expects.

The takeover raises the epoch, releases what was only reserved, and lists what is in doubt. The comparison finds the
nonce of each operation in doubt either used (`fates.used` says what that proves) or still bound; where what OldHost
says contradicts the ledger, or nobody can say what became of an operation, it halts.

The settle time is measured by the database's clock, which all workers share. But that clock can be set forward (an NTP
step, a fail-over to a server that is ahead), and then a request sent a second ago would look an hour old. So each
takeover compares how far the database's clock and this machine's have advanced since this machine's last takeover, and
subtracts the difference. A machine without an earlier takeover assumes that what is in doubt was sent just now.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy.engine import Connection

from oldhost_sync.drivers.ambiguity import Resends
from oldhost_sync.oldhost.errors import check
from oldhost_sync.oldhost.ledger import BOUND_MAX, Evidence, InDoubt, Reconciled, TakenOver
from oldhost_sync.policy.changes import ChangeResult, PriorityClass
from oldhost_sync.store.ledger import statements as sql
from oldhost_sync.store.ledger.fates import end_used, others_of, set_apart, shortened
from oldhost_sync.store.ledger.halt import (
    NOBODY_KNOWS,
    carry_out,
    mismatch_of,
    objection,
    show,
    stale,
    take_word,
    too_many,
)
from oldhost_sync.store.ledger.statements import lock
from oldhost_sync.store.outbox.outstanding_changes import as_ref

# -------------------------------------------------------------------------------------------------- the machine's clock

# The result when nothing is known about the database's clock: longer than any wait.
UNKNOWN_US = 365 * 24 * 3600 * 1_000_000

# `began_at`: when this machine's clock was zero, by the database's clock.
_KNOW = (
    "INSERT INTO machine_clocks (host, machine, began_at) VALUES (%s, %s, UTC_TIMESTAMP(6) - INTERVAL %s MICROSECOND)"
)
_GONE_MS = (
    "SELECT TIMESTAMPDIFF(MICROSECOND, began_at, UTC_TIMESTAMP(6)) DIV 1000 FROM machine_clocks "
    "WHERE host = %s AND machine = %s"
)
_SET = (
    "UPDATE machine_clocks SET began_at = began_at + INTERVAL %s MICROSECOND, seen_at = UTC_TIMESTAMP(6) "
    "WHERE host = %s AND machine = %s"
)


def steady_clock() -> float:
    """Seconds of a clock that also counts while the machine sleeps, where the system has one."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _machine() -> str:
    """An id that all processes share until the machine restarts, as they share its monotonic clock until then."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(uuid.uuid4())


MACHINE = _machine()


@dataclass(frozen=True, slots=True)
class MachineClock:
    """`steady`: returns the clock's seconds. `machine`: the id of the machine that it belongs to."""

    steady: Callable[[], float] = steady_clock
    machine: str = MACHINE

    def ahead_us(self, connection: Connection, host: str) -> int:
        """By how many microseconds, at least, the database's clock was set forward since this machine last asked."""
        is_new = self._gone_us(connection, host) is None
        if is_new:
            connection.exec_driver_sql(_KNOW, (host, self.machine, self._us()))
        before = self._us()
        gone = self._gone_us(connection, host) or 0
        connection.exec_driver_sql(_SET, (gone - self._us(), host, self.machine))
        return UNKNOWN_US if is_new else max(0, gone - before)

    def _gone_us(self, connection: Connection, host: str) -> int | None:
        gone_ms = connection.exec_driver_sql(_GONE_MS, (host, self.machine)).scalar()
        return None if gone_ms is None else 1000 * int(gone_ms)

    def _us(self) -> int:
        return round(self.steady() * 1_000_000)


THIS_MACHINE = MachineClock()


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
        incarnation=row.host_incarnation,
        base=row.host_base,
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


def reconcile(connection: Connection, host: str, epoch: int, evidence: Evidence, *, final: bool) -> Reconciled:
    ledger = lock(connection, host, epoch)
    if ledger.halted is not None and ledger.resolve_mode is not None and evidence.expected is None:
        take_word(connection, host, ledger, ledger.resolve_mode)
        ledger = lock(connection, host, epoch)
    if ledger.halted is not None and ledger.resolve_mode is not None and evidence.expected is not None:
        why = objection(ledger, evidence.expected) or too_many(ledger, evidence.expected)
        if why and not final:
            return Reconciled(mismatch=why)
        if why:
            return Reconciled(halted=show(connection, host, ledger, evidence.expected, why))
        carry_out(connection, host, ledger, evidence.expected)
        ledger = lock(connection, host, epoch)
    if ledger.halted is not None:
        return Reconciled(halted=ledger.halted)
    sent = connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all()
    nonces = [row.nonce for row in sent]
    due = list(range(ledger.last_applied_nonce + 1, ledger.next_nonce))
    check(nonces == due, f"SENT are the nonces {nonces[:5]}; by the ledger row, {len(due)} should be: {due[:5]}")
    expected = _expected(evidence, ledger, sent)
    why_stale = stale(expected, sent) if expected > ledger.last_applied_nonce else None
    if why_stale is not None:
        return Reconciled(stale=why_stale)
    mismatch = mismatch_of(expected, ledger, sent)
    unknown = None if mismatch else _unknown(evidence, expected, sent)
    if not final and (mismatch or unknown):
        return Reconciled(mismatch=mismatch or unknown)
    if mismatch is not None:
        connection.exec_driver_sql(sql.HALT, (expected, shortened(mismatch), host))
        return Reconciled(halted=mismatch)
    if unknown is not None:
        _end_used(connection, host, epoch, expected, list(sent), evidence)
        connection.exec_driver_sql(sql.HALT, (None, shortened(unknown), host))
        return Reconciled(halted=unknown)
    _note_agreement(connection, host, ledger, evidence)
    base = _note_base(connection, host, ledger, expected, evidence)
    return replace(_settle(connection, host, epoch, expected, list(sent), evidence), base=base)


def _note_base(connection: Connection, host: str, ledger: sql.LedgerRow, expected: int, evidence: Evidence) -> int:
    """By how much the host's numbers are behind the nonces from now on."""
    if evidence.begins_with is None:
        return int(ledger.host_base)
    base = expected - evidence.begins_with
    connection.exec_driver_sql(sql.SET_BASE, (base, expected, host))
    return base


def _note_agreement(connection: Connection, host: str, ledger: sql.LedgerRow, evidence: Evidence) -> None:
    if ledger.count_fell_at is not None:
        connection.exec_driver_sql(sql.COUNT_FELL, (None, host))
    if not ledger.ban_is_over:
        connection.exec_driver_sql(sql.END_BAN, (host,))
    if ledger.host_incarnation != evidence.incarnation:
        connection.exec_driver_sql(sql.SET_INCARNATION, (evidence.incarnation, host))


def _settle(
    connection: Connection, host: str, epoch: int, expected: int, sent: list[sql.SentRow], evidence: Evidence
) -> Reconciled:
    """End what is used, set apart what the host refuses, list what is sent first."""
    fates, left = _end_used(connection, host, epoch, expected, sent, evidence)
    apart: list[list[int]] = []
    if evidence.proves_free(expected):
        given_up, apart = set_apart(connection, host, expected, expected - 1, left)
        fates += given_up
    rows = connection.exec_driver_sql(sql.BOUND_REFS, (host, expected, BOUND_MAX + 1)).all()
    bound = [as_ref(row) for row in rows[:BOUND_MAX]]
    return Reconciled(expected, fates=fates, bound=bound, bound_is_cut=len(rows) > BOUND_MAX, apart=apart)


def _expected(evidence: Evidence, ledger: sql.LedgerRow, sent: Sequence[sql.SentRow]) -> int:
    """The nonce that the host wants next, by its count; else the first one that it is not known to have used."""
    if evidence.expected is not None:
        return evidence.expected
    unused = (row.nonce for row in sent if not (row.said_used or evidence.told(row.nonce)))
    return next(unused, int(ledger.next_nonce))


def _unknown(evidence: Evidence, expected: int, sent: Sequence[sql.SentRow]) -> str | None:
    """Why an operator must say whether the operation with this nonce was taken; None: that is known, or it is sent
    again whatever the truth is.
    """
    row = next((row for row in sent if row.nonce == expected), None)
    if row is None or not row.sends or evidence.proves_free(expected):
        return None
    is_resent = row.priority_class == PriorityClass.LWW and row.event_type in evidence.resent_types
    if is_resent or evidence.resends is not Resends.NEVER:
        return None
    return (
        f"{NOBODY_KNOWS} {row.change_id} (nonce {row.nonce}): its answer was lost, and "
        f"{evidence.unknown}. Look there, then decide: `resolve adopt` counts it as applied, `resolve resend` sends it "
        "again."
    )


def _end_used(
    connection: Connection, host: str, epoch: int, expected: int, sent: list[sql.SentRow], evidence: Evidence
) -> tuple[list[ChangeResult], list[sql.SentRow]]:
    """The fates of the operations below `expected`, and what is in doubt then: with them another may lose its nonce."""
    used_up = [row for row in sent if row.nonce < expected]
    if not used_up:
        return [], sent
    fates = []
    for row in used_up:
        others = others_of(connection, host, row)
        advanced = connection.exec_driver_sql(sql.LAST_APPLIED, (row.nonce, host, epoch, row.nonce - 1))
        check(advanced.rowcount == 1, f"nonce {row.nonce} is not the next to be used up")
        fates += end_used(connection, host, row, others, expected, told=evidence.told(row.nonce), numbered=True)
    return fates, list(connection.exec_driver_sql(sql.SENT_ROWS, (host,)).all())


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
