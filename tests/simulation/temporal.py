"""Temporal's part: the real `SyncWriterWorkflow` on a loop of its own, task queues, timeouts, retries, signals,
updates.

What it keeps of Temporal's contract: signals and results are durable once acknowledged; a workflow task is atomic; an
attempt that timed out goes on running in its process and its result is refused; a task on a dead queue is refused after
schedule-to-start; continue-as-new starts a run with nothing but its input. What it leaves out: replay (level L4).
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import temporalio.activity
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, RetryState, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

from activities.signal_recovery import SignalEvent
from tests.simulation.hub import Hub, Timer
from tests.simulation.run_histories import RunRecord, RunRecords
from tests.simulation.workflow_run import CONVERTER, WRITER_ID, Run, payload_of
from workflows import messages
from workflows.sync_writer import SyncWriterWorkflow

_AGAIN = RetryPolicy()
# What the log calls activities, so that its digest tells of decisions, not of an activity's name.
_LOGGED = {
    "stop_sends": "send",
    "sweep": "load_outstanding",
    "record_conditions": "raise_alerts",
    "record_act": "record_decision",
}


@dataclass(eq=False)
class Attempt:
    """One activity as the server sees it. `number` of tries; `live`: the server still waits for this one;
    `undisturbed`: it was started when all faults were over.
    """

    run: Run
    name: str
    argument: Payload
    task_queue: str
    options: dict[str, Any]
    future: asyncio.Future[Any]
    number: int
    activity_id: str
    started: bool = False
    live: bool = True
    undisturbed: bool = False
    beat_at: float = 0.0
    timers: list[Timer] = field(default_factory=list)
    worker: Any = None

    def limit(self, name: str) -> float | None:
        span: timedelta | None = self.options.get(name)
        return None if span is None else span.total_seconds()

    def settle(self) -> None:
        self.live = False
        for timer in self.timers:
            timer.cancel()


class Server:
    """The service: one workflow id, queues and what is on them. `workers`: live pollers (see `worker.Worker`)."""

    def __init__(self, hub: Hub, world: Any, *, events_suggested: int) -> None:
        self.hub = hub
        self.random = hub.random
        self.world = world
        self.events_suggested = events_suggested
        self.run: Run | None = None
        self.runs = 0
        self.tasks_done = 0
        self.timers = 0
        self.renewals = 0
        self.events_max = 0
        self.away = False
        self.workers: list[Any] = []
        self._queued: list[Attempt] = []
        self._runs_waiting: list[Run] = []
        self._ids = 0
        self.records = RunRecords(hub)

    @property
    def now(self) -> float:
        """Its clock, in epoch seconds; faults set it forward and back."""
        return float(self.hub.now + self.world.temporal_offset)

    # ----------------------------------------------------------------------------------------------------- the workflow

    def start(self, given: Any) -> Run:
        """USE_EXISTING: the running one, or a new one."""
        if self.run is None or self.run.closed:
            self.run = self._begin(payload_of(given), "")
        return self.run

    def _begin(self, given: Payload, continued_run_id: str, original_run_id: str = "") -> Run:
        """`original_run_id`: of the run that was reset."""
        self.runs += 1
        run = Run(self, given, continued_run_id, original_run_id)  # type: ignore[abstract] # a workflow has no sockets
        argument = CONVERTER.from_payload(given, messages.WriterInput)
        self.records.began(RunRecord(run.run_id, run.original_run_id, continued_run_id, argument, given))
        return run

    def terminate(self) -> None:
        if self.run is not None:
            self.run.closed = True
            self._abandon(self.run)

    def cancel(self) -> None:
        """An operator's wish; the workflow ends with it at its next task."""
        run = self.run
        if run is not None and not run.closed:
            run.add(run.cancel, history=1)

    def reset(self) -> None:
        """To its first workflow task: another run with the same input, which is given again each
        signal of the one it replaces."""
        old = self.run
        if old is None or old.closed:
            return
        self.terminate()
        record = self.records.record(old.run_id)
        self.run = new = self._begin(record.argument, record.continued_run_id, record.original_run_id)
        for name, payload, event in record.taken:
            self.records.given_again(new.run_id, name, payload, event)
            new.add(Signal(new, name, payload, event), history=1)
        self.world.sometimes.hit("a run that was reset")

    def renewed(self, run: Run, given: Any) -> None:
        """Continue-as-new: what crosses is the input's bytes, and signals that came meanwhile."""
        self.renewals += 1
        self.world.sometimes.hit("continue-as-new")
        if given.submissions or run._pending:
            self.world.sometimes.hit("continue-as-new with signals waiting")
        payload = payload_of(self.world.carried(given))
        self.world.look_for_payload("continue-as-new", payload, submissions=True)
        run.limits.carried(payload.data)
        self._abandon(run)
        self.run = new = self._begin(payload, run.run_id)
        for act in run._pending:
            new._pending.append(self.world.rebind(act, new))
        self.events_max = max(self.events_max, run.events)

    @property
    def follows_a_reset(self) -> bool:
        """What the run knows is older than what the one before it knew."""
        return self.run is not None and self.run.original_run_id != self.run.run_id

    def _abandon(self, run: Run) -> None:
        self._queued = [one for one in self._queued if one.run is not run]
        self._runs_waiting = [one for one in self._runs_waiting if one is not run]
        for attempt in list(self.world.attempts):
            if attempt.run is run:
                attempt.settle()
                self.world.attempts.pop(attempt, None)

    def began(self, instance: SyncWriterWorkflow) -> None:
        self.world.began(instance)

    def hand_out(self, run: Run) -> None:
        """A workflow task: to a worker that polls, or it waits for one."""
        if self.away:
            self._runs_waiting.append(run)
            return
        worker = self._poller()
        if worker is None:
            self._runs_waiting.append(run)
        else:
            delay = 0.002 + self.random.random() * 0.02
            if self.random.random() < 0.01:
                delay += self.random.random() * 10  # the task timed out on its way and was given out again
            self.hub.after(delay, run.process)

    def signal(self, name: str, payload: Payload) -> None:
        """Refused where no run is."""
        if self.run is not None and not self.run.closed and not self.away:
            self._signal(self.run, name, payload)

    def signal_with_start(self, name: str, payload: Payload) -> None:
        self._signal(self.start(self.world.workflow_input()), name, payload)

    def _signal(self, run: Run, name: str, payload: Payload) -> None:
        self.world.log("signal", name, payload.data if name == "enqueue" else "")
        signal = Signal(run, name, payload, self.records.signalled(run.run_id, name, payload))
        run.add(signal, history=1)

    def update(self, name: str, argument: Any, answered: Callable[[Any, str], None], update_id: str = "") -> None:
        run = self.run
        if run is None or run.closed or self.away:
            answered(None, "the writer is not running")
            return
        self._ids += 1
        info = workflow.UpdateInfo(update_id or f"update-{self._ids}", name)
        run.add(lambda: run.update(info, argument, answered), history=2)

    # ------------------------------------------------------------------------------------------------------- activities

    def begin_activity(
        self,
        run: Run,
        name: str,
        payload: Payload,
        options: dict[str, Any],
        future: asyncio.Future[Any],
        number: int = 1,
        activity_id: str = "",
    ) -> None:
        self.world.look_for_payload(name, payload, submissions=name == "record_submissions")
        self._ids += 1
        queue = options.get("task_queue") or messages.TASK_QUEUE
        attempt = Attempt(run, name, payload, queue, options, future, number, activity_id or str(self._ids))
        self.world.attempts[attempt] = None
        limit = attempt.limit("schedule_to_start_timeout")
        if limit is not None:
            attempt.timers.append(self.hub.after(limit, lambda: self._never_started(attempt)))
        self._queued.append(attempt)
        self.hub.after(0.001 + self.random.random() * 0.01, self.give_out)

    def give_out(self) -> None:
        """Whatever waits goes to whoever polls for it."""
        if self.away:
            return
        for attempt in list(self._queued):
            worker = self._poller(attempt.task_queue)
            if worker is not None:
                self._queued.remove(attempt)
                self._start(attempt, worker)
        waiting, self._runs_waiting = self._runs_waiting, []
        for run in waiting:
            self.hand_out(run)

    def _poller(self, queue: str = messages.TASK_QUEUE) -> Any:
        """A worker that polls this queue; now and then one that is stopped, whose socket still takes the task."""
        fit = [one for one in self.workers if one.process.alive and not one.leaving and one.polls(queue)]
        awake = [one for one in fit if not one.process.stopped and not one.cut_off]
        if fit != awake and queue != messages.TASK_QUEUE and self.random.random() < 0.5:
            stopped = [one for one in fit if one.process.stopped]
            if stopped:
                return self.random.choice(stopped)
        return self.random.choice(awake) if awake else None

    def _start(self, attempt: Attempt, worker: Any) -> None:
        lost = self.world.faults.at("activity", worker.process, attempt.name) == "hang"
        attempt.started, attempt.undisturbed = True, self.world.healing
        attempt.worker = worker
        attempt.beat_at = self.hub.now
        for timer in attempt.timers:
            timer.cancel()
        attempt.timers.clear()
        limit = attempt.limit("start_to_close_timeout")
        if limit is not None:
            attempt.timers.append(self.hub.after(limit, lambda: self._timed_out(attempt, TimeoutType.START_TO_CLOSE)))
        beat = attempt.limit("heartbeat_timeout")
        if beat is not None:
            attempt.timers.append(self.hub.after(beat, lambda: self._check_beat(attempt, beat)))
        if not lost:  # else handed to a poller that never got it: its timeouts will tell
            worker.perform(attempt)

    def _check_beat(self, attempt: Attempt, limit: float) -> None:
        if attempt.live:
            silent = self.hub.now - attempt.beat_at
            if silent >= limit:
                if attempt.undisturbed and attempt.worker.process.alive:
                    self.world.always.fail(f"{attempt.name} of a worker at work had no heartbeat for {silent:.1f} s")
                self._timed_out(attempt, TimeoutType.HEARTBEAT)
            else:
                attempt.timers.append(self.hub.after(limit - silent, lambda: self._check_beat(attempt, limit)))

    def _never_started(self, attempt: Attempt) -> None:
        if attempt.live and not attempt.started:
            if attempt in self._queued:
                self._queued.remove(attempt)
            self.world.sometimes.hit("stale task refused")
            self._timed_out(attempt, TimeoutType.SCHEDULE_TO_START)

    def _timed_out(self, attempt: Attempt, kind: TimeoutType) -> None:
        if attempt.live:
            self.world.log("timeout", logged(attempt.name), kind.name)
            cause = ActivityTimeoutError(kind.name, type=kind, last_heartbeat_details=[])
            self._ended(attempt, None, cause, again=kind is not TimeoutType.SCHEDULE_TO_START)

    def completed(self, attempt: Attempt, result: Payload | None, error: Exception | None) -> None:
        """From the worker; refused when the server has given the attempt up."""
        if not attempt.live:
            self.world.sometimes.hit("zombie attempt's result refused")
            return
        self._ended(attempt, result, error, again=True)

    def _ended(self, attempt: Attempt, result: Payload | None, error: Exception | None, *, again: bool) -> None:
        attempt.settle()
        self.world.attempts.pop(attempt, None)
        policy: RetryPolicy = attempt.options.get("retry_policy") or _AGAIN
        refusal = isinstance(error, ApplicationError) and error.non_retryable
        may_try = policy.maximum_attempts == 0 or attempt.number < policy.maximum_attempts
        if error is not None and again and may_try and not refusal:
            pause = policy.initial_interval.total_seconds() * policy.backoff_coefficient ** (attempt.number - 1)
            longest = policy.maximum_interval.total_seconds() if policy.maximum_interval else 100.0
            run, number = attempt.run, attempt.number + 1
            self.hub.after(min(pause, longest), lambda: self._try_again(run, attempt, number))
            return
        if error is None:
            assert result is not None
            self.world.look_for_payload(f"{attempt.name} result", result)
            attempt.run.limits.payload(result.data)
            hint = attempt.options.get("result_type")
            value = CONVERTER.from_payload(result, hint) if hint not in (None, type(None)) else None
            attempt.run.add(lambda: _set(attempt.future, value), history=0)
        else:
            failure = ActivityError(
                "activity error",
                scheduled_event_id=1,
                started_event_id=2,
                identity="",
                activity_type=attempt.name,
                activity_id="1",
                retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
            )
            failure.__cause__ = error
            attempt.run.add(lambda: _fail(attempt.future, failure), history=0)

    def _try_again(self, run: Run, attempt: Attempt, number: int) -> None:
        if not run.closed:
            self.begin_activity(
                run, attempt.name, attempt.argument, attempt.options, attempt.future, number, attempt.activity_id
            )


class Signal:
    """A signal on its way to a run; it goes over to the next run if that comes first."""

    def __init__(self, run: Run, name: str, payload: Payload, event: SignalEvent | None) -> None:
        self.run, self.name, self.payload, self.event = run, name, payload, event

    def moved(self, run: Run) -> Signal:
        run.server.records.moved(self.name, self.payload, self.event, self.run.run_id, run.run_id)
        return Signal(run, self.name, self.payload, self.event)

    def __call__(self) -> None:
        self.run.signal(self.name, self.payload)


def logged(activity: str) -> str:
    return _LOGGED.get(activity, activity)


def _set(future: asyncio.Future[Any], value: Any) -> None:
    if not future.done():
        future.set_result(value)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def in_activity(beat: Callable[[], None], run: Run, activity_id: str) -> None:
    """Make the running task an activity in the SDK's eyes."""
    info = types.SimpleNamespace(workflow_id=WRITER_ID, workflow_run_id=run.run_id, activity_id=activity_id)
    context = types.SimpleNamespace(info=lambda: info, heartbeat=beat)
    temporalio.activity._current_context.set(context)  # type: ignore[arg-type]
