"""Changes: one change's steps and fate, and everything about one entity."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Annotated, Any

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.output import console, print_json, rows, span
from oldhost_sync.cli.writer import query
from oldhost_sync.environment import in_database, settings
from oldhost_sync.explanations import explain
from oldhost_sync.policy.changes import CHANGE_ID_MAX
from oldhost_sync.policy.limits import NAME_PATTERN
from oldhost_sync.settings import Settings
from oldhost_sync.store.read import change_status, entities
from oldhost_sync.temporal.writer_client import WriterError
from oldhost_sync.user_errors import FAILED, CliError, print_error

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_TYPE_AND_ID = re.compile(f"({NAME_PATTERN})/(.+)")

change = typer.Typer(no_args_is_help=True, help="One change.")


def add_to(app: typer.Typer) -> None:
    change.command("show")(show)
    app.add_typer(change, name="change")
    app.command()(find)


def show(
    key: Annotated[str, typer.Argument(help="The change's idempotency key, or its id.")],
    as_json: AsJson = False,
) -> None:
    """One change, step by step: accepted, relayed, reserved, sent, answered; or what it waits for."""
    config = settings()
    fate = in_database(config, lambda connection: _fate(connection, config.host, key))
    if fate is None:
        raise CliError(
            f"no change of host {config.host!r} has the key or the id {key!r}. "
            "Check it: the answer to the submission has both."
        )
    if as_json:
        print_json(asdict(fate))
        return
    out = console()
    named = f"{fate.entity_type}/{fate.entity_id} {fate.event_type}"
    number = "–" if fate.change_id is None else str(fate.change_id)
    out.print(f"{fate.state}  {named}  change {number}  {fate.priority_class or ''}", markup=False)
    out.print(f"key {fate.idempotency_key}", markup=False, soft_wrap=True)
    if fate.unconfirmed:
        out.print("unconfirmed: no answer of OldHost says that it has it")
    if fate.unsure:
        out.print("unsure: OldHost's answer says neither applied nor rejected; decide: retry, discard or confirm")
    lines = ((step.at, step.step, step.nonce, step.detail or "") for step in fate.steps)
    out.print(rows("", ("at", "step", "nonce", ""), lines))
    if fate.supersedes:
        out.print(f"replaced changes {', '.join(map(str, fate.supersedes))}", markup=False, soft_wrap=True)
    for why in fate.waiting_for:
        out.print(f"waits for {why}", markup=False)
    for label, text in (("OldHost's answer", fate.answer), ("error", fate.error)):
        if text:
            out.print(f"{label}: {text}", markup=False)


def _fate(connection: Connection, host: str, key: str) -> change_status.FateView | None:
    """By key; if no change has this key and it is a number, by id."""
    fate = change_status.find_fate(connection, host, key)
    if fate is None and key.isascii() and key.isdecimal() and int(key) <= CHANGE_ID_MAX:
        return change_status.find_fate_of_id(connection, host, int(key))
    return fate


def find(
    entity: Annotated[str, typer.Argument(help="A unit's id, or type/id.")],
    entity_type: Annotated[
        str | None, typer.Option("--type", help="The entity's type; ENTITY is then only the id.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Where an entity's changes are: what the database has, and where they are in the writer."""
    config = settings()
    key = (entity_type, entity) if entity_type else entity_of(entity)
    found = in_database(config, lambda connection: entities.read_entity(connection, config.host, *key))
    try:
        writer, why_not = query(config, "find", *key), None
    except WriterError as error:
        writer, why_not = None, str(explain(error))
    if found["shadow"] is None and not found["changes"] and not found["scheduled"]:
        raise CliError(f"{key[0]}/{key[1]} is unknown on host {config.host!r}. Check type and id.")
    if as_json:
        print_json({**found, "writer": writer})
    else:
        _print_entity(config, key, found, writer)
    if why_not:
        print_error(why_not)
        raise typer.Exit(FAILED)


def entity_of(text: str) -> tuple[str, str]:
    """`type/id`, or the id of a unit."""
    match = _TYPE_AND_ID.fullmatch(text)
    return (match[1], match[2]) if match else ("unit", text)


def _print_entity(config: Settings, key: tuple[str, str], found: dict[str, Any], writer: dict[str, Any] | None) -> None:
    out = console()
    shadow = found["shadow"]
    if shadow is not None:
        out.print(f"{key[0]}/{key[1]} on {config.host}: {shadow['sync_status']}", markup=False)
        for name, value in dict(shadow["state"]).items():
            out.print(f"  {name}: {value}", markup=False)
    lines = (
        (str(each["change_id"]), each["event_type"], each["priority_class"], each["accepted_at"],
         each["outcome"] or "on its way", each["nonce"], each["idempotency_key"])
        for each in found["changes"]
    )  # fmt: skip
    names = ("change", "event type", "class", "accepted at", "fate", "nonce", "key")
    out.print(rows("Its latest changes", names, lines))
    if found["scheduled"]:
        kept = ((each["not_before"], each["event_type"], each["idempotency_key"]) for each in found["scheduled"])
        out.print(rows("Scheduled", ("not before", "event type", "key"), kept))
    if writer is None:
        return
    waiting = [
        (str(each["change_id"]), each["event_type"], each["place"], each.get("waits_for", "–"),
         span(each["due_in_ms"]) if each["place"] == "debounced" else "–")
        for each in writer["changes"] or ()
    ]  # fmt: skip
    if waiting:
        out.print(rows("In the writer", ("change", "event type", "where", "waits for", "due in"), waiting))
    else:
        out.print("None of its changes is in the writer.")
    if (count := writer.get("count", 0)) > len(waiting):
        out.print(f"Only the oldest of {count} are shown.")
    if writer.get("held"):
        out.print(f"{writer['held']} more are held in the database behind its dead letters.")
    if writer["dead_letters"]:
        out.print(f"Dead letters: {', '.join(map(str, writer['dead_letters']))}", markup=False)
