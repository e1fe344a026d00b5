"""What OldHost remembers across a restart: one JSON line for each fact, appended before the answer is sent.

The file is authoritative: nonce, records, journal and ban follow from its facts. Each line is one write to the
kernel, which survives a killed process; there is no fsync, as the simulator need not survive its machine.
A half-written line, left by a kill, was never answered, so it is cut off.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from oldhost_simulator.host import Fact, fact_from_json, fact_to_json

_VERSION: Final = 1


class StateFileError(Exception):
    """The file is in use, or is not a state file. A retry is useless; the operator has to act."""


class StateFile:
    def __init__(self, path: Path, *, first_nonce: int) -> None:
        """Opens or creates the file; a `first_nonce` in the file has precedence. Raises StateFileError."""
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
                raise StateFileError(f"{self._path}, line {number}, is not a fact of OldHost: {error}") from error

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
        raise StateFileError(f"{self._path} is not a state file of this version")

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        while data:  # a short write only happens when the disk is full; the next one then raises
            data = data[os.write(self._fd, data) :]
