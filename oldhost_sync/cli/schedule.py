"""`scheduled`: list scheduled changes, and cancel one."""

from __future__ import annotations

from typing import Annotated

import typer

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows
from oldhost_sync.cli.writer import operator_of
from oldhost_sync.environment import in_database, settings
from oldhost_sync.store.intake.schedule import cancel_by_operator
from oldhost_sync.store.read.change_list import list_scheduled
from oldhost_sync.user_errors import WRONG, CliError

scheduled = typer.Typer(no_args_is_help=True, help="Scheduled changes: list them, cancel one.")


def add_to(app: typer.Typer) -> None:
    scheduled.command("list")(show)
    scheduled.command()(cancel)
    app.add_typer(scheduled, name="scheduled")


def show(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 50, as_json: AsJson = False
) -> None:
    """Scheduled changes that are neither recorded nor cancelled, the first due first."""
    config = settings()
    found, more = in_database(config, lambda connection: list_scheduled(connection, config.host, limit=limit))
    if as_json:
        print_json(found)
    elif found:
        lines = (
            (each["not_before"], f"{each['entity_type']}/{each['entity_id']}", each["event_type"],
             each["idempotency_key"])
            for each in found
        )  # fmt: skip
        console().print(rows("", ("not before", "entity", "event type", "key"), lines))
        if more:
            console().print("There are more: use --limit.", style="dim")
    else:
        console().print("Nothing is scheduled.")


def cancel(
    key: Annotated[str, typer.Argument(help="Its idempotency key, as `scheduled list` shows it.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="The reason; it is recorded in the audit.")],
    operator: Annotated[
        str | None, typer.Option("--operator", help="Your name; by default your user name on this machine.")
    ] = None,
) -> None:
    """Cancel a scheduled change that is not due yet."""
    who, why = operator_of(operator), reason.strip()
    if not why:
        raise CliError("say why: --reason '…'. It is recorded.", WRONG)
    config = settings()
    done = in_database(
        config, lambda connection: cancel_by_operator(connection, config.host, key, operator=who, reason=why)
    )
    if not done:
        raise CliError(
            f"no scheduled change has the key {key!r}: it was recorded or cancelled already, or never existed."
        )
    console().print(f"{key} is cancelled.", markup=False, soft_wrap=True)
