"""A file that is read again when it changes, so that what was removed from it is not valid any more without a restart.

A change is noticed at the first use that is a second or more after the last look. A link that leads elsewhere is a
change, too: so Kubernetes replaces the files of a mounted secret. A file that can't be read or is invalid changes
nothing: what was read before stays valid, and the log says so, once for each change, without the content.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar, overload

logger = logging.getLogger("oldhost_sync.settings")

# How soon a changed file is noticed; checking costs some microseconds.
LOOKED_AT_EVERY_SECONDS = 1.0
# Some 8,000 tokens.
FILE_BYTES_MAX = 1024 * 1024

T = TypeVar("T")


def read_lines(file: Path) -> list[str]:
    """The file's lines, without comments (`#`). OSError, or ValueError when it is too large."""
    with file.open("rb") as opened:
        text = opened.read(FILE_BYTES_MAX + 1)
    if len(text) > FILE_BYTES_MAX:
        raise ValueError(f"{file} is larger than {FILE_BYTES_MAX} bytes")
    return [line.partition("#")[0] for line in text.decode(errors="replace").splitlines()]


class WatchedFile(Generic[T]):
    """`read`: makes the value of the file's content; `what`: names it in the log. At the start it raises what `read`
    raises: OSError, ValueError.
    """

    def __init__(
        self, file: Path, read: Callable[[Path], T], what: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._file = file
        self._read = read
        self._what = what
        self._clock = clock
        self._looked_at = clock()
        self._seen = stamp(file)
        self._value = read(file)

    def value(self) -> T:
        """As the file is now."""
        if self._clock() - self._looked_at < LOOKED_AT_EVERY_SECONDS:
            return self._value
        self._looked_at = self._clock()
        current = stamp(self._file)
        if current == self._seen:
            return self._value
        self._seen = current
        try:
            self._value = self._read(self._file)
        except (OSError, ValueError) as error:
            logger.error("%s can't be used, so what was known before stays valid: %s", self._what, error)  # noqa: TRY400
        else:
            logger.info("%s has changed and was read again", self._what)
        return self._value


class WatchedList(Sequence[T]):
    """A list whose entries are in a file: each look sees the file as it is now."""

    def __init__(self, file: WatchedFile[tuple[T, ...]]) -> None:
        self._file = file

    def __len__(self) -> int:
        return len(self._file.value())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._file.value()[index]


def stamp(file: Path) -> tuple[int, ...]:
    """A value that changes when the file changes or a link points to another file; empty if there is no file."""
    try:
        found = file.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
