"""The naive workflow: what one writes first with Temporal. A timer per key, one activity at a time, one operation each.

Debounce, newest state per key and emergencies first are all here, in twenty lines, and correct. What it costs is a
timer in history for each key, and OldHost waiting for a round trip through Temporal after every operation.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.changes import BOUND, WAITING, ChangeRef, CoalescingKey, PriorityClass
    from oldhost_sync.policy.machine.actions import OpenSession, Send
    from oldhost_sync.policy.machine.events import OpeningResult, SendEnded, SessionOpened
    from workflows import messages
    from workflows.messages import from_wire, to_wire

ONCE = RetryPolicy(maximum_attempts=1)
WORKFLOW_TYPE = "NaiveWriter"


@workflow.defn(name=WORKFLOW_TYPE)
class NaiveWriter:
    """Arguments: host, debounce in ms, and what an earlier run still had waiting."""

    @workflow.init
    def __init__(self, host: str, debounce_ms: int, waiting: list[messages.WireRef]) -> None:
        self.host = host
        self.debounce_ms = debounce_ms
        self.ready: list[ChangeRef] = []
        self.emergencies: list[ChangeRef] = []
        self.debounced: dict[CoalescingKey, ChangeRef] = {}
        self.timers: dict[CoalescingKey, asyncio.Task[None]] = {}
        for item in waiting:
            self._take(from_wire(item))

    @workflow.signal
    def enqueue(self, batch: messages.EnqueueBatch) -> None:
        for item in batch.refs:
            self._take(from_wire(item))

    @workflow.run
    async def run(self, host: str, debounce_ms: int, waiting: list[messages.WireRef]) -> None:  # noqa: ARG002
        session = await self._open()
        while not workflow.info().is_continue_as_new_suggested():
            await workflow.wait_condition(
                lambda: bool(self.emergencies or self.ready) or workflow.info().is_continue_as_new_suggested()
            )
            if not self.emergencies and not self.ready:
                break
            ref = self.emergencies.pop(0) if self.emergencies else self.ready.pop(0)
            sent = await self._send(session, ref)
            if sent is not None and sent.older:  # an emergency overtakes nothing of its own entity
                self.emergencies[:0] = [*(from_wire(each) for each in sent.older), ref]
            elif sent is None or any(fate.outcome in {WAITING, BOUND} for fate in sent.fates):
                self.emergencies.insert(0, ref)  # sent again, it is answered with its fate if it has one by then
            if sent is None or not sent.session_open:
                session = await self._open()
                self.emergencies[:0] = session.bound_refs()
        left = [*self.emergencies, *self.ready, *self.debounced.values()]
        workflow.continue_as_new(args=[self.host, self.debounce_ms, [to_wire(ref) for ref in left]])

    def _take(self, ref: ChangeRef) -> None:
        if ref.priority_class is PriorityClass.EMERGENCY:
            self.emergencies.append(ref)
        elif ref.priority_class is PriorityClass.TXN:
            self.ready.append(ref)
        else:
            if ref.key in self.timers:
                self.timers[ref.key].cancel()
            self.debounced[ref.key] = ref
            self.timers[ref.key] = asyncio.create_task(self._ripen(ref))

    async def _ripen(self, ref: ChangeRef) -> None:
        left_ms = ref.accepted_at_ms + self.debounce_ms - workflow.time_ns() // 1_000_000
        if left_ms > 0:
            await asyncio.sleep(left_ms / 1000)
        self.ready.append(self.debounced.pop(ref.key))
        del self.timers[ref.key]

    async def _open(self) -> SessionOpened:
        while True:
            answer = await workflow.execute_activity(
                "open_session",
                OpenSession(()),
                result_type=cast(Any, OpeningResult),
                start_to_close_timeout=timedelta(seconds=90),
                heartbeat_timeout=timedelta(seconds=5),
                retry_policy=ONCE,
            )
            if isinstance(answer, SessionOpened):
                return answer
            await asyncio.sleep(max(answer.wait_ms, 100) / 1000)

    async def _send(self, session: SessionOpened, ref: ChangeRef) -> SendEnded | None:
        try:
            report: SendEnded = await workflow.execute_activity(
                "send",
                Send(1, 0, session.epoch, (ref.change_id,)),
                result_type=SendEnded,
                start_to_close_timeout=timedelta(seconds=60),
                heartbeat_timeout=timedelta(seconds=5),
                retry_policy=ONCE,
            )
        except ActivityError:
            return None
        return report
