"""A plan from the live state: ages go on, ids go on, and what is scheduled comes when it is due."""

from __future__ import annotations

from oldhost_sync.planner import Scenario, live_arrivals, rehearse, steady
from oldhost_sync.policy.changes import ChangeRef, PriorityClass

LWW, TXN = PriorityClass.LWW, PriorityClass.TXN
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
