"""Where the keys of a TOML document stand, for errors that name the line: tomllib does not tell."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

Key = tuple[str, ...]

# No value of ours needs more; reading a longer one takes the square of its lines.
STATEMENT_LINES_MAX = 50


def lines_of(text: str) -> dict[Key, int]:
    """In which line each table and each key of a valid document begins, from 1 on.

    A statement of TOML ends with its line or, if it is longer, as soon as it can be read.
    """
    found: dict[Key, int] = {}
    table: Key = ()
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
