"""The next operation is marked shortly before the answer to the one on the wire is expected: what a kill leaves, and
what an answer does that comes before.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from oldhost_sync.oldhost.recovery import Opened
from tests.integration.session.stage import Process, ProcessDied, Stage, outcomes, send

pytestmark = pytest.mark.mariadb

LATENCY_MS = 150
WAITS = "await_answer"


@pytest.fixture
def slow_stage(stage: Stage) -> Stage:
    """OldHost takes so long that marks come late, and waits for nothing else."""
    stage.limits = replace(stage.limits, mark_margin_seconds=0.01, request_timeout_seconds=1.5)
    set_latency(stage, LATENCY_MS)
    return stage


def set_latency(stage: Stage, latency_ms: float) -> None:
    stage.control(lambda controls: controls.latency({"latency_ms": latency_ms}))


def units(stage: Stage, count: int) -> list[int]:
    return [stage.world.record(f"u{number}") for number in range(count)]


def marked(stage: Stage) -> list[int]:
    """Changes whose operation is SENT and not recorded."""
    rows = stage.world.read("SELECT change_id FROM nonce_requests WHERE status = 'SENT' ORDER BY nonce")
    return [change_id for (change_id,) in rows]


def killed_in_wait(number: int) -> Process:
    """Dies while it waits for the time to mark, the `number`th time."""
    process = Process()

    def hook(call: str, when: str) -> None:
        if (call, when) == (WAITS, "before") and process.calls.count(WAITS) == number:
            process.die()

    process.hook = hook
    return process


def test_while_oldhost_works_nothing_is_marked_that_was_not_written(slow_stage: Stage) -> None:
    ids, process = units(slow_stage, 5), Process()
    seen: list[tuple[list[int], list[int]]] = []

    def hook(call: str, when: str) -> None:
        if (call, when) == (WAITS, "after"):
            seen.append((marked(slow_stage), ids[: len(process.requests)]))

    process.hook = hook
    assert outcomes(send(slow_stage.session(process), ids)) == ["APPLIED"] * 5
    assert seen
    for in_doubt, written in seen:
        assert in_doubt == written[-2:]  # the answer to the one before is recorded with the next mark


def test_after_a_kill_an_applied_operation_is_not_waited_for(slow_stage: Stage) -> None:
    ids, process = units(slow_stage, 8), killed_in_wait(2)
    with contextlib.suppress(ProcessDied):
        send(slow_stage.session(process), ids)
    assert process.dead
    written, others = ids[: len(process.requests)], ids[len(process.requests) :]
    slow_stage.wait_for(lambda: slow_stage.applied_ids() == written)
    opened = slow_stage.open()
    assert isinstance(opened, Opened), "nothing marked can still be written: no settle time"
    assert [(fate.change_id, fate.outcome) for fate in opened.event.fates] == [(one, "APPLIED") for one in written[-2:]]
    assert outcomes(send(opened.session, others)) == ["APPLIED"] * len(others)
    assert slow_stage.applied_ids() == ids
    slow_stage.check_clean()


def test_an_answer_that_comes_before_the_mark_is_followed_by_the_next_operation(slow_stage: Stage) -> None:
    ids, process = units(slow_stage, 5), Process()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("write", "before") and process.calls.count("write") == 3:
            set_latency(slow_stage, 1)

    process.hook = hook
    assert outcomes(send(slow_stage.session(process), ids)) == ["APPLIED"] * 5
    # The third is answered early: only the second's answer is recorded before it is read, then the fourth is marked.
    written = [index for index, call in enumerate(process.calls) if call == "write"]
    assert process.calls[written[2] + 1 :][:5] == [WAITS, "advance", "read", "is_alive", "advance"]
    assert WAITS not in process.calls[written[3] :], "the host is quick now"
    slow_stage.check_clean()


def test_a_connection_that_ends_before_the_mark_leaves_only_the_operation_on_the_wire_in_doubt(
    slow_stage: Stage,
) -> None:
    ids, process = units(slow_stage, 4), Process()
    session = slow_stage.session(process)
    send(session, ids[:1])
    slow_stage.fault("drop_before", next=1)
    assert outcomes(send(session, ids[1:])) == ["BOUND", "WAITING", "WAITING"]
    assert outcomes(send(slow_stage.session(process), ids[1:])) == ["APPLIED"] * 3
    assert slow_stage.applied_ids() == ids
    slow_stage.check_clean()
