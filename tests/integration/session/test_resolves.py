"""An operator ends a halt: OldHost is asked what it expects when he decides, or as soon as it can be."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.events import OpeningHalted
from tests.integration.session.stage import Stage, outcomes, send

pytestmark = pytest.mark.mariadb


def halted_by_a_restore(stage: Stage, expected: int) -> list[int]:
    """Five operations were applied; OldHost went back. Gives their changes."""
    ids = [stage.world.record(f"u{number}") for number in range(5)]
    send(stage.session(), ids)
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": expected}))
    assert isinstance(stage.open(), OpeningHalted)
    return ids


def test_host_that_moved_on_while_it_was_halted_is_not_decided_about_unseen(stage: Stage) -> None:
    ids = halted_by_a_restore(stage, 503)
    stage.control(lambda controls: controls.foreign_write({}))
    refused = stage.resolve("resend")
    assert "OldHost expects nonce 504 now; it was 503" in refused.refused
    assert "504" in refused.halted
    assert stage.world.halted() == refused.halted

    assert not stage.resolve("resend").refused
    opened = stage.opening()
    bound = [ref[0] for ref in opened.event.bound]
    assert bound == ids[3:]
    assert outcomes(send(opened.session, bound)) == ["APPLIED"] * 2
    stage.check_clean()


def test_host_that_did_not_move_is_decided_about_at_once(stage: Stage) -> None:
    halted_by_a_restore(stage, 504)
    assert "2 operations that it lost" in stage.resolve("adopt").message
    assert stage.opening().event.expected_nonce == 504


def test_decision_during_a_ban_is_kept_and_one_is_enough(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.foreign_write({}))
    send(session, [change_id])
    assert isinstance(stage.open(), OpeningHalted)
    decided = stage.resolve("resend")
    assert "it bans us for" in decided.message
    assert "The decision is kept" in decided.message

    stage.control(lambda controls: controls.unban({}))
    opened = stage.opening()
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    assert stage.journal()[-1] == (502, "applied", change_id)


def test_decision_during_a_ban_is_not_carried_out_when_the_host_moved_on_until_then(stage: Stage) -> None:
    change_id = stage.world.record()
    session = stage.session()
    stage.control(lambda controls: controls.foreign_write({}))
    send(session, [change_id])
    stage.resolve("adopt")
    stage.control(lambda controls: controls.unban({}))
    stage.control(lambda controls: controls.foreign_write({"count": 2}))
    stage.world.age(1000)
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "OldHost expects nonce 504 now; it was 502" in halted.message
    assert stage.world.outcome(change_id) == (None, None)


def test_halt_that_was_found_while_the_host_was_away_takes_one_decision(stage: Stage) -> None:
    """The database lost its last commits, and OldHost could not be asked what it expects when that was noticed."""
    send(stage.session(), [stage.world.record(f"u{number}") for number in range(3)])
    stage.close()
    stage.world.execute("DELETE FROM nonce_requests")
    stage.world.execute("UPDATE nonce_ledger SET last_applied_nonce = 500, next_nonce = 501")
    stage.world.decide("halt")
    stage.fault("refuse")
    assert isinstance(stage.open(), OpeningHalted)
    assert stage.world.shown() is None
    assert "The decision is kept" in stage.resolve("adopt").message

    stage.control(lambda controls: controls.switch_off("refuse"))
    opened = stage.opening()
    assert opened.event.expected_nonce == 504
    change_id = stage.world.record("after")
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    assert stage.journal()[-1] == (504, "applied", change_id)
    stage.check_clean()


def test_host_is_not_asked_where_there_is_no_halt(stage: Stage) -> None:
    send(stage.session(), [stage.world.record()])
    asked = stage.stats()["requests"]
    assert "nothing to resolve" in stage.resolve("adopt").refused
    assert stage.stats()["requests"] == asked
