"""Settle the next day that is over, and release old days to retention. Each step is one transaction that reads the
ledger in one snapshot, without a lock, and notes the day at its end.

A file that exists already is taken over, if it continues the chain and has all that the ledger has:
a relay that was killed between its rename and its commit wrote it, or another relay did, or the database was restored
from a backup and has less than the files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy.engine import Connection

from oldhost_sync.settlement.settlement_file import (
    FileDamaged,
    LedgerDiffers,
    PreviousFile,
    SettlementFolder,
    SettlementReader,
)
from oldhost_sync.store.ledger.settlement import (
    EndedOperation,
    SettledDay,
    add_settled,
    end_of,
    ended_on,
    first_ended_on,
    keep_one_snapshot,
    last_settled,
    next_to_release,
    open_before,
    release,
)
from oldhost_sync.store.retention import database_clock

# By then a transaction that took its time stamp before midnight has been committed or cut off.
SETTLED_AFTER = timedelta(minutes=10)
# Longer than a ban or a night's outage. A halt has its own alert, but it must not hide that days are not settled.
LATE_AFTER = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class SettlementStep:
    """`settled`: the day that was settled; None: none is due, or it `waits`. `late`: it has waited too long."""

    settled: SettledDay | None = None
    waits: str = ""
    late: bool = False


def settle_next(connection: Connection, folder: SettlementFolder) -> SettlementStep:
    """Settle the oldest day that is over and not settled. Raises SettlementError, OSError; then nothing is changed."""
    keep_one_snapshot(connection)
    host = folder.host
    last = last_settled(connection, host)
    folder.require(last)
    day = _next_day(connection, folder, last)
    now = database_clock(connection)
    if day is None or now < end_of(day) + SETTLED_AFTER:
        return SettlementStep()
    unfinished = open_before(connection, host, day)
    if unfinished:
        waits = f"{day} is not settled: {unfinished} operations bound until then have no end yet"
        return SettlementStep(waits=waits, late=now > end_of(day) + LATE_AFTER)
    previous = None if last is None else folder.require_unchanged(last)
    if folder.file_of(day).is_file():
        settled = _take_over(connection, folder, day, previous)
    else:
        settled = folder.write(day, previous, ended_on(connection, host, day))
    if not add_settled(connection, host, settled):
        raise FileDamaged(f"{folder.file_of(day).name} differs from the one that another relay wrote to its own folder")
    return SettlementStep(settled)


def release_next(connection: Connection, folder: SettlementFolder, ledger_days: int) -> date | None:
    """Release the oldest day that ended more than `ledger_days` days ago: its file is complete, is the one that was
    written, and has all that the ledger has of that day. None: no day is due. Raises SettlementError, OSError.
    """
    keep_one_snapshot(connection)
    before = (database_clock(connection) - timedelta(days=ledger_days)).date()
    due = next_to_release(connection, folder.host, before)
    if due is None:
        return None
    reader = folder.reader(due.day)
    _require_all(connection, reader)
    if reader.settled is None or reader.settled.sha256_hex != due.sha256_hex:
        raise FileDamaged(f"{reader.path.name} is not the file that was written. Put it back from a copy")
    release(connection, folder.host, due.day)
    return due.day


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that only one side has."""

    record: EndedOperation
    in_ledger: bool


def differences(file: Iterator[EndedOperation], ledger: Iterator[EndedOperation]) -> Iterator[Difference]:
    """Both are in the order of moment and nonce, and are read to their ends."""
    ours, theirs = next(file, None), next(ledger, None)
    while ours is not None or theirs is not None:
        if ours == theirs:
            ours, theirs = next(file, None), next(ledger, None)
        elif theirs is None or (ours is not None and ours < theirs):
            assert ours is not None
            yield Difference(ours, in_ledger=False)
            ours = next(file, None)
        else:
            yield Difference(theirs, in_ledger=True)
            theirs = next(ledger, None)


def _next_day(connection: Connection, folder: SettlementFolder, last: SettledDay | None) -> date | None:
    if last is not None:
        return last.day + timedelta(days=1)
    return next(iter(folder.days()), None) or first_ended_on(connection, folder.host)


def _take_over(
    connection: Connection, folder: SettlementFolder, day: date, previous: PreviousFile | None
) -> SettledDay:
    reader = folder.reader(day)
    _require_all(connection, reader)
    if previous is not None and reader.previous != previous:
        raise FileDamaged(f"{reader.path.name} does not continue the file of {previous.day}. Put both back from a copy")
    assert reader.settled is not None
    return reader.settled


def _require_all(connection: Connection, reader: SettlementReader) -> None:
    """Read the file to its end; LedgerDiffers when the ledger has a record of that day that the file lacks."""
    found = differences(reader.records(), ended_on(connection, reader.host, reader.day))
    missing: EndedOperation | None = None
    for each in found:
        missing = missing or (each.record if each.in_ledger else None)
    if missing:
        raise LedgerDiffers(
            f"{reader.path.name} lacks nonce {missing.nonce} (change {missing.change_id}), which by the ledger "
            f'ended at {_moment(missing.at)}. See docs/data.md, "A record that no file has"'
        )


def _moment(at: datetime) -> str:
    return f"{at.isoformat(timespec='seconds')}Z"
