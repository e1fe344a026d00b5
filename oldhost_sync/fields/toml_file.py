"""A TOML file of settings: all that is wrong is told at once, each mistake with its line and key, without its value.

tomllib does not tell where a key stands, so that is found here.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

Key = tuple[str, ...]
# A key, and what is wrong there.
Mistake = tuple[Key, str]

# One screen of them; the others are counted.
MISTAKES_MAX = 20

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLACE = re.compile(r"(.*) \(at line (\d+), column \d+\)", re.DOTALL)


@dataclass(frozen=True)
class TomlFile:
    """`content`: the document of `text`."""

    path: Path
    text: str = field(repr=False)
    content: dict[str, Any] = field(repr=False)

    def at(self, key: Key) -> str:
        """Where a key is, as people write it."""
        shown = ".".join(part if _BARE_KEY.fullmatch(part) else ascii(part[:64]) for part in key)
        return f"{self.path}, line {line_of(self._lines, key)}: {shown}"

    def refuse(self, mistakes: Iterable[Mistake]) -> None:
        """ValueError that tells all of them, if there are any."""
        found = sorted((line_of(self._lines, key), key, why) for key, why in mistakes)
        told = [f"{self.at(key)}: {why}" for _, key, why in found[:MISTAKES_MAX]]
        if more := len(found) - len(told):
            told.append(f"and {more} more")
        if told:
            raise ValueError("; ".join(told))

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return lines_of(self.text)


def read_toml(path: Path, bytes_max: int) -> TomlFile:
    """ValueError if it is none, or larger than `bytes_max`."""
    text = _text_of(path, bytes_max)
    try:
        return TomlFile(path, text, tomllib.loads(text))
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:
        place = _PLACE.fullmatch(str(error))
        raise ValueError(f"{path}, line {place[2]}: {place[1]}" if place else f"{path}: {error}") from None


def _text_of(path: Path, bytes_max: int) -> str:
    try:
        with path.open("rb") as opened:
            read = opened.read(bytes_max + 1)
        if len(read) <= bytes_max:
            return read.decode()
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {read[: error.start].count(10) + 1}: it is not UTF-8") from None
    raise ValueError(f"{path} is larger than {bytes_max} bytes")


# ---------------------------------------------------------------------------------------------------------------- lines

# No value of ours needs more; reading a longer one takes the square of its lines.
STATEMENT_LINES_MAX = 50


def lines_of(text: str) -> dict[Key, int]:
    """In which line each table and each key of a valid document begins, from 1 on.

    A statement of TOML ends with its line or, if it is longer, as soon as it can be read.
    """
    found: dict[Key, int] = {}
    table: Key = ()
    count: dict[Key, int] = {}
    statement: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1):
        statement.append(line)
        try:
            read = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            if len(statement) < STATEMENT_LINES_MAX:
                continue
            break
        keys = list(_keys(read))
        if is_header := statement[0].lstrip().startswith("["):
            table = keys[-1]
        if statement[0].lstrip().startswith("[["):  # one more of its kind: they are counted from 1
            count[table] = count.get(table, 0) + 1
            table = (*table, str(count[table]))
            keys.append(table)
        for key in keys:
            found.setdefault(key if is_header else (*table, *key), number - len(statement) + 1)
        statement = []
    return found


def _keys(read: Mapping[str, Any], above: Key = ()) -> Iterator[Key]:
    for name, value in read.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from _keys(value, (*above, name))


def line_of(lines: Mapping[Key, int], key: Key) -> int:
    """Where the key is; else the table around it."""
    return next((lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in lines), 1)
