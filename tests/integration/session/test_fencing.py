"""Zombies: sessions that go on after another one took over, stopped at each step where they could do harm."""

from __future__ import annotations

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningPostponed
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


def test_trap_02_a_zombie_that_slept_after_marking_sent_asks_the_fence_again(stage: Stage) -> None:
    """It was taken over meanwhile: not a byte of it is written."""
    ids = [stage.world.record("u1"), stage.world.record("u2")]
    process = Process()

    def sleep() -> None:
        process.clock_offset = 1.1
        stage.world.ledger.take_over("successor")

    process.hook = at("read", "after", sleep).hook
    sent = send(stage.session(process), ids)
    assert (outcomes(sent), sent.session_open) == (["BOUND", "BOUND"], False)
    assert "Fenced" in sent.reason
    assert stage.applied_ids() == ids[:1]
    opened = stage.opening()
    assert outcomes(send(opened.session, ids[1:])) == ["APPLIED"]
    stage.check_clean()


def test_a_mark_that_grew_old_is_renewed_when_nobody_took_over(stage: Stage) -> None:
    ids = [stage.world.record("u1"), stage.world.record("u2")]
    process = Process()
    process.hook = at("read", "after", lambda: setattr(process, "clock_offset", 1.1)).hook
    sent = send(stage.session(process), ids)
    assert (outcomes(sent), sent.session_open) == (["APPLIED", "APPLIED"], True)
    assert process.calls.count("advance") == 4
    stage.check_clean()


def test_what_was_marked_for_later_and_grew_old_while_oldhost_was_busy_is_renewed(stage: Stage) -> None:
    """The renewed mark of the operation before it says nothing of its own: it was taken over
    meanwhile, and not sent."""
    ids = [stage.world.record("u1"), stage.world.record("u2")]
    process = Process()
    session = stage.session(process)
    reads: list[str] = []

    def hook(call: str, when: str) -> None:
        if (call, when) == ("read", "after"):
            reads.append(call)
            if len(reads) == 1:  # busy, and the second is marked already
                process.clock_offset = 1.1
            if len(reads) == 2:
                stage.world.ledger.take_over("successor")

    process.hook = hook
    stage.fault("busy", next=1, retry_after=0.01)
    sent = send(session, ids)
    assert (outcomes(sent), sent.session_open) == (["BOUND", "BOUND"], False)
    assert "Fenced" in sent.reason
    assert stage.applied_ids() == ids[:1]
    stage.check_clean()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("slow_ones", [1, 3])
def test_what_was_marked_too_slowly_is_marked_again(stage: Stage, when: str, slow_ones: int) -> None:
    """The second counts from before the mark's transaction: its time is somewhere inside it."""
    change_id = stage.world.record()
    process = Process()

    def hook(seen: str, seen_when: str) -> None:
        if (seen, seen_when) == ("advance", when) and process.calls.count("advance") <= slow_ones:
            process.clock_offset += 1.1

    process.hook = hook
    sent = send(stage.session(process), [change_id])
    assert (outcomes(sent), sent.session_open) == (["APPLIED"], True)
    assert process.calls[: process.calls.index("write")].count("advance") == 1 + slow_ones
    stage.check_clean()


@pytest.mark.parametrize("when", ["before", "after"])
def test_trap_02_what_is_marked_too_slowly_each_time_is_not_sent(stage: Stage, when: str) -> None:
    change_id = stage.world.record()
    process = Process()

    def hook(seen: str, seen_when: str) -> None:
        if (seen, seen_when) == ("advance", when):
            process.clock_offset += 1.1

    process.hook = hook
    sent = send(stage.session(process), [change_id])
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert "too long ago" in sent.reason
    assert stage.journal() == []
    opened = stage.open()
    assert isinstance(opened, Opened), "not a byte of it left: nobody waits for it"
    assert outcomes(send(opened.session, [change_id])) == ["APPLIED"]
    stage.check_clean()


def test_trap_03_a_zombies_answer_is_not_recorded_over_its_successors(stage: Stage) -> None:
    """It gets its answer after the successor took over: the successor learns by the expected nonce."""
    ids = [stage.world.record(f"u{number}") for number in range(3)]
    zombie = stage.session(at("read", "after", lambda: stage.world.ledger.take_over("successor")))
    sent = send(zombie, ids)
    assert (outcomes(sent), sent.session_open) == (["BOUND", "BOUND", "BOUND"], False)
    assert stage.applied_ids() == ids[:2], "what was marked before the takeover is sent within its second, no more"
    assert stage.world.outcome(ids[0]) == (None, None)
    opened = stage.opening()
    assert [(fate.change_id, fate.outcome) for fate in opened.event.fates] == [(ids[0], "APPLIED"), (ids[1], "APPLIED")]
    assert outcomes(send(opened.session, ids[2:])) == ["APPLIED"]
    assert stage.applied_ids() == ids
    stage.check_clean()


def test_trap_03_while_a_zombie_holds_the_connection_its_successor_waits(stage: Stage) -> None:
    change_id = stage.world.record()
    found: list[object] = []
    zombie = stage.session(at("write", "before", lambda: found.append(stage.open())))
    sent = send(zombie, [change_id])
    assert isinstance(found[0], OpeningPostponed), "a row in doubt"
    assert (outcomes(sent), sent.session_open) == (["BOUND"], False)
    assert outcomes(stage.opening().event.fates) == ["APPLIED"]
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
    ids = [stage.world.record(f"u{number}") for number in range(4)]
    process = at("read", "after", lambda: stage.world.decide("halt"))
    sent = send(stage.session(process), ids)
    assert not sent.session_open
    assert "APPLIED" not in outcomes(sent)[2:]
    assert len(stage.journal()) == 2
