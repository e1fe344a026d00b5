"""Notices: emergencies that can't be sent, and a standstill. One alert per cause, updated when the count grows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.machine.alerts import clock
from oldhost_sync.policy.machine.breaker import BreakerState
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.tuning import ALERT_GROWS_MS, NO_PROGRESS_MS

if TYPE_CHECKING:
    from oldhost_sync.policy.machine.machine import Machine

# While something can be sent and no alert is open, the writer looks after NO_PROGRESS_MS at the latest. If it did not
# for this much longer, nobody ran it: no worker, or no Temporal, of which the relay tells.
NOT_RUN_MS = 5_000


def of_emergencies(machine: Machine, now_ms: int) -> None:
    alert = machine.alerts.emergencies_alert
    if alert is not None and machine.loading.part is Part.EMERGENCIES:
        return  # those that wait are still being read, so their number is not known
    if alert is not None and machine.breaker.state is BreakerState.HALF_OPEN and alert[0] != "pause":
        return  # OldHost is being asked whether the cause is over
    lane = machine.coalescer.lanes[PriorityClass.EMERGENCY]
    sent = [entry.ref for entry in machine.in_flight if entry.ref.priority_class is PriorityClass.EMERGENCY]
    count = len(lane) + len(sent)
    cause, why = _blockade(machine)
    if not cause or not count:
        machine.alerts.emergencies_go()
    elif alert is None or alert[0] != cause or (count > alert[1] and now_ms >= alert[2] + ALERT_GROWS_MS):
        # The only walk over all of them: no more often than the alert may be updated.
        ids = [*lane.change_ids(), *(ref.change_id for ref in sent)]
        machine.alerts.emergencies_wait(cause, why, count, (min(ids), max(ids)), now_ms)


def _blockade(machine: Machine) -> tuple[str, str]:
    """The cause that keeps everything from being sent, as a key and as text."""
    if machine.paused:
        return "pause", f"the writer is paused by {machine.paused.operator}"
    if machine.breaker.state is BreakerState.OPEN:
        return "ban", f"OldHost has banned us, at least until {clock(machine.breaker.until_ms)}"
    if machine.breaker.state is BreakerState.HALTED:
        return "halt", f"sending is halted: {machine.breaker.reason}"
    return "", ""


def of_progress(machine: Machine, now_ms: int) -> None:
    progress = machine.progress
    gap_ms, machine.looked_at_ms = now_ms - machine.looked_at_ms, now_ms
    if machine.draining:
        return
    was_not_run = progress.open_alert is None and gap_ms > NO_PROGRESS_MS + NOT_RUN_MS
    if not machine.has_sendable or was_not_run:
        progress.rest(now_ms)
    if now_ms < progress.due_at_ms:
        if progress.open_alert is not None:
            progress.open_alert = None
            machine.alerts.progress_is_back()
    elif progress.open_alert != progress.reason:
        progress.open_alert = progress.reason
        reason = progress.reason or _why_none(machine)
        emergencies = len(machine.coalescer.lanes[PriorityClass.EMERGENCY])
        machine.alerts.no_progress((now_ms - progress.since_ms) // 1000, reason, emergencies)


def _why_none(machine: Machine) -> str:
    if not machine.loaded:
        return "outstanding changes are still read from MariaDB, or can't be read"
    if machine.session.phase is Phase.OPEN:
        return "no end of a send was reported: OldHost or the worker may be slow"
    return f"session: {machine.session.phase.value}"
