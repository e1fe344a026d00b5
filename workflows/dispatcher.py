"""Dispatcher: each action that the machine decides on becomes an activity; its result is fed back to the machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from temporalio import workflow
from temporalio.exceptions import TimeoutType

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy.machine import actions, events, operators
    from oldhost_sync.policy.machine.machine import Machine
    from oldhost_sync.policy.machine.outstanding_changes import Part
    from oldhost_sync.policy.machine.session import FailureDetector
    from workflows import calls, messages
    from workflows.calls import NoResult
    from workflows.clock import now_ms
    from workflows.operator_acts import OperatorActs
    from workflows.reception import Relayed
    from workflows.status_report import StateList

# A sweep's page, and how long ago a change must have been relayed to count as missed: a younger one may still arrive.
SWEEP_REFS = 1000
SWEEP_QUIET_MS = 30_000


class Dispatcher:
    """`under_way`: number of running activities. `talking_to_oldhost`: those that talk to OldHost.

    `wake` is called when one has ended, `load_persisted_state` with the first page of outstanding changes.
    """

    def __init__(
        self,
        host: str,
        machine: Machine,
        wake: Callable[[], None],
        acts: OperatorActs,
        load_persisted_state: Callable[[messages.Outstanding], None],
        listing: StateList,
        relayed: Relayed,
    ) -> None:
        self._host = host
        self._machine = machine
        self._wake = wake
        self._acts = acts
        self._load_persisted_state = load_persisted_state
        self._listing = listing
        self._relayed = relayed
        self._detector = FailureDetector()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._sending: dict[int, None] = {}  # the numbers of the sends under way
        self.under_way = 0
        self.talking_to_oldhost = 0

    @property
    def awaits_oldhost(self) -> bool:
        """Whether an activity that talks to OldHost ends soon: meanwhile the workflow sets no timer except for alerts.

        A send that was given up may last until its timeout.
        """
        given_up = sum(number not in self._machine.in_flight.sends for number in self._sending)
        return self.talking_to_oldhost > given_up

    def act(self, action: actions.Action) -> None:
        match action:
            case (
                actions.OpenSession() | actions.Send() | actions.StopSends() | actions.CloseSession() | actions.Probe()
            ):
                self.start(self._talk_to_oldhost(action), talking_to_oldhost=True)
            case actions.Sweep():
                self.start(self._sweep(action))
            case actions.LoadOutstanding():
                self.start(self._load(action))
            case actions.RecordAlerts():
                self.start(self._tell(action))
            case actions.RecordHalt():
                self._acts.add_halt(self._host, action)

    def _talk_to_oldhost(
        self,
        action: actions.OpenSession | actions.Send | actions.StopSends | actions.CloseSession | actions.Probe,
    ) -> Coroutine[Any, Any, None]:
        match action:
            case actions.OpenSession():
                return self._open_session(action)
            case actions.Send():
                return self._send(action)
            case actions.StopSends():
                return self._stop_sends(action)
            case actions.CloseSession():
                return self._close_session(action)
        return self._probe(action)

    def start(self, work: Coroutine[Any, Any, None], *, talking_to_oldhost: bool = False) -> None:
        self.under_way += 1
        self.talking_to_oldhost += talking_to_oldhost
        task = asyncio.create_task(self._guard(work, talking_to_oldhost))
        self._tasks[task] = None  # the loop holds tasks only weakly
        task.add_done_callback(self._tasks.pop)

    async def _guard(self, work: Coroutine[Any, Any, None], talking_to_oldhost: bool) -> None:
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
            self.talking_to_oldhost -= talking_to_oldhost
            self._wake()

    @property
    def _slack(self) -> int:
        return self._detector.slack(now_ms())

    async def _tell(self, action: actions.RecordAlerts) -> None:
        try:
            await calls.raise_alerts(self._host, action)
        except NoResult:
            await workflow.sleep(calls.AGAIN_SECONDS, summary="until alerts are recorded again")
            self._machine.alerts.not_recorded()
        else:
            self._machine.alerts.recorded()

    async def _open_session(self, action: actions.OpenSession) -> None:
        ended: events.OpeningEnded
        try:
            ended = await calls.open_session(self._host, action, self._slack)
        except NoResult as error:
            ended = events.OpeningFailed(error.words)
        if isinstance(ended, events.SessionOpened):
            self._detector.opened(ended.task_queue, now_ms())
        self._machine.opening_ended(ended, now_ms())

    async def _send(self, action: actions.Send) -> None:
        ended: events.SendEnded | events.SendFailed
        self._sending[action.number] = None
        try:
            ended = await calls.send(self._host, action, self._slack)
        except NoResult as error:
            limit = error.passed_limit
            if limit in (TimeoutType.SCHEDULE_TO_START, TimeoutType.HEARTBEAT):
                self._detector.timed_out(action.task_queue)
            ended = events.SendFailed(
                never_started=limit is TimeoutType.SCHEDULE_TO_START, silent=limit is TimeoutType.HEARTBEAT
            )
        del self._sending[action.number]
        self._machine.send_ended(action.number, ended, now_ms(), epoch=action.epoch)

    async def _stop_sends(self, action: actions.StopSends) -> None:
        try:
            await calls.stop_sends(self._host, action, self._slack)
        except NoResult:
            workflow.logger.warning("the running sends could not be told to stop; they end by themselves")

    async def _close_session(self, action: actions.CloseSession) -> None:
        try:
            await calls.close_session(self._host, action, self._slack)
        except NoResult:
            workflow.logger.warning("closing the session failed; the next session takes over from it")
        self._machine.closed()

    async def _probe(self, action: actions.Probe) -> None:
        try:
            probed = await calls.probe(self._host, action, self._slack)
        except NoResult:
            probed = events.Probed(session_open=False)
        self._machine.probed(probed, now_ms())

    async def _sweep(self, action: actions.Sweep) -> None:
        request = messages.OutstandingPage(
            self._host, "sweep", action.after_id, limit=SWEEP_REFS, quiet_ms=SWEEP_QUIET_MS
        )
        stops = operators.blockers(self._machine)
        try:
            page = await calls.load_outstanding(request, calls.ONCE)
        except NoResult:
            self._machine.sweep_failed(now_ms())
            return
        if self._relayed.waiting:  # what was relayed before the page was read has come before it: it is missing no more
            await workflow.wait_condition(lambda: not self._relayed.waiting)
        self._listing.registered(page.lists_states)
        mends_holds = not self._acts.pending
        self._machine.swept(list(page.changes()), page.last_id, page.more, now_ms(), mends_holds=mends_holds)
        unchanged = not self._acts.pending and not self._machine.draining and operators.blockers(self._machine) == stops
        if unchanged and page.halted is not None:
            operators.follow_database(self._machine, page.paused, now_ms(), halted=page.halted)

    async def _load(self, action: actions.LoadOutstanding) -> None:
        entity = None if action.entity is None else list(action.entity)
        request = messages.OutstandingPage(self._host, action.part.value, action.after_id, entity=entity)
        try:
            page = await calls.load_outstanding(request, calls.ONCE)
        except NoResult:
            self._machine.load_failed(action, now_ms())
            return
        self._listing.registered(page.lists_states)
        if action.part is Part.EMERGENCIES and not action.after_id:
            self._load_persisted_state(page)  # the first page of a rebuild
        self._machine.took_page(action, list(page.changes()), page.last_id, page.more, now_ms())
