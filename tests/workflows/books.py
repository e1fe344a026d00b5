"""MariaDB's and OldHost's part, in memory: which changes exist, which nonces are bound to them, what OldHost has
applied.

Pure: the time is an argument, and how OldHost's reply to an operation goes is the caller's to say. It keeps the rules
of the store and of the protocol (docs/protocol.md), so that a test of the machine or of the workflow states order and
counts against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum, auto
from typing import Any

from oldhost_sync.policy.changes import (
    BOUND,
    HELD,
    WAITING,
    ChangeRef,
    ChangeResult,
    CoalescingKey,
    EntityKey,
    Outcome,
    PriorityClass,
    WireRef,
)
from oldhost_sync.policy.machine.actions import LoadOutstanding, RecordConditions, Send, Sweep, WriterCondition
from oldhost_sync.policy.machine.events import (
    OpeningHalted,
    OpeningPostponed,
    OpeningResult,
    SendEnded,
    SessionOpened,
)
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.rules.alert_kinds import KINDS
from oldhost_sync.policy.rules.operator_act import END_PAUSE, LETTER_ACTS
from workflows import messages

SETTLE_MS = 5_000
PAGE_REFS, SWEEP_REFS = 2_000, 1_000


class Reply(StrEnum):
    """How one operation goes at OldHost."""

    APPLIED = auto()
    REJECTED = auto()
    LOST_BEFORE = auto()  # never read by OldHost, no reply
    LOST_AFTER = auto()  # applied, reply lost
    LATE = auto()  # applied a little later, no reply (trap 1)
    BAN = auto()  # a ban begins, for a reason of OldHost's own


@dataclass(frozen=True)
class Alert:
    """An alert that was opened, brought up to date, or closed (`close`)."""

    kind: str
    message: str
    cause: str
    change_id: int | None = None
    count: int = 1
    close: bool = False

    @property
    def severity(self) -> str:
        return KINDS[self.kind].severity


class Alerts:
    """The store's part about the writer's alerts."""

    def __init__(self) -> None:
        self.told: list[Alert] = []
        self._open: dict[str, WriterCondition] = {}

    def record(self, told: RecordConditions) -> list[Alert]:
        """What the list changes."""
        now = {each.cause: each for each in told.conditions}
        over = [each for cause, each in self._open.items() if cause not in now and each.kind not in told.unknown]
        changes = [Alert(each.kind, each.why, each.cause, each.change_id, close=True) for each in over]
        news = [each for each in told.conditions if self._open.get(each.cause) != each]
        changes += [
            Alert(each.kind, each.why, each.cause, each.change_id, each.count) for each in (*news, *told.events)
        ]
        self._open = {**{cause: each for cause, each in self._open.items() if each not in over}, **now}
        self.told += changes
        return changes


@dataclass
class Report:
    """What is known so far of how a send ends."""

    fates: list[ChangeResult] = field(default_factory=list)
    session_open: bool = True
    banned_ms: int = 0
    older: list[WireRef] = field(default_factory=list)
    held: list[list[Any]] = field(default_factory=list)


@dataclass
class Change:
    """An outbox row. `retried` and `held`: what exempts it from its entity's order (I4)."""

    ref: ChangeRef
    payload: str
    outcome: Outcome | None = None
    nonce: int | None = None
    relayed: bool = False
    exempt: bool = False


@dataclass
class Bound:
    """A ledger row that was SENT: its nonce, its change, and whether OldHost called its first send a replay."""

    change: Change
    sent_at_ms: int
    sends: int = 0
    consumed: bool = False
    replayed: bool = False


@dataclass(frozen=True)
class Applied:
    """One line of OldHost's journal; `change` None for somebody else's write."""

    nonce: int
    change: Change | None
    at_ms: int


@dataclass
class OldHost:
    """The protocol's rules: strict nonces, a ban after a replay, late applies."""

    ban_ms: int = 900_000
    expected: int = 1
    banned_until_ms: int = 0
    journal: list[Applied] = field(default_factory=list)
    late: list[tuple[int, Change]] = field(default_factory=list)
    gaps: int = 0
    replays: int = 0
    refused_in_ban: int = 0
    restored: bool = False
    written_by_others: bool = False
    service_ms: float = 400.0

    def apply(self, nonce: int, change: Change | None, now_ms: int) -> None:
        assert nonce == self.expected
        self.journal.append(Applied(nonce, change, now_ms))
        self.expected += 1

    def catch_up(self, now_ms: int) -> None:
        for nonce, change in self.late:
            if nonce == self.expected:
                self.apply(nonce, change, now_ms)
        self.late.clear()

    def foreign_write(self, now_ms: int) -> None:
        self.written_by_others = True
        self.apply(self.expected, None, now_ms)

    def restore(self, expected: int) -> None:
        self.restored = True
        self.journal = [line for line in self.journal if line.nonce < expected]
        self.expected = expected


@dataclass
class Books:
    """The store: changes by id in order, ledger rows by nonce, applied states by key. One writer's."""

    oldhost: OldHost = field(default_factory=OldHost)
    changes: dict[int, Change] = field(default_factory=dict)
    rows: dict[int, Bound] = field(default_factory=dict)
    applied: dict[CoalescingKey, list[Change]] = field(default_factory=dict)
    next_nonce: int = 1
    epoch: int = 0
    banned_until_ms: int = 0
    halted: str = ""
    # What a halt tells when the next resolve finds another count than was shown; and whether halts come after a
    # resolve.
    other_count: str = ""
    halts_are_late: bool = False
    paused: list[Any] | None = None
    sequence: int = 0
    conditions_sequence: int = 0  # of the list of conditions that is recorded already

    # ------------------------------------------------------------------------------------------------------- changes

    def accept(
        self, cls: str, entity: EntityKey, event_type: str, payload: str, now_ms: int, property_id: str = ""
    ) -> ChangeRef:
        ref = ChangeRef(len(self.changes) + 1, PriorityClass(cls), *entity, event_type, now_ms, property_id)
        self.changes[ref.change_id] = Change(ref, payload, exempt=cls == "TXN" and bool(self.dead_of(entity)))
        return ref

    def outstanding(self) -> list[Change]:
        return [change for change in self.changes.values() if change.outcome is None]

    def dead_of(self, entity: EntityKey) -> list[int]:
        return [
            one
            for one, change in self.changes.items()
            if change.ref.entity == entity and change.outcome is Outcome.DEAD
        ]

    def dead_letters(self) -> list[int]:
        return [one for one, change in self.changes.items() if change.outcome is Outcome.DEAD]

    def page(self, action: LoadOutstanding | Sweep, now_ms: int, size: int = PAGE_REFS) -> messages.Outstanding:
        refs = [ref for ref in self._readable(action) if ref.change_id > action.after_id]
        size = min(size, SWEEP_REFS if isinstance(action, Sweep) else PAGE_REFS)
        cut = refs[:size]
        page = messages.Outstanding(
            [messages.to_wire(ref) for ref in cut], last_id=cut[-1].change_id if cut else 0, more=len(refs) > size
        )
        if action.after_id:
            return page
        if isinstance(action, Sweep):
            page.paused, page.halted = self.paused, bool(self.halted)
        elif action.part is Part.EMERGENCIES:
            page.dead_letters = len(self.dead_letters())
            page.conditions_sequence = self.conditions_sequence
            page.paused = self.paused
            page.ban_left_ms = self.banned_until_ms - now_ms if self.banned_until_ms else None
        return page

    def _readable(self, action: LoadOutstanding | Sweep) -> list[ChangeRef]:
        """Nothing that is held behind a dead letter."""
        free = [change for change in self.outstanding() if not self.is_held(change.ref)]
        if isinstance(action, Sweep):
            return [change.ref for change in free if change.relayed]
        if action.entity is not None:
            return [change.ref for change in free if list(change.ref.entity) == list(action.entity)]
        if action.part is Part.EMERGENCIES:
            last: dict[EntityKey, int] = {}
            for change in free:
                if change.ref.priority_class is PriorityClass.EMERGENCY:
                    last[change.ref.entity] = change.ref.change_id
            return [change.ref for change in free if change.ref.change_id <= last.get(change.ref.entity, 0)]
        return [change.ref for change in free]

    def is_held(self, ref: ChangeRef) -> bool:
        """A TXN change with an older dead letter of its entity."""
        return ref.priority_class is PriorityClass.TXN and any(one < ref.change_id for one in self.dead_of(ref.entity))

    def older(self, change: Change) -> list[ChangeRef]:
        """What the reservation lets go before `change`: older outstanding ones of its entity that will be sent.

        Or the newest of its key in its stead, where operations of its entity have gone past it.
        """
        in_doubt = [row.change for row in self._in_doubt().values()]
        if newer := self._in_its_stead(change):
            return [newer]
        return [
            one.ref
            for one in self.outstanding()
            if one.ref.entity == change.ref.entity
            and one.ref.change_id < change.ref.change_id
            and one not in in_doubt
            and not self.is_held(one.ref)
            and not self._is_replaced(one.ref)
        ]

    def _in_its_stead(self, change: Change) -> ChangeRef | None:
        key, change_id = change.ref.key, change.ref.change_id
        applied = [one for kept in self.applied.values() for one in kept]
        gone = applied + [row.change for row in self._in_doubt().values()]
        last = max((one.ref.change_id for one in gone if one.ref.entity == change.ref.entity), default=0)
        if change.ref.priority_class is not PriorityClass.LWW or last < change_id:
            return None
        newest = [one.ref for one in self.outstanding() if one.ref.key == key and one.ref.change_id > change_id]
        return newest[-1] if newest else None

    def _is_replaced(self, ref: ChangeRef) -> bool:
        return ref.priority_class is PriorityClass.LWW and any(
            one.ref.key == ref.key and one.ref.change_id > ref.change_id and one.outcome in (None, Outcome.APPLIED)
            for one in self.changes.values()
        )

    # ------------------------------------------------------------------------------------------------------ the session

    def open(self, in_doubt: Iterable[int], now_ms: int) -> OpeningResult:
        """The recovery path: wait out a ban and the settle time, ask, compare, settle."""
        self.epoch += 1
        self.sequence = 0
        if self.halted:
            return OpeningHalted(self.halted)
        banned_until_ms = max(self.banned_until_ms, self.oldhost.banned_until_ms)
        if now_ms < banned_until_ms:
            return OpeningPostponed(banned_until_ms - now_ms, "ban")
        young = max((row.sent_at_ms + SETTLE_MS - now_ms for row in self._in_doubt().values()), default=0)
        if young > 0:
            return OpeningPostponed(young, "settle")
        self.oldhost.catch_up(now_ms)
        if difference := self._compare(self.oldhost.expected):
            self.halted = difference
            return OpeningHalted(difference)
        settled = self._settle_below(self.oldhost.expected)
        bound = [row.change for row in self._in_doubt().values()]
        asked = [self.changes[one] for one in in_doubt if self.changes[one] not in settled]
        return SessionOpened(
            self.epoch,
            f"queue-{self.epoch}",
            self.oldhost.expected,
            [self._fate(change) for change in [*settled, *asked]],
            [messages.to_wire(change.ref) for change in bound],
        )

    def _in_doubt(self) -> dict[int, Bound]:
        return {nonce: row for nonce, row in sorted(self.rows.items()) if not row.consumed}

    def _compare(self, expected: int) -> str:
        if expected > self.next_nonce:
            return f"foreign write: OldHost expects {expected}, the ledger {self.next_nonce}"
        last = max((nonce for nonce, row in self.rows.items() if row.consumed), default=0)
        return f"OldHost went back to {expected}, the ledger has {last}" if expected <= last else ""

    def _settle_below(self, expected: int) -> list[Change]:
        settled = []
        for nonce, row in self._in_doubt().items():
            if nonce < expected:
                self._end(row.change, Outcome.APPLIED, nonce)
                settled.append(row.change)
        return settled

    def _fate(self, change: Change) -> ChangeResult:
        if change.outcome is not None:
            return ChangeResult(change.ref.change_id, change.outcome.value, change.nonce)
        bound = any(row.change is change for row in self._in_doubt().values())
        return ChangeResult(change.ref.change_id, BOUND if bound else WAITING)

    # -------------------------------------------------------------------------------------------------------- sending

    def send(self, batch: Send, now_ms: int, reply_to: Callable[[int], Reply] = lambda _: Reply.APPLIED) -> SendEnded:
        """Send as `oldhost_sync.oldhost.session` does: until an answer is not definite; then the session is over."""
        report = Report()
        if batch.epoch != self.epoch:
            report.session_open = False
        if not batch.urgent:
            assert not report.session_open or batch.sequence == self.sequence + 1, "a session's sends go in their order"
            self.sequence = batch.sequence
        for change_id in batch.change_ids:
            fate = ChangeResult(change_id, WAITING)
            if report.session_open:
                fate = self._send_one(self.changes[change_id], now_ms, reply_to, report)
            report.fates.append(fate)
        if not report.session_open:
            self.epoch += batch.epoch == self.epoch  # nothing goes over it any more
        return SendEnded(service_ms=self.oldhost.service_ms, **vars(report))

    def _send_one(self, change: Change, now_ms: int, reply_to: Callable[[int], Reply], report: Report) -> ChangeResult:
        nonce = next((one for one, row in self._in_doubt().items() if row.change is change), None)
        if nonce is None:
            if (needless := self._needless(change)) is not None:
                return needless
            if (refused := self._refused(change, report)) is not None:
                return refused
            nonce, self.next_nonce = self.next_nonce, self.next_nonce + 1
            self.rows[nonce] = Bound(change, now_ms)
        row = self.rows[nonce]
        row.sends, row.sent_at_ms = row.sends + 1, now_ms
        if now_ms < self.oldhost.banned_until_ms:
            self.oldhost.refused_in_ban += 1
            return self._banned(change, now_ms, report)
        if nonce != self.oldhost.expected:
            return self._wrong_nonce(row, nonce, now_ms, report)
        return self._answer(row, nonce, reply_to(change.ref.change_id), now_ms, report)

    def _refused(self, change: Change, report: Report) -> ChangeResult | None:
        """The reservation binds no nonce to what would overtake, or is held."""
        ref = change.ref
        if self.is_held(ref):
            report.held.append([*ref.entity, self.dead_of(ref.entity)])
            return ChangeResult(ref.change_id, HELD)
        if older := self.older(change):
            report.older += [messages.to_wire(one) for one in older]
            return ChangeResult(ref.change_id, WAITING)
        return None

    def _needless(self, change: Change) -> ChangeResult | None:
        """A change with a fate keeps it; an LWW one that is stale or equal takes no nonce."""
        if change.outcome is not None:
            return self._fate(change)
        states = self.applied.get(change.ref.key)
        if change.ref.priority_class is not PriorityClass.LWW or not states:
            return None
        stale = states[-1].ref.change_id > change.ref.change_id
        if not stale and states[-1].payload != change.payload:
            return None
        self._end(change, Outcome.STALE if stale else Outcome.NO_OP)
        return self._fate(change)

    def _answer(self, row: Bound, nonce: int, reply: Reply, now_ms: int, report: Report) -> ChangeResult:
        change = row.change
        if reply in (Reply.APPLIED, Reply.LOST_AFTER):
            self.oldhost.apply(nonce, change, now_ms)
        if reply is Reply.REJECTED:
            self.oldhost.expected += 1
        if reply in (Reply.APPLIED, Reply.REJECTED):
            self._end(change, Outcome.APPLIED if reply is Reply.APPLIED else Outcome.DEAD, nonce)
            return self._fate(change)
        if reply is Reply.LATE:
            self.oldhost.late.append((nonce, change))
        if reply is Reply.BAN:
            self.oldhost.banned_until_ms = now_ms + self.oldhost.ban_ms
            return self._banned(change, now_ms, report)
        report.session_open = False
        return ChangeResult(change.ref.change_id, BOUND, nonce)

    def _banned(self, change: Change, now_ms: int, report: Report) -> ChangeResult:
        self.banned_until_ms = self.oldhost.banned_until_ms
        report.session_open = False
        report.banned_ms = self.banned_until_ms - now_ms
        return ChangeResult(change.ref.change_id, BOUND)

    def _wrong_nonce(self, row: Bound, nonce: int, now_ms: int, report: Report) -> ChangeResult:
        report.session_open = False
        if nonce > self.oldhost.expected:
            self.oldhost.gaps += 1
            return ChangeResult(row.change.ref.change_id, BOUND)
        self.oldhost.replays += 1
        self.oldhost.banned_until_ms = now_ms + self.oldhost.ban_ms
        row.replayed = row.sends == 1
        if row.replayed:
            self.halted = f"foreign write: the first send of nonce {nonce} was a replay"
        return self._banned(row.change, now_ms, report)

    def _end(self, change: Change, outcome: Outcome, nonce: int | None = None) -> None:
        ref = change.ref
        change.outcome, change.nonce = outcome, nonce
        if nonce is not None:
            self.rows[nonce].consumed = True
        if outcome is Outcome.APPLIED:
            self.applied.setdefault(ref.key, []).append(change)
        if outcome is Outcome.DEAD:
            for other in self.outstanding():
                if other.ref.entity == ref.entity and other.ref.priority_class is PriorityClass.TXN:
                    other.exempt = True
        if ref.priority_class is PriorityClass.LWW:
            for other in self.outstanding():
                if other.ref.key == ref.key and other.ref.change_id < ref.change_id:
                    other.outcome = Outcome.SUPERSEDED

    # -------------------------------------------------------------------------------------------------------- operators

    def decide(self, decision: messages.OperatorAct) -> messages.ActRecorded:
        if decision.action in LETTER_ACTS:
            return self._decide_on_dead(decision)
        if decision.action == "halt" and self.halts_are_late:
            return messages.ActRecorded(refused="an operator has resolved a halt since this one was found")
        if decision.action == "halt":
            self.halted = decision.reason
        if decision.action == "pause":
            self.paused = [decision.operator, decision.reason, decision.until_ms]
        if decision.action in ("resume", END_PAUSE):
            self.paused = None
        if decision.action == "resolve":
            if not self.halted:
                return messages.ActRecorded(refused="the ledger is not halted")
            if self.other_count:
                self.halted, self.other_count = self.other_count, ""
                return messages.ActRecorded(refused="nothing was decided", halted=self.halted)
            self._resolve(decision.mode or "")
            return messages.ActRecorded(
                message="done", fates=[self._fate(self.changes[one]) for one in decision.in_doubt]
            )
        return messages.ActRecorded(message="done")

    def _decide_on_dead(self, decision: messages.OperatorAct) -> messages.ActRecorded:
        change = self.changes.get(decision.change_id or 0)
        if change is None or change.ref.change_id not in self.dead_letters():
            return messages.ActRecorded(refused=f"change {decision.change_id} is not a dead letter")
        if decision.action != "retry":
            change.outcome = Outcome.DISCARDED if decision.action == "discard" else Outcome.APPLIED
            return messages.ActRecorded(None, list(change.ref.entity), change.outcome.value)
        change.outcome, change.nonce, change.exempt = None, None, True
        return messages.ActRecorded(messages.to_wire(change.ref), list(change.ref.entity), "waits again")

    def _resolve(self, mode: str) -> None:
        expected = self.oldhost.expected
        self.halted = ""
        for nonce, row in [*self.rows.items()]:
            if row.replayed or (nonce >= expected and mode == "adopt"):
                del self.rows[nonce]
            elif nonce >= expected and row.consumed:
                row.consumed = False
                row.change.outcome = None
                self.applied[row.change.ref.key].remove(row.change)
        self.next_nonce = max([expected, *(nonce + 1 for nonce in self.rows)])
