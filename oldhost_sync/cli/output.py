"""What is printed: tables for people, JSON for programs. Data goes to standard output, all else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """Standard output, made when it is needed: its width and colours may change."""
    return Console(highlight=False)


def error_console() -> Console:
    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON value; times in ISO 8601."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False, default=_plain) + "\n")


def rows(title: str, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Table:
    """A table; cells are plain text, not markup."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(Text(shown(cell)) for cell in line))
    return table


def shown(value: object) -> str:
    """A value as people read it; an instant in UTC to the second."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return str(value)


def span(milliseconds: float | None) -> str:
    """A span in the unit that people would use."""
    if milliseconds is None:
        return "never"
    seconds = milliseconds / 1000
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} is no JSON type")
