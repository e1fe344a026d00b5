"""Which operations and records wake the sends that wait. What the sends then do is tested with real threads
(integration/session).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import pytest

from oldhost_sync.oldhost.nonce_pipeline import NoncePipeline, QueuedSend, SendStep
from oldhost_sync.oldhost.session_limits import SessionLimits


@dataclass
class CountingGate:
    """Counts how often all are woken. Nobody waits long: `meanwhile` happens instead."""

    woken: int = 0
    now: float = 0.0
    meanwhile: Callable[[], object] = bool

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

    def wait(self, timeout: float | None = None) -> None:
        self.now += timeout or 0.0
        self.meanwhile()

    def notify_all(self) -> None:
        self.woken += 1


@pytest.fixture
def gate() -> CountingGate:
    return CountingGate()


@pytest.fixture
def second() -> QueuedSend:
    return QueuedSend(2)


@pytest.fixture
def pipeline(gate: CountingGate, second: QueuedSend) -> NoncePipeline:
    """Two sends: one has the nonces 1 to 3, the other 4 and 5."""
    found = NoncePipeline(gate, lambda: gate.now, SessionLimits(settle_seconds=10.0), next_nonce=1)
    for place, nonces in ((QueuedSend(1), (1, 2, 3)), (second, (4, 5))):
        found.enter(place)
        found.claim(place, {nonce: 100 + nonce for nonce in nonces})
    return found


def no_beat() -> None: ...


def woken_by(pipeline: NoncePipeline, gate: CountingGate, nonce: int) -> int:
    """How often `nonce` wakes all when it goes on the wire, after those before it."""
    for before in range(1, nonce):
        pipeline.marked(before)
        pipeline.on_wire(before)
        pipeline.used(before)
    pipeline.marked(nonce)
    already = gate.woken
    pipeline.on_wire(nonce)
    return gate.woken - already


@pytest.mark.parametrize("nonce", [1, 2, 4])
def test_an_operation_that_its_own_send_continues_wakes_nobody(
    pipeline: NoncePipeline, gate: CountingGate, nonce: int
) -> None:
    assert woken_by(pipeline, gate, nonce) == 0


def test_the_last_operation_of_a_send_wakes_the_next_send_which_may_mark_its_first_now(
    pipeline: NoncePipeline, gate: CountingGate
) -> None:
    assert woken_by(pipeline, gate, 3) == 1


def test_the_last_operation_of_all_wakes_an_urgent_send_which_may_reserve_now(
    pipeline: NoncePipeline, gate: CountingGate
) -> None:
    assert woken_by(pipeline, gate, 5) == 1


@pytest.mark.parametrize(("nonce", "wakes"), [(1, 0), (2, 1), (3, 0), (4, 1)])
def test_a_record_wakes_others_only_if_the_operation_on_the_wire_is_the_last_of_its_send(
    pipeline: NoncePipeline, gate: CountingGate, nonce: int, wakes: int
) -> None:
    woken_by(pipeline, gate, nonce)
    pipeline.used(nonce)
    already = gate.woken
    pipeline.recorded(nonce)
    assert gate.woken - already == wakes


def test_a_record_wakes_a_thread_that_waits_for_it(pipeline: NoncePipeline, gate: CountingGate) -> None:
    woken_by(pipeline, gate, 1)
    already = gate.woken
    gate.meanwhile = lambda: pipeline.recorded(1)
    assert pipeline.wait_recorded(1, no_beat)
    assert gate.woken - already == 1


def test_a_record_wakes_a_send_that_waits_to_reserve_for_its_change(
    pipeline: NoncePipeline, gate: CountingGate
) -> None:
    woken_by(pipeline, gate, 1)
    again = QueuedSend(3)
    pipeline.enter(again)
    already = gate.woken
    gate.meanwhile = lambda: pipeline.recorded(1)
    assert pipeline.lock_to_reserve(again, [101], no_beat)
    assert gate.woken - already == 1


@pytest.mark.parametrize("mark_after", [0.0, 0.35, 1.7])
def test_the_next_sends_first_operation_is_marked_when_it_is_time(
    pipeline: NoncePipeline, gate: CountingGate, second: QueuedSend, mark_after: float
) -> None:
    woken_by(pipeline, gate, 2)
    pipeline.used(2)
    pipeline.recorded(2)
    pipeline.marked(3)
    pipeline.on_wire(3, mark_after)
    assert pipeline.wait(second, 4, no_beat, marked=False) is SendStep.MARK
    assert gate.now == pytest.approx(mark_after)


@pytest.fixture
def free(gate: CountingGate) -> NoncePipeline:
    """Nothing is reserved."""
    return NoncePipeline(gate, lambda: gate.now, SessionLimits(), next_nonce=1)


def test_the_second_urgent_send_reserves_after_the_first_though_it_arrives_before_it(
    free: NoncePipeline, gate: CountingGate
) -> None:
    first, second = QueuedSend(1, urgent=True), QueuedSend(2, urgent=True)
    order: list[QueuedSend] = []

    def first_arrives() -> None:
        gate.meanwhile = bool
        free.enter(first)
        assert free.lock_to_reserve(first, [101], no_beat)
        order.append(first)
        free.claim(first, {1: 101})
        free.unlock_nonces()

    gate.meanwhile = first_arrives
    free.enter(second)
    assert free.lock_to_reserve(second, [102], no_beat)
    assert order == [first]


def test_urgent_sends_that_gave_back_their_nonces_reserve_again_in_their_order(
    free: NoncePipeline, gate: CountingGate
) -> None:
    first, second = QueuedSend(1, urgent=True), QueuedSend(2, urgent=True)
    for nonce, place in ((1, first), (2, second)):
        free.enter(place)
        free.claim(place, {nonce: 100 + nonce})
    free.released(0)
    gate.meanwhile = lambda: free.leave(first)
    assert free.lock_to_reserve(second, [102], no_beat)
    assert gate.now > 0


def test_an_urgent_send_does_not_wait_for_an_ordinary_one_that_has_not_arrived(free: NoncePipeline) -> None:
    free.enter(ordinary := QueuedSend(2))
    free.enter(urgent := QueuedSend(1, urgent=True))
    assert free.lock_to_reserve(urgent, [101], no_beat)
    assert not ordinary.reserved
