"""The fence, what a successor finds, and how it compares that with what OldHost expects."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.errors import Fenced
from oldhost_sync.oldhost.ledger import Evidence
from oldhost_sync.policy.changes import ChangeResult
from tests.conformance.ledger_world import SETTLE_SECONDS, LedgerSuite, LedgerWorld, applied


class Takeover(LedgerSuite):
    def test_trap_02_an_old_epoch_can_do_nothing(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.take_over("next")
        for act in (
            lambda: world.ledger.reserve(epoch, [world.record("u3")]),
            lambda: world.ledger.advance(epoch, None, second),
            lambda: world.ledger.advance(epoch, applied(first), None),
            lambda: world.ledger.advance(epoch, applied(first), second),
            lambda: world.ledger.reconcile(epoch, Evidence(501)),
            lambda: world.ledger.halt(epoch, "zombie"),
            lambda: world.ledger.uncount_send(epoch, first),
        ):
            with pytest.raises(Fenced):
                act()
        assert world.outcome(first.change_id) == (None, None)
        assert world.row(501) == (first.change_id, "SENT", first.body)

    def test_a_takeover_releases_what_was_never_sent(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        taken = world.ledger.take_over("next")
        assert taken.epoch == epoch + 1
        assert taken.released == [second.change_id]
        assert [one.nonce for one in taken.in_doubt] == [501]
        assert taken.next_nonce == 502
        assert world.row(502) is None

    def test_trap_01_a_takeover_says_how_long_to_wait_for_what_is_in_doubt(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        early = world.ledger.take_over("next")
        assert SETTLE_SECONDS * 1000 - 2000 < early.settle_wait_ms <= SETTLE_SECONDS * 1000
        world.age(SETTLE_SECONDS)
        assert world.ledger.take_over("next").settle_wait_ms == 0

    def test_what_was_only_reserved_needs_no_settling(self, world: LedgerWorld, epoch: int) -> None:
        self.reserve(world, epoch, world.record())
        assert world.ledger.take_over("next").settle_wait_ms == 0

    def test_in_doubt_and_expected_beyond_means_applied(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, Evidence(502))
        assert found.fates == [ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)]
        assert found.bound == []
        assert world.outcome(operation.change_id) == ("APPLIED", 501)
        assert world.sync_status("u1") == "SYNCED"
        assert world.counts() == (501, 502)

    def test_trap_15_in_doubt_and_expected_stays_bound_to_its_exact_body(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, Evidence(501))
        assert [ref.change_id for ref in found.bound] == [operation.change_id]
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        assert (again.nonce, again.body, again.sends) == (501, operation.body, 1)
        world.ledger.advance(taken.epoch, None, again)
        assert world.ledger.advance(taken.epoch, applied(again), None) == ChangeResult(
            operation.change_id, "APPLIED", 501
        )

    def test_of_two_in_doubt_each_gets_its_own_verdict(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, Evidence(502))
        assert found.fates == [ChangeResult(first.change_id, "APPLIED", 501, unproven=True)]
        assert [ref.change_id for ref in found.bound] == [second.change_id]

    def test_the_new_first_operation_comes_after_the_bound_ones(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record("u1"))
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        bound, fresh = self.reserve(world, taken.epoch, operation.change_id, world.record("u2"))
        assert (bound.nonce, fresh.nonce) == (501, 502)

    def test_a_ban_outlives_the_session_and_ends(self, world: LedgerWorld, epoch: int) -> None:
        left_ms = world.ledger.ban(epoch, 900)
        assert 900_000 < left_ms < 905_000
        assert 895_000 < world.ledger.take_over("next").banned_ms <= left_ms
        world.age(910)
        assert world.ledger.take_over("next").banned_ms == 0

    def test_a_ban_that_is_told_again_while_it_runs_began_when_it_was_first_seen(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """As when a halt is resolved meanwhile: OldHost is asked what it expects."""
        world.ledger.ban(epoch, 900)
        world.age(300)
        assert world.ledger.ban(epoch, 600) > 600_000
        assert 299 < world.banned_for_s() < 310
        world.age(610)
        world.ledger.ban(epoch, 900)
        assert world.banned_for_s() < 10

    def test_a_ban_is_never_longer_than_itself_when_the_databases_clock_is_set_back(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """Its beginning lies in the future: nothing is known of it, and OldHost is asked."""
        world.ledger.ban(epoch, 900)
        world.age(-7200)
        assert world.ledger.take_over("next").banned_ms == 0
        world.age(7200 + 600)
        assert 290_000 < world.ledger.take_over("next").banned_ms < 301_000

    def test_a_ban_after_which_oldhost_agreed_is_over_though_the_databases_clock_is_set_back_into_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """Else the writer would wait it out again, and count it as a second one."""
        world.ledger.ban(epoch, 900)
        world.age(910)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        world.age(-300)
        assert world.ledger.take_over("later").banned_ms == 0
        assert world.ledger.ban(taken.epoch, 900) > 900_000
        assert world.banned_for_s() < 10
        assert world.ledger.take_over("last").banned_ms > 890_000

    def test_what_was_taken_back_before_it_was_written_needs_no_settling(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, applied(first), second)
        world.ledger.uncount_send(epoch, second)
        taken = world.ledger.take_over("next")
        assert (taken.settle_wait_ms, taken.may_be_late, taken.final_nonces) == (0, False, [502])

    def test_each_send_of_an_operation_is_kept(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, Evidence(501))
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        world.ledger.advance(taken.epoch, None, again)
        assert world.archived() == [501]
        assert world.row(501) == (operation.change_id, "SENT", operation.body)
