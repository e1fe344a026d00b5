"""Settlement files at the terminal: write those that are due, list them, verify them."""

from __future__ import annotations

from datetime import UTC, date
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.environment import database, settings
from oldhost_sync.fields.scalar import InvalidField, read_day
from oldhost_sync.settings import Settings
from oldhost_sync.settlement.day_settlement import settle_next
from oldhost_sync.settlement.settlement_file import SettlementFolder
from oldhost_sync.settlement.verification import Verification, verify
from oldhost_sync.store.ledger.settlement import SettledDay, settled_days
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.user_errors import FAILED, WRONG, CliError

PROBLEMS_SHOWN_MAX = 50

settlement = typer.Typer(no_args_is_help=True, help="One file per day with the end of each nonce: write, list, verify.")

Folder = Annotated[
    Path | None, typer.Option("--dir", help="The folder of the files; SYNC_SETTLEMENT_DIR by default.", file_okay=False)
]
Since = Annotated[str | None, typer.Option("--since", help="The first day to look at, for example 2026-11-01.")]


def add_to(app: typer.Typer) -> None:
    settlement.command("write")(write)
    settlement.command("list")(list_days)
    settlement.command("verify")(verify_files)
    app.add_typer(settlement, name="settlement")


def write(folder: Folder = None) -> None:
    """Write the file of each day that is over and has none yet, as the relay does."""
    config = settings()
    files = _folder(config, folder)
    count = 0
    with database(config) as engine:
        while True:
            step = run_in_transaction(engine, partial(settle_next, folder=files))
            if step.settled is None:
                break
            count += 1
            console().print(f"{step.settled.day}: {step.settled.records} records", markup=False)
    if step.waits:
        raise CliError(f"{step.waits}.")
    if not count:
        console().print("Nothing to settle: each day that is over has its file.")


def list_days(folder: Folder = None, as_json: AsJson = False) -> None:
    """The settled days, newest first, and whether their records may be pruned."""
    config = settings()
    files = _folder(config, folder)
    there = set(files.days())
    with database(config) as engine:
        noted = run_in_transaction(engine, lambda connection: settled_days(connection, files.host))
    unknown = sorted(there - {settled.day for settled in noted}, reverse=True)
    days = [(settled, settled.day in there) for settled in reversed(noted)]
    if as_json:
        print_json([_as_json(settled, is_there=is_there) for settled, is_there in days])
        return
    if not days and not unknown:
        console().print("No day is settled yet.")
        return
    lines: list[tuple[object, ...]] = [(day, "", "", "not in the database") for day in unknown]
    lines += [
        (settled.day, settled.records, settled.sha256_hex[:16], _state(settled, is_there)) for settled, is_there in days
    ]
    console().print(rows("", ("day", "records", "SHA-256", "state"), lines))


def verify_files(
    folder: Folder = None,
    since: Since = None,
    files_only: Annotated[bool, typer.Option("--files-only", help="Check without the database.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check each file, their chain, and the records that the ledger still has. Exit code 1 when something is wrong."""
    config = settings()
    files = _folder(config, folder)
    first = _day(since)
    if files_only:
        verification = verify(files, None, first)
    else:
        with database(config) as engine:
            verification = verify(files, engine, first)
    if as_json:
        _print_report(files.host, verification)
    else:
        _print_found(verification, first, files_only=files_only)
    if verification.problems:
        raise typer.Exit(FAILED)


def _print_report(host: str, verification: Verification) -> None:
    days = [_as_json(day, is_there=True) for day in verification.days]
    print_json(
        {
            "host": host,
            "ok": not verification.problems,
            "problems": verification.problems,
            "notes": verification.notes,
            "days": days,
        }
        | {"records": verification.records, "compared": verification.compared}
    )


def _print_found(found: Verification, first: date | None, *, files_only: bool) -> None:
    out = console()
    for note in found.notes:
        out.print(note, style="dim", markup=False, soft_wrap=True)
    for problem in found.problems[:PROBLEMS_SHOWN_MAX]:
        out.print(f"WRONG: {problem}", markup=False, soft_wrap=True)
    if len(found.problems) > PROBLEMS_SHOWN_MAX:
        out.print(f"… and {len(found.problems) - PROBLEMS_SHOWN_MAX} more (--json has all)", markup=False)
    if not found.days and not found.problems:
        since = "" if first is None else f" since {first}"
        out.print(f"Nothing to verify: no day{since} is settled yet.", highlight=False)
        return
    span = f"{found.days[0].day} to {found.days[-1].day}, " if found.days else ""
    compared = "the ledger was not looked at" if files_only else f"{found.compared} of them compared with the ledger"
    verdict = f"{len(found.problems)} problems" if found.problems else "all is as it was written"
    out.print(
        f"{len(found.days)} files, {span}{found.records} records, {compared}: {verdict}.", markup=False, soft_wrap=True
    )


def _folder(config: Settings, given: Path | None) -> SettlementFolder:
    path = given or (Path(config.settlement_dir) if config.settlement_dir else None)
    if path is None:
        raise CliError("which folder? Give --dir, or set SYNC_SETTLEMENT_DIR.", WRONG)
    return SettlementFolder(path, config.host)


def _day(value: str | None) -> date | None:
    try:
        return None if value is None else read_day("--since", value)
    except InvalidField as error:
        raise CliError(f"{error}.", WRONG) from None


def _state(day: SettledDay, is_there: bool) -> str:
    if not is_there:
        return "its file is missing"
    return "may be pruned" if day.released_at else ""


def _as_json(day: SettledDay, *, is_there: bool) -> dict[str, object]:
    return {
        "day": day.day.isoformat(),
        "records": day.records,
        "sha256": day.sha256_hex,
        "released_at": None if day.released_at is None else day.released_at.replace(tzinfo=UTC),
        "file": is_there,
    }
