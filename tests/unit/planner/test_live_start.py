"""A plan from the live state: ages go on, ids go on, and what is scheduled comes when it is due."""

from __future__ import annotations

from dataclasses import replace

from oldhost_sync.planner import Plan, Scenario, live_arrivals, live_scenario, rehearse, steady
from oldhost_sync.policy.changes import ChangeRef, PriorityClass
from oldhost_sync.policy.tuning import WriterPolicy

LWW, TXN, EMERGENCY = PriorityClass.LWW, PriorityClass.TXN, PriorityClass.EMERGENCY
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def ref(number: int, cls: PriorityClass, after_now_ms: int) -> ChangeRef:
    return ChangeRef(number, cls, "unit", f"A-{number}", "e", NOW_MS + after_now_ms)


def test_what_is_outstanding_keeps_its_age() -> None:
    plan = rehearse(Scenario(), changes=live_arrivals([ref(7, TXN, -HOUR_MS)], [], NOW_MS))
    assert plan.drained
    assert HOUR_MS < plan.oldest_ms < HOUR_MS + 10_000
    assert plan.drained_ms < 10_000


def test_a_key_whose_debounce_is_over_waits_for_no_other() -> None:
    plan = rehearse(Scenario(), changes=live_arrivals([ref(7, LWW, -HOUR_MS)], [], NOW_MS))
    assert plan.drained_ms < 10_000


def test_a_promise_that_is_broken_already_is_said_to_be() -> None:
    plan = rehearse(Scenario(), changes=live_arrivals([ref(7, TXN, -5 * HOUR_MS)], [], NOW_MS))
    assert plan.oldest_ms > 4 * HOUR_MS


def test_what_is_scheduled_comes_when_it_is_due_and_what_is_overdue_now() -> None:
    later = [ref(1, TXN, HOUR_MS), ref(2, TXN, -HOUR_MS)]
    changes = live_arrivals([ref(90, TXN, -1000)], later, NOW_MS)
    assert [(one.number, one.entity_id, one.at_ms) for one in changes] == [
        (90, "A-90", -1000),
        (91, "A-2", 0),
        (92, "A-1", HOUR_MS),
    ]
    assert HOUR_MS < rehearse(Scenario(), changes=changes).drained_ms < HOUR_MS + 10_000


def test_a_load_that_goes_on_comes_after_what_the_database_has_given_ids_to() -> None:
    changes = live_arrivals([ref(90, TXN, -1000)], [], NOW_MS, steady(Scenario(), 1.0, 60))
    assert [one.number for one in changes] == list(range(90, 90 + len(changes)))
    assert len(changes) > 50


def in_a_ban(*ages_ms: int, left_ms: int) -> Plan:
    """Emergencies that wait already, of these ages."""
    refs = [ref(number, EMERGENCY, -age_ms) for number, age_ms in enumerate(ages_ms, 1)]
    changes = live_arrivals(refs, [], NOW_MS)
    return rehearse(live_scenario(Scenario(), WriterPolicy(), changes, left_ms), changes=changes)


def test_emergencies_that_wait_in_a_ban_count_from_when_they_came() -> None:
    plan = in_a_ban(15_000, 1_000, left_ms=20_000)
    assert (plan.late_emergencies, plan.figures()["emergencies"]) == (1, 2)


def test_a_promise_that_a_ban_which_runs_now_breaks_is_said_to_be_broken() -> None:
    assert dict(in_a_ban(15_000, 1_000, left_ms=20_000).promises())["every emergency within 30 s"] is False
    assert dict(in_a_ban(1_000, left_ms=20_000).promises())["every emergency within 30 s"] is True


def test_a_ban_that_is_to_come_keeps_its_emergencies_apart() -> None:
    """Nobody waits behind it: it is a what-if, and the promise is about the rest."""
    plan = rehearse(replace(Scenario(changes=2_000, duration_s=400, bursts=0), ban_at_s=100.0, ban_s=60.0))
    assert plan.late_emergencies > 0
    assert "emergency p99 below 30 s, outside a ban" in dict(plan.promises())


def test_a_change_that_is_due_after_the_longest_plan_is_left_out() -> None:
    """It may be scheduled for the year 9999."""
    far = ref(8, TXN, 24 * 365 * HOUR_MS)
    changes = live_arrivals([ref(7, TXN, -HOUR_MS)], [far], NOW_MS)
    assert [arrival.number for arrival in changes] == [7]
    assert live_scenario(Scenario(), WriterPolicy(), changes, 0).duration_s == Scenario().duration_s
