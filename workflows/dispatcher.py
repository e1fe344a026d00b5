"""Dispatcher: each action of the machine becomes an activity, and its end is reported to the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.exceptions import TimeoutType

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import events, operators
    from oldhost_sync.policy.machine.actions import (
        Action,
        CloseSession,
        LoadOutstanding,
        OpenSession,
        Probe,
        RecordConditions,
        Send,
        StopSends,
        Sweep,
    )
    from oldhost_sync.policy.machine.conditions import Reports
    from oldhost_sync.policy.machine.machine import Machine
    from oldhost_sync.policy.machine.outstanding_changes import Part
    from oldhost_sync.policy.machine.session import FailureDetector
    from oldhost_sync.policy.queue.operations import label_of
    from oldhost_sync.policy.rules.operator_act import OperatorAct
    from workflows import calls, messages
    from workflows.calls import NoResult
    from workflows.clock import now_ms
    from workflows.operator_acts import OperatorActs
    from workflows.reception import Relayed
    from workflows.status_report import StateList

# A send that passed one of these limits shows that its worker is slow, or gone.
WORKER_IS_LATE = (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT)


class Dispatcher:
    """`under_way`: number of running activities. `talking_to_oldhost`: those that talk to OldHost.

    `wake` is called when one has ended, `load_persisted_state` with the first page of outstanding changes.
    """

    def __init__(
        self,
        machine: Machine,
        wake: Callable[[], None],
        acts: OperatorActs,
        load_persisted_state: Callable[[messages.Outstanding], None],
        listing: StateList,
        relayed: Relayed,
        reports: Reports,
    ) -> None:
        self._machine = machine
        self._wake = wake
        self._acts = acts
        self._load_persisted_state = load_persisted_state
        self._listing = listing
        self._relayed = relayed
        self._reports = reports
        self._detector = FailureDetector()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._sending: dict[int, None] = {}  # the numbers of the sends under way
        self.under_way = 0
        self.talking_to_oldhost = 0

    @property
    def awaits_oldhost(self) -> bool:
        """Whether an activity that talks to OldHost ends soon: meanwhile the workflow sets no timer except for a
        standstill.

        A send that was given up may last until its timeout.
        """
        given_up = sum(number not in self._machine.in_flight.sends for number in self._sending)
        return self.talking_to_oldhost > given_up

    def act(self, action: Action) -> None:
        """Begin it. An act of the machine's own, a halt or a pause's end, waits in the queue of operators' acts."""
        if isinstance(action, OperatorAct):
            self._acts.add_own(action)
            return
        call = calls.call_of(action)
        # Asked now: when the activity begins or ends, there may be another session.
        queue = self._machine.session.task_queue if call.of_session else None
        self.start(self._carry_out(action, queue), talks_to_oldhost=call.talks_to_oldhost)

    def start(self, work: Coroutine[Any, Any, None], *, talks_to_oldhost: bool = False) -> None:
        self.under_way += 1
        self.talking_to_oldhost += talks_to_oldhost
        task = asyncio.create_task(self._guard(work, talks_to_oldhost))
        self._tasks[task] = None  # the loop holds tasks only weakly
        task.add_done_callback(self._tasks.pop)

    async def _guard(self, work: Coroutine[Any, Any, None], talks_to_oldhost: bool) -> None:
        """An unexpected exception halts the writer (docs/reliability.md, level L0)."""
        try:
            await work
        except (NoResult, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - any other exception halts the writer
            workflow.logger.error("an invariant is violated: %s", error)
            self._machine.violated(f"{type(error).__name__}: {error}")
        finally:
            self.under_way -= 1
            self.talking_to_oldhost -= talks_to_oldhost
            self._wake()

    async def _carry_out(self, action: Action, queue: str | None) -> None:
        label, stops = "", operators.blockers(self._machine)
        if isinstance(action, Send):
            self._sending[action.number] = None
            label = label_of([entry for entry in map(self._machine.in_flight.get, action.change_ids) if entry])
        try:
            slack = self._detector.slack(now_ms())
            event = await calls.result_of(action, queue=queue, slack=slack, summary=label)
        except NoResult as error:
            event = calls.call_of(action).without_result(error)
            if isinstance(action, Send) and error.passed_limit in WORKER_IS_LATE:
                self._detector.timed_out(queue or "")
        match action:
            case LoadOutstanding():
                self._take_page(action, event)
            case Sweep():
                await self._take_sweep(event, stops)
            case RecordConditions():
                await self._reported(event)
            case _:
                self._report(action, event)

    def _report(self, action: Action, event: Any) -> None:
        """Tell the machine how an action at OldHost ended. `event`: as the table of calls has it."""
        machine, failed = self._machine, isinstance(event, NoResult)
        match action:
            case OpenSession():
                if isinstance(event, events.SessionOpened):
                    self._detector.opened(event.task_queue, now_ms())
                machine.opening_ended(event, now_ms())
            case Send():
                del self._sending[action.number]
                machine.send_ended(action.number, event, now_ms(), epoch=action.epoch)
            case StopSends() if failed:
                workflow.logger.warning("the running sends could not be told to stop; they end by themselves")
            case CloseSession():
                if failed:
                    workflow.logger.warning("closing the session failed; the next session takes over from it")
                machine.closed()
            case Probe():
                machine.probed(event, now_ms())

    async def _reported(self, event: NoResult | None) -> None:
        if event is None:
            self._reports.recorded()
            return
        await workflow.sleep(calls.AGAIN_SECONDS, summary="until conditions are recorded again")
        self._reports.not_recorded()

    def _take_page(self, action: LoadOutstanding, page: messages.Outstanding | NoResult) -> None:
        if isinstance(page, NoResult):
            self._machine.load_failed(action, now_ms())
            return
        self._listing.registered(page.lists_states)
        if action.part is Part.EMERGENCIES and not action.after_id:
            self._load_persisted_state(page)  # the first page of a rebuild
        self._machine.took_page(action, list(page.changes()), page.last_id, page.more, now_ms())

    async def _take_sweep(self, page: messages.Outstanding | NoResult, stops: object) -> None:
        """`stops`: what only an operator could end when the page was asked for."""
        machine = self._machine
        if isinstance(page, NoResult):
            machine.sweeping.fail(now_ms())
            return
        if self._relayed.waiting:  # what was relayed before the page was read has come before it: it is missing no more
            await workflow.wait_condition(lambda: not self._relayed.waiting)
        self._listing.registered(page.lists_states)
        mends_holds = not self._acts.pending
        missed = machine.swept(list(page.changes()), page.last_id, page.more, now_ms(), mends_holds=mends_holds)
        self._reports.missed(missed)
        unchanged = not self._acts.pending and not machine.draining and operators.blockers(machine) == stops
        if unchanged and page.halted is not None:
            operators.follow_database(machine, page.paused, now_ms(), halted=page.halted)
