"""Zombies: sessions that go on after another one took over, stopped at each step where they could do harm."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.opening import Opened, Wait
from tests.integration.session.stage import Process, Stage, outcomes, send

pytestmark = pytest.mark.mariadb


def at(call: str, when: str, act: object) -> Process:
    """A process in which `act` happens once, before or after the first such call."""
    process = Process()
    done: list[bool] = []

    def hook(seen: str, seen_when: str) -> None:
        if (seen, seen_when) == (call, when) and not done:
            done.append(True)
            act()  # type: ignore[operator]

    process.hook = hook
    return process


def test_trap_02_a_zombie_that_has_only_reserved_is_fenced_before_it_marks_sent(stage: Stage) -> None:
    change_id = stage.world.record()
    zombie = stage.session(at("advance", "before", lambda: stage.world.ledger.take_over("successor")))
    sent = send(zombie, [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert "Fenced" in sent.reason
    assert stage.journal() == []
    opened = stage.open()
    assert isinstance(opened, Opened), "nothing was sent: no settle time"
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_trap_02_a_zombie_that_slept_after_marking_sent_does_not_send(stage: Stage) -> None:
    change_id = stage.world.record()
    process = Process()
    slept = at("advance", "after", lambda: setattr(process, "clock_offset", 1.1))
    process.hook = slept.hook
    sent = send(stage.session(process), [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert "too long ago" in sent.reason
    assert stage.journal() == []
    waiting = stage.open()
    assert isinstance(waiting, Wait)
    assert waiting.reason == "settle"
    assert outcomes(send(stage.session(), [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_trap_02_the_deadline_counts_from_before_the_mark(stage: Stage) -> None:
    """A slow SENT transaction uses the second up: the mark's time is somewhere inside it."""
    change_id = stage.world.record()
    process = Process()
    slept = at("advance", "before", lambda: setattr(process, "clock_offset", 1.1))
    process.hook = slept.hook
    assert outcomes(send(stage.session(process), [change_id])) == ["BOUND"]
    assert stage.journal() == []


def test_trap_03_a_zombies_answer_is_not_recorded_over_its_successors(stage: Stage) -> None:
    """It gets its answer after the successor took over: the successor learns by the expected nonce."""
    first, second = stage.world.record("u1"), stage.world.record("u2")
    zombie = stage.session(at("exchange", "after", lambda: stage.world.ledger.take_over("successor")))
    sent = send(zombie, [first, second])
    assert (outcomes(sent), sent.session_open) == (["BOUND", "BOUND"], False)
    assert stage.world.outcome(first) == (None, None)
    opened = stage.opening()
    assert [(fate.change_id, fate.outcome) for fate in opened.fates] == [(first, "APPLIED")]
    assert outcomes(send(opened.session, [second])) == ["APPLIED"]
    assert stage.applied_ids() == [first, second]
    stage.check_clean()


def test_trap_03_while_a_zombie_holds_the_connection_its_successor_waits(stage: Stage) -> None:
    change_id = stage.world.record()
    found: list[object] = []
    zombie = stage.session(at("exchange", "before", lambda: found.append(stage.open())))
    sent = send(zombie, [change_id])
    assert isinstance(found[0], Wait), "a row in doubt"
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert outcomes(stage.opening().fates) == ["APPLIED"]
    stage.check_clean()


def test_a_violated_invariant_halts_the_ledger(stage: Stage) -> None:
    change_id = stage.world.record()
    process = at(
        "advance", "before", lambda: stage.world.execute("UPDATE nonce_requests SET change_id = change_id + 7")
    )
    sent = send(stage.session(process), [change_id])
    assert not sent.session_open
    assert "invariant violated" in (stage.world.halted() or "")
    assert stage.journal() == []


def test_a_halt_mid_batch_stops_the_session(stage: Stage) -> None:
    ids = [stage.world.record("u1"), stage.world.record("u2")]
    process = at("exchange", "after", lambda: stage.world.decide("halt"))
    sent = send(stage.session(process), ids)
    assert not sent.session_open
    assert outcomes(sent)[1] != "APPLIED"
    assert len(stage.journal()) == 1
