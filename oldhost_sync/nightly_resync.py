"""The Temporal Schedule that asks for a resync of one host each night: setting, showing and ending it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleHandle,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleUpdate,
)
from temporalio.service import RPCError, RPCStatusCode

from workflows.messages import NIGHTLY_RESYNC_TYPE, TASK_QUEUE, NightlyResync, nightly_resync_id

# A night that Temporal slept through for longer is left out.
CATCH_UP = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Nights:
    """`at`: the time of day, UTC. `paused`: by somebody in Temporal. `next_at`: None while it is paused."""

    at: time
    paused: bool
    next_at: datetime | None


def handle_of(client: Client, host: str) -> ScheduleHandle:
    """The schedule of `host`, which may not be there."""
    return client.get_schedule_handle(nightly_resync_id(host))


async def set_nights(client: Client, host: str, at: time) -> None:
    """Every night at `at` (UTC) from now on, whatever was set before. Raises RPCError."""
    schedule = _schedule(host, at)
    try:
        await client.create_schedule(nightly_resync_id(host), schedule)
    except ScheduleAlreadyRunningError:
        await handle_of(client, host).update(lambda _: ScheduleUpdate(schedule))


async def end_nights(client: Client, host: str) -> None:
    """No nightly resync any more, if there was one. Raises RPCError."""
    try:
        await handle_of(client, host).delete()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def nights(client: Client, host: str) -> Nights | None:
    """What is set; None: nothing. Raises RPCError."""
    try:
        found = await handle_of(client, host).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise
    spec = found.schedule.spec.calendars[0]
    at = time(spec.hour[0].start, spec.minute[0].start)
    paused = found.schedule.state.paused
    return Nights(at, paused, None if paused else next(iter(found.info.next_action_times), None))


def _schedule(host: str, at: time) -> Schedule:
    calendar = ScheduleCalendarSpec(hour=[ScheduleRange(at.hour)], minute=[ScheduleRange(at.minute)])
    started = ScheduleActionStartWorkflow(
        NIGHTLY_RESYNC_TYPE, NightlyResync(host), id=nightly_resync_id(host), task_queue=TASK_QUEUE
    )
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP)
    return Schedule(started, ScheduleSpec(calendars=[calendar]), policy)
