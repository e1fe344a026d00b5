"""What a change becomes when it asks the ledger for a nonce."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.errors import InvariantViolated
from oldhost_sync.oldhost.ledger import Evidence
from oldhost_sync.policy.changes import ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld


class Reserving(LedgerSuite):
    def test_first_contact_numbers_from_what_oldhost_expects(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        assert operation.nonce == 501
        assert world.counts() == (500, 502)

    def test_first_contact_happens_once(self, world: LedgerWorld, epoch: int) -> None:
        with pytest.raises(InvariantViolated):
            world.ledger.adopt_first(epoch, 7)

    def test_a_batch_gets_consecutive_nonces_in_its_order(self, world: LedgerWorld, epoch: int) -> None:
        ids = [world.record(f"u{number}") for number in range(5)]
        ids.reverse()
        operations = self.reserve(world, epoch, *ids)
        assert [(one.change_id, one.nonce) for one in operations] == list(zip(ids, range(501, 506), strict=True))

    def test_the_body_is_the_protocols(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record("u7", "unit_status_changed", {"status": "Clean"}, key="k7")
        (operation,) = self.reserve(world, epoch, change_id)
        assert operation.body == (
            b'{"entity_type":"unit","entity_id":"u7","event_type":"unit_status_changed","payload":{"status":"Clean"},'
            b'"event_id":%d,"idempotency_key":"k7","unit_id":"u7","status":"Clean"}' % change_id
        )

    def test_a_change_nobody_recorded_gets_no_nonce(self, world: LedgerWorld, epoch: int) -> None:
        assert world.ledger.reserve(epoch, [987_654]) == [
            ChangeResult(987_654, "DISCARDED", None, "no such change in the outbox")
        ]
        assert world.counts() == (500, 501)

    def test_a_settled_change_answers_its_recorded_fate(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record()
        self.send(world, epoch, change_id)
        assert world.ledger.reserve(epoch, [change_id]) == [ChangeResult(change_id, "APPLIED", 501)]
        assert world.counts() == (501, 502)

    def test_an_equal_lww_change_is_a_no_op_without_a_nonce(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
        again = world.record("u1", "unit_status_changed", {"status": "Clean"})
        assert world.ledger.reserve(epoch, [again]) == [ChangeResult(again, "NO_OP")]
        assert world.outcome(again) == ("NO_OP", None)
        assert world.sync_status("u1") == "SYNCED"

    def test_an_equal_change_is_sent_when_another_key_of_its_entity_was_applied_since(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """A check-out may have made the unit dirty: OldHost's state is what it took last, whatever the event type."""
        clean = {"status": "Clean"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        self.send(world, epoch, world.record("u1", "checked_out", {"status": "Dirty"}))
        again = world.record("u1", "unit_status_changed", clean)
        assert [one.change_id for one in self.send(world, epoch, again)] == [again]
        third = world.record("u1", "unit_status_changed", clean)
        assert world.ledger.reserve(epoch, [third]) == [ChangeResult(third, "NO_OP")]

    def test_an_equal_change_is_sent_when_another_of_its_entity_goes_before_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        clean = {"status": "Clean"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        out, again = (
            world.record("u1", "checked_out", {"status": "Dirty"}),
            world.record("u1", "unit_status_changed", clean),
        )
        assert [one.change_id for one in self.reserve(world, epoch, out, again)] == [out, again]

    def test_an_equal_change_is_sent_when_another_of_its_entity_is_in_doubt(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        clean = {"status": "Clean"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        (doubtful,) = self.reserve(world, epoch, world.record("u1", "checked_out", {"status": "Dirty"}))
        world.ledger.advance(epoch, None, doubtful)
        again = world.record("u1", "unit_status_changed", clean)
        assert [one.change_id for one in self.reserve(world, epoch, again)] == [again]

    def test_what_was_found_applied_makes_no_equal_change_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        """The lost answer may have been a rejection: then OldHost has kept its older state."""
        clean = {"status": "Clean"}
        (operation,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", clean))
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        fate = ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)
        assert world.ledger.reconcile(taken.epoch, Evidence(502)).fates == [fate]
        again = world.record("u1", "unit_status_changed", clean)
        assert [one.change_id for one in self.send(world, taken.epoch, again)] == [again]
        third = world.record("u1", "unit_status_changed", clean)
        assert world.ledger.reserve(taken.epoch, [third]) == [ChangeResult(third, "NO_OP")]

    def test_an_equal_txn_change_is_sent_all_the_same(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "checked_in", {"guest": 1}))
        (operation,) = self.reserve(world, epoch, world.record("u1", "checked_in", {"guest": 1}))
        assert operation.nonce == 502

    def test_trap_08_an_older_lww_change_after_a_newer_one_is_stale(self, world: LedgerWorld, epoch: int) -> None:
        dead = world.record("u1", "unit_status_changed", {"status": "Dirty"})
        self.reject(world, epoch, dead)
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
        assert world.decide("retry", change_id=dead) == ""
        (fate,) = world.ledger.reserve(epoch, [dead])
        assert isinstance(fate, ChangeResult)
        assert fate.outcome == "STALE"
        assert world.outcome(dead) == ("STALE", None)
        assert world.sync_status("u1") == "SYNCED"

    def test_trap_09_another_event_type_of_the_unit_is_another_key(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"name": "x"}))
        (operation,) = self.reserve(world, epoch, world.record("u1", "unit_details_changed", {"name": "x"}))
        assert operation.nonce == 502
