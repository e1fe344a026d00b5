"""Heal drift: send OldHost the states again that the shadow shows, and see how far that has come."""

from __future__ import annotations

import asyncio
from datetime import datetime, time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from sqlalchemy.engine import Connection

from oldhost_sync.cli.changes import AsJson
from oldhost_sync.cli.output import console, print_json, rows, shown
from oldhost_sync.cli.writer import operator_of
from oldhost_sync.environment import database, in_database, settings
from oldhost_sync.settings import Settings
from oldhost_sync.store.intake.resync import Resync, latest_resyncs, request_resync, results_of
from oldhost_sync.user_errors import WRONG, CliError

if TYPE_CHECKING:
    from oldhost_sync.nightly_resync import Nights

SHOWN = 20
OFF = "off"
# For all of a command's calls; the SDK alone would go on for half a minute.
TEMPORAL_SECONDS_MAX = 10.0


def add_to(app: typer.Typer) -> None:
    app.command("resync")(resync)
    app.command("resync-nightly")(resync_nightly)
    app.command("resyncs")(show_resyncs)


def resync(
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why; it is recorded.")],
    property_id: Annotated[str | None, typer.Option("--property", help="Of the units of this property.")] = None,
    unit_id: Annotated[str | None, typer.Option("--unit", help="Of this unit.")] = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Of all units and entities.")] = False,
    operator: Annotated[
        str | None, typer.Option("--operator", help="Who you are; the user of this machine by default.")
    ] = None,
) -> None:
    """Have OldHost sent again what the shadow shows; the relay does it while nothing else waits."""
    if (property_id is not None) + (unit_id is not None) + all_of_them != 1:
        raise CliError("say what to send again: --property X, --unit Y or --all.", WRONG)
    if not reason.strip():
        raise CliError("say why: --reason '…'. It is recorded.", WRONG)
    config = settings()
    act = partial(request_resync, host=config.host, property_id=property_id, unit_id=unit_id)
    number = in_database(config, partial(act, operator=operator_of(operator), reason=reason.strip()))
    console().print(f"Resync {number} begins; `oldhost-sync resyncs` shows how far it is.", markup=False)


def resync_nightly(
    at: Annotated[
        str | None, typer.Argument(metavar="[HH:MM|off]", help="The time of day, UTC, or `off`; neither: what is set.")
    ] = None,
) -> None:
    """Have all states sent again every night, by a Schedule in Temporal."""
    config = settings()
    time_of_day = _time_of_day(at)
    if at != OFF:  # that of a host that is gone must come to an end, too
        with database(config):  # which knows the host
            pass
    set_now = asyncio.run(_set_nights(config, time_of_day, ends=at == OFF))
    if set_now is None:
        console().print("No nightly resync is set.", markup=False)
        return
    then = f"the next at {shown(set_now.next_at)}" if set_now.next_at else "paused in Temporal"
    console().print(f"Every night at {set_now.at:%H:%M} UTC all states are sent again; {then}.", markup=False)


def _time_of_day(at: str | None) -> time | None:
    try:
        return None if at in (None, OFF) else datetime.strptime(str(at), "%H:%M").time()  # noqa: DTZ007 - UTC
    except ValueError:
        raise CliError(f"{at!r} is no time of day: give it as HH:MM (UTC), or `{OFF}`.", WRONG) from None


async def _set_nights(config: Settings, time_of_day: time | None, *, ends: bool) -> Nights | None:
    from oldhost_sync.nightly_resync import end_nights, nights, set_nights
    from oldhost_sync.temporal import TemporalUnavailable, connect

    try:
        async with asyncio.timeout(TEMPORAL_SECONDS_MAX):
            client = await connect(keys=config.temporal_keys)
            if ends:
                await end_nights(client, config.host)
                return None
            if time_of_day is not None:
                await set_nights(client, config.host, time_of_day)
            return await nights(client, config.host)
    except TimeoutError as error:
        raise TemporalUnavailable(f"Temporal did not answer within {TEMPORAL_SECONDS_MAX:g} s") from error


def show_resyncs(as_json: AsJson = False) -> None:
    """The latest resyncs: how many states were sent again, and what OldHost said to them."""
    config = settings()

    def look(connection: Connection) -> list[tuple[Resync, dict[str, int]]]:
        return [(each, results_of(connection, each)) for each in latest_resyncs(connection, config.host, SHOWN)]

    found = in_database(config, look)
    if as_json:
        print_json([_as_json(each, results) for each, results in found])
    elif not found:
        console().print("No resync was asked for yet.")
    else:
        names = ("id", "of", "by", "asked", "state", "sent again", "what became of them", "skipped")
        console().print(rows("", names, [_line(each, results) for each, results in found]))
        console().print(
            "OldHost does not say whether it had something else before: APPLIED is all it tells.", style="dim"
        )


def _of(resync: Resync) -> str:
    if resync.unit_id is not None:
        return f"unit {resync.unit_id}"
    return "all" if resync.property_id is None else f"property {resync.property_id}"


def _line(resync: Resync, results: dict[str, int]) -> tuple[object, ...]:
    state = "under way" if resync.finished_at is None else "all recorded"
    told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(results.items()))
    asked = (resync.resync_id, _of(resync), resync.operator, resync.created_at)
    return (*asked, state, resync.recorded, told, resync.skipped)


def _as_json(resync: Resync, results: dict[str, int]) -> dict[str, object]:
    named = ("property_id", "unit_id", "operator", "reason", "created_at", "finished_at", "recorded", "skipped")
    return {"id": resync.resync_id} | {name: getattr(resync, name) for name in named} | {"results": results}
