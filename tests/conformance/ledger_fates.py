"""What becomes of changes, and what their units show."""

from __future__ import annotations

from oldhost_sync.drivers.events import Rejected
from oldhost_sync.oldhost.ledger import Answered
from oldhost_sync.policy.changes import BOUND, WAITING, ChangeResult, PriorityClass
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld, applied


class Fates(LedgerSuite):
    def test_fates_tell_outcome_bound_and_waiting_apart(self, world: LedgerWorld, epoch: int) -> None:
        done, sent, held, waiting = (world.record(f"u{number}") for number in range(4))
        self.send(world, epoch, done)
        operation, _ = self.reserve(world, epoch, sent, held)
        world.ledger.advance(epoch, None, operation)
        assert world.ledger.fates([done, sent, held, waiting]) == [
            ChangeResult(done, "APPLIED", 501),
            ChangeResult(sent, BOUND, 502),
            ChangeResult(held, WAITING),
            ChangeResult(waiting, WAITING),
        ]

    def test_a_newer_lww_change_that_is_applied_supersedes_the_older_waiting_ones(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        older = world.record("u1", "unit_status_changed", {"status": "Dirty"})
        newer = world.record("u1", "unit_status_changed", {"status": "Clean"})
        other = world.record("u2", "unit_status_changed", {"status": "Dirty"})
        self.send(world, epoch, newer)
        assert world.outcome(older) == ("SUPERSEDED", None)
        assert world.outcome(other) == (None, None)
        assert world.sync_status("u1") == "SYNCED"

    def test_trap_09_an_applied_lww_change_supersedes_nothing_of_another_event_type(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        dead = world.record("u1")
        self.reject(world, epoch, dead)
        held = world.record("u1", "checked_in", {"guest": 1})
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
        assert world.outcome(held) == (None, None)

    def test_trap_08_an_older_txn_change_that_is_retried_does_not_make_oldhosts_state_older(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """Its key became LWW after it: what is between it and the newest that was applied is as stale as before."""
        older = world.record("u1", "checked_in", {"guest": 1})
        self.reject(world, epoch, older)
        world.classify("checked_in", PriorityClass.LWW)
        between = world.record("u1", "checked_in", {"guest": 2})
        self.reject(world, epoch, between)
        self.send(world, epoch, world.record("u1", "checked_in", {"guest": 3}))
        assert world.decide("retry", change_id=older) == ""
        self.send(world, epoch, older)
        assert world.decide("retry", change_id=between) == ""
        (fate,) = world.ledger.reserve(epoch, [between])
        assert isinstance(fate, ChangeResult)
        assert fate.outcome == "STALE"

    def test_trap_10_a_unit_is_synced_only_when_its_newest_change_is(self, world: LedgerWorld, epoch: int) -> None:
        first = world.record("u1", "unit_status_changed", {"status": "Dirty"})
        (operation,) = self.reserve(world, epoch, first)
        world.ledger.advance(epoch, None, operation)
        second = world.record("u1", "unit_status_changed", {"status": "Clean"})
        world.ledger.advance(epoch, applied(operation), None)
        assert world.outcome(first) == ("APPLIED", 501)
        assert world.sync_status("u1") == "PENDING_SYNC"
        self.send(world, epoch, second)
        assert world.sync_status("u1") == "SYNCED"

    def test_a_unit_with_an_older_change_waiting_is_not_synced(self, world: LedgerWorld, epoch: int) -> None:
        older = world.record("u1", "booking_created", {"guest": 1})
        newest = world.record("u1", "unit_status_changed", {"status": "Clean"})
        operation, _ = self.reserve(world, epoch, older, newest)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, applied(operation), None)
        assert world.outcome(older) == ("APPLIED", 501)
        assert world.sync_status("u1") == "PENDING_SYNC"

    def test_a_dead_letter_keeps_its_unit_failed_until_it_is_decided(self, world: LedgerWorld, epoch: int) -> None:
        dead, later = world.record("u1"), world.record("u1", "unit_status_changed", {"status": "Clean"})
        self.reject(world, epoch, dead)
        self.send(world, epoch, later)
        assert world.sync_status("u1") == "SYNC_FAILED"
        assert world.decide("discard", change_id=dead) == ""
        assert world.outcome(dead)[0] == "DISCARDED"
        assert world.sync_status("u1") == "SYNC_FAILED"  # it shows what OldHost never got
        self.send(world, epoch, world.record("u1"))
        assert world.sync_status("u1") == "SYNCED"

    def test_a_unit_with_a_dead_letter_is_failed_also_while_a_later_change_waits(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        dead = world.record("u1")
        self.reject(world, epoch, dead)
        world.record("u1", "unit_status_changed", {"status": "Clean"})
        assert world.sync_status("u1") == "SYNC_FAILED"

    def test_a_change_that_was_given_up_counts_until_a_newer_one_of_its_event_type_comes(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        dirty = world.record("u1", "unit_status_changed", {"status": "Dirty"})
        self.reject(world, epoch, dirty)
        assert world.decide("discard", change_id=dirty) == ""
        self.send(world, epoch, world.record("u1", "unit_details_changed", {"name": "x"}))
        assert world.sync_status("u1") == "SYNC_FAILED"
        clean = world.record("u1", "unit_status_changed", {"status": "Clean"})
        assert world.sync_status("u1") == "PENDING_SYNC"
        self.send(world, epoch, clean)
        assert world.sync_status("u1") == "SYNCED"

    def test_a_retried_dead_letter_waits_again_and_gets_a_new_nonce(self, world: LedgerWorld, epoch: int) -> None:
        dead = world.record("u1")
        self.reject(world, epoch, dead)
        assert world.decide("retry", change_id=dead) == ""
        assert world.outcome(dead) == (None, None)
        assert world.sync_status("u1") == "PENDING_SYNC"
        assert world.archived() == [501]
        assert [one.nonce for one in self.send(world, epoch, dead)] == [502]
        assert world.sync_status("u1") == "SYNCED"

    def test_only_a_dead_letter_is_retried_or_discarded(self, world: LedgerWorld, epoch: int) -> None:
        waiting, done = world.record("u1"), world.record("u2")
        self.send(world, epoch, done)
        for action in ("retry", "discard"):
            assert "not a dead letter" in world.decide(action, change_id=waiting)
            assert "not a dead letter" in world.decide(action, change_id=done)
            assert "no change" in world.decide(action, change_id=999_999)

    def test_a_dead_letter_that_is_retried_after_a_newer_no_op_is_stale(self, world: LedgerWorld, epoch: int) -> None:
        clean, dirty = {"status": "Clean"}, {"status": "Dirty"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        (refused,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", dirty))
        world.ledger.advance(epoch, None, refused)
        world.ledger.advance(epoch, Answered(refused, Rejected("no", consumed=True)), None)
        newer = world.record("u1", "unit_status_changed", clean)
        assert [entry.outcome for entry in world.ledger.reserve(epoch, [newer]) if isinstance(entry, ChangeResult)] == [
            "NO_OP"
        ]
        assert world.decide("retry", change_id=refused.change_id) == ""
        (entry,) = world.ledger.reserve(epoch, [refused.change_id])
        assert isinstance(entry, ChangeResult)
        assert entry.outcome == "STALE"
