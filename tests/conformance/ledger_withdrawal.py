"""What an operator withdraws: bound or withdrawn and never both, and afterwards as if it had never come."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.events import Rejected, Said
from oldhost_sync.oldhost.ledger import Answered, Evidence
from oldhost_sync.policy.changes import WAITING, ChangeResult
from oldhost_sync.store.intake.withdrawal import NothingToUndo
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld, applied

STATUS = "unit_status_changed"
DETAILS = "unit_details_changed"


def clean(world: LedgerWorld, unit: str = "u1", status: str = "Clean") -> int:
    return world.record(unit, STATUS, {"status": status})


class Withdrawals(LedgerSuite):
    def test_a_withdrawn_change_gets_no_nonce(self, world: LedgerWorld, epoch: int) -> None:
        """The writer has it in memory still, and asks for a nonce."""
        taken, left = world.record("u1"), world.record("u2")
        assert world.withdraw(entity_id="u1").withdrawn == 1
        fate, operation = world.ledger.reserve(epoch, [taken, left])
        assert fate == ChangeResult(taken, "WITHDRAWN")
        assert not isinstance(operation, ChangeResult)
        assert world.outcome(taken) == ("WITHDRAWN", None)

    def test_what_has_a_nonce_stays(self, world: LedgerWorld, epoch: int) -> None:
        """One is on the wire, one is reserved, one waits."""
        sent, reserved, waiting = (world.record(f"u{number}") for number in range(3))
        operation, following = self.reserve(world, epoch, sent, reserved)
        world.ledger.advance(epoch, None, operation)
        done = world.withdraw()
        assert (done.withdrawn, done.bound) == (1, 2)
        world.ledger.advance(epoch, applied(operation), following)
        world.ledger.advance(epoch, applied(following), None)
        assert [world.outcome(each)[0] for each in (sent, reserved, waiting)] == ["APPLIED", "APPLIED", "WITHDRAWN"]

    def test_what_may_still_arrive_at_oldhost_stays(self, world: LedgerWorld, epoch: int) -> None:
        """It was refused without an answer that counts, and has given up its nonce; a copy may arrive late."""
        poison, other = world.record("u1"), world.record("u2")
        (operation,) = self.reserve(world, epoch, poison)
        for _ in range(2):
            world.ledger.advance(epoch, None, operation)
            taken = world.ledger.take_over("next")
            world.age(60)
            epoch = taken.epoch
            found = world.ledger.reconcile(epoch, Evidence(501))
            if found.apart:
                break
            (operation,) = self.reserve(world, epoch, poison)
        assert found.apart
        done = world.withdraw()
        assert (done.withdrawn, done.bound) == (1, 1)
        assert [world.outcome(each)[0] for each in (poison, other)] == [None, "WITHDRAWN"]

    def test_an_unsure_change_that_was_retried_stays(self, world: LedgerWorld, epoch: int) -> None:
        """OldHost may have it: no answer says that it has not."""
        unsure = world.record("u1")
        (operation,) = self.reserve(world, epoch, unsure)
        world.ledger.advance(epoch, None, operation)
        world.ledger.note_answer(epoch, operation, Said("status 418", "words of OldHost"))
        taken = world.ledger.take_over("next")
        world.age(60)
        world.ledger.reconcile(taken.epoch, Evidence(502))
        assert world.decide("retry", change_id=unsure) == ""
        done = world.withdraw()
        assert (done.withdrawn, done.bound) == (0, 1)

    def test_a_change_with_a_fate_keeps_it(self, world: LedgerWorld, epoch: int) -> None:
        done = world.record("u1")
        self.send(world, epoch, done)
        assert world.withdraw().withdrawn == 0
        assert world.outcome(done) == ("APPLIED", 501)

    def test_no_change_is_withdrawn_that_came_after_the_preview(self, world: LedgerWorld, epoch: int) -> None:
        old = world.record("u1")
        seen = world.preview()
        new = world.record("u2")
        assert world.withdraw(up_to=seen.up_to).withdrawn == 1
        assert [world.outcome(each)[0] for each in (old, new)] == ["WITHDRAWN", None]

    # ------------------------------------------------------------------------------------------------- older states

    def test_the_older_state_that_still_waits_is_sent(self, world: LedgerWorld, epoch: int) -> None:
        """The writer has only the newest in memory: the older one is given to it anew."""
        older, newer = clean(world, status="Dirty"), clean(world)
        done = world.withdraw(change_id=newer)
        assert [ref.change_id for ref in done.refs] == [older]
        self.send(world, epoch, older)
        assert world.outcome(older) == ("APPLIED", 501)
        assert world.shadow("u1") == {STATUS: {"status": "Dirty"}}

    @pytest.mark.parametrize("is_applied", [False, True])
    def test_an_older_state_that_would_come_too_late_is_superseded(
        self, world: LedgerWorld, epoch: int, *, is_applied: bool
    ) -> None:
        """I4: the booking is newer than it, and OldHost has it, or gets it next."""
        older, booking, newer = clean(world, status="Dirty"), world.record("u1"), clean(world)
        (operation,) = self.reserve(world, epoch, booking)
        world.ledger.advance(epoch, None, operation)
        if is_applied:
            world.ledger.advance(epoch, applied(operation), None)
        assert world.withdraw(change_id=newer).refs == []
        if not is_applied:
            world.ledger.advance(epoch, applied(operation), None)
        assert [world.outcome(each)[0] for each in (older, booking, newer)] == ["SUPERSEDED", "APPLIED", "WITHDRAWN"]
        assert world.sync_status("u1") == "SYNCED"
        assert STATUS not in world.shadow("u1")

    def test_an_older_state_in_flight_keeps_its_end(self, world: LedgerWorld, epoch: int) -> None:
        older = clean(world, status="Dirty")
        (operation,) = self.reserve(world, epoch, older)
        world.ledger.advance(epoch, None, operation)
        newer = clean(world)
        assert world.withdraw(change_id=newer).refs == []
        world.ledger.advance(epoch, applied(operation), None)
        assert world.outcome(older) == ("APPLIED", 501)
        assert world.shadow("u1") == {STATUS: {"status": "Dirty"}}
        assert world.sync_status("u1") == "SYNCED"

    def test_one_in_flight_is_not_superseded_with_those_that_would_come_too_late(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        first = clean(world, status="first")
        (operation,) = self.reserve(world, epoch, first)
        world.ledger.advance(epoch, None, operation)
        late, booking, newest = clean(world, status="late"), world.record("u1"), clean(world)
        self.reserve(world, epoch, booking)
        world.withdraw(change_id=newest)
        assert [world.outcome(each)[0] for each in (first, late)] == [None, "SUPERSEDED"]
        world.ledger.advance(epoch, applied(operation), None)
        assert world.outcome(first) == ("APPLIED", 501)
        assert world.shadow("u1")[STATUS] == {"status": "first"}

    def test_an_older_waiting_state_goes_before_a_newer_change_of_its_entity(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        older, newer, booking = clean(world, status="Dirty"), clean(world), world.record("u1")
        world.withdraw(change_id=newer)
        refused = world.ledger.reserve(epoch, [booking])
        assert list(refused) == [ChangeResult(booking, WAITING)]
        assert [ref.change_id for ref in refused.older] == [older]

    # ---------------------------------------------------------------------------------------------------- afterwards

    def test_the_shadow_shows_what_oldhost_has(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, clean(world, status="Dirty"), world.record("u1", DETAILS, {"name": "Seaview"}))
        clean(world)
        world.record("u1", DETAILS, {"name": "Wrong", "property_id": "p9"})
        assert world.withdraw(entity_id="u1").withdrawn == 2
        assert world.shadow("u1") == {STATUS: {"status": "Dirty"}, DETAILS: {"name": "Seaview"}}
        assert world.unit("u1") == ("Dirty", "Seaview", None)
        assert world.sync_status("u1") == "SYNCED"

    def test_a_state_of_which_nothing_is_left_is_removed(self, world: LedgerWorld, epoch: int) -> None:
        clean(world)
        kept = world.record("u1", "rate_changed", {"rate": 7})
        world.withdraw(event_type=STATUS)
        assert world.shadow("u1") == {"rate_changed": {"rate": 7}}
        assert world.unit("u1") == (None, None, kept)

    def test_the_same_state_again_is_sent(self, world: LedgerWorld, epoch: int) -> None:
        """The no-op check does not swallow it: OldHost never had the withdrawn one."""
        self.send(world, epoch, clean(world, status="Dirty"))
        world.withdraw(change_id=clean(world))
        again = clean(world)
        self.send(world, epoch, again)
        assert world.outcome(again) == ("APPLIED", 502)

    def test_the_state_before_it_is_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, clean(world, status="Dirty"))
        world.withdraw(change_id=clean(world))
        again = clean(world, status="Dirty")
        assert list(world.ledger.reserve(epoch, [again])) == [ChangeResult(again, "NO_OP")]

    def test_a_rejected_change_is_shown_again_and_its_unit_has_failed(self, world: LedgerWorld, epoch: int) -> None:
        dead = clean(world, status="Dirty")
        (operation,) = self.reserve(world, epoch, dead)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
        world.withdraw(change_id=clean(world))
        assert world.shadow("u1") == {STATUS: {"status": "Dirty"}}
        assert world.sync_status("u1") == "SYNC_FAILED"

    def test_what_is_held_behind_a_dead_letter_can_be_withdrawn(self, world: LedgerWorld, epoch: int) -> None:
        dead, held = world.record("u1"), world.record("u1", "checked_in")
        self.reject(world, epoch, dead)
        assert world.withdraw(event_type="checked_in").withdrawn == 1
        assert world.decide("retry", change_id=dead) == ""
        self.send(world, epoch, dead)
        assert [world.outcome(each)[0] for each in (dead, held)] == ["APPLIED", "WITHDRAWN"]

    def test_the_books_balance(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1"))
        world.record("u2")
        world.withdraw()
        books = world.books()
        assert (books.accepted, books.applied, books.withdrawn, books.waiting, books.balance) == (2, 1, 1, 0, True)

    def test_its_key_gives_the_first_answer_again(self, world: LedgerWorld, epoch: int) -> None:
        """An application that repeats the request does not record the change a second time."""
        taken = world.record("u1", key="k-1")
        world.withdraw(idempotency_key="k-1")
        assert world.record("u1", key="k-1") == taken
        assert world.outcome(taken) == ("WITHDRAWN", None)

    # ------------------------------------------------------------------------------------------------------- preview

    def test_the_preview_says_what_the_withdrawal_does(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, clean(world, "u1", "Dirty"))
        world.record("u2", STATUS, {"status": "Dirty"}, source="other")
        for unit in ("u1", "u2", "u3"):  # back to what OldHost has, to a change that waits, to nothing
            world.record(unit, STATUS, {"status": "Clean"}, source="bulk")
        world.record("u4", source="bulk")
        self.reserve(world, epoch, world.record("u5", source="bulk"))
        seen = world.preview(source="bulk")
        assert (seen.changes, seen.by_class, seen.bound, seen.entities) == (4, {"LWW": 3, "TXN": 1}, 1, 4)
        assert (seen.shown_at_oldhost, seen.shown_before, seen.shown_none) == (1, 1, 2)
        assert seen.operations == 3  # u2 still gets one

    # ---------------------------------------------------------------------------------------------------------- undo

    def test_an_undone_withdrawal_is_recorded_anew(self, world: LedgerWorld, epoch: int) -> None:
        first, second = world.record("u1"), clean(world)
        done = world.withdraw()
        assert world.undo(done.act_id) == (2, 0)
        waiting = world.waiting()
        assert [(unit, event_type) for _, unit, event_type in waiting] == [("u1", "booking_created"), ("u1", STATUS)]
        assert [world.outcome(each)[0] for each in (first, second)] == ["WITHDRAWN", "WITHDRAWN"]
        assert world.shadow("u1")[STATUS] == {"status": "Clean"}
        self.send(world, epoch, *(change_id for change_id, _, _ in waiting))

    def test_an_undo_that_is_repeated_records_nothing_more(self, world: LedgerWorld, epoch: int) -> None:
        clean(world)
        done = world.withdraw()
        world.undo(done.act_id)
        world.undo(done.act_id)
        assert len(world.waiting()) == 1

    def test_no_change_is_undone_whose_entity_has_a_newer_one(self, world: LedgerWorld, epoch: int) -> None:
        clean(world, "u1")
        clean(world, "u2")
        done = world.withdraw()
        newer = world.record("u1")
        assert world.undo(done.act_id) == (1, 1)
        assert [(change_id == newer, unit) for change_id, unit, _ in world.waiting()] == [(True, "u1"), (False, "u2")]

    def test_after_a_minute_nothing_is_undone(self, world: LedgerWorld, epoch: int) -> None:
        clean(world)
        done = world.withdraw()
        world.age_withdrawals(61)
        with pytest.raises(NothingToUndo, match="more than 60 s ago"):
            world.undo(done.act_id)
        with pytest.raises(NothingToUndo, match="no withdrawal 987654"):
            world.undo(987_654)
