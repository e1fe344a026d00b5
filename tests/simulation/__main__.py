"""`python -m tests.simulation --seed N` replays one seed, event by event; `--seeds N` plays N of them and sums up.

`--digests FILE` writes the digest of each seed's event log: a change that decides nothing otherwise leaves
all as they were.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from tests.kinds_of_host import KINDS, kind_named
from tests.simulation.corpus import Corpus, replay_command, simulate
from tests.simulation.shape import Verdict
from tests.simulation.sometimes import EXPECTED
from tests.simulation.world import play

LINE_EVERY_S = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when anything was violated, or (with 1,000 seeds or more) something was never met."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this one and show its events")
    parser.add_argument("--seeds", type=int, default=2000, help="how many to play")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes to play them in")
    parser.add_argument("--stop-at-first", action="store_true", help="one failing seed is enough")
    parser.add_argument("--digests", type=Path, help="write the digest of each seed's event log into this file")
    parser.add_argument("--host", choices=tuple(KINDS), default="", help="another kind of host than OldHost")
    parser.add_argument("--quiet", action="store_true", help="no progress bar, no events")
    given = parser.parse_args(arguments)
    console = Console()
    if given.seed is not None:
        return replay(given.seed, console, quiet=given.quiet, host=given.host)
    seeds = range(given.start, given.start + given.seeds)
    corpus = play_many(
        seeds, given.workers, console, quiet=given.quiet, stop_at_first=given.stop_at_first, host=given.host
    )
    show(corpus, console)
    if given.digests:
        given.digests.write_text(corpus.digest_lines)
    never = corpus.sometimes.missing() if corpus.runs >= 1000 and not given.host else []
    for what in never:
        console.print(f"[red]never met: {what}")
    return 1 if corpus.failed or never else 0


def replay(seed: int, console: Console, *, quiet: bool, host: str) -> int:
    trace: list[str] = []
    verdict = play(seed, trace=trace, kind=kind_named(host))
    if not quiet:
        for line in trace:
            print(line)
    print(
        f"seed {seed}: event log {verdict.digest}, {verdict.virtual_s:.0f} virtual seconds, {verdict.operations} "
        "operations"
    )
    for violation in verdict.violations:
        console.print(f"VIOLATED: {violation}", style="red", markup=False)
    return 1 if verdict.violations else 0


class ProgressLines:
    """Progress for a log: a line a minute."""

    def __init__(self, console: Console, total: int) -> None:
        self._console, self._total = console, total
        self._done = 0
        self._began = self._printed_at = time.monotonic()

    def finished_one(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._printed_at >= LINE_EVERY_S:
            self._printed_at = now
            rate = self._done / (now - self._began) * 60
            left = (self._total - self._done) / rate
            self._console.print(
                f"{self._done:,} of {self._total:,} seeds, {rate:,.0f} a minute, {left:,.0f} minutes left"
            )


def play_many(
    seeds: range, workers: int, console: Console, *, quiet: bool, stop_at_first: bool = False, host: str = ""
) -> Corpus:
    lines = ProgressLines(console, len(seeds))
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet) as progress:
        task = progress.add_task("seeds", total=len(seeds))

        def finished(verdict: Verdict) -> None:
            progress.advance(task)
            if not quiet and not console.is_terminal:
                lines.finished_one()
            if verdict.violations:
                progress.console.print(
                    f"{verdict.violations[0]}\n  replay: {replay_command(verdict.seed, host)}", markup=False
                )

        return simulate(seeds, workers, finished, stop_at_first=stop_at_first, host=host)


def show(corpus: Corpus, console: Console) -> None:
    table = Table(title="Simulation", show_header=False)
    rows = [
        ("seeds", f"{corpus.runs:,}"),
        ("virtual hours", f"{corpus.virtual_s / 3600:,.1f}"),
        ("virtual hours per minute", f"{corpus.virtual_hours_per_minute:,.0f}"),
        ("seeds per minute", f"{corpus.runs / max(corpus.wall_s / 60, 1e-9):,.0f}"),
        ("changes recorded", f"{corpus.changes:,}"),
        ("operations applied", f"{corpus.operations:,}"),
        ("faults injected", f"{corpus.faults_injected:,}"),
        ("worst time to heal", f"{corpus.worst_recovery_s:,.0f} s"),
        ("violations", f"{len(corpus.failed):,}"),
    ]
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)
    met = Table("sometimes", "times", title=f"{len(EXPECTED) - len(corpus.sometimes.missing())} of {len(EXPECTED)} met")
    for what, count in sorted(corpus.sometimes.counts.items()):
        met.add_row(what, f"{count:,}")
    console.print(met)
    faults = Table("fault", "times")
    for name, count in sorted(corpus.faults.items()):
        faults.add_row(name, f"{count:,}")
    console.print(faults)


if __name__ == "__main__":
    sys.exit(main())
