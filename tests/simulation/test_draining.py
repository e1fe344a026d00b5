"""A run that ends while Temporal's clock stands still; and when the simulation itself may call a world settled."""

from __future__ import annotations

from dataclasses import replace

from oldhost_sync.policy.machine.events import OpeningPostponed
from oldhost_sync.policy.machine.session import Phase
from tests.simulation.operator_fuzzer import OperatorFuzzer
from tests.simulation.shape import Shape
from tests.simulation.workflow_run import payload_of
from tests.simulation.world import World
from workflows import messages

SHAPE = Shape(changes=0, debounce_s=2.0, ban_s=20.0)


class Calm:
    """No faults but those that the test makes."""

    on = True

    def at(self, *_: object) -> str:
        return ""


def test_a_run_ends_soon_though_temporals_clock_was_set_back_and_the_database_is_away() -> None:
    """A new session is due, and a draining run opens none: nothing may wake it for that until its
    two seconds are over."""
    world = World(1, shape=SHAPE, faults=Calm())
    world.begin()
    world._go_on_for(25)  # the next sweep is two minutes off: no timer of before the jump rings soon
    world.weather.down = True
    world.temporal.update("flush", messages.OperatorAct(operator="ana", reason="a look"), lambda *_: None)
    world._go_on_for(5)
    policy, run = world.workflow_input().policy, world.temporal.run
    assert policy is not None
    assert run is not None
    world.temporal_offset -= 7200.0
    run.instance.machine.session.phase = Phase.OPENING
    run.instance.machine.opening_ended(OpeningPostponed(500, "unreachable"), round(run.time() * 1000))
    runs, timers = world.temporal.runs, world.temporal.timers
    world.temporal.signal_with_start("configure", payload_of(replace(policy, sweep_ms=60_000)))
    world._go_on_for(30)
    assert world.temporal.runs == runs + 1
    assert world.temporal.timers < timers + 30


def test_a_world_is_not_settled_before_a_new_run_has_read_whether_it_is_paused() -> None:
    world = World(1, shape=SHAPE, faults=Calm())
    world.begin()
    world._go_on_for(10)
    assert world.machine is not None
    assert not world._holds_something()
    world.machine.loaded = False
    assert world._holds_something()


def test_an_operator_who_rests_begins_nothing_more() -> None:
    """What he began too late met a paused writer, and nobody waited for its end."""
    world = World(1, shape=SHAPE, faults=Calm())
    world.begin()
    fuzzer = OperatorFuzzer(world)
    acted: list[float] = []
    fuzzer._act = lambda: acted.append(world.hub.now)  # type: ignore[method-assign]
    fuzzer.pause_s = 0.1
    fuzzer.process.spawn(fuzzer._run)
    world._go_on_for(10)
    assert acted
    fuzzer.rest()
    acted.clear()
    world._go_on_for(10)
    assert acted == []
