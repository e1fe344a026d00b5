"""What OldHost remembers over a restart: one JSON line for each fact, appended before the answer leaves.

The file is authoritative: nonce, records, journal and ban are what its facts say. Each line is one write to the
kernel, which outlives a killed process; there is no fsync, since the simulator need not outlive its machine.
A line that a kill left half written was never answered, so it is cut off.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from oldhost_simulator.facts import Fact, fact_from_json, fact_to_json

_VERSION: Final = 1


class StateFileError(Exception):
    """The operator's: a file in use, or one that is no state file. Trying again changes nothing."""


class StateFile:
    def __init__(self, path: Path, *, first_nonce: int) -> None:
        """Opens or creates the file; `first_nonce` is the one in the file, if it has one. Raises StateFileError."""
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            self._lock()
            self._lines = self._read_lines()
            if not self._lines:
                self._write({"oldhost_state": _VERSION, "first_nonce": first_nonce})
            self.first_nonce = self._first_nonce(first_nonce)
        except BaseException:
            os.close(self._fd)
            raise

    def facts(self) -> Iterator[Fact]:
        """The facts of earlier runs, in order, once. Raises StateFileError."""
        lines, self._lines = self._lines[1:], []
        for number, line in enumerate(lines, start=2):
            try:
                yield fact_from_json(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise StateFileError(f"{self._path}, line {number}, is no fact of OldHost: {error}") from error

    def append(self, fact: Fact) -> None:
        self._write(fact_to_json(fact))

    def close(self) -> None:
        os.close(self._fd)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateFileError(f"{self._path} is in use by another simulator") from None

    def _read_lines(self) -> list[bytes]:
        with self._path.open("rb") as file:
            content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._fd, whole)
        return content[:whole].splitlines()

    def _first_nonce(self, first_nonce: int) -> int:
        if not self._lines:
            return first_nonce
        try:
            header = json.loads(self._lines[0])
            if header["oldhost_state"] == _VERSION:
                return int(header["first_nonce"])
        except (ValueError, TypeError, KeyError):
            pass
        raise StateFileError(f"{self._path} is no state file of this version")

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        while data:  # a short write happens only where the disk is full, and then the next one raises
            data = data[os.write(self._fd, data) :]
