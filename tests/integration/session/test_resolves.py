"""An operator ends a halt: OldHost is asked what it expects when he decides, or as soon as it can be."""

from __future__ import annotations

import asyncio

import pytest

from oldhost_sync.policy.machine.events import OpeningHalted
from oldhost_sync.policy.rules.operator_act import at_the_terminal
from oldhost_sync.relay.leadership import Leadership
from oldhost_sync.relay.scheduler import Resyncer
from oldhost_sync.relay.transactions import Transactions
from oldhost_sync.store.intake.resync import request_resync
from oldhost_sync.store.ledger import halt
from tests.conformance.maria_world import HOST
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


@pytest.mark.parametrize("mode", ["adopt", "resend"])
def test_host_whose_count_fits_again_is_gone_on_with_by_one_decision(stage: Stage, mode: str) -> None:
    """It said a small count for some seconds after its restart. Nothing is given up, and nothing is sent again."""
    ids = halted_by_a_restore(stage, 501)
    stage.control(lambda controls: controls.foreign_write({"count": 5}))
    assert not stage.resolve(mode).refused
    change_id = stage.world.record("after")
    opened = stage.opening()
    assert opened.event.bound == []
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    assert [stage.world.outcome(one)[0] for one in ids] == ["APPLIED"] * 5
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
    assert "The decision is stored" in decided.message

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


def test_decision_about_too_many_operations_for_the_opening_of_a_session_is_asked_for_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The opening must be quick; a further resolve has time."""
    monkeypatch.setattr(halt, "RESOLVED_AT_OPENING_MAX", 1)
    ids = halted_by_a_restore(stage, 504)
    stage.fault("refuse")
    assert "The decision is stored" in stage.resolve("resend").message
    stage.control(lambda controls: controls.switch_off("refuse"))
    halted = stage.open()
    assert isinstance(halted, OpeningHalted)
    assert "concerns 2 operations, too many for the opening of a session: decide again" in halted.message
    assert "2 operations from nonce 504 on" in stage.resolve("resend").message
    opened = stage.opening()
    assert [ref[0] for ref in opened.event.bound] == ids[3:]


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
    assert "The decision is stored" in stage.resolve("adopt").message

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


def test_states_that_oldhost_lost_and_that_were_given_up_are_sent_again_by_a_resync(stage: Stage) -> None:
    units = [f"u{number}" for number in range(3)]
    ids = [stage.world.record(unit, "unit_status_changed", {"status": f"of {unit}"}) for unit in units]
    send(stage.session(), ids)
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": 502}))
    stage.open()
    stage.resolve("adopt")

    again = resync(stage)
    assert outcomes(send(stage.opening().session, again)) == ["APPLIED"] * 3
    records = stage.control(lambda controls: controls.records())["records"]
    assert {each["entity_id"]: each["payload"]["status"] for each in records} == {unit: f"of {unit}" for unit in units}
    stage.check_clean()


def resync(stage: Stage) -> list[int]:
    """All that has been applied is recorded again; gives the new changes."""
    transactions = Transactions(stage.world.engine)
    resyncer = Resyncer(transactions, Leadership(transactions, HOST, "one", 5.0))
    with stage.world.engine.begin() as connection:
        number = request_resync(
            connection, HOST, property_id=None, unit_id=None, operator=at_the_terminal("ada"), reason="restored"
        )

    async def to_its_end() -> None:
        for _ in range(6):
            await resyncer.run_once(0.0)

    asyncio.run(to_its_end())
    return [row.id for row in stage.world.read("SELECT id FROM outbox_events WHERE source = %s", f"resync-{number}")]
