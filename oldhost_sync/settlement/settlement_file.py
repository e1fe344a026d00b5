"""The settlement files of a host in a folder, `<host>.<day>.settlement.jsonl`, and what one holds.

A file is JSON Lines: a header, a record for each operation that ended on the day, and a footer.
The header names the file before it by its SHA-256, so that the files are a chain; the footer has the count and the
SHA-256 of all lines before it. It does not say when or by whom it was written, so two relays that write the same day
write the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any, BinaryIO

from oldhost_sync.store.ledger.settlement import EndedOperation, SettledDay

FORMAT = "oldhost-sync settlement 1"
# A record has about 180 bytes; a longer line was not written by us.
LINE_BYTES_MAX = 4_096
# Exact types: True does not count as a number.
_RECORD = {"at": str, "nonce": int, "change": int, "outcome": str, "body_sha256": str}
_NAME = re.compile(r"(?P<host>.+)\.(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})\.settlement\.jsonl")


@dataclass(frozen=True, slots=True)
class SettlementFolder:
    """`path` is the same for all hosts and for every relay. It is never created, because a volume that is not mounted
    must not be taken for an empty folder.

    A file appears complete or not at all: it is written under another name, forced to disk, and renamed. It is never
    written again.
    """

    path: Path
    host: str

    def file_of(self, day: date) -> Path:
        return self.path / f"{self.host}.{day.isoformat()}.settlement.jsonl"

    def days(self) -> list[date]:
        """The days that have a file, the oldest first. Raises FolderUnusable."""
        self.require()
        found = []
        for entry in self.path.iterdir():
            match = _NAME.fullmatch(entry.name)
            if match and match["host"] == self.host:
                with suppress(ValueError):
                    found.append(date.fromisoformat(match["day"]))
        return sorted(found)

    def require(self, last: SettledDay | None = None) -> None:
        """Raise FolderUnusable when the folder does not exist, or lacks the file of `last`, the last settled day."""
        if not self.path.is_dir():
            raise FolderUnusable(f"the folder {self.path} does not exist; mount it, or correct SYNC_SETTLEMENT_DIR")
        if last is not None and not self.file_of(last.day).is_file():
            raise FolderUnusable(
                f"the folder {self.path} has no file of {last.day}, which was written; all relays must share one "
                "folder: mount that one, or put the file back from a copy"
            )

    def reader(self, day: date) -> SettlementReader:
        return SettlementReader(self.file_of(day), self.host, day)

    def require_unchanged(self, settled: SettledDay) -> PreviousFile:
        """The link to a settled day's file; FileDamaged when it is not the one that was written."""
        found = self.reader(settled.day).read()
        if found.sha256_hex != settled.sha256_hex:
            raise FileDamaged(
                f"{self.file_of(settled.day).name} is not the file that was written: its SHA-256 is "
                f"{found.sha256_hex}, the database has {settled.sha256_hex}. Put it back from a copy"
            )
        return PreviousFile(settled.day, settled.sha256_hex)

    def write(self, day: date, previous: PreviousFile | None, records: Iterable[EndedOperation]) -> SettledDay:
        """Write the day's file. Raises OSError; then no file was written."""
        target = self.file_of(day)
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.partial")
        try:
            with partial.open("xb") as file:
                settled = write_lines(file, self.host, day, previous, records)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(target)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
        self._force_names_to_disk()
        return settled

    def _force_names_to_disk(self) -> None:
        handle = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@dataclass(frozen=True, slots=True)
class PreviousFile:
    """The file before: its day, and the SHA-256 of its bytes."""

    day: date
    sha256_hex: str


def write_lines(
    file: BinaryIO, host: str, day: date, previous: PreviousFile | None, records: Iterable[EndedOperation]
) -> SettledDay:
    """Write the whole file; returns its day, SHA-256 and count."""
    digest, count, outcomes = hashlib.sha256(), 0, Counter[str]()

    def put(value: dict[str, Any]) -> None:
        line = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii") + b"\n"
        digest.update(line)
        file.write(line)

    before = None if previous is None else {"day": previous.day.isoformat(), "sha256": previous.sha256_hex}
    put({"format": FORMAT, "host": host, "day": day.isoformat(), "previous": before})
    for count, record in enumerate(records, start=1):  # noqa: B007 - it is the count
        outcomes[record.outcome] += 1
        put(_as_json(record))
    put({"records": count, "outcomes": dict(sorted(outcomes.items())), "sha256": digest.hexdigest()})
    return SettledDay(day, digest.hexdigest(), count)


@dataclass(eq=False)
class SettlementReader:
    """Reads a file from its beginning, a line at a time, and checks it.

    Its other fields are set after :meth:`records` was read to its end. FileDamaged says what is wrong with which line.
    """

    path: Path
    host: str
    day: date
    previous: PreviousFile | None = None
    settled: SettledDay | None = None
    _digest: Any = field(default_factory=hashlib.sha256)
    _line: int = 0

    def records(self) -> Iterator[EndedOperation]:
        """In the order of moment and nonce. Raises FileDamaged, OSError."""
        self._digest, self._line, self.previous, self.settled = hashlib.sha256(), 0, None, None
        with self.path.open("rb") as file:
            self._read_header(self._next(file))
            last: EndedOperation | None = None
            count, outcomes = 0, Counter[str]()
            while True:
                covered = self._digest.hexdigest()
                value = self._next(file)
                if "records" in value:
                    break
                record = self._record(value)
                if last is not None and (record.at, record.nonce) <= (last.at, last.nonce):
                    raise self._damaged("is not in the order of moment and nonce")
                last, count = record, count + 1
                outcomes[record.outcome] += 1
                yield record
            if value != {"records": count, "outcomes": dict(sorted(outcomes.items())), "sha256": covered}:
                raise self._damaged("does not match the lines before it")
            if file.read(1):
                raise self._damaged("is not the last one")
        self.settled = SettledDay(self.day, self._digest.hexdigest(), count)

    def read(self) -> SettledDay:
        """Read the whole file; returns its day, SHA-256 and count."""
        for _ in self.records():
            pass
        assert self.settled is not None
        return self.settled

    def _next(self, file: BinaryIO) -> dict[str, Any]:
        self._line += 1
        line = file.readline(LINE_BYTES_MAX)
        if not line.endswith(b"\n"):
            raise self._damaged("is cut off or too long")
        self._digest.update(line)
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            raise self._damaged("is not JSON") from None
        if not isinstance(value, dict):
            raise self._damaged("is not a JSON object")
        return value

    def _read_header(self, value: dict[str, Any]) -> None:
        named = {"format": FORMAT, "host": self.host, "day": self.day.isoformat()}
        if {name: value.get(name) for name in named} != named:
            raise self._damaged(f"is not the header of {self.host} and {self.day}")
        before = value.get("previous")
        if before is None:
            return
        try:
            self.previous = PreviousFile(date.fromisoformat(before["day"]), bytes.fromhex(before["sha256"]).hex())
        except (KeyError, TypeError, ValueError):
            raise self._damaged("does not name the file before it") from None

    def _record(self, value: dict[str, Any]) -> EndedOperation:
        if {name: type(each) for name, each in value.items()} != _RECORD:
            raise self._damaged("is not a record")
        try:
            at = datetime.fromisoformat(value["at"].removesuffix("Z"))
        except ValueError:
            raise self._damaged("is not a record") from None
        record = EndedOperation(at, value["nonce"], value["change"], value["outcome"], value["body_sha256"])
        if at.tzinfo is not None or at.date() != self.day or _as_json(record) != value:
            raise self._damaged("is not a record of this day")
        return record

    def _damaged(self, what: str) -> FileDamaged:
        return FileDamaged(
            f"{self.path.name}: line {self._line} {what}. The file was damaged or changed; put it back from a copy"
        )


def _as_json(record: EndedOperation) -> dict[str, Any]:
    return {
        "at": f"{record.at.isoformat(timespec='microseconds')}Z",
        "nonce": record.nonce,
        "change": record.change_id,
        "outcome": record.outcome,
        "body_sha256": record.body_sha256,
    }


class SettlementError(Exception):
    """An operator has to correct what the text says; a retry helps only after that. Until then nothing is pruned."""


class FolderUnusable(SettlementError):  # noqa: N818 - it says what is wrong
    """The folder does not exist, or is not the one that the last files were written to."""


class FileDamaged(SettlementError):  # noqa: N818 - as above
    """A settlement file was changed or damaged."""


class LedgerDiffers(SettlementError):  # noqa: N818 - as above
    """The ledger has a record that the day's file lacks."""
