"""`change withdraw`: take back what waits, after a look at what that does; or undo it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import typer
from sqlalchemy.engine import Engine

from oldhost_sync.cli.arguments import Operator, Reason, operator_of, reason_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows
from oldhost_sync.cli.writer import client
from oldhost_sync.environment import database, settings
from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.limits import INTEGER_MAX
from oldhost_sync.policy.plain_text import quantity
from oldhost_sync.policy.rules.operator_act import Actor
from oldhost_sync.settings import Settings
from oldhost_sync.store.intake.withdrawal import (
    NothingToUndo,
    Withdrawal,
    WithdrawalFilter,
    WithdrawalPreview,
    WithdrawalStep,
    begin_undo,
    begin_withdrawal,
    preview,
)
from oldhost_sync.store.transactions import run_in_transaction
from oldhost_sync.temporal.writer_client import WriterError
from oldhost_sync.user_errors import WRONG, CliError, print_error
from workflows.messages import WithdrawnBatch, to_wire


def withdraw(
    reason: Reason,
    key: Annotated[str | None, typer.Option(help="Only the change with this idempotency key.")] = None,
    change: Annotated[int | None, typer.Option(min=1, max=INTEGER_MAX, help="Only the change with this id.")] = None,
    source: Annotated[str | None, typer.Option(help="Only what it made: api:TOKEN, python, signal …")] = None,
    entity_type: Annotated[str | None, typer.Option("--type", help="Only entities of this type.")] = None,
    entity: Annotated[str | None, typer.Option(help="Only the entity with this id.")] = None,
    event_type: Annotated[str | None, typer.Option(help="Only changes of this event type.")] = None,
    property_id: Annotated[str | None, typer.Option("--property", help="Only this property's units.")] = None,
    priority_class: Annotated[PriorityClass | None, typer.Option("--class", help="Only of this class.")] = None,
    older_than: Annotated[float | None, typer.Option(min=0, help="Only those accepted so many minutes ago.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that waits.")] = False,
    undo: Annotated[
        int | None, typer.Option(min=1, max=INTEGER_MAX, help="Undo the withdrawal with this number, within a minute.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    operator: Operator = None,
    as_json: AsJson = False,
) -> None:
    """Withdraw changes that wait: OldHost never gets them. Shows first what that does. What is sent already stays."""
    who, why = operator_of(operator), reason_of(reason)
    wanted = WithdrawalFilter(
        change_id=change,
        idempotency_key=key,
        source=source,
        entity_type=entity_type,
        entity_id=entity,
        event_type=event_type,
        property_id=property_id,
        priority_class=None if priority_class is None else priority_class.value,
        accepted_before=None if older_than is None else datetime.now(UTC) - timedelta(minutes=older_than),
    )
    if (undo is not None) + everything + bool(wanted.given) != 1:
        raise CliError("say which changes: --source, --event-type, --entity …, or --all; or --undo ID alone.", WRONG)
    config = settings()
    with database(config) as engine:
        if undo is not None:
            _undo(config, engine, undo, who, why, as_json=as_json)
            return
        seen = run_in_transaction(engine, lambda connection: preview(connection, config.host, wanted))
        if not as_json:
            _show(config, seen)
        if not seen.changes:
            if as_json:
                print_json({"preview": asdict(seen), "withdrawal": None})
            return
        if not yes and typer.prompt(f"Type {config.host} to withdraw them", err=True) != config.host:
            raise CliError("that is not the host's name: nothing was withdrawn.", WRONG)
        act, is_told = _withdraw(config, engine, wanted, seen.up_to, who, why)
    if as_json:
        done = {name: getattr(act, name) for name in ("act_id", "withdrawn", "bound", "locked")}
        print_json({"preview": asdict(seen), "withdrawal": done})
        return
    _tell(config, act, is_told=is_told)


def _show(config: Settings, seen: WithdrawalPreview) -> None:
    out = console()
    more = " or more" if seen.is_more else ""
    out.print(f"{config.host}: {quantity(seen.changes, 'change')}{more} of {quantity(seen.entities, 'entity')}")
    counts: Sequence[tuple[str, Any]] = [*seen.by_class.items(), *seen.by_event_type.items()]
    if counts:
        out.print(rows("", ("", "changes"), counts))
    freed = "" if seen.seconds_freed is None else f", some {timedelta(seconds=round(seen.seconds_freed))} of its time"
    out.print(f"OldHost is spared {quantity(seen.operations, 'operation')}{freed}.", markup=False)
    back = (
        (seen.shown_before, "to an older change that waits"),
        (seen.shown_at_oldhost, "to what OldHost has"),
        (seen.shown_none, "to nothing: no older one is stored"),
    )
    for count, where in back:
        if count:
            out.print(f"The shadow goes back: {quantity(count, 'state')} {where}.", markup=False)
    if seen.bound:
        out.print(f"{quantity(seen.bound, 'change')} at OldHost, or perhaps there: these stay.", markup=False)


def _withdraw(
    config: Settings, engine: Engine, wanted: WithdrawalFilter, up_to: int, who: Actor, why: str
) -> tuple[Withdrawal, bool]:
    begin = partial(begin_withdrawal, host=config.host, wanted=wanted, up_to=up_to, operator=who, reason=why)
    act = run_in_transaction(engine, begin)
    steps: list[WithdrawalStep] = []
    while not act.done:
        steps.append(run_in_transaction(engine, act.step))
        act.took(steps[-1])
    try:
        asyncio.run(_tell_writer(config, steps))
    except WriterError:
        return act, False
    return act, True


async def _tell_writer(config: Settings, steps: Sequence[WithdrawalStep]) -> None:
    writer = client(config)
    for step in steps:
        if step.change_ids:
            await writer.tell("enqueue", WithdrawnBatch(step.change_ids, [to_wire(ref) for ref in step.refs]))


def _tell(config: Settings, act: Withdrawal, *, is_told: bool) -> None:
    out = console()
    out.print(f"{config.host}: {quantity(act.withdrawn, 'change')} withdrawn.", markup=False)
    if act.locked:
        out.print(f"{quantity(act.locked, 'change')} locked by another transaction: repeat it for these.", markup=False)
    if not is_told:
        print_error("the writer could not be told; it learns of it when their turn comes, which takes its time.")
    out.print(
        f"Within a minute: oldhost-sync change withdraw --undo {act.act_id} --reason …", style="dim", markup=False
    )


def _undo(config: Settings, engine: Engine, act_id: int, who: Actor, why: str, *, as_json: bool) -> None:
    begin = partial(begin_undo, host=config.host, act_id=act_id, operator=who, reason=why)
    try:
        undo = run_in_transaction(engine, begin)
    except NothingToUndo as error:
        raise CliError(f"{error}.") from None
    while not undo.done:
        undo.took(run_in_transaction(engine, undo.step))
    if as_json:
        print_json({"recorded": undo.recorded, "left_out": undo.left_out})
        return
    out = console()
    out.print(f"{config.host}: {quantity(undo.recorded, 'change')} recorded anew.", markup=False)
    if undo.left_out:
        why_not = "their entities have newer changes, or are locked"
        out.print(f"{quantity(undo.left_out, 'change')} left out: {why_not}.", markup=False)
