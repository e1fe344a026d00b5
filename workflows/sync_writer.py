"""SyncWriterWorkflow: the singleton that drives one OldHost. A thin driver of the pure machine.

Its fixed workflow id makes it the only writer, without a lease. Signals and updates feed the machine; `decide` says
what to do; each action becomes an activity whose result is fed back. While an activity talks to OldHost, no timer is
set except for a standstill. The run continues as new, with the machine's snapshot, when Temporal suggests it, after
8 MiB of history or 5,000 signals, for new settings or another release, and after a reset (`_must_renew`); what the
snapshot can't hold is rebuilt from MariaDB.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    # Not `from workflows import intake`: of a module imported so each run has a copy, with classes of its own.
    import workflows.intake as intake  # noqa: PLR0402
    import workflows.status_report as status_report  # noqa: PLR0402
    from oldhost_sync.policy.changes import EntityKey
    from oldhost_sync.policy.machine import snapshot
    from oldhost_sync.policy.machine.actions import WriterCondition
    from oldhost_sync.policy.machine.conditions import Reports
    from oldhost_sync.policy.machine.release import release_of_run
    from oldhost_sync.policy.tuning import WriterPolicy
    from workflows.clock import Clock, Timers, now_ms, present_ms
    from workflows.continue_as_new import EVENTS_OF_REBUILD_MAX, NextRun, free_at_eviction
    from workflows.direct_changes import DirectChanges, check_change, check_urgent_change
    from workflows.dispatcher import Dispatcher
    from workflows.messages import WORKFLOW_TYPE, ApplyNowAnswer, Outstanding, SubmitAnswer, WriterInput
    from workflows.operator_acts import (
        OperatorActs,
        half_an_entity,
        no_sense_now,
        no_such_letter,
        nothing_to_resolve,
        operators_update,
    )
    from workflows.reception import Reception, Relayed
    from workflows.status_report import StateList

UNREADABLE_REPORTS_MS = 60_000

# Stands for the argument of a signal that has none.
NOTHING = RawValue(Payload())


@workflow.defn(name=WORKFLOW_TYPE)
class SyncWriterWorkflow:
    """See the module's docstring; messages and their shapes are in `workflows.messages`."""

    @workflow.init
    def __init__(self, argument: RawValue = NOTHING) -> None:
        given, unreadable = intake.read_input(argument, workflow.info().workflow_id)
        self.host = given.host
        self.policy = given.policy
        release = release_of_run(workflow.patched)
        self.machine = snapshot.load(given.snapshot, self._policy_in_force, now_ms(), release=release)
        carried = given.snapshot["reports"] if given.snapshot and self.machine.carried else None
        self.reports = Reports(self.machine, carried)
        self.wakeup_requested = True
        self.clock = Clock()
        self.next_run = NextRun()
        self.reception = Reception(self.machine, self._wake, given)
        self.relayed = Relayed(self.machine)
        self.acts = OperatorActs(self.host, self.machine, self._wake, lambda: self.next_run.leaving, given.acts)
        self.direct = DirectChanges(self.machine, self.reception, self._wake, lambda: self.next_run.leaving)
        self.timers = Timers(self._wake)
        self.unreadable = 0
        self.unreadable_reported_at_ms = 0
        self.listing = StateList(self.host)
        self.dispatcher = Dispatcher(
            self.machine, self._wake, self.acts, self._load_persisted_state, self.listing, self.relayed, self.reports
        )
        self.freeing = free_at_eviction(self.machine.coalescer)
        if unreadable:
            why = f"The writer was started with a wrong argument: {unreadable}."
            self.reports.happened(WriterCondition("unreadable-signal", why, "unreadable-start"))
        workflow.register_random_seed_callback(self._after_reset)

    @workflow.run
    async def run(self, argument: RawValue = NOTHING) -> None:  # noqa: ARG002 - `__init__` has read it
        if self.reception.recovering:
            self.dispatcher.start(self.reception.recover())
        while True:
            self.wakeup_requested = False
            self._take_relayed()
            self.reception.read()
            self.machine.draining = self._must_renew()
            for action in [*self.machine.decide(now_ms()), *self.reports.due(now_ms())]:
                self.dispatcher.act(action)
            self._record_submissions()
            self._work_off_acts()
            workflow.set_current_details(status_report.details(self.machine, now_ms()))
            self.listing.show(status_report.listed_state(self.machine))
            if self.machine.draining and self._is_drained():
                break
            await self._wait()
        workflow.continue_as_new(self._successor())

    # --------------------------------------------------------------------------------------------------------- signals

    @workflow.signal(dynamic=True)
    def signalled(self, name: str, args: Sequence[RawValue]) -> None:
        """Every signal: `enqueue`, `submit_change`, `configure`, `renew`, `worker_ended`, or an unknown one.

        A dynamic handler, because the SDK's own dispatch raises on a missing or extra argument, and a signal that
        raises blocks the writer at that workflow task for ever.
        """
        argument = args[0] if args else NOTHING
        self.reception.signals += 1
        match name:
            case "enqueue":
                self._enqueue(argument)
            case "submit_change":
                self.reception.take(argument)
            case "configure":
                self._configure(argument)
            case "renew" if (release := intake.read_release(argument)) is not None:
                self.next_run.asked = self.next_run.asked or release != self.machine.release
            case "worker_ended" if (task_queue := intake.read_task_queue(argument)) is not None:
                self.machine.worker_ended(task_queue)
            case _:
                self._report_unreadable(name, 1)
        self.wakeup_requested = True

    def _enqueue(self, batch: RawValue) -> None:
        """Take refs of recorded changes from the relay. Unreadable ones are dropped here; the sweep finds them."""
        self.relayed.add(batch)

    def _take_relayed(self) -> None:
        if unreadable := self.relayed.take(now_ms()):
            self._report_unreadable("enqueue", unreadable)

    def _configure(self, policy: RawValue) -> None:
        """Take new settings (from `starter.py`). Unless this run was given the same, a new run begins at once."""
        read = intake.read_policy(policy)
        if read is None:
            self._report_unreadable("configure", 1)
        elif read != self._policy_in_force or self.policy is None:
            self.policy = read
            self.next_run.asked = True

    # --------------------------------------------------------------------------------------------------------- updates

    @workflow.update
    async def submit(self, change: RawValue) -> SubmitAnswer:
        """Record a change of any class, then answer; a refused change fails the update with the reason."""
        return await self.direct.submit(intake.change_of_update(change))

    @submit.validator
    def _check_submit(self, change: RawValue) -> None:
        check_change(intake.change_of_update(change))
        self.direct.check_room()

    @workflow.update
    async def apply_now(self, change: RawValue) -> ApplyNowAnswer:
        """Record an EMERGENCY change and wait up to 25 s for its fate; during a pause, ban or halt, answer at once."""
        return await self.direct.apply_now(intake.change_of_update(change))

    @apply_now.validator
    def _check_apply_now(self, change: RawValue) -> None:
        check_urgent_change(intake.change_of_update(change))
        self.direct.check_room()

    pause = operators_update(
        "pause", "Stop sending and close the connection; changes are still accepted and coalesced.", no_sense_now
    )
    resume = operators_update("resume", "Open a session and send again.", no_sense_now)
    flush = operators_update(
        "flush", "End the debounce of one entity's keys, or of all keys; returns the number of keys.", half_an_entity
    )
    retry = operators_update("retry", "Send a dead letter again, before the changes held behind it.", no_such_letter)
    discard = operators_update(
        "discard", "Give up a dead letter; the changes held behind it are released.", no_such_letter
    )
    confirm = operators_update(
        "confirm",
        "Count an unsure dead letter as applied; the changes held behind it are released.",
        no_such_letter,
    )
    resolve = operators_update(
        "resolve",
        "End a halt: `resend` sends the ledger's operations again, `adopt` accepts OldHost's count as correct.",
        nothing_to_resolve,
    )

    # --------------------------------------------------------------------------------------------------------- queries

    @workflow.query
    def status(self) -> dict[str, Any]:
        return status_report.status(self.machine, self.host, present_ms())

    @workflow.query
    def outlook(self) -> dict[str, Any] | None:
        return status_report.outlook(self.machine, present_ms())

    @workflow.query
    def find(self, entity_type: str, entity_id: str) -> dict[str, Any]:
        return status_report.find(self.machine, EntityKey(entity_type, entity_id), present_ms())

    @workflow.query
    def upcoming(self, count: int = 20) -> list[dict[str, Any]]:
        return status_report.upcoming(self.machine, max(1, min(count, 200)), present_ms())

    # -------------------------------------------------------------------------------------------- loading and recording

    def _must_renew(self) -> bool:
        info = workflow.info()
        events, suggested = info.get_current_history_length(), info.is_continue_as_new_suggested()
        size = info.get_current_history_size()
        if self.machine.loading.part is not None and events < EVENTS_OF_REBUILD_MAX:
            self.next_run.rebuilt(events, suggested=suggested, history_bytes=size)
        due = self.next_run.is_due(events, suggested=suggested, history_bytes=size, signals=self.reception.signals)
        was_reset = self.reception.was_reset
        return self.next_run.drain(due=due or was_reset, now_ms=now_ms(), at_once=self._leaves_at_once)

    @property
    def _leaves_at_once(self) -> bool:
        """A run that was reset does not wait for activities: after a reset Temporal never times out an activity that no
        worker had started, nor any later one. The next session resolves an operation in flight, as after a terminate.
        """
        return self.reception.was_reset

    def _load_persisted_state(self, page: Outstanding) -> None:
        self.machine.outcomes.dead_letters = page.dead_letters
        self.reports.number_above(page.conditions_sequence)
        if self.machine.carried:
            return
        if page.paused is not None:
            self.machine.load_pause(*page.paused)
        if page.ban_left_ms is not None:
            self.machine.load_ban(page.ban_left_ms, now_ms())
        if self.policy is None and page.policy is not None:
            self.policy = page.policy
            self.next_run.asked = page.policy != WriterPolicy()

    @property
    def _policy_in_force(self) -> WriterPolicy:
        return self.policy or WriterPolicy()

    def _record_submissions(self) -> None:
        if batch := self.reception.next_batch():
            self.dispatcher.start(self.reception.record(batch))

    def _work_off_acts(self) -> None:
        if self.acts.pending and not self.acts.at_work and not self.machine.draining:
            self.dispatcher.start(self.acts.work_off())

    # --------------------------------------------------------------------------------------------------------- waiting

    async def _wait(self) -> None:
        """Wait until something happens or is due."""
        wake_at_ms = self.machine.watch_at_ms() if self.dispatcher.awaits_oldhost else self._wake_at_ms()
        if self.relayed.waiting or (self.reception.has_unread and not self.machine.draining):
            wake_at_ms = now_ms()
        if self.relayed.take_nudge():
            self.timers.distrust()
        if wake_at_ms is not None:
            self.timers.ensure(wake_at_ms, self.clock)
        await workflow.wait_condition(lambda: self.wakeup_requested or self._may_leave())

    def _wake_at_ms(self) -> int | None:
        leaves_at_ms = None if self.next_run.leaving else self.next_run.leave_at_ms
        own_ms = leaves_at_ms if self.machine.draining else self.reception.wake_at_ms()
        times = (self.machine.wake_at_ms(), own_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _may_leave(self) -> bool:
        """Every waiting caller has its answer, and database activities have had their time."""
        at_work = (self.dispatcher.talking_to_oldhost and not self._leaves_at_once) or bool(self.relayed.waiting)
        return self.next_run.leaving and not at_work and workflow.all_handlers_finished()

    def _wake(self) -> None:
        self.wakeup_requested = True

    def _is_drained(self) -> bool:
        """No activity is running; or, after a moment, none that talks to OldHost, and no caller waits for an answer.

        Database activities may hang while another transaction holds a row or table lock; the next run repeats whatever
        they did not finish.
        """
        if self.relayed.waiting:
            return False
        if self.dispatcher.under_way == 0 and workflow.all_handlers_finished():
            return True
        if self.dispatcher.talking_to_oldhost and not self._leaves_at_once:
            return False
        leaves = self.next_run.leave(now_ms(), decides_again=not self._leaves_at_once)
        return leaves and workflow.all_handlers_finished()

    def _successor(self) -> WriterInput:
        carried: snapshot.Snapshot | None = {
            **snapshot.dump(self.machine),
            "reports": self.reports.dump(),
            "at_ms": now_ms(),
        }
        if self.reception.follows_a_reset:
            carried = None  # the machine's state is as old as the event that the run was reset to
        submissions, unrecorded = self.reception.successor()
        acts = [pending.act for pending in self.acts.pending]
        return WriterInput(self.host, self.policy, carried, submissions, acts, unrecorded)

    def _after_reset(self, _: int) -> None:
        """Called when an operator resets this run: Temporal changes a run's random seed only then."""
        self.reception.was_reset = True
        self._wake()

    def _report_unreadable(self, name: str, count: int) -> None:
        """Report it once a minute at most, with the count."""
        self.unreadable += count
        self.wakeup_requested = True
        if now_ms() >= self.unreadable_reported_at_ms:
            text = (
                f"{self.unreadable} items that arrived by signal can't be read, the last by {name[:64]!r}; "
                "see docs/messages.md."
            )
            self.reports.happened(WriterCondition("unreadable-signal", text, "unreadable-signals"))
            self.unreadable = 0
            self.unreadable_reported_at_ms = now_ms() + UNREADABLE_REPORTS_MS
