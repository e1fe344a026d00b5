"""`python -m tests.exhaustive`: all single faults and all pairs; `--case 123:after 140:die` replays one."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.progress import Progress

from tests.exhaustive.cases import Result, pair_cases, run_cases, single_cases
from tests.exhaustive.scenario import Case, NumberedFaults, Scenario


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a case failed or was not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("singles", "pairs"), help="one half of it")
    parser.add_argument("--case", nargs="+", metavar="CALL:MODE", help="replay one case and show its events")
    parser.add_argument("--persistent", action="store_true", help="with --case: from then on")
    given = parser.parse_args(arguments)
    console = Console()
    if given.case:
        return replay(given.case, console, persistent=given.persistent)
    with Progress(console=console) as progress:
        cases = list(_cases(given.only))
        task = progress.add_task("exhaustive", total=len(cases))

        def each(result: Result) -> None:
            progress.advance(task)
            if result.violations:
                progress.console.print(f"{result.case}: {result.violations[0][:600]}", markup=False)
                faults = " ".join(f"{number}:{mode}" for number, mode in result.case.plan)
                more = " --persistent" if result.case.persistent else ""
                progress.console.print(f"  replay: python -m tests.exhaustive --case {faults}{more}", markup=False)

        table = run_cases(cases, given.workers, each)
    for line in table.lines():
        print(line)
    return 1 if table.failed or not table.complete else 0


def _cases(only: str | None) -> Iterator[tuple[str, Case]]:
    if only != "pairs":
        yield from single_cases()
    if only != "singles":
        yield from pair_cases()


def replay(faults: list[str], console: Console, *, persistent: bool) -> int:
    plan = {int(number): mode for number, mode in (one.split(":") for one in faults)}
    scenario = Scenario(NumberedFaults(plan, persistent))
    scenario.trace = []
    verdict = scenario.play()
    print("\n".join(scenario.trace))
    for number in sorted(plan):
        print(f"call {number} is {scenario.faults.calls[number]}")
    for violation in verdict.violations:
        console.print(f"VIOLATED: {violation}", style="red", markup=False)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
