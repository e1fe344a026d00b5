"""What the demonstration prints: the plan at the start, the live progress, the verdict at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from oldhost_sync.demo.compression import Compressed
from oldhost_sync.demo.verdict import Finding
from oldhost_sync.store.outbox.books import Books

# Without a terminal: how often a line is printed.
LINE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DemoFigures:
    """The figures at one moment: from the applications, the database and OldHost. `ban` in epoch seconds."""

    made: int
    failed: int
    ban: tuple[float, float]
    books: Books
    stats: dict[str, Any]


def headline(compressed: Compressed, ui: str | None) -> Panel:
    """What the demonstration will do."""
    real, played, factor = compressed.real, compressed.played, compressed.factor
    assert real.ban_at_s is not None
    lww_share = 1 - real.txn_share - real.emergency_share
    mix = f"{lww_share:.0%} LWW, {real.txn_share:.0%} TXN, {real.emergency_share:.0%} EMERGENCY"
    lines = (
        f"{real.changes:,} changes in {real.duration_s / 60:g} minutes on {real.units:,} units: {mix};",
        f"{real.bursts} bursts of {real.burst_changes} at {real.burst_per_s:g}/s; one ban of {real.ban_s / 60:g} min.",
        f"Time is compressed {factor:g} times: OldHost takes {real.latency_ms:g} → {played.latency_ms:.1f} ms,",
        f"debounce {real.debounce_s:g} → {played.debounce_s:g} s,",
        f"at most {real.max_wait_s:g} → {played.max_wait_s:g} s,",
        f"ban {real.ban_s:g} → {played.ban_s:g} s. Everything else is real: servers, sockets, processes.",
        f"Temporal's UI, while it runs: {ui}" if ui else "",
    )
    return Panel(Text("\n".join(line for line in lines if line)), title="The half-hour peak", expand=False)


def table(findings: Sequence[Finding]) -> Table:
    """The verdict."""
    made = Table(title="Verdict", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in ("", "measured", "promised", ""):
        made.add_column(name, overflow="fold")
    marks = {True: Text("✓", "bold green"), False: Text("✗ FAILED", "bold red"), None: Text("")}
    for finding in findings:
        made.add_row(Text(finding.what), Text(finding.measured), Text(finding.promised, "dim"), marks[finding.holds])
    return made


class DemoProgress:
    """Live on a terminal; elsewhere one line at intervals."""

    def __init__(self, console: Console, compressed: Compressed) -> None:
        self._console = console
        self._compressed = compressed
        self._live = Live(Text("starting …"), console=console, auto_refresh=False, transient=True)
        self._started = time.monotonic()
        self._line_at = 0.0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, seen: DemoFigures) -> None:
        elapsed_s = time.monotonic() - self._started
        if self._console.is_terminal:
            self._live.update(self._picture(seen, elapsed_s), refresh=True)
        elif elapsed_s >= self._line_at:
            self._line_at += LINE_SECONDS
            self._console.print(self._line(seen, elapsed_s), soft_wrap=True)

    def _line(self, seen: DemoFigures, elapsed_s: float) -> str:
        books = seen.books
        return (
            f"{elapsed_s:4.0f} s  {self._phase(seen)}: {seen.made:,} made, {books.applied:,} applied, "
            f"{books.superseded:,} superseded, {books.waiting + books.in_flight:,} on their way"
        )

    def _picture(self, seen: DemoFigures, elapsed_s: float) -> Group:
        books, total = seen.books, self._compressed.real.changes
        ended = books.accepted - books.waiting - books.in_flight
        bars = Table.grid(padding=(0, 2))
        for name, value, style in (
            ("made", seen.made, "cyan"), ("accepted", books.accepted, "blue"), ("with their fate", ended, "green"),
        ):  # fmt: skip
            bars.add_row(name, ProgressBar(total=total, completed=value, width=50, complete_style=style), f"{value:,}")
        real_min = elapsed_s * self._compressed.factor / 60
        figures = (
            f"applied {books.applied:,}   superseded {books.superseded:,}   no-op {books.no_op:,}   "
            f"on their way {books.waiting + books.in_flight:,}   OldHost busy {seen.stats['busy_share']:.0%}   "
            f"gaps {seen.stats['gaps']}   replays {seen.stats['replays']}   bans {seen.stats['bans']}"
        )
        style = "bold red" if self._phase(seen) == "banned" else "bold"
        top = Text.assemble((self._phase(seen), style), f"   {elapsed_s:.0f} s, in reality {real_min:.0f} min")
        return Group(top, bars, Text(figures))

    def _phase(self, seen: DemoFigures) -> str:
        if seen.ban[0] <= time.time() < seen.ban[1]:
            return "banned"
        return "changes arrive" if seen.made < self._compressed.real.changes else "the rest is sent"
