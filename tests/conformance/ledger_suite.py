"""What every ledger must do: one suite for MariaDB's and for the simulation's. Subclass it and give it a `world`."""

from __future__ import annotations

from typing import Any, Protocol

import pytest

from oldhost_sync.oldhost.errors import Fenced, InvariantViolated, LedgerHalted
from oldhost_sync.oldhost.ledger import Answered, Ledger, Reserved
from oldhost_sync.oldhost.wire import Applied, Malformed, Rejected
from oldhost_sync.policy.changes import BOUND, WAITING, Fate

SETTLE_SECONDS = 10.0


class LedgerWorld(Protocol):
    """A ledger and what the suite must see and do around it. Ages are by the ledger's own clock."""

    ledger: Ledger

    def record(
        self,
        entity_id: str = "u1",
        event_type: str = "booking_created",
        payload: dict[str, Any] | None = None,
        *,
        key: str | None = None,
    ) -> int: ...

    def age(self, seconds: float) -> None:
        """Let `seconds` pass for rows SENT and bans."""

    def outcome(self, change_id: int) -> tuple[str | None, int | None]: ...

    def sync_status(self, entity_id: str) -> str: ...

    def row(self, nonce: int) -> tuple[int, str, bytes] | None:
        """Change id, status and body of the row that binds `nonce`."""

    def archived(self) -> list[int]:
        """Nonces of rows that no longer bind theirs."""

    def counts(self) -> tuple[int | None, int | None]:
        """`last_applied_nonce`, `next_nonce`."""

    def decide(self, action: str, *, change_id: int | None = None, mode: str | None = None) -> str:
        """An operator's decision; gives why it was refused, or an empty text."""


def applied(operation: Reserved) -> Answered:
    return Answered(operation, Applied(operation.nonce + 1))


def reserved(entry: Reserved | Fate) -> Reserved:
    assert isinstance(entry, Reserved), entry
    return entry


class LedgerConformance:
    @pytest.fixture
    def epoch(self, world: LedgerWorld) -> int:
        """The epoch of a first session, numbering from 501."""
        taken = world.ledger.take_over("first")
        world.ledger.adopt_first(taken.epoch, 501)
        return taken.epoch

    def reserve(self, world: LedgerWorld, epoch: int, *change_ids: int) -> list[Reserved]:
        return [reserved(entry) for entry in world.ledger.reserve(epoch, change_ids)]

    def send(self, world: LedgerWorld, epoch: int, *change_ids: int) -> list[Reserved]:
        """Reserve and apply all of them, as a session does."""
        operations = self.reserve(world, epoch, *change_ids)
        before: Answered | None = None
        for operation in operations:
            world.ledger.advance(epoch, before, operation)
            before = applied(operation)
        world.ledger.advance(epoch, before, None)
        return operations

    # ------------------------------------------------------------------------------------------------ reserving

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
            Fate(987_654, "DISCARDED", None, "no such change in the outbox")
        ]
        assert world.counts() == (500, 501)

    def test_a_settled_change_answers_its_recorded_fate(self, world: LedgerWorld, epoch: int) -> None:
        change_id = world.record()
        self.send(world, epoch, change_id)
        assert world.ledger.reserve(epoch, [change_id]) == [Fate(change_id, "APPLIED", 501)]
        assert world.counts() == (501, 502)

    def test_an_equal_lww_change_is_a_no_op_without_a_nonce(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
        again = world.record("u1", "unit_status_changed", {"status": "Clean"})
        assert world.ledger.reserve(epoch, [again]) == [Fate(again, "NO_OP")]
        assert world.outcome(again) == ("NO_OP", None)
        assert world.sync_status("u1") == "SYNCED"

    def test_an_equal_txn_change_is_sent_all_the_same(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "checked_in", {"guest": 1}))
        (operation,) = self.reserve(world, epoch, world.record("u1", "checked_in", {"guest": 1}))
        assert operation.nonce == 502

    def test_trap_08_an_older_lww_change_after_a_newer_one_is_stale(self, world: LedgerWorld, epoch: int) -> None:
        dead = world.record("u1", "unit_status_changed", {"status": "Dirty"})
        (operation,) = self.reserve(world, epoch, dead)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"status": "Clean"}))
        assert world.decide("retry", change_id=dead) == ""
        (fate,) = world.ledger.reserve(epoch, [dead])
        assert isinstance(fate, Fate)
        assert fate.outcome == "STALE"
        assert world.outcome(dead) == ("STALE", None)
        assert world.sync_status("u1") == "SYNCED"

    def test_trap_09_another_event_type_of_the_unit_is_another_key(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1", "unit_status_changed", {"name": "x"}))
        (operation,) = self.reserve(world, epoch, world.record("u1", "unit_details_changed", {"name": "x"}))
        assert operation.nonce == 502

    # ---------------------------------------------------------------------------------------- sending, recording

    def test_recording_an_answer_and_marking_the_next_is_one_step(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        assert world.ledger.advance(epoch, None, first) is None
        fate = world.ledger.advance(epoch, applied(first), second)
        assert fate == Fate(first.change_id, "APPLIED", 501)
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
        assert fate == Fate(operation.change_id, "DEAD", 501, "no such room")
        assert world.outcome(operation.change_id) == ("DEAD", 501)
        assert world.sync_status("u1") == "SYNC_FAILED"
        assert world.counts() == (501, 502)
        assert world.row(501) == (operation.change_id, "FAILED", operation.body)

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
        assert fate == Fate(first.change_id, "DEAD", None, answer.reason)
        assert world.row(501) is None
        assert world.archived() == [501]
        taken = world.ledger.take_over("next")
        assert (taken.next_nonce, taken.released) == (501, [])
        assert [fate.outcome for fate in world.ledger.fates([second.change_id])] == [WAITING]
        world.ledger.reconcile(taken.epoch, 501)
        (again,) = self.reserve(world, taken.epoch, second.change_id)
        assert again.nonce == 501

    def test_what_was_marked_behind_a_nonce_that_was_not_used_waits_again(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        world.ledger.advance(epoch, Answered(first, Rejected("no", consumed=False)), None)
        assert world.archived() == [501, 502]
        assert world.ledger.fates([second.change_id]) == [Fate(second.change_id, WAITING)]
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, 501).halted is None
        assert [one.nonce for one in self.send(world, taken.epoch, second.change_id)] == [501]

    def test_what_was_marked_but_never_written_counts_as_never_sent(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.take_back(epoch, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, 501)
        assert self.reserve(world, taken.epoch, operation.change_id)[0].sends == 0

    @pytest.mark.parametrize("says", ["take_back", "ban"])
    def test_a_send_taken_back_twice_is_taken_back_once(self, world: LedgerWorld, epoch: int, says: str) -> None:
        """The answer of the first time was lost. The send of the epoch before is still in doubt."""
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, 501)
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        world.ledger.advance(taken.epoch, None, again)
        for _ in range(2):
            if says == "ban":
                world.ledger.ban(taken.epoch, 0, refused=again)
            else:
                world.ledger.take_back(taken.epoch, again)
        after = world.ledger.take_over("after")
        assert world.ledger.reconcile(after.epoch, 502).fates == [Fate(operation.change_id, "APPLIED", 501)]

    # ------------------------------------------------------------------------------------------------ the fence

    def test_trap_02_an_old_epoch_can_do_nothing(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.take_over("next")
        for act in (
            lambda: world.ledger.reserve(epoch, [world.record("u3")]),
            lambda: world.ledger.advance(epoch, None, second),
            lambda: world.ledger.advance(epoch, applied(first), None),
            lambda: world.ledger.advance(epoch, applied(first), second),
            lambda: world.ledger.reconcile(epoch, 501),
            lambda: world.ledger.halt(epoch, "zombie"),
            lambda: world.ledger.take_back(epoch, first),
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

    # ---------------------------------------------------------------------------------------------- reconciling

    def test_in_doubt_and_expected_beyond_means_applied(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, 502)
        assert found.fates == [Fate(operation.change_id, "APPLIED", 501)]
        assert found.bound == []
        assert world.outcome(operation.change_id) == ("APPLIED", 501)
        assert world.sync_status("u1") == "SYNCED"
        assert world.counts() == (501, 502)

    def test_trap_15_in_doubt_and_expected_stays_bound_to_its_exact_body(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, 501)
        assert [ref.change_id for ref in found.bound] == [operation.change_id]
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        assert (again.nonce, again.body, again.sends) == (501, operation.body, 1)
        world.ledger.advance(taken.epoch, None, again)
        assert world.ledger.advance(taken.epoch, applied(again), None) == Fate(operation.change_id, "APPLIED", 501)

    def test_of_two_in_doubt_each_gets_its_own_verdict(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.advance(epoch, None, first)
        world.ledger.advance(epoch, None, second)
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, 502)
        assert found.fates == [Fate(first.change_id, "APPLIED", 501)]
        assert [ref.change_id for ref in found.bound] == [second.change_id]

    def test_the_new_first_operation_comes_after_the_bound_ones(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record("u1"))
        world.ledger.advance(epoch, None, operation)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, 501)
        bound, fresh = self.reserve(world, taken.epoch, operation.change_id, world.record("u2"))
        assert (bound.nonce, fresh.nonce) == (501, 502)

    def test_fates_tell_outcome_bound_and_waiting_apart(self, world: LedgerWorld, epoch: int) -> None:
        done, sent, held, waiting = (world.record(f"u{number}") for number in range(4))
        self.send(world, epoch, done)
        operation, _ = self.reserve(world, epoch, sent, held)
        world.ledger.advance(epoch, None, operation)
        assert world.ledger.fates([done, sent, held, waiting]) == [
            Fate(done, "APPLIED", 501),
            Fate(sent, BOUND, 502),
            Fate(held, WAITING),
            Fate(waiting, WAITING),
        ]

    # ------------------------------------------------------------------------------------- halts and resolutions

    def test_trap_04_expected_beyond_the_ledger_halts(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record())
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, 503)
        assert found.halted is not None
        assert "somebody else wrote" in found.halted
        assert world.ledger.take_over("later").halted == found.halted

    def test_trap_04_expected_behind_the_ledger_halts(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record())
        taken = world.ledger.take_over("next")
        found = world.ledger.reconcile(taken.epoch, 501)
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
        assert world.ledger.advance(epoch, applied(first), None) == Fate(first.change_id, "APPLIED", 501)

    def test_resend_binds_the_lost_operations_again_byte_identical(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(4)))
        self.halt_by(world, 503)
        assert world.decide("resolve", mode="resend") == ""
        assert world.counts() == (502, 505)
        assert world.outcome(sent[2].change_id) == (None, None)
        assert world.sync_status("u2") == "PENDING_SYNC"
        taken = world.ledger.take_over("after")
        found = world.ledger.reconcile(taken.epoch, 503)
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
        assert world.ledger.reconcile(taken.epoch, 501).halted is None
        assert [one.nonce for one in self.send(world, taken.epoch, dead, fine)] == [501, 502]

    def test_adopt_backwards_counts_from_oldhost_and_sends_nothing_again(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        assert world.decide("resolve", mode="adopt") == ""
        assert world.counts() == (501, 502)
        assert world.archived() == [502, 503]
        assert world.outcome(sent[2].change_id) == ("APPLIED", 503)
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, 502).bound == []

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
        assert world.ledger.fates([operation.change_id]) == [Fate(operation.change_id, WAITING)]
        with pytest.raises(Fenced):
            world.ledger.reserve(taken, [operation.change_id])
        after = world.ledger.take_over("after")
        assert world.ledger.reconcile(after.epoch, 504).halted is None
        (again,) = self.reserve(world, after.epoch, operation.change_id)
        assert again.nonce == 504

    def test_a_replay_on_the_first_send_halts_and_is_never_counted_as_applied(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.ban(epoch, 900, refused=operation, halt="somebody else wrote", expected=502)
        taken = world.ledger.take_over("next")
        assert (taken.halted, taken.banned_ms > 890_000) == ("somebody else wrote", True)
        assert world.decide("resolve", mode="adopt") == ""
        assert world.ledger.fates([operation.change_id]) == [Fate(operation.change_id, WAITING)]
        assert world.counts() == (501, 502)

    def test_resolve_is_refused_when_nothing_is_halted(self, world: LedgerWorld, epoch: int) -> None:
        assert "not halted" in world.decide("resolve", mode="adopt")

    # ----------------------------------------------------------------------------------------------------- bans

    def test_a_ban_outlives_the_session_and_ends(self, world: LedgerWorld, epoch: int) -> None:
        left_ms = world.ledger.ban(epoch, 900)
        assert 900_000 < left_ms < 905_000
        assert 895_000 < world.ledger.take_over("next").banned_ms <= left_ms
        world.age(910)
        assert world.ledger.take_over("next").banned_ms == 0

    def test_a_refused_send_does_not_count_as_one(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.ban(epoch, 900, refused=operation)
        taken = world.ledger.take_over("next")
        halted = world.ledger.reconcile(taken.epoch, 502).halted
        assert halted is not None
        assert "somebody else wrote" in halted

    def test_a_busy_answer_makes_the_next_mark_the_first_again(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, None, operation, again=True)
        taken = world.ledger.take_over("next")
        world.ledger.reconcile(taken.epoch, 501)
        assert self.reserve(world, taken.epoch, operation.change_id)[0].sends == 1

    # --------------------------------------------------------------------------------------- fates and the shadow

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
        world.record("u1", "booking_created", {"guest": 1})
        newest = world.record("u1", "unit_status_changed", {"status": "Clean"})
        self.send(world, epoch, newest)
        assert world.sync_status("u1") == "PENDING_SYNC"

    def test_a_dead_letter_keeps_its_unit_failed_until_it_is_decided(self, world: LedgerWorld, epoch: int) -> None:
        dead, later = world.record("u1"), world.record("u1", "unit_status_changed", {"status": "Clean"})
        (operation,) = self.reserve(world, epoch, dead)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
        self.send(world, epoch, later)
        assert world.sync_status("u1") == "SYNC_FAILED"
        assert world.decide("discard", change_id=dead) == ""
        assert world.outcome(dead)[0] == "DISCARDED"
        assert world.sync_status("u1") == "SYNCED"

    def test_a_retried_dead_letter_waits_again_and_gets_a_new_nonce(self, world: LedgerWorld, epoch: int) -> None:
        dead = world.record("u1")
        (operation,) = self.reserve(world, epoch, dead)
        world.ledger.advance(epoch, None, operation)
        world.ledger.advance(epoch, Answered(operation, Rejected("no", consumed=True)), None)
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
            assert "no dead letter" in world.decide(action, change_id=waiting)
            assert "no dead letter" in world.decide(action, change_id=done)
            assert "no change" in world.decide(action, change_id=999_999)

    def halt_by(self, world: LedgerWorld, expected: int) -> int:
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, expected).halted is not None
        return taken.epoch

    def test_a_dead_letter_that_is_retried_after_a_newer_no_op_is_stale(self, world: LedgerWorld, epoch: int) -> None:
        clean, dirty = {"status": "Clean"}, {"status": "Dirty"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        (refused,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", dirty))
        world.ledger.advance(epoch, None, refused)
        world.ledger.advance(epoch, Answered(refused, Rejected("no", consumed=True)), None)
        newer = world.record("u1", "unit_status_changed", clean)
        assert [entry.outcome for entry in world.ledger.reserve(epoch, [newer]) if isinstance(entry, Fate)] == ["NO_OP"]
        assert world.decide("retry", change_id=refused.change_id) == ""
        (entry,) = world.ledger.reserve(epoch, [refused.change_id])
        assert isinstance(entry, Fate)
        assert entry.outcome == "STALE"

    def test_after_a_resolve_by_resending_no_state_in_doubt_makes_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        clean, dirty = {"status": "Clean"}, {"status": "Dirty"}
        self.send(world, epoch, world.record("u1", "unit_status_changed", clean))
        (doubtful,) = self.reserve(world, epoch, world.record("u1", "unit_status_changed", dirty))
        world.ledger.advance(epoch, None, doubtful)
        taken = world.ledger.take_over("next")
        assert world.ledger.reconcile(taken.epoch, doubtful.nonce + 2).halted
        assert world.decide("resolve", mode="resend") == ""
        taken = world.ledger.take_over("next")
        newest = world.record("u1", "unit_status_changed", clean)
        (entry,) = world.ledger.reserve(taken.epoch, [newest])
        assert isinstance(entry, Reserved)
