"""`webhooks`: how far each has accepted the fates, and replays from a cursor."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.arguments import Operator, Reason, operator_of, reason_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.environment import in_database, settings
from oldhost_sync.store.audit import record_act
from oldhost_sync.store.read.change_feed import (
    BEGINNING,
    CursorForgotten,
    CursorUnknown,
    FeedCursor,
    latest_cursor,
    read_feed,
)
from oldhost_sync.store.webhook_cursors import BEHIND_MAX, WebhookState, replay, states
from oldhost_sync.user_errors import WRONG, CliError

webhooks = typer.Typer(
    help="The webhooks that get fates, and how many each has not accepted yet.", invoke_without_command=True
)
_WORDS = ("oldest", "latest")


def add_to(app: typer.Typer) -> None:
    webhooks.callback()(show)
    webhooks.command("replay")(replay_from)
    app.add_typer(webhooks, name="webhooks")


def show(context: typer.Context, as_json: AsJson = False) -> None:
    """The webhooks that get fates, and how many each has not accepted yet."""
    if context.invoked_subcommand is not None:
        return
    config = settings()
    found = in_database(config, lambda connection: states(connection, (config.host,)))
    if as_json:
        print_json([_as_json(state) for state in found])
    elif found:
        names = ("name", "state", "fates behind", "the oldest, s", "cursor")
        console().print(rows("", names, [_line(state) for state in found]))
    else:
        console().print("No webhook has begun; a relay with SYNC_WEBHOOKS_FILE begins it.")


def replay_from(
    name: Annotated[str, typer.Argument(help="The webhook's name.")],
    since: Annotated[
        str, typer.Option("--from", help="A cursor of the feed, a message's webhook-id, or oldest, or latest.")
    ],
    reason: Reason,
    operator: Operator = None,
) -> None:
    """Deliver the fates after a cursor again, with the same ids; this also enables a webhook that answered 410."""
    config, who, why = settings(), operator_of(operator), reason_of(reason)

    def set_back(connection: Connection) -> FeedCursor | None:
        place = _place(connection, config.host, since)
        try:
            read_feed(connection, config.host, place, limit=1)
        except (CursorForgotten, CursorUnknown) as error:
            raise CliError(f"{error}; the oldest cursor is {error.oldest.text}.") from None
        if not replay(connection, config.host, name, place):
            return None
        detail = {"webhook": name, "from": place.text}
        record_act(connection, host=config.host, action="webhook_replay", operator=who, reason=why, detail=detail)
        return place

    place = in_database(config, set_back)
    if place is None:
        raise CliError(f"there is no webhook {name!r} of {config.host}.", WRONG)
    console().print(f"{name} gets the fates after {place.text}.", markup=False)


def _place(connection: Connection, host: str, since: str) -> FeedCursor:
    if since in _WORDS:
        return BEGINNING if since == "oldest" else latest_cursor(connection, host)
    try:
        return FeedCursor.parse(since.replace("_", "."))
    except ValueError:
        raise CliError(f"{since!r} is neither a cursor of the feed, nor a webhook-id, nor {_WORDS}.", WRONG) from None


def _line(state: WebhookState) -> tuple[object, ...]:
    behind = f"{BEHIND_MAX} or more" if state.behind == BEHIND_MAX else state.behind
    return state.name, _word(state), behind, state.behind_s, state.cursor.text


def _word(state: WebhookState) -> str:
    if state.is_disabled:
        return "disabled by 410"
    return f"refused: {state.trouble}" if state.trouble else "accepting"


def _as_json(state: WebhookState) -> dict[str, Any]:
    shown = {name: getattr(state, name) for name in ("name", "trouble", "is_disabled", "behind", "behind_s")}
    return {**shown, "state": _word(state), "cursor": state.cursor.text}
