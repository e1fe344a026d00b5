"""The further nemeses of a soak: rows that others hold, the database's clock, runs ended by hand, and operators.

Each acts once, at the moment the schedule names; what goes on for a while (a lock) is ended by `pass_time`.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import pymysql
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.api.workflowservice.v1 import (
    PauseWorkflowExecutionRequest,
    ResetWorkflowExecutionRequest,
    UnpauseWorkflowExecutionRequest,
)
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from oldhost_sync.temporal.client import writer_handle
from oldhost_sync.temporal.writer_health import describe_writer
from tests.faults.database_clock import DatabaseClock
from tests.faults.foreign_locks import ForeignLock
from tests.faults.product import Product
from tests.faults.schedule import Mishap
from workflows.messages import workflow_id

REASON = {"reason": "the soak's operator"}


@dataclass
class HeldRows:
    """What the checker is told of a lock: whose rows, and from when to when (epoch seconds)."""

    entity_id: str
    from_at: float
    until_at: float
    rows: int


@dataclass
class Further:
    """`locks`: all that were held; `bans`: those that were ordered."""

    product: Product
    lock_url: str
    clock: DatabaseClock | None = None
    locks: list[HeldRows] = field(default_factory=list)
    bans: int = 0
    _held: list[tuple[HeldRows, ForeignLock]] = field(default_factory=list)
    _paused_until: float = 0.0  # with Temporal's tools; 0: not paused

    def cause(self, mishap: Mishap) -> None:
        """Raises what the roles' clients raise when somebody is away."""
        match mishap.kind:
            case "lock":
                self._hold(mishap)
            case "clock" if self.clock is not None:
                self.clock.offset_s += mishap.parameters["step"]
            case "ban":
                self.product.admin("POST", "/actions/ban", {})
                self.bans += 1
            case "end":
                self.product.ask(lambda client: self._end(client, mishap))
            case "operate":
                self._operate(mishap.target, mishap.parameters["which"])

    def pass_time(self) -> None:
        """Let go of what was held long enough."""
        for one in list(self._held):
            if time.time() >= one[0].until_at:
                self._held.remove(one)
                one[1].release()
        if self._paused_until and time.time() >= self._paused_until:
            self._go_on()

    def _go_on(self) -> None:
        """Temporal may be away just now: then later."""
        with contextlib.suppress(RPCError, RuntimeError):
            self.product.ask(self._unpause)
            self._paused_until = 0.0

    def end(self) -> None:
        """Everything is well again."""
        for held, lock in self._held:
            held.until_at = min(held.until_at, time.time())
            lock.release()
        self._held.clear()
        if self._paused_until:
            self._go_on()
        if self.clock is not None:
            self.clock.offset_s = 0.0

    def resume(self) -> None:
        """Whoever paused the writer is done."""
        with contextlib.suppress(OSError):
            self.product.api.call("POST", "/api/writer/resume", REASON)

    # ---------------------------------------------------------------------------------------------------------- acts

    def _hold(self, mishap: Mishap) -> None:
        self.resume()  # who is paused waits for an operator, not for this
        lock = ForeignLock(self.lock_url, mishap.target, mishap.parameters["entity_id"])
        with contextlib.suppress(pymysql.MySQLError):
            lock.take()
            now = time.time()
            held = HeldRows(mishap.parameters["entity_id"], now, now + mishap.parameters["seconds"], lock.rows)
            self.locks.append(held)
            self._held.append((held, lock))

    async def _end(self, client: Client, mishap: Mishap) -> None:
        handle = writer_handle(client, self.product.host)
        match mishap.target:
            case "terminate":
                await handle.terminate("by hand")
            case "cancel":
                await handle.cancel()
            case "pause":
                await self._pause(client, mishap.parameters["seconds"])
            case "complete" | "fail":
                await self._end_activity(client, mishap)
            case _:
                await self._reset(client)

    async def _pause(self, client: Client, seconds: float) -> None:
        """With Temporal's tools, not with ours."""
        asked = {"namespace": client.namespace, "workflow_id": workflow_id(self.product.host), "reason": "by hand"}
        await client.workflow_service.pause_workflow_execution(PauseWorkflowExecutionRequest(**asked))
        self._paused_until = time.time() + seconds

    async def _unpause(self, client: Client) -> None:
        asked = {"namespace": client.namespace, "workflow_id": workflow_id(self.product.host), "reason": "by hand"}
        with contextlib.suppress(RPCError):  # somebody ended that run
            await client.workflow_service.unpause_workflow_execution(UnpauseWorkflowExecutionRequest(**asked))

    async def _end_activity(self, client: Client, mishap: Mishap) -> None:
        """One that has begun, if there is any, with a result of the wrong shape or as failed."""
        described = await describe_writer(client, self.product.host)
        begun = [
            one.activity_id
            for one in (described.pending_activities if described else ())
            if one.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
            # It has no result that could have a wrong shape: who completes it says that the conditions are recorded.
            and (mishap.target, one.activity_type.name) != ("complete", "record_conditions")
        ]
        if not begun:
            return
        activity_id = begun[int(mishap.parameters["which"] * len(begun))]
        ended = client.get_async_activity_handle(
            workflow_id=workflow_id(self.product.host), run_id=None, activity_id=activity_id
        )
        with contextlib.suppress(AsyncActivityCancelledError, RPCError):  # it may have ended meanwhile
            if mishap.target == "complete":
                await ended.complete("done by hand")
            else:
                await ended.fail(ApplicationError("by hand", non_retryable=True))

    async def _reset(self, client: Client) -> None:
        """To the run's last completed workflow task, as Temporal's UI offers it."""
        handle = writer_handle(client, self.product.host)
        described = await describe_writer(client, self.product.host)
        if described is None:
            return
        run_id = described.workflow_execution_info.execution.run_id
        events = (await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()).events
        completed = [one.event_id for one in events if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
        if completed:
            request = ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=workflow_id(self.product.host), run_id=run_id),
                reason="by hand",
                workflow_task_finish_event_id=completed[len(completed) // 2],
                request_id=str(uuid.uuid4()),
            )
            await client.workflow_service.reset_workflow_execution(request)

    def _operate(self, act: str, which: float) -> None:
        """Through the API, as people do; what makes no sense is refused there."""
        call = self.product.api.call
        if act in {"retry", "discard"}:
            status, page = call("GET", "/api/dead-letters?limit=100")
            letters: list[dict[str, Any]] = page.get("dead_letters", []) if status == 200 else []
            if letters:
                change_id = letters[int(which * len(letters))]["change_id"]
                call("POST", f"/api/dead-letters/{change_id}/{act}", REASON)
            return
        more = {"mode": "resend" if which < 0.5 else "adopt"} if act == "resolve" else {}
        call("POST", f"/api/writer/{act}", REASON | more)
