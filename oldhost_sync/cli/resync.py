"""Resync: send OldHost the states of the shadow again, and show the progress."""

from __future__ import annotations

import asyncio
from datetime import datetime, time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.arguments import Operator, Reason, operator_of, reason_of
from oldhost_sync.cli.output import AsJson, console, print_json, rows, shown
from oldhost_sync.environment import database, in_database, settings
from oldhost_sync.secret_keys import encryption_keys
from oldhost_sync.settings import Settings
from oldhost_sync.store.intake.resync import Resync, latest_resyncs, request_resync, results_of
from oldhost_sync.user_errors import WRONG, CliError

if TYPE_CHECKING:
    from oldhost_sync.temporal.nightly_resync import NightlySchedule

SHOWN = 20
OFF = "off"
# For all calls of one command; by itself the SDK would retry for half a minute.
TEMPORAL_SECONDS_MAX = 10.0


def add_to(app: typer.Typer) -> None:
    app.command("resync")(resync)
    app.command("resync-nightly")(resync_nightly)
    app.command("resyncs")(show_resyncs)


def resync(
    reason: Reason,
    property_id: Annotated[str | None, typer.Option("--property", help="Only the units of this property.")] = None,
    unit_id: Annotated[str | None, typer.Option("--unit", help="Only this unit.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="All units and entities.")] = False,
    operator: Operator = None,
) -> None:
    """Send the shadow's states to OldHost again; the relay does it while nothing else is waiting."""
    if (property_id is not None) + (unit_id is not None) + all_of_them != 1:
        raise CliError("say what to send again: --property X, --unit Y or --all.", WRONG)
    why = reason_of(reason)
    config = settings()
    act = partial(request_resync, host=config.host, property_id=property_id, unit_id=unit_id)
    number = in_database(config, partial(act, operator=operator_of(operator), reason=why))
    console().print(f"Resync {number} has begun; `oldhost-sync resyncs` shows its progress.", markup=False)


def resync_nightly(
    at: Annotated[
        str | None,
        typer.Argument(metavar="[HH:MM|off]", help="The time of day in UTC, or `off`; without it: show the setting."),
    ] = None,
) -> None:
    """Send all states again every night, by a Schedule in Temporal."""
    config = settings()
    time_of_day = _time_of_day(at)
    if at != OFF:  # `off` must also work for a host that the database no longer has
        with database(config):  # checks that the database has the host
            pass
    set_now = asyncio.run(_set_nightly_schedule(config, time_of_day, ends=at == OFF))
    if set_now is None:
        console().print("No nightly resync is set.", markup=False)
        return
    if set_now.at is None:
        advice = f"Set it again: `oldhost-sync resync-nightly HH:MM`, or `{OFF}`."
        console().print(f"The schedule was made or changed by hand in Temporal. {advice}", markup=False)
        return
    then = f"the next at {shown(set_now.next_at)}" if set_now.next_at else "paused in Temporal"
    console().print(f"Every night at {set_now.at:%H:%M} UTC all states are sent again; {then}.", markup=False)


def _time_of_day(at: str | None) -> time | None:
    try:
        return None if at in (None, OFF) else datetime.strptime(str(at), "%H:%M").time()  # noqa: DTZ007 - UTC
    except ValueError:
        raise CliError(f"{at!r} is not a time of day: give it as HH:MM (UTC), or `{OFF}`.", WRONG) from None


async def _set_nightly_schedule(config: Settings, time_of_day: time | None, *, ends: bool) -> NightlySchedule | None:
    from oldhost_sync.temporal.client import TemporalUnavailable, connect
    from oldhost_sync.temporal.nightly_resync import end_nightly_schedule, nightly_schedule, set_nightly_schedule

    try:
        async with asyncio.timeout(TEMPORAL_SECONDS_MAX):
            client = await connect(keys=encryption_keys(config))
            if ends:
                await end_nightly_schedule(client, config.host)
                return None
            if time_of_day is not None:
                await set_nightly_schedule(client, config.host, time_of_day)
            return await nightly_schedule(client, config.host)
    except TimeoutError as error:
        raise TemporalUnavailable(f"Temporal did not answer within {TEMPORAL_SECONDS_MAX:g} s") from error


def show_resyncs(as_json: AsJson = False) -> None:
    """The latest resyncs: how many states were sent again, and how they ended."""
    config = settings()

    def look(connection: Connection) -> list[tuple[Resync, dict[str, int]]]:
        return [(resync, results_of(connection, resync)) for resync in latest_resyncs(connection, config.host, SHOWN)]

    shown = in_database(config, look)
    if as_json:
        print_json([_as_json(resync, results) for resync, results in shown])
    elif not shown:
        console().print("No resync has been requested yet.")
    else:
        names = ("id", "of", "by", "requested", "state", "sent again", "fates", "skipped")
        console().print(rows("", names, [_line(resync, results) for resync, results in shown]))
        console().print(
            "APPLIED does not show whether OldHost had another state before: OldHost does not say.", style="dim"
        )


def _of(resync: Resync) -> str:
    if resync.unit_id is not None:
        return f"unit {resync.unit_id}"
    return "all" if resync.property_id is None else f"property {resync.property_id}"


def _line(resync: Resync, results: dict[str, int]) -> tuple[object, ...]:
    state = "under way" if resync.finished_at is None else "all recorded"
    fates = ", ".join(f"{count} {outcome}" for outcome, count in sorted(results.items()))
    asked = (resync.resync_id, _of(resync), resync.operator, resync.created_at)
    return (*asked, state, resync.recorded, fates, resync.skipped)


def _as_json(resync: Resync, results: dict[str, int]) -> dict[str, object]:
    named = ("property_id", "unit_id", "operator", "reason", "created_at", "finished_at", "recorded", "skipped")
    return {"id": resync.resync_id} | {name: getattr(resync, name) for name in named} | {"results": results}
