"""SENT marks, answers, and sends that do not count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oldhost_sync.drivers.events import Malformed, Rejected
from oldhost_sync.oldhost.errors import Fenced, InvariantViolated
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reserved
from oldhost_sync.policy.changes import WAITING, ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld, applied


class Sending(LedgerSuite):
    def test_recording_an_answer_and_marking_the_next_is_one_step(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        assert world.ledger.advance(epoch, None, first) is None
        fate = world.ledger.advance(epoch, applied(first), second)
        assert fate == ChangeResult(first.change_id, "APPLIED", 501)
        assert world.outcome(first.change_id) == ("APPLIED", 501)
        assert world.row(501) == (first.change_id, "APPLIED", first.body)
        assert world.row(502) == (second.change_id, "SENT", second.body)
        assert world.counts() == (501, 503)

    def test_answers_are_recorded_in_the_order_of_nonces(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        with pytest.raises(InvariantViolated):
            world.ledger.advance(epoch, applied(second), None)
        assert world.outcome(second.change_id) == (None, None)

    def test_an_answer_to_what_was_never_sent_is_a_violation(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        with pytest.raises(InvariantViolated):
            world.ledger.advance(epoch, applied(operation), None)
        assert world.counts() == (500, 502)

    def test_an_answer_is_recorded_once(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.send(world, epoch, world.record())
        with pytest.raises(InvariantViolated):
            world.ledger.advance(epoch, applied(operation), None)

    def test_a_nonce_is_marked_only_for_the_change_it_is_bound_to(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        swapped = Reserved(first.nonce, second.change_id, "k", b"", "unit", "u2", "x", second.priority_class)
        with pytest.raises(InvariantViolated):
            world.ledger.advance(epoch, None, swapped)

    def test_trap_16_a_rejection_that_used_its_nonce_is_a_dead_letter(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        fate = world.ledger.advance(epoch, Answered(operation, Rejected("no such room", consumed=True)), None)
        assert fate == ChangeResult(operation.change_id, "DEAD", 501, "no such room")
        assert world.outcome(operation.change_id) == ("DEAD", 501)
        assert world.sync_status("u1") == "SYNC_FAILED"
        assert world.counts() == (501, 502)
        assert world.row(501) == (operation.change_id, "FAILED", operation.body)

    def test_what_gives_way_loses_its_nonce_and_waits_again(self, world: LedgerWorld, epoch: int) -> None:
        ids = [world.record(unit) for unit in ("u1", "u2", "u3")]
        first, second, third = self.reserve(world, epoch, *ids)
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        assert world.ledger.release_nonces(epoch, applied(first), 501) == ChangeResult(first.change_id, "APPLIED", 501)
        assert (world.row(502), world.row(503), world.counts()) == (None, None, (501, 502))
        assert world.archived() == [502], "a mark is kept as evidence"
        again = self.reserve(world, epoch, third.change_id, second.change_id)
        assert [(one.nonce, one.change_id, one.sends) for one in again] == [
            (502, third.change_id, 0),
            (503, second.change_id, 0),
        ]

    def test_what_may_have_been_written_never_gives_way(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        taken = world.ledger.take_over("another")
        world.ledger.advance(taken.epoch, None, replace(first, sends=1))
        with pytest.raises(InvariantViolated):
            world.ledger.release_nonces(taken.epoch, None, 500)
        assert world.row(501) == (first.change_id, "SENT", first.body)
        assert world.ledger.fates([second.change_id]) == [ChangeResult(second.change_id, WAITING)]

    def test_an_older_epoch_gives_nothing_back(self, world: LedgerWorld, epoch: int) -> None:
        first, _ = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.take_over("another")
        with pytest.raises(Fenced):
            world.ledger.release_nonces(epoch, applied(first), 501)

    def test_nothing_is_marked_behind_a_nonce_that_was_given_back(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, Answered(first, Rejected("no", consumed=False)), None)
        with pytest.raises(Fenced):
            world.ledger.advance(epoch, None, second)
        assert world.row(502) is None

    @pytest.mark.parametrize("answer", [Rejected("no", consumed=False), Malformed("too long")])
    def test_trap_16_a_rejection_that_did_not_use_its_nonce_gives_it_back(
        self, world: LedgerWorld, epoch: int, answer: Rejected | Malformed
    ) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        fate = world.ledger.advance(epoch, Answered(first, answer), None)
        assert fate == ChangeResult(first.change_id, "DEAD", None, answer.reason)
        assert world.row(501) is None
        assert world.archived() == [501]
        taken = world.ledger.take_over("next")
        assert (taken.next_nonce, taken.released) == (501, [])
        assert [fate.outcome for fate in world.ledger.fates([second.change_id])] == [WAITING]
        world.ledger.reconcile(taken.epoch, Evidence(501))
        (again,) = self.reserve(world, taken.epoch, second.change_id)
        assert again.nonce == 501

    def test_what_was_marked_behind_a_nonce_that_was_not_used_waits_again(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        world.ledger.advance(epoch, Answered(first, Rejected("no", consumed=False)), None)
        assert world.archived() == [501, 502]
        assert world.ledger.fates([second.change_id]) == [ChangeResult(second.change_id, WAITING)]
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, Evidence(501)).halted is None
        assert [one.nonce for one in self.send(world, taken.epoch, second.change_id)] == [501]

    def test_what_was_marked_but_never_written_counts_as_never_sent(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.uncount_send(epoch, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        assert self.reserve(world, taken.epoch, operation.change_id)[0].sends == 0

    @pytest.mark.parametrize("says", ["uncount_send", "ban"])
    def test_a_send_taken_back_twice_is_taken_back_once(self, world: LedgerWorld, epoch: int, says: str) -> None:
        """The answer of the first time was lost. The send of the epoch before is still in doubt."""
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        world.ledger.advance(taken.epoch, None, again)
        for _ in range(2):
            if says == "ban":
                world.ledger.ban(taken.epoch, 0, refused=again)
            else:
                world.ledger.uncount_send(taken.epoch, again)
        after = world.ledger.take_over("after")
        fate = ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)
        assert world.ledger.reconcile(after.epoch, Evidence(502)).fates == [fate]

    def test_a_refused_send_does_not_count_as_one(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.ban(epoch, 900, refused=operation)
        taken = world.ledger.take_over("next")
        halted = world.ledger.reconcile(taken.epoch, Evidence(502)).halted
        assert halted is not None
        assert "another client wrote" in halted

    def test_a_busy_answer_makes_the_next_mark_the_first_again(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, None, operation, again=True)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        assert self.reserve(world, taken.epoch, operation.change_id)[0].sends == 1
