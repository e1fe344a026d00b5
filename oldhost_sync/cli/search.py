"""Looking things up: one search, what is sent next, and who did what."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows
from oldhost_sync.cli.writer import query
from oldhost_sync.environment import in_database, settings
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.store.audit import list_acts
from oldhost_sync.store.read.search import search as search_all
from oldhost_sync.user_errors import FAILED

LISTED_MAX = 200


def add_to(app: typer.Typer) -> None:
    for command in (search, upcoming, audit):
        app.command()(command)


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
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most this many.")] = 50,
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
