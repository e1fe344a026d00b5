"""Backlogs of every shape: an activation's work stays bounded, and what it asks of Temporal too (I11).

Work is counted in calls of the policy's functions, never timed; the bound is what a backlog of ordinary shape and size
costs. The activities are counted as the workflow would start them: one for each action.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from oldhost_sync.policy.changes import ChangeRef, ChangeResult, EntityKey, Outcome, PriorityClass
from oldhost_sync.policy.machine import operators, snapshot
from oldhost_sync.policy.machine.actions import Action
from oldhost_sync.policy.machine.events import OpeningHalted, OpeningPostponed, OpeningResult, SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.tuning import WriterPolicy
from tests.unit.policy.play import START_MS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ACTIONS_MAX = 50  # pending activities; Temporal refuses a task that makes them more than 2,000
# One activation stays below 0.2 s: about so many calls of Python functions on a slow machine.
CALLS_MAX = 100_000
SIGNAL_REFS = 1_000
WINDOW = 20


def calls_of(act: Callable[[], Any]) -> tuple[int, Any]:
    """How many functions of the policy `act` calls, and what it gives."""
    count = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and "policy" in frame.f_code.co_filename

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        result = act()
    finally:
        sys.setprofile(before)
    return count, result


def opening_ends(machine: Machine, event: OpeningResult, now_ms: int) -> None:
    """As if one had been requested."""
    machine.session.phase = Phase.OPENING
    machine.opening_ended(event, now_ms)


class Activations:
    """A machine under events; each is one activation, and the worst of them is kept."""

    def __init__(self) -> None:
        self.machine = Machine(WriterPolicy(), START_MS)
        self.machine.finish_loading(START_MS)
        self.now_ms = START_MS
        self.worst: tuple[int, str] = (0, "")
        self.most_actions = 0
        self.actions: list[Action] = []

    def happen(self, name: str, event: Callable[[Machine], object]) -> None:
        self.now_ms += 10

        def activation() -> list[Action]:
            event(self.machine)
            return self.machine.decide(self.now_ms)

        calls, self.actions = calls_of(activation)
        self.worst = max(self.worst, (calls, name))
        self.most_actions = max(self.most_actions, len(self.actions))

    def open(self) -> None:
        self.happen(
            "opened",
            lambda machine: opening_ends(machine, SessionOpened(1, "queue", 1), self.now_ms),
        )

    def enqueue(self, refs: list[ChangeRef]) -> None:
        """As the relay says it: a thousand at most in one signal."""
        for start in range(0, len(refs), SIGNAL_REFS):
            page = refs[start : start + SIGNAL_REFS]
            self.happen("enqueue", partial(self._take, page))

    def _take(self, page: list[ChangeRef], machine: Machine) -> None:
        machine.enqueue(page, self.now_ms)

    def apply(self) -> None:
        """The first send in flight is applied."""
        number, ids = next(iter(self.machine.in_flight.sends.items()))
        fates = [ChangeResult(change_id, Outcome.APPLIED.value, change_id) for change_id in ids]
        self.happen(
            "reported",
            lambda machine: machine.send_ended(number, SendEnded(fates, service_ms=400.0), self.now_ms),
        )

    def check(self) -> None:
        assert self.worst[0] <= CALLS_MAX, self.worst
        assert self.most_actions <= ACTIONS_MAX


def one_entity(count: int) -> list[ChangeRef]:
    """TXN changes of one unit."""
    return [ChangeRef(1 + n, PriorityClass.TXN, "unit", "hot", "booking", START_MS) for n in range(count)]


def emergencies(count: int) -> list[ChangeRef]:
    """Each of a unit of its own."""
    return [ChangeRef(1 + n, PriorityClass.EMERGENCY, "unit", f"u{n}", "locked_out", START_MS) for n in range(count)]


def keys(count: int) -> list[ChangeRef]:
    return [ChangeRef(1 + n, PriorityClass.LWW, "unit", f"u{n}", "status", START_MS) for n in range(count)]


SHAPES = {
    "50,000 of one entity": one_entity(50_000),
    "5,000 emergencies": emergencies(5_000),
    "50,000 keys": keys(50_000),
}


def ban(machine: Machine, now_ms: int) -> None:
    opening_ends(machine, OpeningPostponed(900_000, "ban"), now_ms)


def renew(activations: Activations) -> None:
    """Continue-as-new: what is carried is loaded, what is not is read again."""
    dumped = snapshot.dump(activations.machine)
    activations.machine = snapshot.load(dumped, WriterPolicy(), activations.now_ms)


MISHAPS: dict[str, Callable[[Activations], object]] = {
    "ban": lambda a: a.happen("ban", lambda machine: ban(machine, a.now_ms)),
    "pause": lambda a: a.happen("pause", lambda machine: operators.pause(machine, "op", "why")),
    "halt": lambda a: a.happen("halt", lambda machine: opening_ends(machine, OpeningHalted("why"), a.now_ms)),
    "continue-as-new": renew,
}


@pytest.mark.parametrize("mishap", MISHAPS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_of_backlog_makes_an_activation_long_or_its_activities_many(shape: str, mishap: str) -> None:
    activations = Activations()
    activations.open()
    activations.enqueue(SHAPES[shape])
    MISHAPS[mishap](activations)
    activations.happen("and then", lambda machine: None)
    activations.enqueue([ChangeRef(10**6, PriorityClass.EMERGENCY, "unit", "another", "locked_out", START_MS)])
    activations.check()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_backlog_that_waits_in_a_ban_is_enqueued_in_bounded_activations(shape: str) -> None:
    """The ban is first: whatever comes can't go, and people are told of that, but not one by one."""
    activations = Activations()
    activations.happen("ban", lambda machine: ban(machine, activations.now_ms))
    activations.enqueue(SHAPES[shape])
    activations.check()


def test_ten_thousand_dead_letters_delay_nobody() -> None:
    activations = Activations()
    activations.open()
    for number in range(10_000):
        activations.machine.outcomes.hold(EntityKey("unit", f"dead{number}"), [1 + number])
    activations.enqueue(
        [ChangeRef(20_000 + n, PriorityClass.TXN, "unit", f"dead{n}", "booking", START_MS) for n in range(10_000)]
    )
    activations.enqueue([ChangeRef(10**6, PriorityClass.EMERGENCY, "unit", "another", "locked_out", START_MS)])
    activations.check()


def test_sending_costs_the_same_with_fifty_thousand_of_one_entity_waiting() -> None:
    activations = Activations()
    activations.open()
    activations.enqueue(SHAPES["50,000 of one entity"])
    for _ in range(WINDOW):
        activations.apply()
    activations.check()
