"""Property tests of the machine: whatever comes in, whatever fails, in whatever order, the invariants hold.

One random play interleaves arrivals, deliveries (late, twice, lost), time, replies, failures, operators, carry-overs
and rebuilds; `Play` checks after every step, and at the end, when the faults are over, that all converged.

The plays are the same in each run (`derandomize`): a commit that passes here passes again, and a failure is nobody's
bad luck. To look further: PLAYS=5000 takes fresh ones.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from oldhost_sync.policy.changes import Outcome
from oldhost_sync.policy.machine import operators
from oldhost_sync.policy.machine.session import BreakerState, Phase
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import Play
from tests.workflows.books import OldHost, Reply

PLAYS = int(os.environ.get("PLAYS", "0"))
CLASSES = st.sampled_from(["LWW", "LWW", "TXN", "TXN", "EMERGENCY"])
PROPERTIES = st.sampled_from(["", "p", "q"])  # a unit may move at any time
REPLIES = st.lists(
    st.sampled_from([Reply.APPLIED] * 6 + [Reply.REJECTED, Reply.LOST_BEFORE, Reply.LOST_AFTER, Reply.LATE, Reply.BAN]),
    min_size=1,
    max_size=4,
)
PAUSES_MS = st.sampled_from([1, 400, 5_000, 30_000, 61_000, 119_000, 120_000, 301_000, 900_000])


class Interleavings(RuleBasedStateMachine):
    """Every rule is something that can happen at that moment."""

    @initialize(fast=st.booleans(), early=st.booleans())
    def begin(self, fast: bool, early: bool) -> None:
        self.play = Play(WriterPolicy(early_send_ms=30_000 if early else 0))
        if fast:
            self.play.machine.load.service_ms = 60.0  # sends of several operations

    @rule(
        cls=CLASSES,
        unit=st.sampled_from("uvw"),
        kind=st.sampled_from("ab"),
        payload=st.sampled_from("xyz"),
        property_id=PROPERTIES,
    )
    def accept(self, cls: str, unit: str, kind: str, payload: str, property_id: str) -> None:
        self.play.accept(cls, unit, kind, payload, property_id)

    @rule(cls=CLASSES, unit=st.sampled_from("uvw"), payload=st.sampled_from("xyz"), property_id=PROPERTIES)
    def take(self, cls: str, unit: str, payload: str, property_id: str) -> None:
        self.play.take(cls, unit, payload=payload, property_id=property_id)

    @precondition(lambda self: self.play.undelivered)
    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        self.play.deliver(count)

    @precondition(lambda self: any(change.relayed for change in self.play.books.changes.values()))
    @rule(data=st.data())
    def deliver_twice(self, data: Any) -> None:
        relayed = [one for one, c in self.play.books.changes.items() if c.relayed and one not in self.play.lost]
        if relayed:
            self.play.deliver_again(data.draw(st.sampled_from(relayed)))

    @precondition(lambda self: self.play.undelivered)
    @rule()
    def lose_a_signal(self) -> None:
        self.play.lose()

    @rule(ms=PAUSES_MS)
    def let_time_pass(self, ms: int) -> None:
        self.play.advance(ms)

    @precondition(lambda self: self.play.under.sends)
    @rule(replies=REPLIES, data=st.data())
    def end_a_send(self, replies: list[Reply], data: Any) -> None:
        number = data.draw(st.sampled_from(list(self.play.under.sends)))
        self.play.end_send(number, lambda change_id: replies[change_id % len(replies)])

    @precondition(lambda self: self.play.under.sends)
    @rule(never_started=st.booleans(), silent=st.booleans(), worked=st.booleans(), replies=REPLIES, data=st.data())
    def fail_a_send(self, never_started: bool, silent: bool, worked: bool, replies: list[Reply], data: Any) -> None:
        number = data.draw(st.sampled_from(list(self.play.under.sends)))
        reply_to = (lambda change_id: replies[change_id % len(replies)]) if worked else None
        self.play.fail_send(number, never_started=never_started, silent=silent, reply_to=reply_to)

    @rule(task_queue=st.sampled_from([None, None, "another"]))
    def end_a_worker(self, task_queue: str | None) -> None:
        self.play.end_worker(task_queue)

    @precondition(lambda self: self.play.under.given_up)
    @rule(data=st.data())
    def end_a_send_that_was_given_up(self, data: Any) -> None:
        self.play.end_given_up(data.draw(st.sampled_from(list(self.play.under.given_up))))

    @precondition(lambda self: self.play.under.opening)
    @rule(fails=st.sampled_from([False] * 5 + [True]))
    def end_opening(self, fails: bool) -> None:
        if fails:
            self.play.fail_open()
        else:
            self.play.end_open()

    @precondition(lambda self: self.play.under.closing)
    @rule()
    def end_closing(self) -> None:
        self.play.end_close()

    @precondition(lambda self: self.play.under.probe)
    @rule(agrees=st.booleans())
    def end_a_probe(self, agrees: bool) -> None:
        self.play.end_probe(session_open=agrees)

    @precondition(lambda self: self.play.under.load)
    @rule(fails=st.sampled_from([False, False, True]), limit=st.integers(1, 3))
    def end_a_load(self, fails: bool, limit: int) -> None:
        self.play.end_load(fails=fails, limit=limit)

    @precondition(lambda self: self.play.under.sweep)
    @rule(fails=st.booleans())
    def end_a_sweep(self, fails: bool) -> None:
        self.play.end_sweep(fails=fails, limit=3)

    @rule()
    def pause_or_resume(self) -> None:
        self.play.pause_or_resume()

    @rule()
    def flush(self) -> None:
        self.play.flushed = True
        self.play.machine.coalescer.flush(None, self.play.now_ms)
        self.play.step()

    @precondition(lambda self: self.play.books.dead_letters())
    @rule(data=st.data(), action=st.sampled_from(["retry", "discard"]))
    def decide_on_a_dead_letter(self, data: Any, action: str) -> None:
        change_id = data.draw(st.sampled_from(self.play.books.dead_letters()))
        if not operators.objection(self.play.machine, action, change_id):  # the workflow refuses it then
            self.play.decide_on(change_id, action)

    @precondition(lambda self: not self.play.under.sends and not self._in_doubt() and not self.host.restored)
    @rule()
    def somebody_else_writes(self) -> None:
        self.play.books.oldhost.foreign_write(self.play.now_ms)

    @precondition(lambda self: not self.play.under.sends and self.host.journal and not self.host.written_by_others)
    @rule(back=st.integers(1, 3))
    def oldhost_is_restored(self, back: int) -> None:
        """From a backup that lacks the last few operations (with foreign writes on top nobody could tell)."""
        books = self.play.books
        expected = max(1, books.oldhost.expected - back)
        lost = [row for nonce, row in books.rows.items() if nonce >= expected]
        ours = all(line.change is not None for line in books.oldhost.journal if line.nonce >= expected)
        last = [row.consumed and row.change.outcome is Outcome.APPLIED for row in lost]
        if ours and all(last) and all(books.rows[row.change.nonce or 0] is row for row in lost):
            books.oldhost.restore(expected)

    @precondition(lambda self: self.play.machine.breaker.state is BreakerState.HALTED)
    @rule()
    def resolve(self) -> None:
        self.play.resolve()

    @rule()
    def carry_over(self) -> None:
        self.play.carry_over()

    @rule()
    def terminate_and_rebuild(self) -> None:
        self.play.rebuild()

    @property
    def host(self) -> OldHost:
        return self.play.books.oldhost

    def _in_doubt(self) -> bool:
        return any(not row.consumed for row in self.play.books.rows.values())

    def teardown(self) -> None:
        """Healing: no more faults. A day is time enough for every ban, and whatever halted is resolved."""
        if not hasattr(self, "play"):
            return
        play = self.play
        if play.machine.paused:
            operators.resume(play.machine)
        play.deliver()
        for _ in range(10):
            if play.machine.breaker.state is BreakerState.HALTED:
                play.resolve()
            play.drain_unless_halted()
            for change_id in play.books.dead_letters():
                play.decide_on(change_id, "discard")
            if not play.books.outstanding() and play.machine.breaker.state is not BreakerState.HALTED:
                break
        assert not play.books.outstanding()
        play.check_the_end()
        assert play.machine.session.phase in (Phase.OPEN, Phase.NONE, Phase.PAUSING, Phase.OPENING, Phase.CLOSING)


def play(count: int) -> None:
    run_state_machine_as_test(
        Interleavings,
        settings=settings(
            deadline=None,
            derandomize=not PLAYS,
            max_examples=count,
            stateful_step_count=60,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )


def test_the_invariants_hold_in_a_hundred_plays() -> None:
    play(100)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_invariants_hold_in_all_plays() -> None:
    play(PLAYS or 300)
