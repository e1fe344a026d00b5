"""The Temporal Schedule that requests a resync of one host each night: set it, show it, and end it."""

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

EVERY_DAY = (0, 6)
# If Temporal was down at the scheduled time, a resync is started up to this much later, or skipped.
CATCH_UP = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class NightlySchedule:
    """`at`: the time of day, UTC; None if the schedule is not as :func:`set_nightly_schedule` sets it, since somebody
    made or changed it in Temporal. `paused`: the schedule was paused in Temporal; then `next_at` is None.
    """

    at: time | None
    paused: bool
    next_at: datetime | None


def handle_of(client: Client, host: str) -> ScheduleHandle:
    """A handle of the schedule of `host`, which may not exist."""
    return client.get_schedule_handle(nightly_resync_id(host))


async def set_nightly_schedule(client: Client, host: str, at: time) -> None:
    """Schedule the resync every night at `at` (UTC); replaces an earlier schedule. Raises RPCError."""
    schedule = _schedule(host, at)
    try:
        await client.create_schedule(nightly_resync_id(host), schedule)
    except ScheduleAlreadyRunningError:
        await handle_of(client, host).update(lambda _: ScheduleUpdate(schedule))


async def end_nightly_schedule(client: Client, host: str) -> None:
    """Delete the schedule, if there is one. Raises RPCError."""
    try:
        await handle_of(client, host).delete()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise


async def nightly_schedule(client: Client, host: str) -> NightlySchedule | None:
    """The present schedule; None if there is none. Raises RPCError."""
    try:
        found = await handle_of(client, host).describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return None
        raise
    paused = found.schedule.state.paused
    next_at = None if paused else next(iter(found.info.next_action_times), None)
    return NightlySchedule(_time_of(found.schedule), paused, next_at)


def _time_of(schedule: Schedule) -> time | None:
    action, spec = schedule.action, schedule.spec
    if not isinstance(action, ScheduleActionStartWorkflow) or spec.intervals or len(spec.calendars) != 1:
        return None
    (calendar,) = spec.calendars
    hours, minutes = [[(each.start, each.end) for each in ranges] for ranges in (calendar.hour, calendar.minute)]
    every_day = [(each.start, each.end) for each in calendar.day_of_week] in ([], [EVERY_DAY])
    is_once = len(hours) == len(minutes) == 1 and all(end in (start, 0) for start, end in hours + minutes)
    is_ours = (action.workflow, action.task_queue) == (NIGHTLY_RESYNC_TYPE, TASK_QUEUE)
    return time(hours[0][0], minutes[0][0]) if is_once and every_day and is_ours else None


def _schedule(host: str, at: time) -> Schedule:
    calendar = ScheduleCalendarSpec(hour=[ScheduleRange(at.hour)], minute=[ScheduleRange(at.minute)])
    started = ScheduleActionStartWorkflow(
        NIGHTLY_RESYNC_TYPE, NightlyResync(host), id=nightly_resync_id(host), task_queue=TASK_QUEUE
    )
    policy = SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP)
    return Schedule(started, ScheduleSpec(calendars=[calendar]), policy)
