"""Operators' commands: pause, resume, flush, resolve, dead letters. The operator and the reason are recorded."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oldhost_sync.cli.arguments import Limit, Operator, Reason, entity_of, operator_name, reason_of, seconds_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.cli.writer import update
from oldhost_sync.environment import in_database, settings
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.operator_act import Channel
from oldhost_sync.store.read.dead_letters import HELD_COUNTED_MAX
from oldhost_sync.store.read.dead_letters import list_dead_letters as read_dead_letters
from workflows.messages import OperatorAct, ResolveMode

ChangeId = Annotated[
    int, typer.Argument(help="The rejected change's id, as `dead-letters list` shows it.", min=1, max=INTEGER_MAX)
]

dead_letters = typer.Typer(
    no_args_is_help=True, help="Changes that OldHost rejected, or may have: list them and decide."
)


def add_to(app: typer.Typer) -> None:
    for command in (pause, resume, flush, resolve):
        app.command()(command)
    dead_letters.command("list")(list_dead_letters)
    dead_letters.command()(retry)
    dead_letters.command()(discard)
    dead_letters.command()(confirm)
    app.add_typer(dead_letters, name="dead-letters")


def pause(
    reason: Reason,
    lasts: Annotated[
        str | None,
        typer.Option("--for", metavar="DURATION", help="It ends by itself, for example after 40m (s, m, h or d)."),
    ] = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Stop sending and close the connection; changes are still accepted and coalesced."""
    _act("pause", reason, operator, as_json, for_seconds=0 if lasts is None else seconds_of("--for", lasts))


def resume(reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Resume sending after a pause."""
    _act("resume", reason, operator, as_json)


def flush(
    reason: Reason,
    entity: Annotated[str | None, typer.Argument(help="A unit's id, or type/id; without it: all entities.")] = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Send now what the debounce holds back: one entity's changes, or all."""
    entity_type, entity_id = (None, None) if entity is None else entity_of(entity)
    _act("flush", reason, operator, as_json, entity_type=entity_type, entity_id=entity_id)


def resolve(
    mode: Annotated[
        ResolveMode,
        typer.Argument(
            help="resend: send the ledger's operations again · adopt: accept the nonce that OldHost expects"
        ),
    ],
    reason: Reason,
    epoch: Annotated[
        int,
        typer.Option(
            min=0, max=INTEGER_MAX, help="The halt's, as `status` shows it: another halt is refused. 0: whatever it is."
        ),
    ] = 0,
    expected: Annotated[
        int | None,
        typer.Option(
            min=0, max=INTEGER_MAX, help="To adopt: the nonce that a host expects which can't be asked. OldHost can be."
        ),
    ] = None,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """End a halt (OldHost's nonce went back, another writer wrote to it, or a second ban came within an hour)."""
    _act("resolve", reason, operator, as_json, mode=mode.value, epoch=epoch, expected=expected)


def list_dead_letters(
    limit: Limit = 100,
    after: Annotated[int, typer.Option(min=0, max=INTEGER_MAX, help="Only those with a larger id.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Undecided dead letters, oldest first."""
    config = settings()
    letters = in_database(
        config,
        lambda connection: read_dead_letters(connection, config.host, after_id=after, limit=limit),
    )
    if as_json:
        print_json(letters)
        return
    if not letters:
        console().print("No dead letters.")
        return
    names = ("id", "entity", "event type", "rejected at", "held", "OldHost's reason")
    console().print(rows("", names, ((*_letter(letter),) for letter in letters)))
    if len(letters) == limit:
        console().print(f"There may be more: --after {letters[-1]['change_id']}, or --limit.", style="dim")
    console().print(
        "Then: oldhost-sync dead-letters retry|discard ID --reason …; an unsure one also: confirm", style="dim"
    )


def retry(change_id: ChangeId, reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Send a rejected change again, before the changes held behind it."""
    _act("retry", reason, operator, as_json, change_id=change_id)


def discard(change_id: ChangeId, reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Give up a rejected change; the changes held behind it are sent."""
    _act("discard", reason, operator, as_json, change_id=change_id)


def confirm(change_id: ChangeId, reason: Reason, operator: Operator = None, as_json: AsJson = False) -> None:
    """Count an unsure change as applied: you have looked, and OldHost has it."""
    _act("confirm", reason, operator, as_json, change_id=change_id)


def _act(action: str, reason: str, operator: str | None, as_json: bool, **more: Any) -> None:
    who, why = operator_name(operator), reason_of(reason)
    request = OperatorAct(operator=who, reason=why, channel=Channel.COMMAND_LINE, **more)
    config = settings()
    answer = update(config, action, request)
    message = str(answer)
    if action == "flush":
        of_it = "" if request.entity_id is None else f" of {request.entity_type}/{request.entity_id}"
        message = f"{quantity(answer, 'key')}{of_it} will be sent now" if answer else f"nothing{of_it} is debounced"
    if as_json:
        print_json({"action": action, "host": config.host, "operator": request.operator, "answer": answer})
    else:
        console().print(f"{config.host}: {message}", markup=False)


def _letter(letter: dict[str, Any]) -> tuple[object, ...]:
    entity = f"{letter['entity_type']}/{letter['entity_id']}"
    or_more = " or more" if letter["held"] >= HELD_COUNTED_MAX else ""
    return (
        str(letter["change_id"]),
        entity,
        letter["event_type"],
        letter["processed_at"],
        f"{letter['held']}{or_more}",
        letter["error"],
    )
