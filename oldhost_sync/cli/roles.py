"""The roles as commands: each runs one process until it is stopped; `up` runs them all."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from oldhost_sync.cli.output import console
from oldhost_sync.environment import settings, settings_of_a_new_stack
from oldhost_sync.logs import log_to_stderr
from oldhost_sync.settings import bind_address

# Its options are the simulator's own; `oldhost-sync simulator --help` shows them.
_AS_GIVEN = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_to(app: typer.Typer) -> None:
    for command in (up, api, relay, worker, migrate):
        app.command()(command)
    app.command(context_settings=_AS_GIVEN, add_help_option=False)(simulator)


def api() -> None:
    """Serve the HTTP API: accept changes, show units and fates, and let operators act."""
    from oldhost_sync.roles import api
    from oldhost_sync.stack.machine import pick_port

    config = settings()
    log_to_stderr(config.log_format)
    address, port = bind_address(config.api_bind)
    if port:  # otherwise a port in use would only show among uvicorn's log lines
        pick_port(port, "the API (SYNC_API_BIND)", address)
    api.run(config)


def worker() -> None:
    """Run the writer's workflow and hold the connection to OldHost."""
    from oldhost_sync.roles import worker as composition

    config = settings()
    log_to_stderr(config.log_format)
    asyncio.run(composition.run(config))


def relay() -> None:
    """Hand recorded changes to the writer, and record scheduled ones when they are due."""
    from oldhost_sync.roles import relay

    config = settings()
    log_to_stderr(config.log_format)
    asyncio.run(relay.run(config))


def migrate() -> None:
    """Bring the database's schema up to date; safe to run twice and from two machines."""
    from oldhost_sync.store.schema_migration import migrate as upgrade

    config = settings()
    mappings = config.mappings()
    revision = upgrade(config.need_database_url(), config.hosts(), mappings)
    console().print(f"The schema is at revision {revision}.")
    for host, mapping in mappings.items():
        console().print(f"The operations of {host} are made by mapping {mapping.label}.", markup=False)


def simulator(context: typer.Context) -> None:
    """Simulate OldHost on a real socket, with faults and an admin port."""
    from oldhost_sync.stack.machine import module

    arguments = module("oldhost_simulator", *context.args)
    os.execv(sys.executable, arguments)  # noqa: S606 - it is another program, which replaces this process


def up(
    folder: Annotated[Path, typer.Option(help="For data, logs and tokens; only one `up` at a time can use it.")] = Path(
        "var"
    ),
    latency_ms: Annotated[
        float, typer.Option(min=0, help="The simulator's time for each request, in milliseconds.")
    ] = 400.0,
    workers: Annotated[int, typer.Option(min=1, max=16, help="How many worker processes.")] = 1,
    relays: Annotated[int, typer.Option(min=1, max=4, help="How many relay processes.")] = 1,
    mariadb_port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free port, here and below.")] = 3307,
    temporal_port: Annotated[int, typer.Option(min=0, max=65535)] = 7233,
    temporal_ui_port: Annotated[int, typer.Option(min=0, max=65535)] = 8233,
    oldhost_port: Annotated[int, typer.Option(min=0, max=65535)] = 9400,
    oldhost_admin_port: Annotated[int, typer.Option(min=0, max=65535)] = 9401,
) -> None:
    """Run everything on this machine until Ctrl-C, and start MariaDB, Temporal or OldHost if no address is set."""
    given = locals()
    from oldhost_sync.stack.forked_child import begin_loading

    begin_loading()  # while the servers start
    from oldhost_sync.stack.local_product import run_up
    from oldhost_sync.stack.servers import StackPlan

    plan = StackPlan(**given, example=True)
    raise typer.Exit(run_up(settings_of_a_new_stack(), plan))
