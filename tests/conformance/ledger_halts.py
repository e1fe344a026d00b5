"""When OldHost and the ledger disagree, and what an operator decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oldhost_sync.drivers.events import Rejected
from oldhost_sync.oldhost.errors import Fenced, LedgerHalted
from oldhost_sync.oldhost.ledger import Answered, Evidence, Reserved
from oldhost_sync.policy.changes import WAITING, ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld, applied


class Halts(LedgerSuite):
    def test_trap_04_expected_beyond_the_ledger_halts(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record())
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, Evidence(503))
        assert found.halted is not None
        assert "another client wrote" in found.halted
        assert world.ledger.take_over("later").halted == found.halted

    def test_trap_04_expected_behind_the_ledger_halts(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record())
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, Evidence(501))
        assert found.halted is not None
        assert "went back" in found.halted

    def test_nothing_is_reserved_or_sent_while_halted(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.halt(epoch, "invariant violated: test")
        with pytest.raises(LedgerHalted):
            world.ledger.reserve(epoch, [world.record("u3")])
        with pytest.raises(LedgerHalted):
            world.ledger.advance(epoch, None, second)
        assert world.ledger.advance(epoch, applied(first), None) == ChangeResult(first.change_id, "APPLIED", 501)

    def test_resend_binds_the_lost_operations_again_byte_identical(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(4)))
        self.halt_by(world, 503)
        assert world.decide("resolve", mode="resend") == ""
        assert world.counts() == (502, 505)
        assert world.outcome(sent[2].change_id) == (None, None)
        assert world.sync_status("u2") == "PENDING_SYNC"
        taken = world.ledger.take_over("after")
        found = world.ledger.reconcile(taken.epoch, Evidence(503))
        assert [ref.change_id for ref in found.bound] == [sent[2].change_id, sent[3].change_id]
        again = self.send(world, taken.epoch, sent[2].change_id, sent[3].change_id)
        assert [(one.nonce, one.body) for one in again] == [(one.nonce, one.body) for one in sent[2:]]
        assert world.sync_status("u2") == "SYNCED"

    def test_resend_with_a_broken_row_of_nonces_lets_the_changes_wait_again(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        dead, fine = world.record("u1"), world.record("u2")
        first, second = self.reserve(world, epoch, dead, fine)
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, Answered(first, Rejected("no", consumed=True)), second)
        world.ledger.advance(epoch, applied(second), None)
        assert world.decide("retry", change_id=dead) == ""
        self.halt_by(world, 501)
        assert world.decide("resolve", mode="resend") == ""
        assert world.counts() == (500, 501)
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(501)).halted is None
        assert [one.nonce for one in self.send(world, taken.epoch, dead, fine)] == [501, 502]

    def test_adopt_backwards_counts_from_oldhost_and_sends_nothing_again(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        assert world.decide("resolve", mode="adopt") == ""
        assert world.counts() == (501, 502)
        assert world.archived() == [502, 503]
        assert world.outcome(sent[2].change_id) == ("APPLIED", 503)
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(502)).bound == []

    def test_adopt_forwards_counts_what_is_in_doubt_as_applied(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        self.halt_by(world, 504)
        assert world.decide("resolve", mode="adopt") == ""
        assert world.outcome(operation.change_id) == ("APPLIED", 501)
        assert world.counts() == (503, 504)

    def test_resend_forwards_lets_what_is_in_doubt_wait_again(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = self.halt_by(world, 504)
        assert world.decide("resolve", mode="resend") == ""
        assert world.ledger.fates([operation.change_id]) == [ChangeResult(operation.change_id, WAITING)]
        with pytest.raises(Fenced):
            world.ledger.reserve(taken, [operation.change_id])
        after = world.ledger.take_over("after")
        assert world.ledger.reconcile(after.epoch, Evidence(504)).halted is None
        (again,) = self.reserve(world, after.epoch, operation.change_id)
        assert again.nonce == 504

    def test_what_follows_a_doubt_that_waits_again_does_not_keep_the_nonce_beyond_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """It was marked while the one before it was on the wire, and never written."""
        before, after = self.reserve(world, epoch, world.record("u1"), world.record("u1"))
        world.ledger.advance(epoch, None, before)
        world.ledger.advance(epoch, None, after)
        world.ledger.uncount_send(epoch, after)
        world.ledger.ban(epoch, 900, refused=before, halt="another client wrote", expected=502)
        assert world.decide("resolve", mode="resend") == ""
        waiting = [ChangeResult(before.change_id, WAITING), ChangeResult(after.change_id, WAITING)]
        assert world.ledger.fates([before.change_id, after.change_id]) == waiting
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(502)).halted is None
        again = self.reserve(world, taken.epoch, before.change_id, after.change_id)
        assert [one.nonce for one in again] == [502, 503]

    def test_what_was_given_up_stays_given_up_though_it_is_sent_again_and_rejected_again(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """OldHost was restored, and gets all that it lost; a dead letter that somebody discarded is none again."""
        (operation,) = self.reserve(world, epoch, world.record("u1"))
        world.ledger.advance(epoch, None, operation)
        assert world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None) is not None
        assert world.decide("discard", change_id=operation.change_id) == ""
        self.halt_by(world, 501)
        assert world.decide("resolve", mode="resend") == ""
        taken = world.ledger.take_over("after")
        (bound,) = world.ledger.reconcile(taken.epoch, Evidence(501)).bound
        (again,) = self.reserve(world, taken.epoch, bound.change_id)
        world.ledger.advance(taken.epoch, None, again)
        fate = world.ledger.advance(taken.epoch, Answered(again, Rejected("no", consumed=True)), None)
        assert fate is not None
        assert fate.outcome == world.outcome(again.change_id)[0]

    @pytest.mark.parametrize(
        ("mode", "fate", "last"),
        [("resend", ChangeResult(0, WAITING), 501), ("adopt", ChangeResult(0, "APPLIED", 501, unproven=True), 501)],
    )
    def test_a_replay_on_the_first_send_halts_and_an_operator_says_whose_it_was(
        self, world: LedgerWorld, epoch: int, mode: str, fate: ChangeResult, last: int
    ) -> None:
        """Another client wrote to OldHost, or a proxy delivered the operation twice: nobody else can tell."""
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.ban(epoch, 900, refused=operation, halt="another client wrote", expected=502)
        taken = world.ledger.take_over("next")
        assert (taken.halted, taken.banned_ms > 890_000) == ("another client wrote", True)
        assert world.decide("resolve", mode=mode) == ""
        assert world.ledger.fates([operation.change_id]) == [replace(fate, change_id=operation.change_id)]
        assert world.counts() == (last, 502)

    def test_a_replay_on_the_first_send_counts_as_applied_only_where_nothing_is_used_beyond_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.ban(epoch, 900, refused=operation, halt="another client wrote", expected=505)
        assert world.decide("resolve", mode="adopt") == ""
        assert world.ledger.fates([operation.change_id]) == [ChangeResult(operation.change_id, WAITING)]

    def test_when_an_operation_was_sent_and_answered_before_is_kept(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1"), world.record("u2"))
        self.halt_by(world, 502)
        assert world.decide("resolve", mode="resend") == ""
        assert world.archived() == [502]

    def test_resolve_is_refused_when_nothing_is_halted(self, world: LedgerWorld, epoch: int) -> None:
        assert "not halted" in world.decide("resolve", mode="adopt")

    def test_after_a_resolve_by_resending_no_state_in_doubt_makes_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        clean, dirty = {"status": "Clean"}, {"status": "Dirty"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        (doubtful,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", dirty))
        world.ledger.advance(epoch, None, doubtful)
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, Evidence(doubtful.nonce + 2)).halted
        assert world.decide("resolve", mode="resend") == ""
        taken = world.ledger.take_over("next")
        newest = world.record("u1", "unit_status_changed", clean)
        (entry,) = world.ledger.reserve(taken.epoch, [newest])
        assert isinstance(entry, Reserved)
