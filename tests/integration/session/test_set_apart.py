"""One operation that OldHost refuses without using its nonce: the others go first with that number."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed
from oldhost_sync.policy.rules.apart import PAUSES_MS
from oldhost_sync.store.read.halt import read_halt
from tests.conformance.maria_world import HOST
from tests.integration.session.stage import Stage, outcomes, send

pytestmark = pytest.mark.mariadb

REFUSALS = {
    "a firewall's 403": {"name": "answer", "status": 403, "body": "<h1>Forbidden</h1>", "nonce": "unused"},
    "500": {"name": "answer", "status": 500, "nonce": "unused"},
    "another 400": {"name": "answer", "status": 400, "body": '{"error": "bad_character"}', "nonce": "unused"},
    "busy": {"name": "busy", "retry_after": 0.01},
}
each_refusal = pytest.mark.parametrize("refusal", REFUSALS)


def refuse(stage: Stage, refusal: str, unit: str = "poison") -> None:
    wanted = {"on": "sync", "rule": {"entity_id": unit}, **REFUSALS[refusal]}
    stage.control(lambda controls: controls.switch_on(wanted))


def next_session(stage: Stage) -> Opened:
    """As the writer opens it: it waits for the settle time where it is told to."""
    stage.close()
    return stage.opening()


def rested(stage: Stage) -> Opened:
    """The next session, after the longest pause."""
    opened = next_session(stage)
    stage.world.age(PAUSES_MS[-1] / 1000)
    return opened


def try_again(stage: Stage, change_id: int) -> Opened:
    """Its pause is over: one more try, and the session after it."""
    assert outcomes(send(rested(stage).session, [change_id])) == ["BOUND"]
    return next_session(stage)


@each_refusal
def test_after_the_first_refusal_another_operation_has_the_number(stage: Stage, refusal: str) -> None:
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, refusal)
    assert outcomes(send(stage.session(), [poison, other]))[0] == "BOUND"
    opened = next_session(stage)
    assert (opened.event.apart, opened.event.bound, opened.event.fates) == ([[poison, 1]], [], [])
    assert outcomes(send(opened.session, [other])) == ["APPLIED"]
    assert stage.journal() == [(501, "applied", other)]
    stage.check_clean()


def test_busy_is_proof_at_once_that_the_number_is_free(stage: Stage) -> None:
    poison = stage.world.record("poison")
    refuse(stage, "busy")
    send(stage.session(), [poison])
    stage.close()
    opened = stage.open()
    assert isinstance(opened, Opened), "no settle time"
    assert opened.event.apart == [[poison, 1]]


def test_after_any_other_refusal_the_number_is_free_only_after_the_settle_time(stage: Stage) -> None:
    poison = stage.world.record("poison")
    refuse(stage, "500")
    send(stage.session(), [poison])
    waiting = stage.open()
    assert isinstance(waiting, OpeningPostponed)
    assert waiting.reason == "settle"


def test_a_lost_answer_is_first_followed_by_the_same_bytes(stage: Stage) -> None:
    poison = stage.world.record("poison")
    stage.control(lambda controls: controls.switch_on({"name": "drop_before", "rule": {"entity_id": "poison"}}))
    assert outcomes(send(stage.session(), [poison])) == ["BOUND"]
    opened = next_session(stage)
    assert ([ref[0] for ref in opened.event.bound], opened.event.apart) == ([poison], [])
    assert outcomes(send(opened.session, [poison])) == ["BOUND"]
    assert next_session(stage).event.apart == [[poison, 1]]


def test_what_waits_apart_is_applied_once_when_oldhost_takes_it(stage: Stage) -> None:
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, "500")
    send(stage.session(), [poison])
    opened = next_session(stage)
    send(opened.session, [other])
    stage.control(lambda controls: controls.switch_off(None))
    assert outcomes(send(rested(stage).session, [poison])) == ["APPLIED"]
    assert stage.applied_ids() == [other, poison]
    assert stage.world.read("SELECT unproven FROM outbox_events WHERE id = %s", poison) == [(0,)]
    stage.check_clean()


@each_refusal
def test_refused_again_and_again_while_others_pass_it_becomes_a_dead_letter_with_oldhosts_words(
    stage: Stage, refusal: str
) -> None:
    poison = stage.world.record("poison")
    refuse(stage, refusal)
    opened = next_session(stage)
    for number in range(3):
        opened = try_again(stage, poison)
        if number < 2:
            assert opened.event.apart == [[poison, number + 1]]
            send(opened.session, [stage.world.record(f"u{number}")])
    assert [(fate.change_id, fate.outcome, fate.nonce) for fate in opened.event.fates] == [(poison, "DEAD", None)]
    ((outcome, error, unproven),) = stage.world.read(
        "SELECT outcome, error, unproven FROM outbox_events WHERE id = %s", poison
    )
    assert (outcome, unproven) == ("DEAD", 0)
    assert error.startswith("refused 3 times without using its nonce: status ")
    assert str(REFUSALS[refusal].get("body", "busy" if refusal == "busy" else "")) in error
    assert stage.world.decide("confirm", change_id=poison)
    assert stage.world.decide("retry", change_id=poison) == ""
    assert try_again(stage, poison).event.apart == [[poison, 1]], "its tries begin anew"
    stage.check_clean()


def test_an_oldhost_that_refuses_everything_makes_no_dead_letters(stage: Stage) -> None:
    first, second = stage.world.record("u1"), stage.world.record("u2")
    stage.control(lambda controls: controls.switch_on({"name": "answer", "status": 500, "nonce": "unused"}))
    next_session(stage)
    for tries in range(1, 4):
        for change_id in (first, second):
            assert try_again(stage, change_id).event.apart == [[change_id, tries]]


def test_every_body_that_a_number_had_is_kept(stage: Stage) -> None:
    poison, other = stage.world.record("poison", payload={"n": 1}), stage.world.record("u2", payload={"n": 2})
    refuse(stage, "500")
    send(stage.session(), [poison])
    send(next_session(stage).session, [other])
    kept = stage.world.read("SELECT nonce, change_id, body FROM nonce_requests_archive")
    assert [(nonce, change_id) for nonce, change_id, _ in kept] == [(501, poison)]
    assert b'"n":1' in kept[0][2]


def test_a_number_that_two_operations_had_proves_neither_by_being_used(stage: Stage) -> None:
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, "500")
    send(stage.session(), [poison])
    session = next_session(stage).session
    stage.fault("drop_after", rule={"entity_id": "u2"})
    assert outcomes(send(session, [other])) == ["BOUND"]
    fates = {fate.change_id: (fate.outcome, fate.unproven) for fate in next_session(stage).event.fates}
    assert fates == {other: ("DEAD", True), poison: ("DEAD", True)}
    assert stage.world.row(501)[1] == "UNSURE"  # type: ignore[index]


def test_operations_that_a_resolve_has_bound_again_keep_their_numbers(stage: Stage) -> None:
    """OldHost lost them, and gets them again in their order."""
    ids = [stage.world.record("poison" if number == 0 else f"u{number}") for number in range(3)]
    assert outcomes(send(stage.session(), ids)) == ["APPLIED"] * 3
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": 501}))
    assert isinstance(stage.open(), OpeningHalted)
    assert not stage.resolve("resend").refused
    refuse(stage, "500")
    for _ in range(2):
        opened = next_session(stage)
        assert [ref[0] for ref in opened.event.bound] == ids
        assert opened.event.apart == []
        send(opened.session, ids)
    stage.control(lambda controls: controls.switch_off(None))
    assert outcomes(send(next_session(stage).session, ids)) == ["APPLIED"] * 3


def test_an_operation_that_had_the_used_number_before_is_not_sent_under_another_one(stage: Stage) -> None:
    """A late copy of it may have used that number."""
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, "500")
    send(stage.session(), [poison])
    session = rested(stage).session
    stage.fault("drop_after", rule={"entity_id": "u2"})
    assert outcomes(send(session, [other, poison])) == ["BOUND", "BOUND"]
    opened = next_session(stage)
    fates = {fate.change_id: (fate.outcome, fate.unproven) for fate in opened.event.fates}
    assert fates == {other: ("DEAD", True), poison: ("DEAD", True)}
    assert opened.event.bound == []
    later = stage.world.record("u3")
    assert outcomes(send(opened.session, [later])) == ["APPLIED"]
    assert stage.journal() == [(501, "applied", other), (502, "applied", later)]


def test_a_replay_answered_to_a_numbers_second_operation_halts(stage: Stage) -> None:
    """A copy of the first one came later than the settle time."""
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, "500")
    send(stage.session(), [poison])
    session = next_session(stage).session
    stage.control(lambda controls: controls.foreign_write({}))
    sent = send(session, [other])
    assert "we never sent it before" in sent.halted
    assert isinstance(stage.open(), OpeningHalted)


def test_a_later_change_of_its_entity_does_not_overtake_it(stage: Stage) -> None:
    poison = stage.world.record("poison")
    later = stage.world.record("poison", "guest_locked_out", {"door": "front"})
    refuse(stage, "500")
    send(stage.session(), [poison])
    sent = send(next_session(stage).session, [later])
    assert outcomes(sent) == ["WAITING"]
    assert [ref[0] for ref in sent.older] == [poison]


def test_a_first_lost_answer_makes_no_emergency_of_another_unit_wait_for_a_second_one(stage: Stage) -> None:
    poison = stage.world.record("poison")
    emergency = stage.world.record("u2", "guest_locked_out", {"door": "front"})
    stage.control(lambda controls: controls.switch_on({"name": "drop_before", "rule": {"entity_id": "poison"}}))
    send(stage.session(), [poison])
    opened = next_session(stage)
    assert opened.event.apart == [[poison, 1]]
    assert outcomes(send(opened.session, [emergency])) == ["APPLIED"]


def apart(stage: Stage) -> tuple[int, int]:
    """One change that waits apart, and a later one of its entity."""
    poison = stage.world.record("poison")
    later = stage.world.record("poison", "guest_locked_out", {"door": "front"})
    refuse(stage, "500")
    send(stage.session(), [poison])
    assert next_session(stage).event.apart == [[poison, 1]]
    return poison, later


def test_an_operator_gives_up_what_waits_apart_and_its_entitys_others_go_on(stage: Stage) -> None:
    poison, later = apart(stage)
    assert stage.world.decide("discard", change_id=poison) == ""
    stage.control(lambda controls: controls.switch_off(None))
    sent = send(next_session(stage).session, [poison, later])
    assert {fate.change_id: fate.outcome for fate in sent.fates} == {poison: "DISCARDED", later: "APPLIED"}
    assert stage.journal() == [(501, "applied", later)]
    stage.check_clean()


def test_the_older_states_of_a_discarded_one_that_waited_apart_are_superseded(stage: Stage) -> None:
    """The writer sent the newest in their place; they must not come back behind newer changes of the unit."""
    older, newest = (stage.world.record("poison", "rate_changed", {"rate": rate}) for rate in (1, 2))
    refuse(stage, "500")
    send(stage.session(), [newest])
    assert next_session(stage).event.apart == [[newest, 1]]
    assert stage.world.decide("discard", change_id=newest) == ""
    found = stage.world.read("SELECT outcome, superseded_by FROM outbox_events WHERE id = %s", older)
    assert found == [("SUPERSEDED", newest)]


def test_an_operators_retry_of_what_waits_apart_begins_its_tries_anew(stage: Stage) -> None:
    poison, _ = apart(stage)
    assert try_again(stage, poison).event.apart == [[poison, 2]]
    assert stage.world.decide("retry", change_id=poison) == ""
    assert try_again(stage, poison).event.apart == [[poison, 1]]
    assert stage.world.decide("retry", change_id=poison) == ""
    stage.control(lambda controls: controls.switch_off(None))
    assert outcomes(send(rested(stage).session, [poison])) == ["APPLIED"]
    stage.check_clean()


@pytest.mark.parametrize("action", ["retry", "discard"])
def test_nothing_is_decided_about_it_while_it_has_a_nonce(stage: Stage, action: str) -> None:
    poison, _ = apart(stage)
    assert outcomes(send(rested(stage).session, [poison])) == ["BOUND"]
    assert "is not a dead letter" in stage.world.decide(action, change_id=poison)
    assert next_session(stage).event.apart == [[poison, 2]]


def test_what_waits_apart_cant_be_confirmed(stage: Stage) -> None:
    poison, _ = apart(stage)
    assert "it waits apart" in stage.world.decide("confirm", change_id=poison)


@pytest.mark.parametrize("action", ["retry", "discard"])
def test_a_change_that_was_never_set_apart_is_no_letter(stage: Stage, action: str) -> None:
    stage.session()
    waiting = stage.world.record("u2")
    assert "is not a dead letter" in stage.world.decide(action, change_id=waiting)


def test_the_halt_page_tells_that_what_two_operations_had_becomes_a_dead_letter(stage: Stage) -> None:
    poison, other = stage.world.record("poison"), stage.world.record("u2")
    refuse(stage, "500")
    send(stage.session(), [poison])
    session = next_session(stage).session
    stage.fault("drop_after", rule={"entity_id": "u2"})
    send(session, [other])
    stage.control(lambda controls: controls.foreign_write({"count": 2}))
    stage.close()
    stage.world.age(stage.limits.settle_seconds)
    assert isinstance(stage.open(), OpeningHalted)
    with stage.world.engine.connect() as connection:
        halt = read_halt(connection, HOST)
    assert halt is not None
    assert (halt.adopt.letters, halt.adopt.counted_applied, halt.resend.letters) == (1, 0, 0)
    assert stage.world.decide("resolve", mode="adopt") == ""
    assert stage.world.read("SELECT outcome, unproven FROM outbox_events WHERE id = %s", other) == [("DEAD", 1)]


def test_a_new_run_does_not_try_before_the_pause_is_over(stage: Stage) -> None:
    poison, _ = apart(stage)
    for left_ms in (PAUSES_MS[0], PAUSES_MS[0] - 10_000):
        ended = send(next_session(stage).session, [poison])
        assert (outcomes(ended), ended.session_open) == (["WAITING"], True)
        ((change_id, tries, told_ms),) = ended.apart
        assert (change_id, tries) == (poison, 1)
        assert left_ms - 3_500 < told_ms <= left_ms
        stage.world.age(10)
    assert outcomes(send(rested(stage).session, [poison])) == ["BOUND"]


def test_a_newer_state_of_its_unit_does_not_begin_with_the_shortest_pause(stage: Stage) -> None:
    refuse(stage, "500")
    first = stage.world.record("poison", "unit_status_changed", {"status": "0"})
    send(stage.session(), [first])
    try_again(stage, first)
    newer = stage.world.record("poison", "unit_status_changed", {"status": "1"})
    ended = send(next_session(stage).session, [newer])
    assert outcomes(ended) == ["WAITING"]
    assert ended.apart[0][:2] == [newer, 2]
    stage.world.age(PAUSES_MS[1] / 1000)
    assert outcomes(send(next_session(stage).session, [newer])) == ["BOUND"]
    assert next_session(stage).event.apart == [[newer, 3]]


def test_each_newer_state_of_its_unit_is_its_next_try(stage: Stage) -> None:
    refuse(stage, "500")
    opened = next_session(stage)
    for number in range(3):
        state = stage.world.record("poison", "unit_status_changed", {"status": str(number)})
        stage.world.age(130)
        send(opened.session, [state])
        opened = next_session(stage)
        send(opened.session, [stage.world.record(f"u{number}")])
    assert [(fate.change_id, fate.outcome) for fate in opened.event.fates] == [(state, "DEAD")]


def test_what_a_unit_was_refused_before_it_took_something_does_not_count(stage: Stage) -> None:
    def a_state(status: str) -> int:
        stage.world.age(130)
        return stage.world.record("poison", "unit_status_changed", {"status": status})

    refuse(stage, "500")
    opened = next_session(stage)
    for number in range(2):
        send(opened.session, [a_state(str(number))])
        opened = next_session(stage)
        send(opened.session, [stage.world.record(f"u{number}")])
    stage.control(lambda controls: controls.switch_off(None))
    assert outcomes(send(opened.session, [a_state("taken")])) == ["APPLIED"]
    refuse(stage, "500")
    newer = a_state("refused")
    send(opened.session, [newer])
    assert next_session(stage).event.apart == [[newer, 1]]


@pytest.mark.parametrize(
    ("event_type", "payload"), [("unit_status_changed", {"status": "1"}), ("guest_locked_out", {"door": "front"})]
)
def test_its_units_next_change_goes_at_once_when_an_operator_has_given_it_up(
    stage: Stage, event_type: str, payload: dict[str, str]
) -> None:
    refuse(stage, "500")
    first = stage.world.record("poison", "unit_status_changed", {"status": "0"})
    send(stage.session(), [first])
    try_again(stage, first)
    assert stage.world.decide("discard", change_id=first) == ""
    stage.control(lambda controls: controls.switch_off(None))
    change_id = stage.world.record("poison", event_type, payload)
    assert outcomes(send(next_session(stage).session, [change_id])) == ["APPLIED"]
