"""Output: tables for people, JSON for programs. Data goes to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from oldhost_sync.policy.plain_text import instant, plain, plain_json

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


class Screen(Console):
    """Prints plain text: no text from outside controls the terminal, and none is taken for markup.

    Prints a table that is too wide as records, and lets the terminal wrap their lines: rich's own wrapping would
    cut keys apart.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As in rich; everything that is printed passes here, in pieces."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else plain(text, lines=True), style, control)

    def print(self, *objects: Any, **options: Any) -> None:
        """As in rich."""
        options.setdefault("markup", False)
        wide = [isinstance(item, Rows) and not item.fits(self) for item in objects]
        shown = [item.records() if apart else item for item, apart in zip(objects, wide, strict=True)]
        super().print(*shown, **({"soft_wrap": True} if any(wide) else {}) | options)


def console() -> Console:
    """Standard output; made for each use, as its width and colours may change."""
    return Screen(highlight=False)


def error_console() -> Console:
    return Screen(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """One JSON value; times in ISO 8601. A person may read it, too: nothing in it controls the terminal."""
    sys.stdout.write(plain_json(json.dumps(value, indent=2, ensure_ascii=False, default=_plain)) + "\n")


# Wider than any table.
WIDTH_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Rows:
    """A table, or records where the screen is too narrow for it: keys stay in one piece and can be copied.

    Two columns are names and figures. They stay a table, and cells that do not fit are folded.
    """

    title: str
    columns: Sequence[str]
    cells: list[list[str]]

    def fits(self, console: Console) -> bool:
        """Whether it is shown as a table."""
        unbounded = console.options.update(width=WIDTH_MAX)
        return len(self.columns) <= 2 or Measurement.get(console, unbounded, self._table()).maximum <= console.width

    def records(self) -> Group:
        """One line for each cell, with its column's name."""
        names = [name or "·" for name in self.columns]
        width = max(map(len, names))
        lines = [Text(self.title, style="italic")] if self.title else []
        for number, cells in enumerate(self.cells):
            lines += [Text()] if number else []
            lines += [
                Text.assemble((f"{name:{width}}  ", "bold"), cell) for name, cell in zip(names, cells, strict=True)
            ]
        return Group(*lines)

    def __rich__(self) -> Table:
        """Inside something else it is always a table, whose cells are folded."""
        return self._table()

    def _table(self) -> Table:
        table = Table(title=self.title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
        for name in self.columns:
            table.add_column(name, overflow="fold")
        for line in self.cells:
            table.add_row(*map(Text, line))
        return table


def rows(title: str, columns: Sequence[str], lines: Iterable[Sequence[object]]) -> Rows:
    """A table; cells are plain text, not markup."""
    return Rows(title, columns, [[shown(cell) for cell in line] for line in lines])


def shown(value: object) -> str:
    """A value in readable form, on one line; an instant in UTC to the second."""
    if value is None:
        return "–"
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return plain(str(value))


def span(milliseconds: float | None) -> str:
    """A duration in a readable unit."""
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
    raise TypeError(f"{type(value).__name__} is not a JSON type")
