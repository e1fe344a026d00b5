"""`python -m tests.exhaustive`: all single faults, all pairs, all rebuilds, all kills among odd answers.

`--case 123:after 140:die` replays one.

A rebuild is replayed by `--lost 71 "snapshot left behind"`, a kill among odd answers by `--odd busy 71 die`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tests.exhaustive import odd_answers, rebuilds
from tests.exhaustive.cases import AnyCase, Result, doubt_cases, pair_cases, run_cases, single_cases
from tests.exhaustive.odd_answers import OddAnswers, OddCase
from tests.exhaustive.rebuilds import LosingRun, RebuildCase, RebuildScenario
from tests.exhaustive.scenario import NumberedFaults, Scenario
from tests.kinds_of_host import KINDS


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a case failed or was not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.exhaustive", description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=tuple(PARTS), help="one part of it")
    parser.add_argument("--host", choices=tuple(KINDS), default="", help="only what is in doubt at this kind of host")
    parser.add_argument("--case", nargs="+", metavar="CALL:MODE", help="replay one case and show its events")
    parser.add_argument("--persistent", action="store_true", help="with --case: from then on")
    parser.add_argument("--lost", nargs=2, metavar=("CALL", "WAY"), help="replay one rebuild and show its events")
    parser.add_argument("--odd", nargs=3, metavar=("REFUSAL", "CALL", "MODE"), help="replay one of odd answers")
    given = parser.parse_args(arguments)
    console = Console()
    if given.lost:
        return show(RebuildScenario(LosingRun({}, number=int(given.lost[0]), way=given.lost[1])), console)
    if given.odd:
        refusal, number, mode = given.odd
        return show(OddAnswers(NumberedFaults({int(number): mode}), refusal), console)
    if given.case:
        return replay(given.case, console, persistent=given.persistent, host=given.host)
    with Progress(console=console) as progress:
        cases = list(doubt_cases(given.host) if given.host else _cases(given.only))
        task = progress.add_task("exhaustive", total=len(cases))

        def each(result: Result) -> None:
            progress.advance(task)
            if result.violations:
                progress.console.print(f"{result.case}: {result.violations[0][:600]}", markup=False)
                progress.console.print(f"  replay: python -m tests.exhaustive {_arguments(result.case)}", markup=False)

        table = run_cases(cases, given.workers, each)
    for line in table.lines():
        print(line)
    return 1 if table.failed or not table.complete else 0


def _arguments(case: AnyCase) -> str:
    if isinstance(case, OddCase):
        return f"--odd {case.refusal} {case.number} {case.mode}"
    if isinstance(case, RebuildCase):
        return f"--lost {case.number} {case.way!r}"
    faults = " ".join(f"{number}:{mode}" for number, mode in case.plan)
    host = f" --host {case.host!r}" if case.host else ""
    return f"--case {faults}{' --persistent' if case.persistent else ''}{host}"


PARTS: Mapping[str, Callable[[], Iterator[tuple[str, Any]]]] = {
    "singles": single_cases,
    "pairs": pair_cases,
    "rebuilds": rebuilds.cases,
    "odd": odd_answers.cases,
}


def _cases(only: str | None) -> Iterator[tuple[str, AnyCase]]:
    for name, cases in PARTS.items():
        if only in {None, name}:
            yield from cases()


def replay(faults: list[str], console: Console, *, persistent: bool, host: str) -> int:
    plan = {int(number): mode for number, mode in (one.split(":") for one in faults)}
    return show(Scenario(NumberedFaults(plan, persistent), host), console)


def show(scenario: Scenario, console: Console) -> int:
    scenario.trace = []
    verdict = scenario.play()
    print("\n".join(scenario.trace))
    for number in scenario.faults.fired:
        print(f"call {number} is {scenario.faults.calls[number]}")
    for violation in verdict.violations:
        console.print(f"VIOLATED: {violation}", style="red", markup=False)
    return 1 if verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
