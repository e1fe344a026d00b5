"""The forecast: told before a promise breaks, and never because of a rate alone."""

from __future__ import annotations

import pytest

from oldhost_sync.planner.question import live_arrivals, live_scenario
from oldhost_sync.planner.rehearsal import rehearse
from oldhost_sync.planner.scenario import Scenario
from oldhost_sync.policy.changes import ChangeRef, ChangeResult, PriorityClass
from oldhost_sync.policy.forecast.forecast import Arrivals, Backlog, Forecast, make_forecast
from oldhost_sync.policy.forecast.rates import urgent
from oldhost_sync.policy.machine.actions import Send, WriterCondition
from oldhost_sync.policy.machine.conditions import conditions
from oldhost_sync.policy.machine.events import OpeningPostponed, SendEnded, SessionOpened
from oldhost_sync.policy.machine.machine import Machine
from oldhost_sync.policy.machine.session import Phase
from oldhost_sync.policy.queue.operations import Ages
from oldhost_sync.policy.tuning import CONSISTENCY_MS, FORECAST_MS, WriterPolicy
from tests.unit.policy.play import START_MS

BAN_MS = 900_000


def machine_with(*refs: ChangeRef, policy: WriterPolicy | None = None) -> Machine:
    machine = Machine(policy or WriterPolicy(), START_MS)
    machine.finish_loading(START_MS)
    machine.decide(START_MS)
    machine.opening_ended(SessionOpened(1, "queue", 1), START_MS)
    machine.enqueue(refs, START_MS)
    return machine


def change(number: int, cls: PriorityClass, unit: str = "", age_ms: int = 0) -> ChangeRef:
    return ChangeRef(number, cls, "unit", unit or f"u{number}", "e", START_MS - age_ms)


def told(machine: Machine, now_ms: int) -> list[WriterCondition]:
    """What a forecast says now."""
    machine.decide(now_ms)
    return [each for each in conditions(machine, now_ms) if each.kind == "forecast"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(),
        Scenario(seed=2),
        Scenario(bursts=1, burst_changes=2_000),
        Scenario(bursts=1, burst_changes=6_000),
        Scenario(bursts=1, burst_changes=6_000, burst_per_s=2_000.0, seed=2),
        Scenario(units=5_000, changes=20_000, latency_ms=200.0),
        Scenario(duration_s=3_600.0, seed=3),
    ],
    ids=[
        "peak",
        "another seed",
        "one burst",
        "a large burst",
        "a large burst in three seconds",
        "twice the size at half the latency",
        "an hour",
    ],
)
def test_neither_the_peak_nor_a_burst_raises_a_forecast_alarm(scenario: Scenario) -> None:
    assert "forecast" not in rehearse(scenario).alerts


@pytest.mark.slow
def test_fifty_thousand_dirty_units_are_told_within_a_minute_and_until_the_end_is_near() -> None:
    machine = machine_with(*(change(number, PriorityClass.LWW) for number in range(1, 50_001)))
    (alert,) = told(machine, START_MS + FORECAST_MS)
    assert alert.cause == "forecast:consistency"
    assert "5.6 h old" in alert.why
    assert machine.load.forecast(machine.coalescer, 0, START_MS + 3_600_000).breaks_consistency


def test_a_ban_that_will_break_the_four_hours_is_told_when_it_begins() -> None:
    machine = machine_with(change(1, PriorityClass.LWW, age_ms=CONSISTENCY_MS - BAN_MS // 2))
    assert told(machine, START_MS + FORECAST_MS) == []
    machine.session.phase = Phase.OPENING
    machine.opening_ended(OpeningPostponed(BAN_MS, "ban"), START_MS + FORECAST_MS + 1)
    (alert,) = told(machine, START_MS + FORECAST_MS + 1)
    assert alert.cause == "forecast:consistency"


PROMISED = WriterPolicy(consistency_ms=3_600_000, emergency_ms=5_000)


def test_a_host_s_own_promises_are_foretold() -> None:
    refs = [change(1, PriorityClass.LWW, age_ms=3_600_000), *(change(n, PriorityClass.EMERGENCY) for n in range(2, 16))]
    usual, own = (machine_with(*refs, policy=policy) for policy in (WriterPolicy(), PROMISED))
    found = [each.load.forecast(each.coalescer, 0, START_MS) for each in (usual, own)]
    assert [(each.breaks_consistency, each.breaks_emergency, each.late_emergencies) for each in found] == [
        (False, False, 0),
        (True, True, 2),
    ]
    own.load.update(own.coalescer, 0, START_MS)
    own.load.update(own.coalescer, 0, START_MS + FORECAST_MS)
    assert [why.partition(" will")[0] for why in own.load.breaks.values()] == [
        "The 1 h promise",
        "The 5 s promise for emergencies",
    ]


def test_a_plan_from_now_has_the_hosts_promises() -> None:
    refs = [change(n, PriorityClass.EMERGENCY, age_ms=1_000) for n in range(1, 21)]
    changes = live_arrivals(refs, [], START_MS)
    plan = rehearse(live_scenario(Scenario(ban_at_s=0.0, ban_s=0.001), PROMISED, changes, 1), changes=changes)
    assert list(dict(plan.promises())) == ["drains", "consistency within 1 h", "every emergency within 5 s"]
    assert 0 < plan.late_emergencies < 20
    usual = rehearse(live_scenario(Scenario(), WriterPolicy(), changes, 1), changes=changes)
    assert usual.late_emergencies == 0


def test_what_arrives_in_a_ban_is_part_of_what_it_leaves_behind() -> None:
    machine = machine_with(*(change(number, PriorityClass.TXN) for number in range(1, 1_001)))
    machine.load.rates[PriorityClass.TXN] = 1.25
    found = machine.load.forecast(machine.coalescer, BAN_MS, START_MS)
    assert found.drain_ms == pytest.approx(BAN_MS + 1000 * (1_000 + 1.25 * 900) / 1.25, rel=0.01)


def test_the_older_changes_of_an_emergencys_unit_are_counted() -> None:
    machine = machine_with(
        *(change(number, PriorityClass.TXN, "hot") for number in range(1, 401)),
        change(401, PriorityClass.EMERGENCY, "hot"),
    )
    found = machine.load.forecast(machine.coalescer, 0, START_MS)
    assert found.emergency_ms == pytest.approx(401 * 400, rel=0.01)
    assert found.breaks_emergency


def test_emergencies_that_go_on_being_late_are_told_at_the_second_forecast() -> None:
    machine = machine_with(*(change(number, PriorityClass.EMERGENCY) for number in range(1, 1_001)))
    assert told(machine, START_MS + FORECAST_MS) == []
    (alert,) = told(machine, START_MS + 2 * FORECAST_MS)
    assert alert.cause == "forecast:emergency"


@pytest.mark.parametrize(("left_ms", "newest_ms"), [(0, 2_000), (10_000, 2_000), (20_000, 12_000), (29_000, 40_000)])
def test_as_many_emergencies_are_foretold_to_be_late_as_the_planner_finds(left_ms: int, newest_ms: int) -> None:
    """90 that wait, one came every 100 ms. A plan always begins by opening a session, also where one is open."""
    refs = [change(n, PriorityClass.EMERGENCY, age_ms=newest_ms + 100 * (90 - n)) for n in range(1, 91)]
    machine = machine_with(*refs)
    found = machine.load.forecast(machine.coalescer, left_ms, START_MS)
    changes = live_arrivals(refs, [], START_MS)
    plan = rehearse(live_scenario(Scenario(), WriterPolicy(), changes, left_ms), changes=changes)
    assert found.emergencies == len(plan.emergencies_ms) == 90
    assert plan.late_emergencies > 0
    assert found.late_emergencies == pytest.approx(plan.late_emergencies, abs=5)


def test_emergencies_in_flight_are_foretold_too() -> None:
    machine = machine_with(change(1, PriorityClass.EMERGENCY), change(2, PriorityClass.EMERGENCY))
    machine.decide(START_MS)
    assert len(machine.in_flight) == 2
    found = machine.load.forecast(machine.coalescer, 40_000, START_MS)
    assert (found.emergencies, found.late_emergencies) == (2, 2)


def test_of_very_many_emergencies_those_beyond_the_sample_are_as_the_last_of_it() -> None:
    machine = machine_with(*(change(number, PriorityClass.EMERGENCY) for number in range(1, 1_001)))
    assert machine.load.forecast(machine.coalescer, 0, START_MS).late_emergencies == 1_000 - 75


def test_a_rate_that_rises_alone_is_no_alarm() -> None:
    machine = machine_with(*(change(number, PriorityClass.LWW) for number in range(1, 501)))
    for cls in PriorityClass:
        machine.load.rates[cls] = 20.0
    assert not machine.load.forecast(machine.coalescer, 0, START_MS).breaks_consistency


def walked(txn: list[int], lww: list[int], txn_per_s: float = 0.0) -> Forecast:
    """The forecast of changes of these ages (s), at 400 ms."""
    lanes = Ages(), Ages()
    for lane, ages_s in zip(lanes, (txn, lww), strict=True):
        lane.fill([(START_MS - 1000 * age_s, START_MS - 1000 * age_s) for age_s in ages_s])
    backlog = Backlog(*lanes, [], 0, 0, 400.0, 3)
    return make_forecast(backlog, Arrivals(txn=txn_per_s), START_MS)


def test_what_age_brings_before_the_others_breaks_no_promise() -> None:
    assert not walked([], [0] * 10_500, txn_per_s=1.8).breaks_consistency


@pytest.mark.parametrize("cls", list(PriorityClass))
@pytest.mark.parametrize("entities", [1, 100_000])
def test_a_forecast_reads_cells_and_a_sample_however_much_waits(cls: PriorityClass, entities: int) -> None:
    refs = (ChangeRef(n, cls, "unit", f"u{n % entities}", f"e{n}", START_MS - n * 10) for n in range(1, 20_001))
    machine = machine_with(*refs)
    ages = machine.coalescer.ages
    cells = sum(1 for walked in (PriorityClass.TXN, PriorityClass.LWW) for _ in ages[walked].in_order())
    assert cells + len(urgent(machine.coalescer, 500)) <= 500


def late_at(pace_ms: float) -> int:
    """How many of 20 new emergencies will be late after 30 sends at that pace; OldHost itself takes 400 ms."""
    machine = machine_with()
    for number in range(1, 31):
        machine.enqueue([change(number, PriorityClass.TXN)], START_MS)
        (send,) = (action for action in machine.decide(START_MS) if isinstance(action, Send))
        ended = SendEnded([ChangeResult(number, "APPLIED", number)], service_ms=400.0, pace_ms=pace_ms)
        machine.send_ended(send.number, ended, START_MS)
    machine.enqueue([change(100 + number, PriorityClass.EMERGENCY) for number in range(20)], START_MS)
    return machine.load.forecast(machine.coalescer, 0, START_MS).late_emergencies


def test_the_forecast_counts_with_the_time_that_the_database_takes() -> None:
    assert late_at(405.0) == 0
    assert late_at(2_400.0) >= 7
