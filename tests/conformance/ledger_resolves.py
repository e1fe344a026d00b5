"""An operator decides about the count that he was shown: OldHost's, as it is when he decides or as
soon as it can be asked."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.errors import Fenced
from oldhost_sync.oldhost.ledger import Count, Evidence, Reserved
from oldhost_sync.policy.changes import WAITING, ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld, applied

BANNED = Count(None, "it bans us for 600 s more")


class Resolves(LedgerSuite):
    def halted(self, world: LedgerWorld) -> str:
        """What the next opening tells; empty where it may go on."""
        return world.ledger.take_over("looks").halted or ""

    def in_doubt(self, world: LedgerWorld, epoch: int) -> Reserved:
        (operation,) = self.reserve(world, epoch, world.record())
        world.ledger.advance(epoch, None, operation)
        return operation

    # ------------------------------------------------------------------------------------------ another count by now

    def test_a_count_that_changed_since_it_was_shown_is_not_decided_about(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        refused = world.decide("resolve", mode="adopt", count=Count(503))
        assert "503" in refused
        assert "502" in refused
        assert (world.counts(), world.archived()) == ((503, 504), [])
        assert world.outcome(sent[2].change_id) == ("APPLIED", 503)

    def test_after_that_the_halt_tells_the_new_count_and_it_can_be_decided_about(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        world.decide("resolve", mode="adopt", count=Count(503))
        assert world.shown() == 503
        assert "expects nonce 503 now" in self.halted(world)
        assert world.decide("resolve", mode="adopt", count=Count(503)) == ""
        assert world.counts() == (502, 503)

    def test_a_halt_on_a_false_reading_is_not_followed(self, world: LedgerWorld, epoch: int) -> None:
        """A stale replica told a low count; by now OldHost expects what the ledger does, so nothing is given up."""
        self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        assert world.decide("resolve", mode="adopt", count=Count(504)) == ""
        assert world.archived() == []
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(504)).halted is None

    def test_what_a_halt_tells_does_not_grow_with_each_look(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, *(world.record(f"u{number}") for number in range(5)))
        self.halt_by(world, 502)
        for expected in (503, 504, 503, 504):
            assert world.decide("resolve", mode="adopt", count=Count(expected))
        assert self.halted(world).count("Since then") == 1

    # ---------------------------------------------------------------------------------------- no count was ever shown

    @pytest.mark.parametrize(("mode", "fate"), [("adopt", "APPLIED"), ("resend", WAITING)])
    def test_one_resolve_ends_a_halt_that_was_begun_while_nobody_could_ask(
        self, world: LedgerWorld, epoch: int, mode: str, fate: str
    ) -> None:
        operation = self.in_doubt(world, epoch)
        world.ledger.ban(epoch, 900, refused=operation, halt="another client wrote")
        assert world.decide("resolve", mode=mode, count=Count(502)) == ""
        (found,) = world.ledger.fates([operation.change_id])
        assert found.outcome == fate
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(502)).halted is None

    def test_operations_that_oldhost_lost_are_not_decided_about_before_anybody_was_shown_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        self.send(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.halt(epoch, "a second ban within the hour")
        refused = world.decide("resolve", mode="adopt", count=Count(502))
        assert "expects nonce 502, though it answered 502" in refused
        assert (world.counts(), world.shown()) == ((502, 503), 502)
        assert world.decide("resolve", mode="adopt", count=Count(502)) == ""
        assert world.counts() == (501, 502)

    def test_a_count_that_agrees_leaves_what_is_in_doubt_to_the_next_session(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        operation = self.in_doubt(world, epoch)
        world.ledger.halt(epoch, "invariant violated: test")
        assert world.decide("resolve", mode="resend", count=Count(502)) == ""
        taken = world.ledger.take_over("after")
        found = world.ledger.reconcile(taken.epoch, Evidence(502))
        assert found.fates == [ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)]

    def test_nonces_that_were_only_reserved_do_not_hide_a_foreign_write(self, world: LedgerWorld, epoch: int) -> None:
        self.reserve(world, epoch, world.record("u1"), world.record("u2"))
        world.ledger.halt(epoch, "invariant violated: test")
        assert world.decide("resolve", mode="adopt", count=Count(502)) == ""
        taken = world.ledger.take_over("after")
        assert world.ledger.reconcile(taken.epoch, Evidence(502)).halted is None
        assert world.counts() == (501, 502)

    # ------------------------------------------------------------------------------------- a decision that has to wait

    def test_a_decision_waits_until_oldhost_can_be_asked(self, world: LedgerWorld, epoch: int) -> None:
        sent = self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        assert world.decide("resolve", mode="resend", count=BANNED) == ""
        assert world.outcome(sent[2].change_id) == ("APPLIED", 503), "nothing is done yet"
        taken = world.ledger.take_over("after the ban")
        assert taken.halted is None
        found = world.ledger.reconcile(taken.epoch, Evidence(502))
        assert (found.halted, [ref.change_id for ref in found.bound]) == (None, [one.change_id for one in sent[1:]])
        assert world.shown() is None

    def test_a_decision_that_waited_is_carried_out_once(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 502)
        world.decide("resolve", mode="adopt", count=BANNED)
        for name in ("after the ban", "later"):
            taken = world.ledger.take_over(name)
            assert world.ledger.reconcile(taken.epoch, Evidence(502)).halted is None
        assert world.archived() == [502, 503]

    def test_a_decision_that_waited_is_not_carried_out_for_another_count(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, *(world.record(f"u{number}") for number in range(3)))
        self.halt_by(world, 503)
        world.decide("resolve", mode="adopt", count=BANNED)
        taken = world.ledger.take_over("after the ban")
        assert world.ledger.reconcile(taken.epoch, Evidence(502), final=False).mismatch is not None
        halted = world.ledger.reconcile(taken.epoch, Evidence(502)).halted or ""
        assert "expects nonce 502 now; it was 503" in halted
        assert (self.halted(world), world.shown(), world.archived()) == (halted, 502, [])

    def test_a_decision_that_waits_lets_nobody_send(self, world: LedgerWorld, epoch: int) -> None:
        operation = self.in_doubt(world, epoch)
        world.ledger.halt(epoch, "invariant violated: test")
        world.decide("resolve", mode="adopt", count=BANNED)
        with pytest.raises(Fenced):
            world.ledger.advance(epoch, applied(operation), None)

    def test_a_halt_that_is_found_while_a_decision_waits_ends_the_wait(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record("u1"), world.record("u2"))
        self.halt_by(world, 502)
        world.decide("resolve", mode="adopt", count=BANNED)
        taken = world.ledger.take_over("after the ban")
        world.ledger.halt(taken.epoch, "invariant violated: test")
        assert self.halted(world) == "invariant violated: test"

    # --------------------------------------------------------------------------------------------- a halt that is late

    def test_a_halt_of_an_epoch_that_was_resolved_is_too_late(self, world: LedgerWorld, epoch: int) -> None:
        self.halt_by(world, 503)
        assert world.decide("resolve", mode="adopt") == ""
        assert "resolved a halt since" in world.decide("halt", epoch=epoch)
        assert self.halted(world) == ""

    def test_a_halt_of_an_epoch_that_was_only_taken_over_from_halts(self, world: LedgerWorld, epoch: int) -> None:
        world.ledger.take_over("next")
        assert world.decide("halt", epoch=epoch) == ""
        assert self.halted(world)

    def test_what_else_the_writer_found_is_added_to_a_halt_once(self, world: LedgerWorld, epoch: int) -> None:
        """As a second ban within the hour, when it came with a replay."""
        world.ledger.halt(epoch, "another client wrote", 503)
        for _ in range(2):
            assert world.decide("halt", epoch=epoch) == ""
        assert self.halted(world) == "another client wrote And: a test."
        assert world.shown() == 503

    def test_a_late_halt_that_knows_of_a_send_never_taken_halts(self, world: LedgerWorld, epoch: int) -> None:
        """Without it, the next comparison would take the operation for applied and lose it."""
        operation = self.in_doubt(world, epoch)
        world.ledger.halt(epoch, "a second ban within the hour")
        assert world.decide("resolve", mode="adopt", count=Count(502)) == ""
        assert world.decide("halt", change_id=operation.change_id, epoch=epoch) == ""
        taken = world.ledger.take_over("after")
        assert taken.halted
        assert [row.sends for row in taken.in_doubt] == [0]

    def test_a_late_halt_takes_no_later_send_back(self, world: LedgerWorld, epoch: int) -> None:
        """The operation was decided on, and sent again by the session after that."""
        operation = self.in_doubt(world, epoch)
        world.ledger.ban(epoch, 900, refused=operation, halt="another client wrote", expected=502)
        assert world.decide("resolve", mode="resend") == ""
        taken = world.ledger.take_over("after")
        world.ledger.reconcile(taken.epoch, Evidence(502))
        (again,) = self.reserve(world, taken.epoch, operation.change_id)
        world.ledger.advance(taken.epoch, None, again)
        assert "resolved a halt since" in world.decide("halt", change_id=operation.change_id, epoch=epoch)
        assert [row.sends for row in world.ledger.take_over("looks").in_doubt] == [1]
