"""Looking things up: one change with its steps, one entity, what is scheduled (and cancelling it), one search, what is
sent next, and who did what.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.arguments import Limit, Operator, Reason, entity_of, operator_of, reason_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows, span
from oldhost_sync.cli.withdrawal import withdraw
from oldhost_sync.cli.writer import query
from oldhost_sync.environment import in_database, settings
from oldhost_sync.explanations import explain
from oldhost_sync.policy.changes import CHANGE_ID_MAX
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.settings import Settings
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.intake.schedule import cancel_by_operator
from oldhost_sync.store.read import change_status, entities
from oldhost_sync.store.read.change_list import list_scheduled
from oldhost_sync.store.read.search import search as search_all
from oldhost_sync.temporal.writer_client import WriterError
from oldhost_sync.user_errors import FAILED, CliError, print_error

change = typer.Typer(no_args_is_help=True, help="One change.")
scheduled = typer.Typer(no_args_is_help=True, help="Scheduled changes: list them, cancel one.")


def add_to(app: typer.Typer) -> None:
    change.command("show")(show)
    change.command("withdraw")(withdraw)
    app.add_typer(change, name="change")
    scheduled.command("list")(list_scheduled_changes)
    scheduled.command()(cancel)
    app.add_typer(scheduled, name="scheduled")
    for command in (find, search, upcoming, audit):
        app.command()(command)


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
    if fate.mapping is not None:
        out.print(f"bytes by mapping {fate.mapping}", markup=False)
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


def _fate(connection: Connection, host: str, key: str) -> change_status.Fate | None:
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


def _print_entity(
    config: Settings, key: tuple[str, str], entity: dict[str, Any], writer: dict[str, Any] | None
) -> None:
    out = console()
    shadow = entity["shadow"]
    if shadow is not None:
        out.print(f"{key[0]}/{key[1]} on {config.host}: {shadow['sync_status']}", markup=False)
        for name, value in dict(shadow["state"]).items():
            out.print(f"  {name}: {value}", markup=False)
    lines = (
        (str(change["change_id"]), change["event_type"], change["priority_class"], change["accepted_at"],
         change["outcome"] or "on its way", change["nonce"], change["idempotency_key"])
        for change in entity["changes"]
    )  # fmt: skip
    names = ("change", "event type", "class", "accepted at", "fate", "nonce", "key")
    out.print(rows("Its latest changes", names, lines))
    if entity["scheduled"]:
        kept = (
            (change["not_before"], change["event_type"], change["idempotency_key"]) for change in entity["scheduled"]
        )
        out.print(rows("Scheduled", ("not before", "event type", "key"), kept))
    if writer is None:
        return
    waiting = [
        (str(change["change_id"]), change["event_type"], change["place"], change.get("waits_for", "–"),
         span(change["due_in_ms"]) if change["place"] == "debounced" else "–")
        for change in writer["changes"] or ()
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


# ------------------------------------------------------------------------------------------------------------ scheduled


def list_scheduled_changes(limit: Limit = 50, as_json: AsJson = False) -> None:
    """Scheduled changes that are neither recorded nor cancelled, the first due first."""
    config = settings()
    changes, more = in_database(config, lambda connection: list_scheduled(connection, config.host, limit=limit))
    if as_json:
        print_json(changes)
    elif changes:
        lines = (
            (change["not_before"], f"{change['entity_type']}/{change['entity_id']}", change["event_type"],
             change["idempotency_key"])
            for change in changes
        )  # fmt: skip
        console().print(rows("", ("not before", "entity", "event type", "key"), lines))
        if more:
            console().print("There are more: use --limit.", style="dim")
    else:
        console().print("Nothing is scheduled.")


def cancel(
    key: Annotated[str, typer.Argument(help="Its idempotency key, as `scheduled list` shows it.")],
    reason: Reason,
    operator: Operator = None,
) -> None:
    """Cancel a scheduled change that is not due yet."""
    who, why = operator_of(operator), reason_of(reason)
    config = settings()
    done = in_database(
        config, lambda connection: cancel_by_operator(connection, config.host, key, operator=who, reason=why)
    )
    if not done:
        raise CliError(
            f"no scheduled change has the key {key!r}: it was recorded or cancelled already, or never existed."
        )
    console().print(f"{key} is cancelled.", markup=False, soft_wrap=True)


# ---------------------------------------------------------------------------------------------------- looking things up

LISTED_MAX = 200


def search(
    text: Annotated[str, typer.Argument(help="A key, an id, type/id, a unit's name or its beginning, a property.")],
    as_json: AsJson = False,
) -> None:
    """Find a change, entity or property by a key, id or name. Exit code 1 when nothing is found."""
    config = settings()
    hits = in_database(config, lambda connection: search_all(connection, config.host, text.strip()))
    if as_json:
        print_json([asdict(hit) for hit in hits])
    elif hits:
        lines = ((hit.kind, hit.found_by, hit.title, _number(hit.change_id), hit.idempotency_key) for hit in hits)
        console().print(rows("", ("kind", "found by", "what", "change", "key"), lines))
    else:
        console().print(f"Nothing was found for {text!r}.", markup=False)
    if not hits:
        raise typer.Exit(FAILED)


def upcoming(
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=LISTED_MAX, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """What the writer sends next, if nothing new arrives."""
    found = query(settings(), "upcoming", count)
    if as_json:
        print_json(found)
    elif found:
        lines = (
            (place, each["priority_class"], f"{each['entity_type']}/{each['entity_id']}", each["event_type"],
             str(each["change_id"]))
            for place, each in enumerate(found, start=1)
        )  # fmt: skip
        console().print(rows("", ("", "class", "entity", "event type", "change"), lines))
    else:
        console().print("Nothing is due. Debounced changes become due when their keys have been quiet.")


def audit(
    action: Annotated[str | None, typer.Option(help="Only acts of this kind: pause, retry, discard …")] = None,
    change: Annotated[int | None, typer.Option(min=1, max=INTEGER_MAX, help="Only acts about this change.")] = None,
    limit: Limit = 50,
    before: Annotated[int | None, typer.Option(min=1, max=INTEGER_MAX, help="Only acts with a smaller number.")] = None,
    as_json: AsJson = False,
) -> None:
    """Who did what and why, newest first."""
    config = settings()
    acts = in_database(
        config,
        lambda connection: list_acts(
            connection, config.host, limit=limit, before_id=before, action=action, change_id=change
        ),
    )
    if as_json:
        print_json([asdict(act) for act in acts])
    elif acts:
        lines = (
            (str(act.act_id), act.created_at, act.action, act.operator, act.way, _number(act.change_id), act.reason)
            for act in acts
        )
        console().print(rows("", ("no.", "at", "act", "operator", "by", "change", "reason"), lines))
    else:
        console().print("No such acts.")


def _number(change_id: int | None) -> str:
    """Without separators, so that it can be copied."""
    return "–" if change_id is None else str(change_id)
