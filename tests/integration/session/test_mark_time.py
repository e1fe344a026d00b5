"""The next operation is marked shortly before the answer to the one on the wire is expected: what a kill leaves, and
what an answer does that comes before.

OldHost is so slow that no transaction takes a quarter of an operation's time: then no mark would wait.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import pytest

from oldhost_sync.oldhost.recovery import Opened
from oldhost_sync.policy.machine.events import OpeningHalted
from tests.integration.session.stage import Process, ProcessDied, Stage, outcomes, send

pytestmark = pytest.mark.mariadb

LATENCY_MS = 400
WAITS = "await_answer"


@pytest.fixture
def slow_stage(stage: Stage) -> Stage:
    """OldHost takes so long that marks come late, and waits for nothing else."""
    stage.limits = replace(stage.limits, mark_margin_seconds=0.01, request_timeout_seconds=1.5, settle_seconds=6.0)
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
        # The answer to the one before is recorded with the next mark; behind the last one there is none.
        assert in_doubt == (written[-2:] if written != ids else written[-1:])


def test_after_a_kill_an_applied_operation_is_not_waited_for(slow_stage: Stage) -> None:
    ids, process = units(slow_stage, 6), killed_in_wait(2)
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
    assert WAITS not in process.calls[written[3] : written[4]], "the host is quick now"
    slow_stage.check_clean()


def test_a_send_that_comes_while_oldhost_works_reserves_before_the_next_mark(slow_stage: Stage) -> None:
    ids, process, came = units(slow_stage, 5), Process(), threading.Event()
    session = slow_stage.session(process)
    second = threading.Thread(target=lambda: session.send(ids[3:], came.set, sequence=2))

    def hook(call: str, when: str) -> None:
        if (call, when) == (WAITS, "before") and not second.ident:
            second.start()
            assert came.wait(5), "it waits for its turn"

    process.hook = hook
    send(session, ids[:3], 1)
    second.join()
    waiting = process.calls.index(WAITS)
    assert process.calls.index("reserve", waiting) < process.calls.index("advance", waiting)
    assert slow_stage.applied_ids() == ids
    slow_stage.check_clean()


def test_an_answer_counts_from_when_it_arrived_though_it_is_recorded_later(slow_stage: Stage) -> None:
    send(slow_stage.session(Process()), units(slow_stage, 4))
    # The second answer is recorded with the fourth mark.
    ((waited_ms,),) = slow_stage.world.read(
        "SELECT TIMESTAMPDIFF(MICROSECOND, b.completed_at, d.sent_at) DIV 1000 FROM nonce_requests b, nonce_requests d "
        "WHERE b.nonce = 502 AND d.nonce = 504"
    )
    assert waited_ms > LATENCY_MS / 4


def test_the_rejection_of_a_bound_operation_is_recorded_while_the_next_one_is_on_the_wire(slow_stage: Stage) -> None:
    """OldHost's count would not tell it from an apply. Bound operations keep their nonces, whatever is rejected."""
    stage = slow_stage
    set_latency(stage, 1)
    stage.fault("reject", rule={"entity_id": "u1"})
    ids = units(stage, 4)
    send(stage.session(), ids)
    stage.close()
    stage.control(lambda controls: controls.restore({"expected_nonce": 501}))
    assert isinstance(stage.open(), OpeningHalted)
    assert stage.world.decide("resolve", mode="resend") == ""
    set_latency(stage, LATENCY_MS)
    process = Process()
    opened = stage.opening(process)
    assert [ref[0] for ref in opened.event.bound] == ids
    seen: list[tuple[int, str]] = []
    waits: list[int] = []

    def hook(call: str, when: str) -> None:
        if (call, when) == ("read", "before"):
            waits.append(process.calls.count(WAITS))
            seen.append((len(process.requests), stage.world.outcome(ids[1])[0] or ""))

    process.hook = hook
    send(opened.session, ids)
    assert seen == [(1, ""), (2, ""), (3, "DEAD"), (4, "DEAD")]
    assert waits[0] == 0, "nothing is known yet"
    assert waits[1] > waits[0]
    assert waits[2] == waits[1], "the rejection is recorded at once"


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


def test_the_time_that_the_database_takes_is_part_of_the_pace(stage: Stage) -> None:
    process = Process()

    def hook(call: str, when: str) -> None:
        if (call, when) == ("advance", "after") and not process.requests:
            process.clock_offset += 0.3  # as if the mark had taken so long

    process.hook = hook
    ended = send(stage.session(process), units(stage, 1))
    assert outcomes(ended) == ["APPLIED"]
    assert ended.pace_ms - ended.service_ms >= 300
