"""What a used nonce proves, after each kind of answer or none (I14)."""

from __future__ import annotations

from oldhost_sync.drivers.events import Said
from oldhost_sync.oldhost.ledger import Evidence, Reserved
from oldhost_sync.policy.changes import ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld

CLEAN = {"status": "Clean"}


class Answers(LedgerSuite):
    def answered(self, world: LedgerWorld, epoch: int, *, rejects: bool = False) -> Reserved:
        """An LWW operation that was sent, and answered in a form that the protocol does not have."""
        (operation,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", CLEAN))
        world.ledger.advance(epoch, None, operation)
        world.ledger.note_answer(epoch, operation, Said("status 418", "words of OldHost", rejects))
        return operation

    def found_used(self, world: LedgerWorld) -> tuple[int, ChangeResult]:
        taken = world.ledger.take_over("next")
        (fate,) = world.ledger.reconcile(taken.epoch, Evidence(502)).fates
        return taken.epoch, fate

    def test_a_no_with_the_nonce_used_is_a_rejection(self, world: LedgerWorld, epoch: int) -> None:
        operation = self.answered(world, epoch, rejects=True)
        _, fate = self.found_used(world)
        assert (fate.outcome, fate.nonce, fate.unproven) == ("DEAD", 501, False)
        assert world.row(501) == (operation.change_id, "FAILED", operation.body)
        assert "OldHost rejected" in world.decide("confirm", change_id=operation.change_id)
        assert world.outcome(operation.change_id)[0] == "DEAD"

    def test_any_other_answer_with_the_nonce_used_is_unsure(self, world: LedgerWorld, epoch: int) -> None:
        operation = self.answered(world, epoch)
        _, fate = self.found_used(world)
        assert (fate.outcome, fate.nonce, fate.unproven) == ("DEAD", 501, True)
        assert world.row(501) == (operation.change_id, "UNSURE", operation.body)
        assert world.ledger.fates([operation.change_id])[0].unproven

    def test_no_answer_with_the_nonce_used_is_applied_unproven(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record("u1"))
        world.ledger.advance(epoch, None, operation)
        _, fate = self.found_used(world)
        assert fate == ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)

    def test_an_unsure_change_makes_no_equal_one_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        before = world.record("u1", "unit_status_changed", CLEAN)
        self.send(world, epoch, before)
        (operation,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", {"status": "Dirty"}))
        world.ledger.advance(epoch, None, operation)
        world.ledger.note_answer(epoch, operation, Said("status 500", ""))
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(503))
        newest = world.record("u1", "unit_status_changed", CLEAN)
        assert [one.change_id for one in self.reserve(world, taken.epoch, newest)] == [newest]

    def test_an_operator_confirms_an_unsure_change_and_it_stays_unproven(self, world: LedgerWorld, epoch: int) -> None:
        operation = self.answered(world, epoch)
        self.found_used(world)
        assert world.sync_status("u1") == "SYNC_FAILED"
        assert world.decide("confirm", change_id=operation.change_id) == ""
        fate = ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)
        assert world.ledger.fates([operation.change_id]) == [fate]
        assert world.sync_status("u1") == "SYNCED"

    def test_an_unsure_change_that_is_retried_is_sent_under_a_new_nonce(self, world: LedgerWorld, epoch: int) -> None:
        operation = self.answered(world, epoch)
        current, _ = self.found_used(world)
        assert world.decide("retry", change_id=operation.change_id) == ""
        assert [one.nonce for one in self.send(world, current, operation.change_id)] == [502]
        assert world.ledger.fates([operation.change_id]) == [ChangeResult(operation.change_id, "APPLIED", 502)]
        assert world.archived() == [501]

    def test_an_adopted_count_does_not_make_a_rejection_applied(self, world: LedgerWorld, epoch: int) -> None:
        """The halt has another cause: somebody else wrote, too."""
        operation = self.answered(world, epoch, rejects=True)
        self.halt_by(world, 505)
        assert world.decide("resolve", mode="adopt") == ""
        (fate,) = world.ledger.fates([operation.change_id])
        assert (fate.outcome, fate.unproven) == ("DEAD", False)
