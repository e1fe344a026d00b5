"""The writer's world in virtual time: `Books` behind the real names of the activities, on Temporal's time-skipping
server.

A test says how OldHost replies to which change (`replies`), what fails, and reads what was asked of the world in which
order.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from oldhost_sync.policy.changes import ChangeRef, EntityKey, Outcome
from oldhost_sync.policy.machine.actions import (
    CloseSession,
    LoadOutstanding,
    OpenSession,
    Probe,
    RecordConditions,
    Send,
    StopSends,
    Sweep,
)
from oldhost_sync.policy.machine.events import OpeningResult, Probed, SendEnded, SessionOpened
from tests.workflows.books import Alert, Alerts, Books, OldHost, Reply
from tests.workflows.unread_signals import unread_signals
from workflows import messages

CLASS_OF = {
    "unit_status_changed": "LWW",
    "rate_changed": "LWW",
    "guest_locked_out": "EMERGENCY",
    "lock_emergency": "EMERGENCY",
}
EVENT_OF = {"LWW": "unit_status_changed", "EMERGENCY": "guest_locked_out", "TXN": "booking_created"}
_numbers = count(1)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class World:
    """`replies`: how the sends of a change go, one after the other, then well. `opening_fails`: so many times.

    `lost_worker_epochs`: sessions whose queue nobody polls. `sends_without_report`: changes whose send does its work
    and then ends without a word. `strange_fates`: changes whose send reports what is no fate. `books_closed`: MariaDB
    is away. `sends_with_late_report`, `silent_sends`: changes whose send reports when `may_report` is set; the latter
    without heartbeats until then. `stuck`: names of activities that do nothing; those that have begun never will.
    `may_send`: OldHost takes its time until it is set.
    """

    env: WorkflowEnvironment
    books: Books = field(default_factory=Books)
    replies: dict[int, list[Reply]] = field(default_factory=dict)
    opening_fails: int = 0
    lost_worker_epochs: list[int] = field(default_factory=list)
    sends_without_report: list[int] = field(default_factory=list)
    sends_with_late_report: list[int] = field(default_factory=list)
    silent_sends: list[int] = field(default_factory=list)
    strange_fates: list[int] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    stuck_at: dict[str, str] = field(default_factory=dict)  # by name: the activity's id
    books_closed: bool = False
    decisions_closed: bool = False
    answers_halted: str = ""
    page_size: int = 2000
    pages: list[LoadOutstanding | Sweep] = field(default_factory=list)
    asked_at_ms: list[int] = field(default_factory=list)
    answers: list[OpeningResult] = field(default_factory=list)
    sends: dict[int, list[int]] = field(default_factory=dict)
    alerts: list[Alert] = field(default_factory=list)
    alerts_at_ms: list[int] = field(default_factory=list)
    lists: list[RecordConditions] = field(default_factory=list)
    open_alerts: Alerts = field(default_factory=Alerts)
    decisions: list[messages.OperatorAct] = field(default_factory=list)
    submissions: list[messages.Submission] = field(default_factory=list)
    refused: list[messages.Recorded] = field(default_factory=list)
    recoveries: list[messages.Recovery] = field(default_factory=list)
    recovery_fails: bool = False
    policy_of_worker: messages.WriterPolicy | None = None
    held_units: list[str] = field(default_factory=list)
    attempted: list[list[Any]] = field(default_factory=list)
    sends_begun: int = 0
    closed_sessions: int = 0
    probes: int = 0
    lists_states: bool | None = None
    by_key: dict[str, ChangeRef] = field(default_factory=dict)
    turn: asyncio.Condition = field(default_factory=asyncio.Condition)
    may_send: asyncio.Event = field(default_factory=_set_event)
    may_report: asyncio.Event = field(default_factory=asyncio.Event)
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def host(self) -> str:
        return f"host-{self.number}"

    @property
    def session_queue(self) -> str:
        return f"session-of-{self.host}"

    @property
    def oldhost(self) -> OldHost:
        return self.books.oldhost

    @property
    def applied_ids(self) -> list[int]:
        """OldHost's journal as change ids."""
        return [line.change.ref.change_id for line in self.oldhost.journal if line.change]

    @property
    def handed_out(self) -> list[int]:
        """Change ids in the order of the writer's decisions; which of two sends gets here first is a race."""
        return [change_id for _, change_ids in sorted(self.sends.items()) for change_id in change_ids]

    def outcome_of(self, change_id: int) -> Outcome | None:
        return self.books.changes[change_id].outcome

    @property
    def reported(self) -> list[str]:
        """The kinds in the last list."""
        return [each.kind for told in self.lists[-1:] for each in told.conditions]

    def told(self, kind: str) -> list[Alert]:
        return [alert for alert in self.alerts if alert.kind == kind and not alert.close]

    async def now_ms(self) -> int:
        return round((await self.env.get_current_time()).timestamp() * 1000)

    async def accept(self, cls: str, unit: str, payload: str = "", property_id: str = "") -> ChangeRef:
        """A change in the outbox, relayed or about to be; every payload is its own unless given."""
        number = len(self.books.changes) + 1
        entity, now_ms = EntityKey("unit", unit), await self.now_ms()
        ref = self.books.accept(cls, entity, EVENT_OF[cls], payload or f"payload {number}", now_ms, property_id)
        self.books.changes[ref.change_id].relayed = True
        return ref

    # ------------------------------------------------------------------------------------------------------ activities

    async def _while_stuck(self) -> None:
        name = activity.info().activity_type
        while name in self.stuck:
            self.stuck_at[name] = activity.info().activity_id
            await asyncio.sleep(0.005)
        if self.stuck_at.get(name) == activity.info().activity_id:
            raise ApplicationError("a person has ended it")

    @activity.defn
    async def open_session(self, action: OpenSession) -> OpeningResult:
        await self._while_stuck()
        now_ms = await self.now_ms()
        self.asked_at_ms.append(now_ms)
        if self.opening_fails:
            self.opening_fails -= 1
            raise ApplicationError("the database is away")
        answer = self.books.open(action.in_doubt, now_ms)
        if isinstance(answer, SessionOpened):
            queue = f"nobody-{self.host}" if answer.epoch in self.lost_worker_epochs else self.session_queue
            answer = replace(answer, task_queue=queue)
        self.answers.append(answer)
        return answer

    @activity.defn
    async def send(self, batch: Send) -> SendEnded:
        await self._while_stuck()
        self.sends_begun += 1
        await self.may_send.wait()
        async with self.turn:
            await self.turn.wait_for(
                lambda: batch.urgent or batch.epoch != self.books.epoch or batch.sequence == self.books.sequence + 1
            )
            self.sends[int(activity.info().activity_id)] = list(batch.change_ids)
            report = self.books.send(batch, await self.now_ms(), self._reply_to)
            self.turn.notify_all()
        while set(batch.change_ids) & set(self.sends_with_late_report) and not self.may_report.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.05)
        if set(batch.change_ids) & set(self.silent_sends):
            await self.may_report.wait()
        if set(batch.change_ids) & set(self.sends_without_report):
            self.sends_without_report.clear()
            raise ApplicationError("the result got lost")
        if self.answers_halted:
            report = replace(report, halted=self.answers_halted, session_open=False)
            self.answers_halted = ""
        for fate in report.fates:
            if fate.change_id in self.strange_fates:
                fate.outcome = "EVAPORATED"
        return report

    def _reply_to(self, change_id: int) -> Reply:
        replies = self.replies.get(change_id)
        return replies.pop(0) if replies else Reply.APPLIED

    @activity.defn
    async def stop_sends(self, action: StopSends) -> None:
        """These sends are over at once."""

    @activity.defn
    async def close_session(self, action: CloseSession) -> None:
        self.closed_sessions += 1

    @activity.defn
    async def probe(self, action: Probe) -> Probed:
        self.probes += 1
        agrees = self.oldhost.expected == self.books.next_nonce
        return Probed(session_open=agrees, expected_nonce=self.oldhost.expected)

    @activity.defn
    async def load_outstanding(self, action: LoadOutstanding) -> messages.Outstanding:
        return await self._page(action)

    @activity.defn
    async def sweep(self, action: Sweep) -> messages.Outstanding:
        return await self._page(action)

    async def _page(self, action: LoadOutstanding | Sweep) -> messages.Outstanding:
        await self._while_stuck()
        if self.books_closed:
            raise ApplicationError("the database is away")
        self.pages.append(action)
        outstanding = self.books.page(action, await self.now_ms(), self.page_size)
        outstanding.policy = self.policy_of_worker
        outstanding.lists_states = self.lists_states
        return outstanding

    @activity.defn
    async def recover_submissions(self, request: messages.Recovery) -> messages.Recovered:
        self.recoveries.append(request)
        await self._while_stuck()
        while self.recovery_fails:
            activity.heartbeat()
            await asyncio.sleep(0.05)
        for item in await unread_signals(self.env.client, self.host, request):
            if item.fallback_key not in [known.fallback_key for known in self.submissions]:
                await self._record(item)
        return messages.Recovered()

    @activity.defn
    async def record_submissions(self, request: messages.Submissions) -> list[messages.Recorded]:
        await self._while_stuck()
        if self.books_closed:
            raise ApplicationError("the database is away")
        if request.may_leave:
            self.attempted.append([item.change for item in request.items])
        return [await self._record_or_leave(item) for item in request.items]

    async def _record_or_leave(self, item: messages.Submission) -> messages.Recorded:
        if isinstance(item.change, dict) and item.change.get("entity_id") in self.held_units:
            return messages.Recorded(item.fallback_key, left=True)
        return await self._record(item)

    async def _record(self, item: messages.Submission) -> messages.Recorded:
        self.submissions.append(item)
        fields = ("entity_type", "entity_id", "event_type", "payload")
        change = item.change
        missing = [name for name in fields if name not in change] if isinstance(change, dict) else list(fields)
        if missing:
            return self._refuse(item, f"missing fields: {', '.join(missing)}")
        cls = CLASS_OF.get(change["event_type"], "TXN")
        if item.only_class and cls != item.only_class:
            return self._refuse(item, f"{change['event_type']} is not {item.only_class}")
        key = change.get("idempotency_key") or item.fallback_key
        now_ms = await self.now_ms()  # before the look: nothing else may run between it and the entry
        if key not in self.by_key:
            entity = EntityKey(change["entity_type"], change["entity_id"])
            self.by_key[key] = self.books.accept(cls, entity, change["event_type"], str(change["payload"]), now_ms)
        recorded = self.books.changes[self.by_key[key].change_id]
        recorded.relayed = True
        processed = recorded.outcome is not None
        ref = messages.to_wire(recorded.ref)
        outcome = recorded.outcome.value if recorded.outcome else "WAITING"
        return messages.Recorded(
            key, recorded.ref.change_id, ref, processed=processed, nonce=recorded.nonce, outcome=outcome
        )

    def _refuse(self, item: messages.Submission, why: str) -> messages.Recorded:
        self.refused.append(messages.Recorded(item.fallback_key, refused=why))
        return self.refused[-1]

    @activity.defn
    async def record_conditions(self, told: RecordConditions) -> None:
        await self._while_stuck()
        now_ms = await self.now_ms()
        changes = self.open_alerts.record(told)
        self.books.conditions_sequence = max(self.books.conditions_sequence, told.sequence)
        self.lists.append(told)
        self.alerts += changes
        self.alerts_at_ms += [now_ms] * len(changes)

    @activity.defn
    async def record_act(self, act: messages.OperatorAct) -> messages.ActRecorded:
        await self._while_stuck()
        if self.decisions_closed:
            raise ApplicationError("the ledger's row is held")
        self.decisions.append(act)
        return self.books.decide(act)

    @property
    def activities(self) -> list[Any]:
        return [
            self.open_session,
            self.load_outstanding,
            self.sweep,
            self.record_submissions,
            self.record_conditions,
            self.record_act,
            self.recover_submissions,
        ]

    @property
    def session_activities(self) -> list[Any]:
        return [self.send, self.stop_sends, self.close_session, self.probe]
