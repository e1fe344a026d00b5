"""Reads runs' histories from Temporal. Activities run in threads, requests to Temporal on the worker's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Any, TypeVar

from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.signal_recovery import Heartbeat, HistoryGone, RunEvents, RunStart, SignalEvent
from oldhost_sync.temporal.payload_encryption import KeyMissing
from workflows import messages
from workflows.messages import workflow_id

T = TypeVar("T")

# Temporal lists a run a moment after it began; once the calling run is listed, so are all earlier ones. Until then the
# activity fails, and Temporal retries it after this time.
LISTED_AGAIN = timedelta(seconds=1)
RUNS_LISTED_MAX = 1_000
BEAT_SECONDS = 1.0
SUBMIT_CHANGE = "submit_change"


@dataclass(slots=True)
class TemporalHistories:
    """`loop`: the client's event loop."""

    client: Client
    loop: asyncio.AbstractEventLoop

    def runs_before(self, host: str, run_id: str, beat: Heartbeat) -> list[str]:
        listed = self._wait(self._list(host), beat)
        if run_id not in listed:
            text = f"run {run_id} is not in Temporal's list of runs yet"
            raise ApplicationError(text, type="NotListed", next_retry_delay=LISTED_AGAIN)
        return listed[listed.index(run_id) + 1 :]

    def start_of(self, host: str, run_id: str) -> RunStart:
        page = self._wait(self._page(host, run_id, b"", size=1), _no_beat)
        attributes = page.history.events[0].workflow_execution_started_event_attributes
        given = self._wait(self._input(list(attributes.input.payloads)), _no_beat)
        original = attributes.original_execution_run_id or run_id
        return RunStart(run_id, original, attributes.continued_execution_run_id, given)

    def events_of(self, host: str, run_id: str, beat: Heartbeat) -> RunEvents:
        found = RunEvents()
        token, first = b"", True
        while first or token:
            first = False
            page = self._wait(self._page(host, run_id, token), beat)
            self._wait(self._read(page.history.events, found), beat)
            token = page.next_page_token
            beat()
        return found

    def _wait(self, question: Coroutine[Any, Any, T], beat: Heartbeat) -> T:
        answer = asyncio.run_coroutine_threadsafe(question, self.loop)
        while True:
            try:
                return answer.result(BEAT_SECONDS)
            except NotYet:
                if answer.done():
                    raise
                beat()

    async def _list(self, host: str) -> list[str]:
        listed = self.client.list_workflows(f"WorkflowId = '{workflow_id(host)}'", limit=RUNS_LISTED_MAX)
        runs = [(run.start_time, run.run_id) async for run in listed]
        return [run_id for _, run_id in sorted(runs, reverse=True)]

    async def _page(self, host: str, run_id: str, token: bytes, size: int = 0) -> GetWorkflowExecutionHistoryResponse:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self.client.namespace,
            execution=WorkflowExecution(workflow_id=workflow_id(host), run_id=run_id),
            maximum_page_size=size,
            next_page_token=token,
        )
        try:
            return await self.client.workflow_service.get_workflow_execution_history(request, retry=True)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise HistoryGone(run_id) from error
            raise

    async def _input(self, payloads: Sequence[Payload]) -> messages.WriterInput:
        """A run's argument; an empty one if it can't be read (the run itself could not read it either)."""
        try:
            (given,) = await self.client.data_converter.decode(payloads, [messages.WriterInput])
        except KeyMissing:
            raise
        except Exception:  # noqa: BLE001 - a converter may raise anything for unknown bytes
            return messages.WriterInput()
        return given if isinstance(given, messages.WriterInput) else messages.WriterInput()

    async def _read(self, events: Sequence[HistoryEvent], found: RunEvents) -> None:
        """A reset ends what it copies with a failed workflow task, and gives signals again before the next one."""
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                await self._read_signal(event, found)
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
                cause = event.workflow_task_failed_event_attributes.cause
                found.gives_again = cause == WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED:
                found.gives_again = False

    async def _read_signal(self, event: HistoryEvent, found: RunEvents) -> None:
        attributes = event.workflow_execution_signaled_event_attributes
        if attributes.signal_name == SUBMIT_CHANGE:
            payloads = await self._decode(list(attributes.input.payloads[:1]))
            at = event.event_time.ToDatetime(UTC)
            payload = payloads[0] if payloads else Payload()
            found.signals.append(SignalEvent(attributes.request_id, at, payload, given_again=found.gives_again))

    async def _decode(self, payloads: list[Payload]) -> list[Payload]:
        codec = self.client.data_converter.payload_codec
        return payloads if codec is None else list(await codec.decode(payloads))


def _no_beat() -> None:
    """No heartbeat: for one short call."""
