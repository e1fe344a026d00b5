"""What earlier runs of a writer left unread, from their histories at the test server: recovery as the fake world has
it, without a database.
"""

from __future__ import annotations

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.common import RawValue

from workflows import intake, messages
from workflows.intake import signal_key


async def unread_signals(client: Client, host: str, request: messages.Recovery) -> list[messages.Submission]:
    """All submissions by signal to the runs before the one that asks, the oldest first, with the keys they have."""
    found: list[messages.Submission] = []
    run_id = request.continued_run_id
    while run_id:
        handle = client.get_workflow_handle(messages.workflow_id(host), run_id=run_id)
        events = [event async for event in handle.fetch_history_events()]
        start = events[0].workflow_execution_started_event_attributes
        found[:0] = _submissions(start.original_execution_run_id or run_id, events)
        run_id = start.continued_execution_run_id
    return found


def _submissions(original_run_id: str, events: list[HistoryEvent]) -> list[messages.Submission]:
    signals = [
        event.workflow_execution_signaled_event_attributes.input.payloads[0]
        for event in events
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
        and event.workflow_execution_signaled_event_attributes.signal_name == "submit_change"
    ]
    return [
        messages.Submission(intake.read_change(RawValue(payload)), signal_key(original_run_id, place, payload.data))
        for place, payload in enumerate(signals, 1)
    ]
