"""Who is signed in to the console, and signing them out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows
from oldhost_sync.cli.writer import operator_of
from oldhost_sync.environment import in_database, settings
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.store.access import end_sessions_of, open_sessions
from oldhost_sync.store.audit import record_act

ENDED = "end-sign-ins"

sign_ins = typer.Typer(no_args_is_help=True, help="Who is signed in to the console of SYNC_HOST.")


def add_to(app: typer.Typer) -> None:
    sign_ins.command("list")(list_sign_ins)
    sign_ins.command("end")(end_sign_ins)
    app.add_typer(sign_ins, name="sign-ins")


def list_sign_ins(as_json: AsJson = False) -> None:
    """Who is signed in, since when, and when they last did something."""
    config = settings()
    found = in_database(config, lambda c: open_sessions(c, config.host, config.console_idle_seconds))
    if as_json:
        print_json([asdict(each) for each in found])
    elif found:
        lines = ((each.name, each.since, each.seen_at, each.until) for each in found)
        console().print(rows("", ("token", "since", "last use", "at most until"), lines))
    else:
        console().print("Nobody is signed in.")


def end_sign_ins(
    name: Annotated[str, typer.Argument(help="The token's name, as in the list.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="The reason; it is recorded in the audit.")],
    operator: Annotated[
        str | None, typer.Option("--operator", help="Your name; by default your user name on this machine.")
    ] = None,
) -> None:
    """Sign everybody out who signed in with this token. The token stays valid: remove it to keep them out."""
    config = settings()

    def end(connection: Connection) -> int:
        count = end_sessions_of(connection, config.host, name)
        if count:
            who = operator_of(operator)
            detail = {"token": name, "sign_ins": count}
            record_act(connection, host=config.host, action=ENDED, operator=who, reason=reason, detail=detail)
        return count

    count = in_database(config, end)
    console().print(f"{quantity(count, 'sign-in')} of {name} ended.", markup=False)
