"""The settlement files of one host in a folder: `<host>.<day>.settlement.jsonl`.

A file appears complete or not at all: it is written under another name, forced to disk, and renamed. It is never
written again. The folder itself is never created: a volume that is not mounted must not be taken for an empty folder.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from oldhost_sync.settlement.errors import FileDamaged, FolderUnusable
from oldhost_sync.settlement.settlement_file import PreviousFile, SettlementReader, write_lines
from oldhost_sync.store.ledger.settlement import EndedOperation, SettledDay

_NAME = re.compile(r"(?P<host>.+)\.(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})\.settlement\.jsonl")


@dataclass(frozen=True, slots=True)
class SettlementFolder:
    """`path` is the same for all hosts and for every relay."""

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
