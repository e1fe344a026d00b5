"""Every command: its module and its line in the list of commands. A module is imported when its command is named, so
that help and completion are quick, and a command waits only for the libraries that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class CommandEntry(NamedTuple):
    """`help`: the first paragraph of the command's own help. `is_role`: it takes its hosts from the settings."""

    module: str
    help: str
    is_role: bool = False


COMMANDS: Final = {
    "up": CommandEntry(
        "roles",
        "Run everything on this machine until Ctrl-C, and start MariaDB, Temporal or OldHost if no address is set.",
        is_role=True,
    ),
    "api": CommandEntry(
        "roles", "Serve the HTTP API: accept changes, show units and fates, and let operators act.", is_role=True
    ),
    "relay": CommandEntry(
        "roles", "Hand recorded changes to the writer, and record scheduled ones when they are due.", is_role=True
    ),
    "worker": CommandEntry("roles", "Run the writer's workflow and hold the connection to OldHost.", is_role=True),
    "migrate": CommandEntry(
        "roles", "Bring the database's schema up to date; safe to run twice and from two machines.", is_role=True
    ),
    "simulator": CommandEntry(
        "roles", "Simulate OldHost on a real socket, with faults and an admin port.", is_role=True
    ),
    "status": CommandEntry(
        "status", "What the writer is doing: state, lanes, breaker, session, nonces, rates, forecast, books, alerts."
    ),
    "hosts": CommandEntry(
        "status",
        "Every host in the database, with its state as `status` says it. `--host NAME` before a command chooses one.",
    ),
    "submit": CommandEntry(
        "submission", "Submit one change, or a file of changes. Exit code 1 when anything was refused."
    ),
    "find": CommandEntry(
        "changes", "Where an entity's changes are: what the database has, and where they are in the writer."
    ),
    "search": CommandEntry(
        "changes", "Find a change, entity or property by a key, id or name. Exit code 1 when nothing is found."
    ),
    "upcoming": CommandEntry("changes", "What the writer sends next, if nothing new arrives."),
    "audit": CommandEntry("changes", "Who did what and why, newest first."),
    "pause": CommandEntry(
        "operator_commands", "Stop sending and close the connection; changes are still accepted and coalesced."
    ),
    "resume": CommandEntry("operator_commands", "Resume sending after a pause."),
    "flush": CommandEntry("operator_commands", "Send now what the debounce holds back: one entity's changes, or all."),
    "resolve": CommandEntry(
        "operator_commands",
        "End a halt (OldHost's nonce went back, another writer wrote to it, or a second ban came within an hour).",
    ),
    "plan": CommandEntry(
        "plan",
        "Simulate the writer's policy on a virtual clock, compared with an oracle that knows the future. "
        "Sends nothing.",
    ),
    "demo": CommandEntry(
        "plan",
        "Run the half-hour peak, with a ban, on real servers in compressed time; exit code 1 when a promise breaks.",
    ),
    "lost-changes": CommandEntry(
        "lost_changes", "After a restore: the changes that were handed to the writer and that the database has lost."
    ),
    "resync": CommandEntry(
        "resync", "Send the shadow's states to OldHost again; the relay does it while nothing else is waiting."
    ),
    "resync-nightly": CommandEntry("resync", "Send all states again every night, by a Schedule in Temporal."),
    "resyncs": CommandEntry("resync", "The latest resyncs: how many states were sent again, and how they ended."),
    "change": CommandEntry("changes", "One change."),
    "scheduled": CommandEntry("changes", "Scheduled changes: list them, cancel one."),
    "dead-letters": CommandEntry(
        "operator_commands", "Changes that OldHost rejected, or may have: list them and decide."
    ),
    "alerts": CommandEntry("alerts", "Alerts, newest first: one for each cause."),
    "webhooks": CommandEntry("webhooks", "The webhooks that get fates, and how many each has not accepted yet."),
    "driver": CommandEntry("driver", "Whether a host keeps what its driver claims: ask it, or measure it."),
    "settlement": CommandEntry("settlement", "One file per day with the end of each nonce: write, list, verify."),
    "tokens": CommandEntry("administration", "Tokens for the API."),
    "rules": CommandEntry("administration", "Which class the changes of each event type get."),
    "sign-ins": CommandEntry("administration", "Who is signed in to the console of SYNC_HOST."),
}


class LoadedCommands(MutableMapping[str, Any]):
    """The commands by name; each is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        app = typer.Typer(callback=lambda: None)
        import_module(f"oldhost_sync.cli.{COMMANDS[name].module}").add_to(app)
        group = typer.main.get_command(app)
        assert isinstance(group, TyperGroup)
        return group.commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __setitem__(self, name: str, command: Any) -> None:
        raise NotImplementedError(f"add {name} to COMMANDS")

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError(f"remove {name} from COMMANDS")


class CommandGroup(TyperGroup):
    """The root of the command line."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given | {"commands": {}})
        self.commands = LoadedCommands()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - typer's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """What help and completion show of it: `resolve_command` gives the command itself."""
        return TyperCommand(cmd_name, help=COMMANDS[cmd_name].help) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if command is None or name is None else self.commands[name], rest
