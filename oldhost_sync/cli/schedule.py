"""`scheduled`: what is kept for later, and its cancellation."""

from __future__ import annotations

from typing import Annotated

import typer

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows
from oldhost_sync.cli.writer import operator_of
from oldhost_sync.environment import in_database, settings
from oldhost_sync.store.intake.schedule import cancel_by_operator
from oldhost_sync.store.views.scheduled_list import list_scheduled
from oldhost_sync.user_errors import WRONG, CliError

scheduled = typer.Typer(no_args_is_help=True, help="Changes that are kept for later: see them, cancel one.")


def add_to(app: typer.Typer) -> None:
    scheduled.command("list")(show)
    scheduled.command()(cancel)
    app.add_typer(scheduled, name="scheduled")


def show(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 50, as_json: AsJson = False
) -> None:
    """What is neither recorded nor cancelled, in the order in which it becomes due."""
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
            console().print("There are more: --limit.", style="dim")
    else:
        console().print("Nothing is scheduled.")


def cancel(
    key: Annotated[str, typer.Argument(help="Its idempotency key, as `scheduled list` shows it.")],
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; it is recorded.")],
    operator: Annotated[
        str | None, typer.Option("--operator", help="Who you are; the user of this machine by default.")
    ] = None,
) -> None:
    """Cancel one that is not due yet."""
    who, why = operator_of(operator), reason.strip()
    if not why:
        raise CliError("say why: --reason '…'. It is recorded.", WRONG)
    config = settings()
    done = in_database(
        config, lambda connection: cancel_by_operator(connection, config.host, key, operator=who, reason=why)
    )
    if not done:
        raise CliError(f"nothing is scheduled under {key!r}: it is recorded or cancelled already, or never was.")
    console().print(f"{key} is cancelled.", markup=False, soft_wrap=True)
