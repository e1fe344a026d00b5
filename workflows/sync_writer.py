"""SyncWriterWorkflow: the singleton that drives one OldHost. A thin driver of the pure machine.

Its fixed id takes the place of a lease. Signals and updates feed the machine; `decide` says what to do; each action becomes an
activity whose end is fed back. Timers only while nothing is on its way. A new run is started when Temporal suggests it, with the
machine's snapshot; what can't be carried is rebuilt from MariaDB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType
from temporalio.exceptions import TimeoutError as ActivityTimeoutError

with workflow.unsafe.imports_passed_through():
    from oldhost_sync.policy import actions, deciding, snapshot
    from oldhost_sync.policy.breaker import BreakerState
    from oldhost_sync.policy.changes import ChangeRef, EntityKey, Fate
    from oldhost_sync.policy.limits import TEXT_LENGTH_MAX
    from oldhost_sync.policy.machine import Refused, Watch
    from workflows import calls, intake, messages, report
    from workflows.inbox import Inbox
    from workflows.messages import OperatorRequest, Submission, WriterInput, from_wire
    from workflows.renewal import Renewal

# An open handler must not hold up a new run, nor the ten that may be open at a time the operators' updates; design §6 gives
# applications this long, recording included.
APPLY_NOW_MS = 25_000
APPLY_NOW_RECORDING = timedelta(seconds=10)
UNREADABLE_ALERT_MS = 60_000
# A sweep's page, and how long a change must have been relayed to be missed: what is younger is on its way.
SWEEP_REFS = 1000
SWEEP_QUIET_MS = 30_000

# What a signal without an argument carries.
NOTHING = RawValue(Payload())


@workflow.defn(name=messages.WORKFLOW_TYPE)
class SyncWriterWorkflow:
    """See the module's docstring; messages and their shapes are in `workflows.messages`."""

    @workflow.init
    def __init__(self, given: WriterInput) -> None:
        self.host = given.host
        self.policy = given.policy
        self.machine = snapshot.load(given.snapshot, given.policy, self._now_ms())
        self.inbox = Inbox(given.submissions)
        self.stirred = True
        self.renewal = Renewal()
        self.alarms: dict[int, asyncio.Task[None]] = {}  # timers under way, by when they ring
        self.unreadable = 0
        self.tell_unreadable_at_ms = 0
        self.tasks: dict[asyncio.Task[None], None] = {}
        self.at_work = 0  # activities of the machine's actions
        self.at_the_host = 0  # those among them that end soon and wake us: no timer is needed beside them

    @workflow.run
    async def run(self, given: WriterInput) -> None:  # noqa: ARG002 - `__init__` took it
        if not self.machine.loaded:
            await self._rebuild()
        while True:
            self.stirred = False
            self.machine.draining = self._must_renew()
            for action in deciding.decide(self.machine, self._now_ms()):
                self._act(action)
            self._record_submissions()
            workflow.set_current_details(report.details(self.machine, self._now_ms()))
            if self.machine.draining and self._is_drained():
                break
            await self._wait()
        workflow.continue_as_new(
            WriterInput(self.host, self.policy, snapshot.dump(self.machine), submissions=self.inbox.carried())
        )

    # --------------------------------------------------------------------------------------------------------- signals

    @workflow.signal(dynamic=True)
    def signalled(self, name: str, args: Sequence[RawValue]) -> None:
        """`enqueue`, `submit_change`, `configure`, or nothing that we know.

        All come this way because an argument too few or too many makes the SDK's own dispatch raise, and a signal that raises
        stops the writer at its task for ever.
        """
        argument = args[0] if args else NOTHING
        match name:
            case "enqueue":
                self._enqueue(argument)
            case "submit_change":
                self.inbox.add(Submission(intake.read_change(argument), str(workflow.uuid4())))
            case "configure":
                self._configure(argument)
            case _:
                self._alert_unreadable(name, 1)
        self.stirred = True

    def _enqueue(self, batch: RawValue) -> None:
        """Refs of recorded changes, from the relay. What can't be read is dropped here and found by the sweep."""
        refs, unreadable = intake.read_refs(batch)
        self.machine.enqueue(refs, self._now_ms())
        if unreadable:
            self._alert_unreadable("enqueue", unreadable)

    def _configure(self, policy: RawValue) -> None:
        """New settings (from `starter.py`): they hold from the next run, which starts at once when they differ."""
        read = intake.read_policy(policy)
        if read is None:
            self._alert_unreadable("configure", 1)
        elif read != self.policy:
            self.policy = read
            self.renewal.asked = True

    # --------------------------------------------------------------------------------------------------------- updates

    @workflow.update
    async def apply_now(self, change: dict[str, Any]) -> messages.ApplyNowAnswer:
        """Record an EMERGENCY change and wait up to 25 s for its nonce; during a ban or halt the answer comes at once."""
        until_ms = self._now_ms() + APPLY_NOW_MS
        submission = Submission(change, str(workflow.uuid4()), source="apply_now", only_class="EMERGENCY")
        recorded = await self._record_now(submission)
        if recorded.ref is None:
            raise _refused(recorded.refused)
        answer = messages.ApplyNowAnswer(recorded.idempotency_key, recorded.change_id, "ACCEPTED", recorded.nonce)
        if recorded.processed:
            answer.status = "APPLIED" if recorded.nonce is not None else "SETTLED"
            return answer
        fate = await self._await_fate(from_wire(recorded.ref), until_ms, by_relay=recorded.by_relay)
        if fate is None:
            answer.message = f"accepted, not yet applied{self._why_not_now()}: ask for its fate by the idempotency key"
            return answer
        answer.status, answer.nonce, answer.message = fate.outcome, fate.nonce, fate.error or ""
        return answer

    @apply_now.validator
    def _check_apply_now(self, change: dict[str, Any]) -> None:
        missing = [name for name in ("entity_type", "entity_id", "event_type", "payload") if name not in change]
        if missing:
            raise ValueError(f"the change lacks {', '.join(missing)}")
        if change.get("not_before") is not None:
            raise ValueError("apply_now is for now: leave not_before out, or submit the change")
        if unfit := intake.why_unfit(change):
            raise ValueError(f"the change is {unfit}")
        if len(repr(change)) > intake.CHANGE_BYTES_MAX:
            raise ValueError(f"the change is larger than {intake.CHANGE_BYTES_MAX} bytes")

    @workflow.update
    async def pause(self, request: OperatorRequest) -> str:
        """Stop sending and close the connection; changes go on being taken and coalesced."""
        self._try(lambda: self.machine.pause(request.operator, request.reason))
        await self._decide_in_books("pause", request)
        return "paused"

    @pause.validator
    def _check_pause(self, request: OperatorRequest) -> None:
        self._check_loaded()
        _check_named(request)
        if self.machine.paused:
            raise ValueError(f"already paused by {self.machine.paused.operator}: {self.machine.paused.reason}")

    @workflow.update
    async def resume(self, request: OperatorRequest) -> str:
        """Open a session and send again."""
        self._try(self.machine.resume)
        await self._decide_in_books("resume", request)
        return "resumed"

    @resume.validator
    def _check_resume(self, request: OperatorRequest) -> None:
        self._check_loaded()
        _check_named(request)
        if not self.machine.paused:
            raise ValueError("the writer is not paused")

    @workflow.update
    async def flush(self, request: OperatorRequest) -> int:
        """End the debounce of one entity's keys, or of all; returns how many keys."""
        entity = (
            EntityKey(request.entity_type, request.entity_id) if request.entity_type and request.entity_id else None
        )
        flushed = self.machine.flush(entity, self._now_ms())
        self.stirred = True
        await self._decide_in_books("flush", request)
        return flushed

    @flush.validator
    def _check_flush(self, request: OperatorRequest) -> None:
        _check_named(request)
        if bool(request.entity_type) != bool(request.entity_id):
            raise ValueError("give both entity_type and entity_id to flush one entity, or neither to flush all")

    @workflow.update
    async def retry(self, request: OperatorRequest) -> str:
        """Send a dead letter again, before what is held behind it."""
        decided = await self._decide_in_books("retry", request)
        if decided.ref is not None:
            self.machine.retry(from_wire(decided.ref), self._now_ms())
        elif decided.entity is not None and request.change_id is not None:
            # Its fate is decided already: this act was repeated after a lost answer, and a newer change came meanwhile.
            self.machine.is_decided(EntityKey(*decided.entity), request.change_id)
        self.stirred = True
        return decided.message

    @workflow.update
    async def discard(self, request: OperatorRequest) -> str:
        """Give a dead letter up; what is held behind it goes on."""
        decided = await self._decide_in_books("discard", request)
        if decided.entity is not None and request.change_id is not None:
            self.machine.is_decided(EntityKey(*decided.entity), request.change_id)
        self.stirred = True
        return decided.message

    @retry.validator
    def _check_retry(self, request: OperatorRequest) -> None:
        self._check_dead_letter(request)

    @discard.validator
    def _check_discard(self, request: OperatorRequest) -> None:
        self._check_dead_letter(request)

    def _check_dead_letter(self, request: OperatorRequest) -> None:
        self._check_loaded()
        _check_named(request)
        if request.change_id is None:
            raise ValueError("say which dead letter (change_id)")
        if request.change_id in self.machine.in_flight:
            raise ValueError(f"change {request.change_id} is on its way to OldHost; see what becomes of it first")

    @workflow.update
    async def resolve(self, request: OperatorRequest) -> str:
        """End a halt: `resend` sends the ledger's operations again, `adopt` takes OldHost's count as the truth."""
        decided = await self._decide_in_books("resolve", request)
        self._try(lambda: self.machine.resolve(self._now_ms()))
        self.stirred = True  # again: the loop has turned while the books were written
        return decided.message

    @resolve.validator
    def _check_resolve(self, request: OperatorRequest) -> None:
        self._check_loaded()
        _check_named(request)
        if request.mode not in tuple(messages.ResolveMode):
            raise ValueError(
                "mode must be 'resend' (send the ledger's operations again) or 'adopt' (take OldHost's count)"
            )
        self.machine.can_resolve()

    def _check_loaded(self) -> None:
        """What is being read from MariaDB would undo the operator's act."""
        if not self.machine.loaded:
            raise ValueError("the writer is still reading what is outstanding from MariaDB: repeat this in a moment")

    # --------------------------------------------------------------------------------------------------------- queries

    @workflow.query
    def status(self) -> dict[str, Any]:
        return report.status(self.machine, self.host, self._now_ms())

    @workflow.query
    def find(self, entity_type: str, entity_id: str) -> dict[str, Any]:
        return report.find(self.machine, EntityKey(entity_type, entity_id), self._now_ms())

    @workflow.query
    def upcoming(self, count: int = 20) -> list[dict[str, Any]]:
        return report.upcoming(self.machine, max(1, min(count, 200)))

    # ------------------------------------------------------------------------------------------------- acting on actions

    def _act(self, action: actions.Action) -> None:
        match action:
            case actions.OpenSession():
                self._start(self._open_session(action), at_the_host=True)
            case actions.Send():
                self._start(self._send(action), at_the_host=True)
            case actions.CloseSession():
                self._start(self._close_session(action), at_the_host=True)
            case actions.Probe():
                self._start(self._probe(action), at_the_host=True)
            case actions.Sweep():
                self._start(self._sweep(action))
            case actions.RaiseAlert():
                self._start(calls.raise_alert(self.host, action))
            case actions.RecordHalt():
                self._start(self._record_halt(action))

    def _start(self, work: Coroutine[Any, Any, None], *, at_the_host: bool = False) -> None:
        self.at_work += 1
        self.at_the_host += at_the_host
        task = asyncio.create_task(self._guard(work, at_the_host))
        self.tasks[task] = None  # the loop holds tasks only weakly
        task.add_done_callback(self.tasks.pop)

    async def _guard(self, work: Coroutine[Any, Any, None], at_the_host: bool) -> None:
        """Level 0: whatever breaks the machine's own rules halts the writer; it never goes on as if nothing were."""
        try:
            await work
        except (ActivityError, asyncio.CancelledError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, it halts the writer
            workflow.logger.error("an invariant is violated: %s", error)
            self.machine.violated(f"{type(error).__name__}: {error}")
        finally:
            self.at_work -= 1
            self.at_the_host -= at_the_host
            self.stirred = True

    async def _open_session(self, action: actions.OpenSession) -> None:
        try:
            answer = await calls.open_session(self.host, action)
        except ActivityError:
            self.machine.open_failed(self._now_ms())
            return
        if answer.state == messages.SessionState.OPEN:
            bound = [from_wire(item) for item in answer.bound]
            self.machine.opened(
                answer.epoch,
                answer.task_queue,
                answer.expected_nonce,
                answer.fates,
                bound,
                answer.more_bound,
                self._now_ms(),
            )
        elif answer.state == messages.SessionState.HALT:
            self.machine.halted(answer.message or answer.reason)
        else:
            self.machine.told_to_wait(answer.wait_ms, answer.reason, self._now_ms())

    async def _send(self, action: actions.Send) -> None:
        try:
            sent = await calls.send(self.host, action)
        except ActivityError as error:
            self.machine.send_failed(action.batch, never_started=_never_started(error))
            return
        self.machine.reported(
            action.batch,
            sent.fates,
            session_open=sent.session_open,
            service_ms=sent.service_ms,
            banned_ms=sent.banned_ms,
            halted=sent.halted,
            never_taken=sent.never_taken,
            now_ms=self._now_ms(),
        )

    async def _close_session(self, action: actions.CloseSession) -> None:
        try:
            await calls.close_session(self.host, action)
        except ActivityError:
            workflow.logger.warning("closing the session failed; the next one takes over from it")
        self.machine.closed()

    async def _probe(self, action: actions.Probe) -> None:
        try:
            found = await calls.probe(self.host, action)
        except ActivityError:
            self.machine.probed(session_open=False, now_ms=self._now_ms())
        else:
            self.machine.probed(session_open=found.session_open, now_ms=self._now_ms())

    async def _sweep(self, action: actions.Sweep) -> None:
        request = messages.OutstandingPage(self.host, action.after_id, limit=SWEEP_REFS, quiet_ms=SWEEP_QUIET_MS)
        try:
            page = await calls.load_outstanding(request, calls.ONCE)
        except ActivityError:
            self.machine.sweep_failed(self._now_ms())
            return
        self.machine.swept([from_wire(item) for item in page.refs], page.last_id, page.more, self._now_ms())

    async def _decide_in_books(self, action: str, request: OperatorRequest) -> messages.Decided:
        """Make an operator's act durable, with who and why; raises when the books say that it makes no sense."""
        self.stirred = True
        entity = [request.entity_type, request.entity_id] if request.entity_type and request.entity_id else None
        decision = messages.Decision(
            self.host, action, request.operator, request.reason, request.change_id, request.mode, entity
        )
        decided = await calls.record_decision(decision)
        if decided.refused:
            raise _refused(decided.refused)
        return decided

    # ---------------------------------------------------------------------------------------------- loading and recording

    async def _rebuild(self) -> None:
        """A first start, or a loss: MariaDB knows what is outstanding."""
        after_id = 0
        while True:
            page = await calls.load_outstanding(messages.OutstandingPage(self.host, after_id), calls.UNTIL_IT_WORKS)
            self._load_standing(page)
            self.machine.enqueue((from_wire(item) for item in page.refs), self._now_ms(), sweep=True)
            if not page.more:
                break
            after_id = page.last_id
        self.machine.finish_loading(self._now_ms())
        info = workflow.info()
        self.renewal.rebuilt(info.get_current_history_length(), suggested=info.is_continue_as_new_suggested())

    def _must_renew(self) -> bool:
        info = workflow.info()
        return self.renewal.is_due(info.get_current_history_length(), suggested=info.is_continue_as_new_suggested())

    def _load_standing(self, page: messages.Outstanding) -> None:
        for entity_type, entity_id, dead in page.held:
            self.machine.load_held(EntityKey(entity_type, entity_id), dead)
        if self.machine.carried:
            return
        if page.paused is not None:
            self.machine.load_pause(*page.paused)
        if page.ban_left_ms is not None:
            self.machine.load_ban(page.ban_left_ms, self._now_ms())

    def _record_submissions(self) -> None:
        if batch := self.inbox.next_batch(draining=self.machine.draining):
            self._start(self._take_submissions(batch))

    async def _take_submissions(self, batch: list[Submission]) -> None:
        try:
            for recorded in await calls.record_submissions(self.host, batch):
                if recorded.ref is not None and not recorded.processed and not recorded.by_relay:
                    self.machine.enqueue([from_wire(recorded.ref)], self._now_ms())
        finally:
            self.inbox.recording = False

    async def _record_halt(self, action: actions.RecordHalt) -> None:
        await calls.record_decision(messages.Decision(self.host, "halt", "writer", action.reason, action.never_taken))

    # --------------------------------------------------------------------------------------------------------- waiting

    async def _record_now(self, submission: Submission) -> messages.Recorded:
        try:
            return (await calls.record_submissions(self.host, [submission], within=APPLY_NOW_RECORDING))[0]
        except ActivityError:
            key = submission.change.get("idempotency_key") or submission.fallback_key
            raise _refused(
                f"not recorded within {APPLY_NOW_RECORDING.seconds} s: the database does not answer. "
                f"It may still be recorded: repeat it with idempotency_key {key!r}"
            ) from None

    async def _await_fate(self, ref: ChangeRef, until_ms: int, *, by_relay: bool) -> Fate | None:
        machine = self.machine
        watch = machine.watched.setdefault(ref.change_id, Watch())
        watch.watchers += 1
        if not by_relay:
            machine.enqueue([ref], self._now_ms())
        self.stirred = True
        with suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: watch.fate is not None or machine.draining or bool(self._why_not_now()),
                timeout=timedelta(milliseconds=max(until_ms - self._now_ms(), 1)),
            )
        watch.watchers -= 1
        if not watch.watchers:
            del machine.watched[ref.change_id]
        return watch.fate

    def _why_not_now(self) -> str:
        if self.machine.paused:
            return " (the writer is paused)"
        if self.machine.breaker.state in (BreakerState.OPEN, BreakerState.HALTED):
            return f" ({self.machine.breaker.reason})"
        return ""

    async def _wait(self) -> None:
        """Until something happens. A timer only when none that is set rings soon enough: each costs history (trap 18),
        and one that rings for nothing costs less than taking it back.
        """
        wake_at_ms = None if self.at_the_host else deciding.wake_at_ms(self.machine)
        if wake_at_ms is not None and all(at_ms > wake_at_ms for at_ms in self.alarms):
            self.alarms[wake_at_ms] = asyncio.create_task(self._ring(wake_at_ms))
        await workflow.wait_condition(lambda: self.stirred)

    async def _ring(self, at_ms: int) -> None:
        await workflow.sleep(max(at_ms - self._now_ms(), 1) / 1000, summary="until something is due")
        del self.alarms[at_ms]
        self.stirred = True

    def _is_drained(self) -> bool:
        return self.at_work == 0 and workflow.all_handlers_finished()

    def _alert_unreadable(self, name: str, count: int) -> None:
        """One alert a minute at most, however many there are."""
        self.unreadable += count
        self.stirred = True
        if self._now_ms() >= self.tell_unreadable_at_ms:
            text = f"{self.unreadable} things that came by signal can't be read, the last by {name[:64]!r}; see docs/messages.md."
            self.machine.unreadable(text, "unreadable-signals")
            self.unreadable = 0
            self.tell_unreadable_at_ms = self._now_ms() + UNREADABLE_ALERT_MS

    @staticmethod
    def _try(act: Callable[[], None]) -> None:
        try:
            act()
        except Refused as refused:
            raise _refused(str(refused)) from None

    @staticmethod
    def _now_ms() -> int:
        return workflow.time_ns() // 1_000_000


def _refused(why: str) -> ApplicationError:
    return ApplicationError(why, type="Refused", non_retryable=True)


def _never_started(error: ActivityError) -> bool:
    return isinstance(error.cause, ActivityTimeoutError) and error.cause.type is TimeoutType.SCHEDULE_TO_START


def _check_named(request: OperatorRequest) -> None:
    if not request.operator.strip() or not request.reason.strip():
        raise ValueError("say who you are (operator) and why (reason): both are recorded")
    for name, text in (
        ("operator", request.operator),
        ("reason", request.reason),
        ("entity_id", request.entity_id or ""),
    ):
        if len(text) > TEXT_LENGTH_MAX:
            raise ValueError(f"{name} is longer than {TEXT_LENGTH_MAX} characters")
        if why := messages.why_unprintable(text, lines=name == "reason"):
            raise ValueError(f"{name} can't be recorded: {why}")
