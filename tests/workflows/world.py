"""A world for the writer in virtual time: OldHost's rules, the ledger's and the database's, all in memory behind the real
activity names. It keeps the journal of what OldHost applied and when, so that a test can state order and counts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.testing import WorkflowEnvironment

from workflows import messages

SESSION_QUEUE = "session-of-the-test"


@dataclass
class Applied:
    """One line of OldHost's journal."""

    change_id: int
    nonce: int
    at_ms: int
    epoch: int


@dataclass
class World:
    """`banned_until_ms` and all times are virtual. `rejects`: change ids that OldHost answers with 422."""

    env: WorkflowEnvironment
    ban_ms: int = 900_000
    expected_nonce: int = 1
    epoch: int = 0
    banned_until_ms: int = 0
    journal: list[Applied] = field(default_factory=list)
    rejects: list[int] = field(default_factory=list)
    ban_at_change: list[int] = field(default_factory=list)
    lose_reply_of: list[int] = field(default_factory=list)
    halt_with: str = ""
    asked_at_ms: list[int] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)
    outstanding: list[messages.WireRef] = field(default_factory=list)
    dead: dict[int, messages.WireRef] = field(default_factory=dict)
    known: dict[int, messages.WireRef] = field(default_factory=dict)
    alerts: list[messages.Alert] = field(default_factory=list)
    decisions: list[messages.Decision] = field(default_factory=list)
    submissions: list[messages.Submission] = field(default_factory=list)
    bound: list[int] = field(default_factory=list)
    closed_sessions: int = 0
    sends: int = 0
    turn: asyncio.Condition = field(default_factory=asyncio.Condition)
    next_change_id: int = 1_000_000

    async def now_ms(self) -> int:
        return round((await self.env.get_current_time()).timestamp() * 1000)

    @property
    def applied_ids(self) -> list[int]:
        return [line.change_id for line in self.journal]

    # ------------------------------------------------------------------------------------------------------ activities

    @activity.defn
    async def open_session(self, request: messages.OpenSession) -> messages.SessionAnswer:
        now_ms = await self.now_ms()
        self.asked_at_ms.append(now_ms)
        if self.halt_with:
            return messages.SessionAnswer("halt", reason="foreign write", message=self.halt_with)
        if now_ms < self.banned_until_ms:
            return messages.SessionAnswer("wait", wait_ms=self.banned_until_ms - now_ms, reason="ban")
        self.epoch += 1
        self.sends = 0
        applied = {line.change_id: line.nonce for line in self.journal}
        fates = [
            messages.Fate(one, "APPLIED", applied[one]) if one in applied else messages.Fate(one, messages.WAITING)
            for one in request.unsettled
            if one not in self.bound
        ]
        return messages.SessionAnswer(
            "open",
            epoch=self.epoch,
            task_queue=SESSION_QUEUE,
            expected_nonce=self.expected_nonce,
            fates=fates,
            bound=[self.known[one] for one in self.bound],
        )

    @activity.defn
    async def send(self, batch: messages.SendBatch) -> messages.SendReport:
        async with self.turn:
            await self.turn.wait_for(lambda: batch.epoch != self.epoch or batch.sequence == self.sends + 1)
            self.sends += 1
            report = await self._send(batch)
            self.turn.notify_all()
            return report

    async def _send(self, batch: messages.SendBatch) -> messages.SendReport:
        now_ms = await self.now_ms()
        self.batches.append(list(batch.change_ids))
        report = messages.SendReport(service_ms=400.0)
        for change_id in batch.change_ids:
            if batch.epoch != self.epoch or not report.session_open:
                report.session_open = False
                report.fates.append(messages.Fate(change_id, messages.WAITING))
            elif change_id in self.ban_at_change or now_ms < self.banned_until_ms:
                self._ban(change_id, now_ms, report)
            elif change_id in self.rejects:
                self.dead[change_id] = self.known.get(change_id, [])
                self.expected_nonce += 1
                report.fates.append(messages.Fate(change_id, "DEAD", self.expected_nonce - 1, "rejected"))
            else:
                self._apply(change_id, now_ms, batch.epoch, report)
        return report

    def _apply(self, change_id: int, now_ms: int, epoch: int, report: messages.SendReport) -> None:
        if change_id in self.bound:
            self.bound.remove(change_id)
        self.journal.append(Applied(change_id, self.expected_nonce, now_ms, epoch))
        self.expected_nonce += 1
        if change_id in self.lose_reply_of:
            self.lose_reply_of.remove(change_id)
            report.session_open = False
            report.fates.append(messages.Fate(change_id, messages.BOUND, self.expected_nonce - 1))
        else:
            report.fates.append(messages.Fate(change_id, "APPLIED", self.expected_nonce - 1))

    def _ban(self, change_id: int, now_ms: int, report: messages.SendReport) -> None:
        if change_id in self.ban_at_change:
            self.ban_at_change.remove(change_id)
            self.banned_until_ms = now_ms + self.ban_ms
        if change_id not in self.bound:
            self.bound.append(change_id)
        report.banned_ms = self.banned_until_ms - now_ms
        report.session_open = False
        report.fates.append(messages.Fate(change_id, messages.BOUND))

    @activity.defn
    async def close_session(self, session: messages.SessionRef) -> None:
        self.closed_sessions += 1

    @activity.defn
    async def probe(self, session: messages.SessionRef) -> messages.ProbeReport:
        return messages.ProbeReport(expected_nonce=self.expected_nonce)

    @activity.defn
    async def load_outstanding(self, page: messages.OutstandingPage) -> messages.Outstanding:
        done = {*self.applied_ids, *self.dead}
        refs = [ref for ref in self.outstanding if ref[0] > page.after_id and ref[0] not in done]
        held: list[list[Any]] = [[ref[2], ref[3], [change_id]] for change_id, ref in self.dead.items() if ref]
        cut = refs[: page.limit]
        return messages.Outstanding(cut, held, cut[-1][0] if cut else 0, len(refs) > page.limit)

    @activity.defn
    async def record_submissions(self, request: messages.Submissions) -> list[messages.Recorded]:
        return [await self._record(item) for item in request.items]

    async def _record(self, item: messages.Submission) -> messages.Recorded:
        self.submissions.append(item)
        change = item.change
        if not isinstance(change, dict) or "entity_id" not in change:
            return messages.Recorded(item.fallback_key, refused="not a change: entity_id is missing")
        self.next_change_id += 1
        ref = [
            self.next_change_id,
            change.get("class", "EMERGENCY"),
            change["entity_type"],
            change["entity_id"],
            change["event_type"],
            await self.now_ms(),
        ]
        return messages.Recorded(item.fallback_key, self.next_change_id, ref)

    @activity.defn
    async def raise_alert(self, alert: messages.Alert) -> None:
        self.alerts.append(alert)

    @activity.defn
    async def record_decision(self, decision: messages.Decision) -> messages.Decided:
        self.decisions.append(decision)
        if decision.action in ("retry", "discard"):
            ref = self.dead.pop(decision.change_id or 0, None)
            if ref is None:
                return messages.Decided(refused=f"change {decision.change_id} is no dead letter")
            return messages.Decided(ref if decision.action == "retry" else None, [ref[2], ref[3]], "done")
        if decision.action == "resolve":
            self.halt_with = ""
        return messages.Decided(message="done")

    @property
    def activities(self) -> list[Any]:
        return [
            self.open_session,
            self.load_outstanding,
            self.record_submissions,
            self.raise_alert,
            self.record_decision,
        ]

    @property
    def session_activities(self) -> list[Any]:
        return [self.send, self.close_session, self.probe]
