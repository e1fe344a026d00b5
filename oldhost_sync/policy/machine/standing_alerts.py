"""Standing alerts: emergencies that can't be sent, and a standstill. One alert for each, updated as it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.machine.alerts import Alerts
from oldhost_sync.policy.machine.progress import Progress
from oldhost_sync.policy.queue.lanes import Lane
from oldhost_sync.policy.queue.pending_operation import PendingOperation
from oldhost_sync.policy.tuning import ALERT_GROWS_MS, NO_PROGRESS_MS

# While something can be sent and no alert is open, the writer looks after NO_PROGRESS_MS at the latest. If it did not
# for this much longer, nobody ran it: no worker, or no Temporal, of which the relay tells.
NOT_RUN_MS = 5_000


def of_emergencies(
    alerts: Alerts, cause: str, why: str, lane: Lane, in_flight: Iterable[PendingOperation], now_ms: int
) -> None:
    """`cause`: what keeps everything from being sent, as a key, and in words (`why`); empty: nothing does."""
    alert = alerts.emergencies_alert
    sent = [entry.ref for entry in in_flight if entry.ref.priority_class is PriorityClass.EMERGENCY]
    count = len(lane) + len(sent)
    if not cause or not count:
        alerts.emergencies_go()
    elif alert is None or alert[0] != cause or (count > alert[1] and now_ms >= alert[2] + ALERT_GROWS_MS):
        # The only walk over all of them: no more often than the alert may be updated.
        ids = [*lane.change_ids(), *(ref.change_id for ref in sent)]
        alerts.emergencies_wait(cause, why, count, (min(ids), max(ids)), now_ms)


def of_progress(
    alerts: Alerts, progress: Progress, why: Callable[[], str], emergencies: Lane, now_ms: int, *, sendable: bool
) -> None:
    """`why`: a reason, if none was reported. `sendable`: something could be sent."""
    was_not_run = progress.open_alert is None and now_ms - progress.looked_at_ms > NO_PROGRESS_MS + NOT_RUN_MS
    if not sendable or was_not_run:
        progress.rest(now_ms)
    if now_ms < progress.due_at_ms:
        if progress.open_alert is not None:
            progress.open_alert = None
            alerts.progress_is_back()
    elif progress.open_alert != progress.reason:
        progress.open_alert = progress.reason
        seconds = (now_ms - progress.since_ms) // 1000
        alerts.no_progress(seconds, progress.reason or why(), len(emergencies))
