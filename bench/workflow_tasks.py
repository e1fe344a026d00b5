"""How long workflow tasks took, by a history's own times: from the start on a worker until its answer was recorded."""

from __future__ import annotations

from datetime import UTC

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

TASK_STARTED = EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED
TASK_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED


def event_time(event: HistoryEvent) -> float:
    """Epoch seconds."""
    return event.event_time.ToDatetime(tzinfo=UTC).timestamp()


def task_seconds(history: WorkflowHistory, since: float = 0.0) -> list[float]:
    """Of each task that was started at `since` or later."""
    started = {event.event_id: event_time(event) for event in history.events if event.event_type == TASK_STARTED}
    ended = [event for event in history.events if event.event_type == TASK_COMPLETED]
    begun = [started[event.workflow_task_completed_event_attributes.started_event_id] for event in ended]
    return [event_time(event) - at for event, at in zip(ended, begun, strict=True) if at >= since]
