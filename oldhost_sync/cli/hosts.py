"""`oldhost-sync hosts`: every host in the database, and its state."""

from __future__ import annotations

from dataclasses import asdict

import typer

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows, shown
from oldhost_sync.environment import in_database, settings


def add_to(app: typer.Typer) -> None:
    app.command()(hosts)


def hosts(as_json: AsJson = False) -> None:
    """Every host in the database, and its state. `--host NAME` before a command chooses one."""
    from oldhost_sync.store.prerequisites import known_hosts
    from oldhost_sync.store.views.host_list import read_hosts

    found = in_database(settings(), lambda connection: read_hosts(connection, known_hosts(connection)))
    if as_json:
        print_json({"hosts": [asdict(each) for each in found]})
        return
    lines = ((each.host, each.state, shown(each.oldest_waiting_at), str(each.open_alerts), each.why) for each in found)
    console().print(rows("", ("host", "state", "oldest waiting since", "alerts", "why"), lines))
