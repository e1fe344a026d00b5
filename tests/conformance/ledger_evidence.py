"""What a host's word proves about an operation in doubt, by what its kind can be asked (`drivers/ambiguity.py`)."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.ambiguity import Resends
from oldhost_sync.drivers.events import Applied, OutcomeTold, Said, ToldFate
from oldhost_sync.oldhost.ledger import NEVER_ASKED, Answered, Count, Evidence, Reserved
from oldhost_sync.policy.changes import ChangeResult
from tests.conformance.ledger_world import LedgerSuite, LedgerWorld

CLEAN = {"status": "Clean"}
APPLIED, REJECTED = OutcomeTold(ToldFate.APPLIED, 501), OutcomeTold(ToldFate.REJECTED, 501, "no such unit")
NOT_TAKEN, UNKNOWN = OutcomeTold(ToldFate.NOT_TAKEN, None), OutcomeTold(ToldFate.UNKNOWN, None)
NOTHING = Evidence()


class Evidences(LedgerSuite):
    def left_in_doubt(self, world: LedgerWorld, epoch: int, *changes: int) -> list[Reserved]:
        """They may have reached the host, and no answer is known."""
        operations = self.reserve(world, epoch, *changes)
        for operation in operations:
            world.ledger.advance(epoch, None, operation)
        return operations

    # ----------------------------------------------------------------------------------------------------- what it says

    def test_an_operation_that_the_host_calls_applied_is_proven(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, Evidence(outcomes={501: APPLIED}))
        assert found.fates == [ChangeResult(operation.change_id, "APPLIED", 501)]
        assert (found.expected, found.bound, world.counts()) == (502, [], (501, 502))

    def test_an_operation_that_the_host_calls_rejected_is_a_dead_letter(self, world: LedgerWorld, epoch: int) -> None:
        """Its count says only that the number is used."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(502, outcomes={501: REJECTED})
        (fate,) = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence).fates
        assert (fate.outcome, fate.nonce, fate.unproven) == ("DEAD", 501, False)
        assert world.row(501) == (operation.change_id, "FAILED", operation.body)

    def test_the_hosts_words_stay_out_of_the_fate(self, world: LedgerWorld, epoch: int) -> None:
        """They may quote what was sent, and the fate is stored in Temporal (I9)."""
        self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(outcomes={501: REJECTED})
        (fate,) = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence).fates
        assert "no such unit" not in (fate.error or "")

    def test_an_outcome_of_no_help_leaves_what_the_count_proves(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(502, outcomes={501: UNKNOWN})
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert found.fates == [ChangeResult(operation.change_id, "APPLIED", 501, unproven=True)]

    def test_a_count_that_proves_applied_needs_no_answer(self, world: LedgerWorld, epoch: int) -> None:
        """Not even one that we could read: such a host counts nothing else."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        world.ledger.note_answer(epoch, operation, Said("answer", ""))
        evidence = Evidence(502, proves_applied=True)
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert found.fates == [ChangeResult(operation.change_id, "APPLIED", 501)]

    def test_a_count_that_proves_applied_proves_nothing_from_itself_on(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(501, proves_applied=True)
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert [ref.change_id for ref in found.bound] == [operation.change_id]

    def test_an_operation_found_applied_makes_no_equal_one_a_no_op(self, world: LedgerWorld, epoch: int) -> None:
        """Which state its bytes made is not known any more."""
        self.left_in_doubt(world, epoch, world.record("u1", "unit_status_changed", CLEAN))
        current = world.ledger.take_over("next").epoch
        world.ledger.reconcile(current, Evidence(outcomes={501: APPLIED}))
        newest = world.record("u1", "unit_status_changed", CLEAN)
        assert [one.change_id for one in self.reserve(world, current, newest)] == [newest]

    def test_an_operation_that_was_not_taken_keeps_its_number_and_its_bytes(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        current = world.ledger.take_over("next").epoch
        found = world.ledger.reconcile(current, Evidence(outcomes={501: NOT_TAKEN}))
        assert (found.expected, [ref.change_id for ref in found.bound]) == (501, [operation.change_id])
        (again,) = self.reserve(world, current, operation.change_id)
        assert (again.nonce, again.body) == (501, operation.body)

    def test_of_two_in_doubt_the_first_was_taken_and_the_second_not(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.left_in_doubt(world, epoch, world.record("u1"), world.record("u2"))
        evidence = Evidence(outcomes={501: APPLIED, 502: NOT_TAKEN})
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert found.fates == [ChangeResult(first.change_id, "APPLIED", 501)]
        assert [ref.change_id for ref in found.bound] == [second.change_id]

    # ------------------------------------------------------------------------------------------------ nothing is known

    def test_nothing_in_doubt_needs_no_word_of_the_host(self, world: LedgerWorld, epoch: int) -> None:
        self.send(world, epoch, world.record())
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, NOTHING)
        assert (found.halted, found.expected) == (None, 502)

    def test_an_operation_that_was_never_written_needs_no_word_of_the_host(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        world.ledger.uncount_send(epoch, operation)
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, NOTHING)
        assert [ref.change_id for ref in found.bound] == [operation.change_id]

    @pytest.mark.parametrize("evidence", [NOTHING, Evidence(outcomes={501: UNKNOWN})])
    def test_an_operation_of_which_nobody_knows_halts_by_its_name(
        self, world: LedgerWorld, epoch: int, evidence: Evidence
    ) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        halted = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence).halted or ""
        assert f"change {operation.change_id} (nonce 501)" in halted
        assert world.ledger.take_over("looks").halted == halted
        assert world.outcome(operation.change_id) == (None, None)

    def test_what_is_not_final_changes_nothing(self, world: LedgerWorld, epoch: int) -> None:
        self.left_in_doubt(world, epoch, world.record())
        current = world.ledger.take_over("next").epoch
        found = world.ledger.reconcile(current, Evidence(outcomes={501: UNKNOWN}), final=False)
        assert found.mismatch is not None
        assert world.ledger.take_over("looks").halted is None

    def test_what_is_known_ends_before_the_halt_about_the_rest(self, world: LedgerWorld, epoch: int) -> None:
        """An operator decides about one operation, and never about one whose fate is told."""
        first, second = self.left_in_doubt(world, epoch, world.record("u1"), world.record("u2"))
        evidence = Evidence(outcomes={501: REJECTED, 502: UNKNOWN})
        halted = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence).halted or ""
        assert f"change {second.change_id} (nonce 502)" in halted
        assert world.outcome(first.change_id) == ("DEAD", 501)

    @pytest.mark.parametrize("resends", [Resends.ANY, Resends.LAST])
    def test_where_a_second_send_is_safe_the_same_bytes_go_again(
        self, world: LedgerWorld, epoch: int, resends: Resends
    ) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, Evidence(resends=resends))
        assert (found.expected, [ref.change_id for ref in found.bound]) == (501, [operation.change_id])

    def test_a_number_that_may_be_used_is_never_given_to_another_operation(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """Two lost answers set an operation apart only where the host has proven that its number is free."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(resends=Resends.ANY)
        for name in ("second", "third"):
            current = world.ledger.take_over(name).epoch
            assert world.ledger.reconcile(current, evidence).apart == []
            (again,) = self.reserve(world, current, operation.change_id)
            world.ledger.advance(current, None, again)
        current = world.ledger.take_over("last").epoch
        assert world.ledger.reconcile(current, Evidence(outcomes={501: NOT_TAKEN})).apart

    def test_a_type_that_may_be_sent_twice_is_sent_again(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record("u1", "unit_status_changed", CLEAN))
        evidence = Evidence(resent_types=frozenset({"unit_status_changed"}))
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert [ref.change_id for ref in found.bound] == [operation.change_id]

    def test_a_type_of_another_class_is_never_sent_twice(self, world: LedgerWorld, epoch: int) -> None:
        self.left_in_doubt(world, epoch, world.record("u1", "booking_created"))
        evidence = Evidence(resent_types=frozenset({"booking_created"}))
        assert world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence).halted

    # ------------------------------------------------------------------------------ an earlier send has used the number

    def used_before(self, world: LedgerWorld, epoch: int, said: Said | None = None) -> ChangeResult | None:
        """Sent, and `said` is all that is known; sent again, and the host refuses the number as used."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        if said is not None:
            world.ledger.note_answer(epoch, operation, said)
        current = world.ledger.take_over("next").epoch
        world.ledger.reconcile(current, Evidence(resends=Resends.ANY))
        (again,) = self.reserve(world, current, operation.change_id)
        world.ledger.advance(current, None, again)
        return world.ledger.advance(current, Answered(again, Applied(None, by_earlier_send=True)), None)

    def test_a_number_that_an_earlier_send_has_used_proves_no_apply(self, world: LedgerWorld, epoch: int) -> None:
        fate = self.used_before(world, epoch)
        assert fate is not None
        assert (fate.outcome, fate.nonce, fate.unproven) == ("APPLIED", 501, True)
        assert world.counts() == (501, 502)

    @pytest.mark.parametrize(("rejects", "unproven"), [(True, False), (False, True)])
    def test_the_answer_to_the_earlier_send_decides(
        self, world: LedgerWorld, epoch: int, rejects: bool, unproven: bool
    ) -> None:
        fate = self.used_before(world, epoch, Said("answer", "", rejects))
        assert fate is not None
        assert (fate.outcome, fate.unproven) == ("DEAD", unproven)

    def test_after_several_sends_a_no_may_be_about_any_of_them(self, world: LedgerWorld, epoch: int) -> None:
        """The first may have been applied, and the second refused because of that, in a form that we don't know."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        for name in ("second", "third"):
            current = world.ledger.take_over(name).epoch
            world.ledger.reconcile(current, Evidence(resends=Resends.ANY))
            (again,) = self.reserve(world, current, operation.change_id)
            world.ledger.advance(current, None, again)
            if name == "second":
                world.ledger.note_answer(current, again, Said("answer", "", rejects=True))
        fate = world.ledger.advance(current, Answered(again, Applied(None, by_earlier_send=True)), None)
        assert fate is not None
        assert (fate.outcome, fate.unproven) == ("DEAD", True)

    # -------------------------------------------------------------------------------------------- the operator's word

    def test_an_operator_says_that_the_host_has_it(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.halted_about_one(world, epoch)
        assert world.decide("resolve", mode="adopt", count=NEVER_ASKED) == ""
        assert world.outcome(operation.change_id) == ("APPLIED", 501)
        assert world.ledger.fates([operation.change_id])[0].unproven
        found = world.ledger.reconcile(world.ledger.take_over("after").epoch, NOTHING)
        assert (found.halted, found.expected) == (None, 502)

    def test_an_operator_says_that_the_host_does_not_have_it(self, world: LedgerWorld, epoch: int) -> None:
        (operation,) = self.halted_about_one(world, epoch)
        assert world.decide("resolve", mode="resend", count=NEVER_ASKED) == ""
        current = world.ledger.take_over("after").epoch
        found = world.ledger.reconcile(current, NOTHING)
        assert (found.halted, [ref.change_id for ref in found.bound]) == (None, [operation.change_id])
        (again,) = self.reserve(world, current, operation.change_id)
        assert (again.nonce, again.body, again.sends) == (501, operation.body, 0)

    @pytest.mark.parametrize(("mode", "fate"), [("adopt", "APPLIED"), ("resend", None)])
    def test_a_word_that_was_given_to_a_process_without_the_host_is_carried_out_by_the_next_session(
        self, world: LedgerWorld, epoch: int, mode: str, fate: str | None
    ) -> None:
        (operation,) = self.halted_about_one(world, epoch)
        assert world.decide("resolve", mode=mode, count=Count(None, "this process can't ask it")) == ""
        found = world.ledger.reconcile(world.ledger.take_over("after").epoch, NOTHING)
        assert found.halted is None
        assert world.outcome(operation.change_id)[0] == fate

    def test_an_operators_word_is_about_the_operation_that_was_named(self, world: LedgerWorld, epoch: int) -> None:
        """The one behind it may have been marked and never written."""
        first, second = self.left_in_doubt(world, epoch, world.record("u1"), world.record("u2"))
        assert world.ledger.reconcile(world.ledger.take_over("next").epoch, NOTHING).halted
        assert world.decide("resolve", mode="adopt", count=NEVER_ASKED) == ""
        assert world.outcome(first.change_id) == ("APPLIED", 501)
        halted = world.ledger.reconcile(world.ledger.take_over("after").epoch, NOTHING).halted or ""
        assert f"change {second.change_id} (nonce 502)" in halted

    @pytest.mark.parametrize("mode", ["adopt", "resend"])
    def test_who_ends_a_halt_for_another_reason_says_nothing_about_what_is_in_doubt(
        self, world: LedgerWorld, epoch: int, mode: str
    ) -> None:
        """The host may have it and be asked for it, and sent again it would be done twice."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        world.ledger.halt(epoch, "a second ban within the hour")
        assert world.decide("resolve", mode=mode, count=NEVER_ASKED) == ""
        current = world.ledger.take_over("after").epoch
        halted = world.ledger.reconcile(current, NOTHING).halted or ""
        assert f"change {operation.change_id} (nonce 501)" in halted

    def test_an_operators_number_decides_about_each_operation_in_doubt(self, world: LedgerWorld, epoch: int) -> None:
        first, second = self.left_in_doubt(world, epoch, world.record("u1"), world.record("u2"))
        assert world.ledger.reconcile(world.ledger.take_over("next").epoch, NOTHING).halted
        assert world.decide("resolve", mode="adopt", count=NEVER_ASKED, expected=502) == ""
        assert world.outcome(first.change_id) == ("APPLIED", 501)
        found = world.ledger.reconcile(world.ledger.take_over("after").epoch, NOTHING)
        assert [ref.change_id for ref in found.bound] == [second.change_id]

    @pytest.mark.parametrize(("mode", "nonces"), [("adopt", []), ("resend", [502])])
    def test_an_operation_that_was_called_a_replay_never_goes_again_with_its_number(
        self, world: LedgerWorld, epoch: int, mode: str, nonces: list[int]
    ) -> None:
        """The host has used it, for that or for another."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        world.ledger.ban(epoch, 0, refused=operation, halt="another client wrote")
        assert world.decide("resolve", mode=mode, count=NEVER_ASKED) == ""
        current = world.ledger.take_over("after").epoch
        assert world.ledger.reconcile(current, NOTHING).halted is None
        waiting = [one.change_id for one in world.ledger.fates([operation.change_id]) if one.outcome == "WAITING"]
        assert [one.nonce for one in self.send(world, current, *waiting)] == nonces

    def test_an_operators_number_is_refused_where_the_host_tells_its_own(self, world: LedgerWorld, epoch: int) -> None:
        self.halt_by(world, 505)
        assert "nobody else's word" in world.decide("resolve", mode="adopt", count=Count(505), expected=502)

    def test_an_operator_says_with_which_number_a_host_begins(self, world: LedgerWorld) -> None:
        taken = world.ledger.take_over("first")
        world.ledger.halt(taken.epoch, "it does not tell")
        assert world.decide("resolve", mode="adopt", count=NEVER_ASKED, expected=77) == ""
        assert world.ledger.take_over("next").next_nonce == 77

    def halted_about_one(self, world: LedgerWorld, epoch: int) -> list[Reserved]:
        operations = self.left_in_doubt(world, epoch, world.record())
        assert world.ledger.reconcile(world.ledger.take_over("next").epoch, NOTHING).halted
        return operations

    # ----------------------------------------------------------------------------------------- a change that is retried

    def test_an_operation_in_doubt_tells_whether_its_change_was_tried_before(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        """What a host says of its key may be about that."""
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        (row,) = world.ledger.take_over("next").in_doubt
        assert not row.tried_before
        current = world.ledger.take_over("later").epoch
        world.ledger.reconcile(current, Evidence(outcomes={501: REJECTED}))
        assert world.decide("retry", change_id=operation.change_id) == ""
        self.left_in_doubt(world, current, operation.change_id)
        (row,) = world.ledger.take_over("last").in_doubt
        assert (row.nonce, row.tried_before) == (502, True)

    # --------------------------------------------------------------------------------------------- the host's own start

    def test_the_ledger_knows_in_which_of_the_hosts_starts_the_last_session_began(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        current = world.ledger.take_over("next").epoch
        world.ledger.reconcile(current, Evidence(incarnation="start 7"))
        assert world.ledger.take_over("looks").incarnation == "start 7"

    def test_the_hosts_incarnation_is_known_from_the_very_first_session_on(self, world: LedgerWorld) -> None:
        """Else a lost answer in it would look as if the host had been restarted."""
        world.ledger.adopt_first(world.ledger.take_over("first").epoch, 501, "start 7")
        assert world.ledger.take_over("next").incarnation == "start 7"

    # -------------------------------------------------------------------------------------------------- a new beginning

    def test_a_host_that_begins_anew_has_the_next_nonce_under_its_first_number(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        self.send(world, epoch, world.record())
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, Evidence(begins_with=1))
        assert (found.expected, found.base) == (502, 501)
        assert (world.ledger.take_over("looks").base, world.ledger.position()) == (501, (501, 502))

    def test_an_operation_that_was_not_taken_before_it_is_the_first_after_it(
        self, world: LedgerWorld, epoch: int
    ) -> None:
        (operation,) = self.left_in_doubt(world, epoch, world.record())
        evidence = Evidence(outcomes={501: NOT_TAKEN}, begins_with=1)
        found = world.ledger.reconcile(world.ledger.take_over("next").epoch, evidence)
        assert (found.base, [ref.change_id for ref in found.bound]) == (500, [operation.change_id])

    def test_a_halt_about_an_operation_leaves_the_numbers_as_they_were(self, world: LedgerWorld, epoch: int) -> None:
        self.left_in_doubt(world, epoch, world.record())
        assert world.ledger.reconcile(world.ledger.take_over("next").epoch, Evidence(begins_with=1)).halted
        assert world.ledger.position() == (0, 502)

    def test_a_host_that_goes_on_keeps_its_numbers(self, world: LedgerWorld, epoch: int) -> None:
        world.ledger.reconcile(world.ledger.take_over("next").epoch, Evidence(begins_with=1))
        found = world.ledger.reconcile(world.ledger.take_over("later").epoch, Evidence(501))
        assert found.base == 500
