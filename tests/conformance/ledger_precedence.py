"""A change gets no nonce while an older one of its entity must go first, whatever the writer knows (I4)."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.errors import LedgerHalted
from oldhost_sync.oldhost.ledger import Evidence, Reserved
from oldhost_sync.policy.changes import HELD, WAITING, ChangeResult, EntityKey, PriorityClass
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld

LOCKED_OUT = "guest_locked_out"
STATUS = "unit_status_changed"


class Precedences(LedgerSuite):
    def test_trap_11_a_change_does_not_overtake_an_older_one_of_its_entity(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        older, emergency = world.record("u1"), world.record("u1", LOCKED_OUT)
        refused = world.ledger.reserve(epoch, [emergency])
        assert refused == [ChangeResult(emergency, WAITING)]
        assert [ref.change_id for ref in refused.older] == [older]
        assert refused.older[0].accepted_at_ms == world.accepted_at_ms(older)
        assert world.counts() == (500, 501)

    @pytest.mark.parametrize("event_type", ["booking_created", LOCKED_OUT, "unit_details_changed"])
    def test_whatever_the_class_of_the_older_one(self, world: LedgerWorld, epoch: int, event_type: str) -> None:
        older, newer = world.record("u1", event_type), world.record("u1", STATUS, {"status": "Clean"})
        refused = world.ledger.reserve(epoch, [newer])
        assert (refused, [ref.change_id for ref in refused.older]) == ([ChangeResult(newer, WAITING)], [older])

    def test_a_change_that_seems_needless_waits_too(self, world: LedgerWorld, epoch: int) -> None:
        """The older one of another event type, which is sent later, may write the same field."""
        self.send(world, epoch, world.record("u1", STATUS, {"status": "Dirty"}))
        older = world.record("u1", "door_code_changed", {"status": "Clean"})
        newer = world.record("u1", STATUS, {"status": "Dirty"})
        refused = world.ledger.reserve(epoch, [newer])
        assert (refused, [ref.change_id for ref in refused.older]) == ([ChangeResult(newer, WAITING)], [older])
        assert [one.change_id for one in self.reserve(world, epoch, older, newer)] == [older, newer]

    def test_those_that_go_first_are_told_oldest_first(self, world: LedgerWorld, epoch: int) -> None:
        ids = [world.record("u1", each) for each in ("unit_details_changed", "booking_created", LOCKED_OUT)]
        refused = world.ledger.reserve(epoch, [world.record("u1")])
        assert [ref.change_id for ref in refused.older] == ids

    def test_in_one_batch_the_older_one_comes_first(self, world: LedgerWorld, epoch: int) -> None:
        older, newer = world.record("u1"), world.record("u1", LOCKED_OUT)
        assert [one.nonce for one in self.reserve(world, epoch, older, newer)] == [501, 502]

    def test_in_one_batch_the_newer_one_does_not_come_first(self, world: LedgerWorld, epoch: int) -> None:
        older, newer = world.record("u1"), world.record("u1", LOCKED_OUT)
        refused, operation = world.ledger.reserve(epoch, [newer, older])
        assert refused == ChangeResult(newer, WAITING)
        assert isinstance(operation, Reserved)

    def test_an_older_one_that_holds_a_nonce_is_no_reason_to_wait(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record("u1"))
        world.ledger.advance(epoch, None, operation)
        assert [one.nonce for one in self.reserve(world, epoch, world.record("u1"))] == [502]

    def test_an_lww_change_that_a_newer_one_replaces_is_no_reason_to_wait(self, world: LedgerWorld, epoch: int) -> None:
        world.record("u1", STATUS, {"status": "Dirty"})
        txn = world.record("u1")
        world.record("u1", STATUS, {"status": "Clean"})
        assert [one.change_id for one in self.reserve(world, epoch, txn)] == [txn]

    def test_an_lww_change_that_a_newer_applied_one_made_stale_is_no_reason_to_wait(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        stale = world.record("u1", STATUS, {"status": "Dirty"})
        self.reject(world, epoch, stale)
        self.send(world, epoch, world.record("u1", STATUS, {"status": "Clean"}))
        assert world.decide("retry", change_id=stale) == ""
        assert [one.nonce for one in self.reserve(world, epoch, world.record("u1"))] == [503]

    def test_an_lww_change_with_a_newer_one_in_flight_is_no_reason_to_wait(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        world.record("u1", STATUS, {"status": "Dirty"})
        newer, txn = world.record("u1", STATUS, {"status": "Clean"}), world.record("u1")
        assert [one.change_id for one in self.reserve(world, epoch, newer, txn)] == [newer, txn]

    def test_an_lww_change_does_not_come_after_newer_operations_when_a_newer_one_replaces_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        replaced = world.record("u1", STATUS, {"status": "Dirty"})
        txn, newest = world.record("u1"), world.record("u1", STATUS, {"status": "Clean"})
        self.send(world, epoch, txn)
        refused = world.ledger.reserve(epoch, [replaced])
        assert refused == [ChangeResult(replaced, WAITING)]
        assert [ref.change_id for ref in refused.older] == [newest]

    def test_nor_after_newer_operations_that_are_still_on_their_way(self, world: LedgerWorld, epoch: int) -> None:
        replaced = world.record("u1", STATUS, {"status": "Dirty"})
        emergency, newest = world.record("u1", LOCKED_OUT), world.record("u1", STATUS, {"status": "Clean"})
        self.reserve(world, epoch, emergency)
        refused = world.ledger.reserve(epoch, [replaced])
        assert refused == [ChangeResult(replaced, WAITING)]
        assert [ref.change_id for ref in refused.older] == [newest]

    def test_nor_after_newer_operations_of_the_same_send(self, world: LedgerWorld, epoch: int) -> None:
        replaced = world.record("u1", STATUS, {"status": "Dirty"})
        emergency, newest = world.record("u1", LOCKED_OUT), world.record("u1", STATUS, {"status": "Clean"})
        bound, refused = world.ledger.reserve(epoch, [emergency, replaced])
        assert (bound.change_id, refused) == (emergency, ChangeResult(replaced, WAITING))
        assert newest not in (bound.change_id, refused.change_id)

    def test_the_newest_of_its_key_goes_whatever_went_past_it(self, world: LedgerWorld, epoch: int) -> None:
        late = world.record("u1", STATUS, {"status": "Dirty"})
        self.reject(world, epoch, late)
        self.send(world, epoch, world.record("u1", "unit_details_changed"))
        assert world.decide("retry", change_id=late) == ""
        assert [one.change_id for one in self.reserve(world, epoch, late)] == [late]

    def test_another_entitys_older_change_is_no_reason_to_wait(self, world: LedgerWorld, epoch: int) -> None:
        world.record("u1")
        assert [one.nonce for one in self.reserve(world, epoch, world.record("u2"))] == [501]

    def test_a_txn_change_behind_a_dead_letter_is_held(self, world: LedgerWorld, epoch: int) -> None:
        dead, later = world.record("u1"), world.record("u1")
        self.reject(world, epoch, dead)
        refused = world.ledger.reserve(epoch, [later])
        assert refused == [ChangeResult(later, HELD)]
        assert refused.held == [(EntityKey("unit", "u1"), [dead])]

    def test_what_is_held_holds_up_no_emergency_and_no_lww_change(self, world: LedgerWorld, epoch: int) -> None:
        self.reject(world, epoch, world.record("u1"))
        world.record("u1")
        emergency, status = world.record("u1", LOCKED_OUT), world.record("u1", STATUS, {"status": "Clean"})
        assert [one.change_id for one in self.reserve(world, epoch, emergency, status)] == [emergency, status]

    def test_what_an_operator_sends_again_is_not_held(self, world: LedgerWorld, epoch: int) -> None:
        for change_id in (ids := [world.record("u1", LOCKED_OUT), world.record("u1", LOCKED_OUT)]):
            self.reject(world, epoch, change_id)
        world.classify(LOCKED_OUT, PriorityClass.TXN)
        assert world.decide("retry", change_id=ids[1]) == ""
        assert [one.change_id for one in self.reserve(world, epoch, ids[1])] == [ids[1]]

    def test_a_change_that_the_database_lost_halts(self, world: LedgerWorld, epoch: int) -> None:
        with pytest.raises(LedgerHalted, match="not in the database"):
            world.ledger.reserve(epoch, [987_654], {987_654: 1_700_000_000_000})
        assert world.ledger.take_over("next").halted is not None

    def test_a_session_does_not_begin_when_the_newest_change_is_lost(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record("u1")
        world.ledger.check_known(epoch, change_id, world.accepted_at_ms(change_id))
        with pytest.raises(LedgerHalted, match="not in the database"):
            world.ledger.check_known(epoch, change_id + 1, world.accepted_at_ms(change_id))
        assert world.decide("resolve", mode="adopt") == ""
        taken = world.ledger.take_over("next")
        world.ledger.check_known(taken.epoch, change_id + 1, world.accepted_at_ms(change_id))

    @pytest.mark.parametrize("mode", ["adopt", "resend"])
    def test_one_resolve_ends_a_halt_for_lost_changes_whose_operations_oldhost_has(
        self, world: LedgerWorld, epoch: int, mode: str
    ) -> None:
        """The books went back to nonce 500, OldHost expects 508: told with the halt, decided with it."""
        with pytest.raises(LedgerHalted):
            world.ledger.check_known(epoch, 987_654, 1_700_000_000_000)
        assert "expects nonce 508" in world.ledger.complete_halt(epoch, 508)
        assert world.ledger.take_over("again").halt_knows_expected
        assert world.decide("resolve", mode=mode) == ""
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, Evidence(508)).halted is None
        assert [one.nonce for one in self.send(world, taken.epoch, world.record("u1"))] == [508]

    def test_a_halt_is_not_told_of_a_count_that_agrees(self, world: LedgerWorld, epoch: int) -> None:
        world.ledger.halt(epoch, "invariant violated: test")
        assert world.ledger.complete_halt(epoch, 501) == "invariant violated: test"
        assert not world.ledger.take_over("again").halt_knows_expected

    def test_an_id_that_was_given_out_again_halts(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record("u1")
        with pytest.raises(LedgerHalted, match="given out again"):
            world.ledger.reserve(epoch, [change_id], {change_id: world.accepted_at_ms(change_id) - 5_000})
        assert world.row(501) is None

    def test_after_a_resolve_what_the_database_lost_is_given_up_and_the_id_s_new_owner_is_told(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        change_id = world.record("u1")
        known = {change_id: world.accepted_at_ms(change_id) - 5_000, 987_654: world.accepted_at_ms(change_id) - 5_000}
        with pytest.raises(LedgerHalted):
            world.ledger.reserve(epoch, list(known), known)
        assert world.decide("resolve", mode="adopt") == ""
        taken = world.ledger.take_over("next")
        given_up = world.ledger.reserve(taken.epoch, list(known), known)
        assert [fate.outcome for fate in given_up if isinstance(fate, ChangeResult)] == ["DISCARDED", "DISCARDED"]
        assert [ref.change_id for ref in given_up.older] == [change_id]
        assert [one.change_id for one in self.reserve(world, taken.epoch, change_id)] == [change_id]

    def test_a_change_that_is_what_the_writer_was_told_of_goes(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record("u1")
        (entry,) = world.ledger.reserve(epoch, [change_id], {change_id: world.accepted_at_ms(change_id)})
        assert isinstance(entry, Reserved)
