"""`python -m tests.mutants`: every mutant must be killed; exit code 1 when one survives. `--only WORD` for some."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import Catch, hunt


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name has this in it")
    given = parser.parse_args(arguments)
    console = Console()
    wanted = [mutant for mutant in MUTANTS if given.only.lower() in mutant.name.lower()]
    caught: list[Catch] = []
    with Progress(console=console) as progress:
        task = progress.add_task("mutants", total=len(wanted))
        for mutant in wanted:
            progress.update(task, description=mutant.name)
            caught.append(hunt(mutant))
            told = caught[-1]
            progress.console.print(
                f"{mutant.name}: {told.level.name if told.level else 'SURVIVED'} ({told.seconds:.0f} s)", markup=False
            )
            progress.advance(task)
    table = Table("mutant", "killed by", "seconds")
    for one in caught:
        table.add_row(one.mutant.name, one.level.name if one.level else "[red]survived", f"{one.seconds:.0f}")
    console.print(table)
    survivors = sum(one.level is None for one in caught)
    console.print(f"{len(caught) - survivors} of {len(caught)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
