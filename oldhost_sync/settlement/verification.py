"""Check all settlement files of a host: each by itself, the chain from one to the next, and, if a database is given,
against it: the SHA-256 of each file, and every row that the ledger still has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta

from sqlalchemy.engine import Connection, Engine

from oldhost_sync.settlement.day_settlement import differences
from oldhost_sync.settlement.settlement_file import FileDamaged, PreviousFile, SettlementFolder, SettlementReader
from oldhost_sync.store.ledger.settlement import SettledDay, ended_on, keep_one_snapshot, settled_days
from oldhost_sync.store.transactions import run_in_transaction


@dataclass
class Verification:
    """What was found. `problems`: a sentence each; none: all files are as they were written. `compared`: records that
    the ledger has, too.
    """

    days: list[SettledDay] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    compared: int = 0

    @property
    def records(self) -> int:
        return sum(each.records for each in self.days)


def verify(folder: SettlementFolder, engine: Engine | None = None, since: date | None = None) -> Verification:
    """`since`: the first day that is checked; files before it may be kept elsewhere. `engine`: None checks only the
    files. Raises FolderUnusable, OSError, StoreError.
    """
    found = Verification()
    days = [day for day in folder.days() if since is None or day >= since]
    known = {} if engine is None else _noted(engine, folder.host, since)
    if engine is None and not days:
        then = "" if since is None else f" since {since}"
        found.problems.append(f"there is no file of {folder.host} in {folder.path}{then}")
    found.problems += [f"the file of {day} was written, but is missing" for day in sorted(known) if day not in days]
    before: PreviousFile | None = None
    for number, day in enumerate(days):
        reader = folder.reader(day)
        try:
            settled = _verify_one(found, reader, engine, known.get(day))
        except (FileDamaged, OSError) as error:
            found.problems.append(f"{error}." if isinstance(error, FileDamaged) else _unreadable(reader, error))
            before = None
            continue
        if number or since is None:
            _check_link(found, reader, before, is_first=not number)
        found.days.append(settled)
        before = PreviousFile(day, settled.sha256_hex)
    return found


def _unreadable(reader: SettlementReader, error: OSError) -> str:
    return f"{reader.path.name} can't be read: {error.strerror}. Put the file back from a copy"


def _noted(engine: Engine, host: str, since: date | None) -> dict[date, SettledDay]:
    rows = run_in_transaction(engine, lambda connection: settled_days(connection, host))
    return {each.day: each for each in rows if since is None or each.day >= since}


def _check_link(found: Verification, reader: SettlementReader, before: PreviousFile | None, *, is_first: bool) -> None:
    named = reader.previous
    if named == before and (before is None or before.day == reader.day - timedelta(days=1)):
        return
    if is_first and named is not None:
        found.problems.append(
            f"{reader.path.name} continues the file of {named.day}, which is not here; if it is kept elsewhere, "
            f"verify with --since {reader.day}"
        )
    elif before is None:
        found.problems.append(f"{reader.path.name}: its link to the file before it could not be checked")
    else:
        found.problems.append(
            f"{reader.path.name} does not continue the file of {before.day}: it names "
            f"{'none' if named is None else f'{named.day} with {named.sha256_hex}'}; its SHA-256 is {before.sha256_hex}"
        )


def _verify_one(
    found: Verification, reader: SettlementReader, engine: Engine | None, noted: SettledDay | None
) -> SettledDay:
    if engine is None:
        return reader.read()
    compared = run_in_transaction(engine, lambda connection: _compare(connection, reader))
    settled = reader.settled
    assert settled is not None
    found.compared += settled.records - compared.only_in_file
    name = reader.path.name
    if compared.only_in_ledger:
        found.problems.append(
            f"{name} lacks {compared.only_in_ledger} records that the ledger has, the first with nonce "
            f"{compared.first_in_ledger}"
        )
    if noted is None:
        found.notes.append(f"{name}: not in the database yet (the database was restored, or the next pass adds it)")
    elif noted.sha256_hex != settled.sha256_hex:
        found.problems.append(
            f"{name} is not the file that was written: its SHA-256 is {settled.sha256_hex}, the database has "
            f"{noted.sha256_hex}"
        )
    if compared.only_in_file and (noted is None or noted.released_at is None):
        found.problems.append(
            f"{name} has {compared.only_in_file} records that the ledger has lost, nonces {compared.first_in_file} to "
            f"{compared.last_in_file}: the database was restored to an earlier time, or rows were deleted by hand"
        )
    return settled


@dataclass
class _Compared:
    only_in_ledger: int = 0
    only_in_file: int = 0
    first_in_ledger: int = 0
    first_in_file: int = 0
    last_in_file: int = 0


def _compare(connection: Connection, reader: SettlementReader) -> _Compared:
    keep_one_snapshot(connection)
    found = _Compared()
    for each in differences(reader.records(), ended_on(connection, reader.host, reader.day)):
        nonce = each.record.nonce
        if each.in_ledger:
            found.first_in_ledger = found.first_in_ledger or nonce
            found.only_in_ledger += 1
        else:
            found.first_in_file = found.first_in_file or nonce
            found.last_in_file = nonce
            found.only_in_file += 1
    return found
