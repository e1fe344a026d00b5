"""One run of the real `SyncWriterWorkflow`: an event loop in virtual time, and what the SDK's functions ask of a
runtime.

A workflow task is atomic: all that came is given to the workflow, then its loop turns until nothing moves.
"""

from __future__ import annotations

import asyncio
import time
import types
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, ClassVar, TypeVarTuple

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import MetricMeter, RawValue, TypedSearchAttributes
from temporalio.converter import DataConverter
from temporalio.exceptions import ActivityError, ApplicationError

from tests.simulation.temporal_limits import TemporalLimits
from workflows import messages
from workflows.sync_writer import SyncWriterWorkflow

if TYPE_CHECKING:
    from tests.simulation.temporal import Server

Args = TypeVarTuple("Args")

WRITER_ID = messages.workflow_id("oldhost")
CONVERTER = DataConverter.default.payload_converter
_DEFINITION = workflow._Definition.must_from_class(SyncWriterWorkflow)


def payload_of(value: Any) -> Payload:
    return CONVERTER.to_payload(value)


class Renewed(BaseException):
    def __init__(self, argument: Any) -> None:
        self.argument = argument


class Run(asyncio.AbstractEventLoop):
    """One run of the workflow: its loop and what the SDK's functions ask of a runtime."""

    def __init__(self, server: Server, given: Payload, continued_run_id: str = "", original_run_id: str = "") -> None:
        self.server = server
        self.hub = server.hub
        self.run_id = f"run-{server.runs}"
        self.continued_run_id = continued_run_id
        self.original_run_id = original_run_id or self.run_id
        self._at_reset: list[Callable[[int], None]] = []
        self.closed = False
        self.events = 3
        self.details = ""
        self._ready: deque[asyncio.Handle] = deque()
        self._conditions: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._now: float = server.now
        self.handlers = 0
        self._uuids = 0
        workflow._Runtime.set_on_loop(self, self)  # type: ignore[arg-type]
        self.limits = TemporalLimits(server.world.always.fail)
        self._activities: list[asyncio.Future[Any]] = []
        self._pending: list[Callable[[], None]] = [lambda: self._begin(given)]
        self._task_due = False
        self.schedule_task()

    # ------------------------------------------------------------------------------------------------ workflow tasks

    def _begin(self, given: Payload) -> None:
        self.instance = SyncWriterWorkflow(RawValue(given))
        self.server.began(self.instance)
        if self.original_run_id != self.run_id:
            for tell in self._at_reset:
                tell(1)
        self.main = self.create_task(self.instance.run(RawValue(given)))

    def add(self, act: Callable[[], None], *, history: int) -> None:
        """A durable event for the workflow."""
        if not self.closed:
            self.events += history
            self._pending.append(act)
            self.schedule_task()

    def schedule_task(self) -> None:
        if not self._task_due:
            self._task_due = True
            self.server.hand_out(self)

    def process(self) -> None:
        """One workflow task: all that came, then the loop until nothing moves."""
        self._task_due = False
        if self.closed:
            return
        # As the SDK has it: a run's time never goes back.
        self._now = max(self._now, self.server.now)
        began_s = time.thread_time()
        self.events += 3
        self.server.tasks_done += 1
        pending, self._pending = self._pending, []
        events._set_running_loop(self)
        try:
            for act in pending:
                act()
            self._turn()
        finally:
            events._set_running_loop(None)
        # One that waits to be tried again is pending too.
        self._activities = [one for one in self._activities if not one.done()]
        self.limits.activation(self.events, len(self._activities), began_s)
        if self.main.done():
            self._close()

    def _turn(self) -> None:
        while self._ready:
            while self._ready:
                self._ready.popleft()._run()
            still = []
            for fn, future in self._conditions:
                if future.done():
                    continue
                if fn():
                    future.set_result(None)
                else:
                    still.append((fn, future))
            self._conditions = still

    def _close(self) -> None:
        self.closed = True
        if self.main.cancelled():
            self.server.terminate()
            return
        error = self.main.exception()
        if isinstance(error, Renewed):
            self.server.renewed(self, error.argument)
        else:
            self.server.hub.failures.append(f"the workflow ended: {error!r}")

    # ------------------------------------------------------------------------------------------------ asyncio's loop

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(self._now + delay, callback, args, self, context)
        self.events += 1
        self.server.timers += 1

        fires_at = self.server.now + delay

        def due() -> None:
            left = fires_at - self.server.now
            if left > 0:
                self.hub.after(left, due)  # the clock was set back
            elif not handle.cancelled():
                self.add(lambda: self._ready.append(handle), history=1)

        self.hub.after(delay, due)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_later(when - self._now, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        return None

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override] # the SDK and this workflow give it coroutines
        self, coro: Coroutine[Any, Any, Any], *, name: Any = None, context: Any = None
    ) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name="task", context=context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, ActivityError | asyncio.CancelledError | None):
            self.hub.failures.append(f"in the workflow: {error!r}")

    # ------------------------------------------------------------------------------------------------ the SDK's runtime

    logger_details: ClassVar[dict[str, Any]] = {}

    def workflow_instance(self) -> Any:
        return getattr(self, "instance", None)

    def workflow_is_replaying(self) -> bool:
        return False

    def workflow_is_replaying_history_events(self) -> bool:
        return False

    def workflow_time_ns(self) -> int:
        return int(self._now * 1_000_000_000)

    def workflow_info(self) -> Any:
        return types.SimpleNamespace(
            is_continue_as_new_suggested=self.workflow_is_continue_as_new_suggested,
            get_current_history_length=lambda: self.events,
            get_current_history_size=self.workflow_get_current_history_size,
            workflow_id=WRITER_ID,
            run_id=self.run_id,
            original_execution_run_id=self.original_run_id,
            continued_run_id=self.continued_run_id or None,
            typed_search_attributes=TypedSearchAttributes.empty,
            _logger_details=dict,
        )

    def workflow_is_continue_as_new_suggested(self) -> bool:
        return self.events >= self.server.events_suggested

    def workflow_all_handlers_finished(self) -> bool:
        return self.handlers == 0

    def workflow_get_current_history_length(self) -> int:
        return self.events

    def workflow_get_current_history_size(self) -> int:
        return self.limits.size(self.events)

    def workflow_set_current_details(self, details: str) -> None:
        self.details = details

    def workflow_payload_converter(self) -> Any:
        return CONVERTER

    def workflow_register_random_seed_callback(self, callback: Callable[[int], None]) -> None:
        """Temporal gives a run a new seed when it is reset."""
        self._at_reset.append(callback)

    def workflow_random(self) -> Any:
        return self.server.random

    def workflow_patch(self, _id: str, **_: Any) -> bool:
        return True

    def workflow_metric_meter(self) -> Any:
        return MetricMeter.noop

    def workflow_continue_as_new(self, *args: Any, **_: Any) -> None:
        raise Renewed(args[0])

    async def workflow_sleep(self, duration: float, **_: Any) -> None:
        await asyncio.sleep(duration)

    async def workflow_wait_condition(self, fn: Callable[[], bool], *, timeout: float | None = None, **_: Any) -> None:
        future = self.create_future()
        self._conditions.append((fn, future))
        await asyncio.wait_for(future, timeout)

    def workflow_start_activity(self, activity: Any, *args: Any, **options: Any) -> asyncio.Future[Any]:
        self.events += 3
        future = self.create_future()
        payload = payload_of(args[0])
        self.limits.payload(payload.data)
        self._activities.append(future)
        self.server.begin_activity(self, str(activity), payload, options, future)
        return future

    # ------------------------------------------------------------------------------------------------- from outside

    def cancel(self) -> None:
        self.main.cancel()

    def signal(self, name: str, payload: Payload) -> None:
        self.limits.signal(payload.data)
        signals = _DEFINITION.signals
        definition = signals.get(name) or signals[None]
        if definition.name is None:
            definition.fn(self.instance, name, [RawValue(payload)])
        elif name == "configure":
            policy = CONVERTER.from_payload(payload, messages.WriterPolicy)
            definition.fn(self.instance, policy)
        else:
            definition.fn(self.instance, RawValue(payload))
        self._ready.append(asyncio.Handle(lambda: None, (), self, None))

    def update(self, info: workflow.UpdateInfo, argument: Any, answered: Callable[[Any, str], None]) -> None:
        """Run an update; `answered(result, refusal)` once it is done. A change, which is a plain object, comes raw."""
        definition = _DEFINITION.updates[info.name]
        if isinstance(argument, dict):
            argument = RawValue(payload_of(argument))
        self.handlers += 1

        async def handle() -> None:
            try:
                answered(*await self._validated(definition, info, argument))
            finally:
                self.handlers -= 1

        self.create_task(handle())

    async def _validated(self, definition: Any, info: workflow.UpdateInfo, argument: Any) -> tuple[Any, str]:
        """As the SDK does: the handler begins right after its validator, before the next update's."""
        workflow._set_current_update_info(info)
        try:
            if definition.validator is not None:
                definition.validator(self.instance, argument)
        except Exception as error:
            return None, str(error)
        if not self.limits.update_began():
            return None, "too many updates are in flight"
        try:
            return await definition.fn(self.instance, argument), ""
        except ApplicationError as error:
            return None, str(error)
        except ActivityError as error:
            return None, f"failed: {error.cause}"
        finally:
            self.limits.update_ended()
