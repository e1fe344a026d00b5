"""Conditions: what is the case at this writer that people must know, as a function of the machine's state.

The machine keeps no list of alerts. `conditions` says what is the case, `unknown` what can't be said just now.
`Reports` decides when all of it is recorded: when it is not what was recorded last. The store compares such a list
with the alerts that are open (`store/alerts.py`), so it does not matter which of them an earlier run has opened. What
the kinds mean is in `rules/alert_kinds.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from oldhost_sync.policy.changes import PriorityClass
from oldhost_sync.policy.machine.actions import RecordConditions, WriterCondition
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.outstanding_changes import Part
from oldhost_sync.policy.machine.progress import BROKEN_SESSIONS, LOST_ANSWERS
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.plain_text import instant
from oldhost_sync.policy.rules.alert_kinds import WRITER_KINDS
from oldhost_sync.policy.tuning import CONDITION_CHANGES_MS, REOPEN_ALERT_ATTEMPTS, SESSIONS_WITHOUT_PROGRESS_ALERT


def conditions(machine: Machine, now_ms: int) -> Iterator[WriterCondition]:
    """What is the case now, as of the machine's last decision."""
    yield from _stops(machine, now_ms)
    yield from _emergencies(machine)
    yield from _slowness(machine, now_ms)
    yield from _stuck(machine)
    for promise, why in machine.load.breaks.items():
        yield WriterCondition("forecast", why, f"forecast:{promise}")


def unknown(machine: Machine) -> Iterator[str]:
    """The kinds that can't be judged just now: what was the case stays so until they can."""
    state, is_asking = machine.breaker.state, machine.breaker.state is BreakerState.HALF_OPEN
    if is_asking or state is BreakerState.HALTED:
        yield "ban"  # it is over when OldHost takes operations again
    if is_asking or state is BreakerState.OPEN:
        yield "halted"  # after a resolve, OldHost must agree with the ledger
    if machine.loading.part is Part.EMERGENCIES or (is_asking and not machine.paused):
        yield "emergency-blocked"
    if machine.loading.part is not None:
        yield "goes-nowhere"
    if machine.load.latest is None and not machine.carried:
        yield "forecast"


def _stops(machine: Machine, now_ms: int) -> Iterator[WriterCondition]:
    breaker, is_halted = machine.breaker, machine.breaker.state is BreakerState.HALTED
    if breaker.state is BreakerState.OPEN or (is_halted and breaker.until_ms > now_ms):
        until = f"at least until {clock(breaker.until_ms)}"
        yield WriterCondition(
            "ban", f"OldHost banned us, {until}: no change can reach it before, not even emergencies.", "ban"
        )
    if is_halted:
        advice = "" if "resolve" in breaker.reason else " Find out why, then resolve."
        yield WriterCondition("halted", f"Sending is halted: {breaker.reason.rstrip('.')}.{advice}", "halt")


def _emergencies(machine: Machine) -> Iterator[WriterCondition]:
    """Those that can't reach OldHost: one condition for each cause."""
    cause, why = _blockade(machine)
    if not cause:
        return
    lane = machine.coalescer.lanes[PriorityClass.EMERGENCY]
    sent = [entry.ref.change_id for entry in machine.in_flight if entry.ref.priority_class is PriorityClass.EMERGENCY]
    count, head = len(lane) + len(sent), lane.oldest()
    if count:
        oldest = min([*sent, *([head[1]] if head else [])], default=None)
        text = f"{count} EMERGENCY change{'s' * (count != 1)} can't reach OldHost now: {why.rstrip('.')}."
        text += f" The oldest is change {oldest}." if oldest else ""
        yield WriterCondition("emergency-blocked", text, f"emergencies:{cause}", oldest, count)


def _blockade(machine: Machine) -> tuple[str, str]:
    """What keeps everything from being sent, as a key and in words; both empty if nothing does."""
    if machine.paused:
        return "pause", f"the writer is paused by {machine.paused.operator}"
    if machine.breaker.state is BreakerState.OPEN:
        return "ban", f"OldHost has banned us, at least until {clock(machine.breaker.until_ms)}"
    if machine.breaker.state is BreakerState.HALTED:
        return "halt", f"sending is halted: {machine.breaker.reason}"
    return "", ""


def _slowness(machine: Machine, now_ms: int) -> Iterator[WriterCondition]:
    session, progress, answers = machine.session, machine.progress, machine.lost_answers
    if progress.stands_still:
        waiting = len(machine.coalescer.lanes[PriorityClass.EMERGENCY])
        urgent = f" Emergencies that wait: {waiting}." if waiting else ""
        text = (
            f"No change has reached OldHost since {clock(progress.since_ms)} although some could be sent "
            f"({progress.reason or _why_no_progress(machine)}). The writer keeps trying.{urgent}"
        )
        yield WriterCondition("no-progress", text, "no-progress")
    if session.is_missed:
        text = f"No session with OldHost after {REOPEN_ALERT_ATTEMPTS} attempts and more ({session.waiting_for})"
        yield WriterCondition("no-session", f"{text}; the writer keeps trying.", "session")
    if answers.are_many:
        text = (
            f"{LOST_ANSWERS} sends in a row, or more, brought no readable answer "
            f"({answers.reason or 'the worker gave no reason'}). The result of each operation is known only after the "
            "settle time, so OldHost gets far fewer operations than it could."
        )
        yield WriterCondition("answers-lost", text, "answers")
    if now_ms < answers.broken_until_ms:
        text = f"OldHost's answers ended {BROKEN_SESSIONS} sessions within ten minutes; the last one"
        yield WriterCondition("sessions-broken", f"{text}: {answers.broken_by}.", "sessions-broken")


def _why_no_progress(machine: Machine) -> str:
    if not machine.loaded:
        return "outstanding changes are still read from MariaDB, or can't be read"
    if machine.session.phase is Phase.OPEN:
        return "no end of a send was reported: OldHost or the worker may be slow"
    return "no session with OldHost is open"


def _stuck(machine: Machine) -> Iterator[WriterCondition]:
    stuck = machine.stuck
    entry = machine.entry(stuck.change_id) if stuck is not None else None
    if stuck is None or entry is None:
        return
    change_id, entity = stuck.change_id, f"{entry.ref.entity_type} {entry.ref.entity_id}"
    if stuck.tries:
        text = (
            f"OldHost refused change {change_id} ({entity}) {stuck.tries} times without using "
            "its nonce. The others are sent; this one and the later ones of its entity wait, and are tried again after "
            f"growing pauses. `change show` has OldHost's words. `dead-letters retry {change_id}` tries it at once, "
            f"`dead-letters discard {change_id}` gives it up. After a few tries more it becomes a dead letter."
        )
    else:
        text = (
            f"{SESSIONS_WITHOUT_PROGRESS_ALERT} sessions in a row could not find out whether OldHost applied change "
            f"{change_id} ({entity}, {entry.ref.event_type}). It has the next nonce, so everything waits behind it."
        )
    yield WriterCondition("goes-nowhere", text, "goes-nowhere", change_id)


def clock(at_ms: int) -> str:
    """An instant as text, with its date: a ban may end tomorrow."""
    return instant(datetime.fromtimestamp(at_ms / 1000, UTC))


class Reports:
    """Decides when the list of conditions is recorded: one at a time, when it differs from the last one, and not too
    often while only its words change. `carried`: an earlier run's `dump`; without it, nothing is known of what earlier
    runs have recorded, and a kind is reported when it is the case, or known not to be: not before a session is open.
    """

    def __init__(self, machine: Machine, carried: dict[str, Any] | None = None) -> None:
        self._machine = machine
        self._last = _read(carried["last"]) if carried else RecordConditions(unknown=WRITER_KINDS)
        self._under_way = _read(carried["under_way"]) if carried and carried["under_way"] else None
        self._events = {each["cause"]: WriterCondition(**each) for each in carried["events"]} if carried else {}
        self._is_begun = False
        self._at_ms = 0

    def happened(self, event: WriterCondition) -> None:
        """Something without an end that can be seen. Until it is recorded, the same is counted together."""
        before = self._events.pop(event.cause, None)
        self._events[event.cause] = replace(event, count=event.count + before.count) if before else event

    def missed(self, count: int) -> None:
        """The sweep found changes that the machine did not have."""
        if count:
            why = f"The sweep found {count} outstanding changes that the writer did not hold; it sends them now."
            self.happened(WriterCondition("strays", why, "strays", count=count))

    def due(self, now_ms: int) -> list[RecordConditions]:
        """What to record now, after the machine's decision. One that was not recorded comes again, as it was: it may
        have been recorded after all.
        """
        if self._is_begun or self._machine.draining:
            return []
        self._under_way = self._under_way or self._next(now_ms)
        if self._under_way is None:
            return []
        self._is_begun = True
        return [self._under_way]

    def recorded(self) -> None:
        """The list is recorded."""
        if self._under_way is not None:
            self._last = replace(self._under_way, events=())
        self._under_way, self._is_begun = None, False

    def not_recorded(self) -> None:
        self._is_begun = False

    def _next(self, now_ms: int) -> RecordConditions | None:
        current = self._current(now_ms)
        if not self._events and not self._is_news(current, now_ms):
            return None
        events, self._events, self._at_ms = tuple(self._events.values()), {}, now_ms
        return replace(current, events=events, sequence=max(self._last.sequence + 1, now_ms))

    def _current(self, now_ms: int) -> RecordConditions:
        """What is the case; of the kinds that can't be judged now, what was recorded last."""
        machine, last, unjudged = self._machine, self._last, [*unknown(self._machine)]
        kept = {each.cause: each for each in last.conditions if each.kind in unjudged}
        kinds_kept = {each.kind: None for each in kept.values()}
        found = {each.cause: each for each in conditions(machine, now_ms) if each.kind not in kinds_kept}
        listed = sorted((kept | found).values(), key=lambda each: each.cause)
        kinds = {each.kind: None for each in listed}
        is_unproven = machine.counters.sessions == 0
        left = [kind for kind in last.unknown if (is_unproven or kind in unjudged) and kind not in kinds]
        return RecordConditions(tuple(listed), tuple(left))

    def _is_news(self, current: RecordConditions, now_ms: int) -> bool:
        """Whether something has begun or ended, or words have changed for a while."""
        last = self._last
        if _causes(current) != _causes(last) or current.unknown != last.unknown:
            return True
        return current.conditions != last.conditions and now_ms >= self._at_ms + CONDITION_CHANGES_MS

    def number_above(self, sequence: int) -> None:
        """MariaDB has lists up to this number: an earlier run's, perhaps by a clock that was ahead of today's. Without
        any, there is nothing to close.
        """
        is_first = not sequence and not self._last.sequence
        self._last = replace(
            self._last,
            sequence=max(self._last.sequence, sequence),
            unknown=() if is_first else self._last.unknown,
        )

    def dump(self) -> dict[str, Any]:
        """For the next run, as JSON values."""
        return {
            "last": asdict(self._last),
            "under_way": asdict(self._under_way) if self._under_way else None,
            "events": [asdict(event) for event in self._events.values()],
        }


def _causes(told: RecordConditions) -> list[str]:
    return [each.cause for each in told.conditions]


def _read(carried: dict[str, Any]) -> RecordConditions:
    listed = {name: tuple(WriterCondition(**each) for each in carried[name]) for name in ("conditions", "events")}
    return RecordConditions(listed["conditions"], tuple(carried["unknown"]), listed["events"], carried["sequence"])
