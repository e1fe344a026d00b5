"""`oldhost-sync hosts`: every host in the database, and its state."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import typer

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows, shown
from oldhost_sync.cli.writer import link
from oldhost_sync.environment import database, settings
from oldhost_sync.settings import Settings
from oldhost_sync.store.transactions import run_in_transaction

if TYPE_CHECKING:
    from oldhost_sync.api.routes.hosts import HostLine
    from oldhost_sync.store.read.host_condition import HostCondition


def add_to(app: typer.Typer) -> None:
    app.command()(hosts)


def hosts(as_json: AsJson = False) -> None:
    """Every host in the database, with its state as `status` says it. `--host NAME` before a command chooses one."""
    found = asyncio.run(_lines(settings()))
    if as_json:
        print_json({"hosts": [asdict(each) for each in found]})
        return
    lines = ((each.host, each.state, shown(each.oldest_waiting_at), str(each.open_alerts), each.why) for each in found)
    console().print(rows("", ("host", "state", "oldest waiting since", "alerts", "why"), lines))


async def _lines(config: Settings) -> list[HostLine]:
    from oldhost_sync.api.routes.hosts import HostList, read_conditions
    from oldhost_sync.store.engine import known_hosts

    with database(config) as engine:
        names = run_in_transaction(engine, known_hosts)

        async def read(hosts: Sequence[str]) -> Mapping[str, HostCondition]:
            return await asyncio.to_thread(run_in_transaction, engine, partial(read_conditions, hosts=hosts))

        return await HostList({name: link(config, name) for name in names}, read).lines(names)
