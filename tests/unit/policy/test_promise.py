"""What an incident of late emergencies counts and says."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.rules.promise import STEPS_MAX, ClockSteps, Incident, Late, describe
from oldhost_sync.policy.tuning import USUAL_PROMISES, Promises

NONE = Late()


def test_late_is_half_of_the_promise_and_a_breach_is_all_of_it() -> None:
    assert Late.of([14_999], USUAL_PROMISES) == Late()
    assert Late.of([14_999, 15_000, 29_999, 30_000, 70_000], USUAL_PROMISES) == Late(4, 2, 70_000)


def test_each_late_emergency_counts_once_however_often_it_was_seen() -> None:
    incident = Incident()
    for waiting in (Late(2, 0, 16_000), Late(2, 2, 31_000), Late(1, 1, 40_000)):
        incident = incident.looked(NONE, waiting, "a ban")
    incident = incident.looked(Late(1, 1, 35_000), Late(1, 1, 41_000), "a ban").looked(Late(1, 1, 42_000), NONE, "")
    assert incident.total == Late(2, 2, 42_000)


def test_the_worst_wait_stays_though_its_emergency_is_gone() -> None:
    incident = Incident().looked(NONE, Late(1, 1, 90_000), "a halt").looked(NONE, NONE, "")
    assert incident.total.worst_ms == 90_000


def test_the_last_known_cause_stays_when_none_waits_any_more() -> None:
    assert Incident().looked(NONE, Late(1, 0, 16_000), "a ban").looked(NONE, NONE, "").cause == "a ban"


def test_a_host_may_promise_something_else() -> None:
    promised = Promises(emergency_ms=5_000)
    assert Late.of([2_499, 2_500, 4_999, 5_000], promised) == Late(3, 1, 5_000)
    late = Incident().looked(NONE, Late.of([3_000], promised), "a ban")
    assert describe(late, promised)[1].startswith("1 emergency waited longer than 2.5 s")
    assert "the promised 5 s" in describe(late.looked(NONE, Late.of([5_000], promised), "a ban"), promised)[1]


def test_an_incident_is_a_warning_until_the_promise_is_broken() -> None:
    warned = Incident().looked(NONE, Late(3, 0, 20_000), "OldHost has banned us")
    assert describe(warned, USUAL_PROMISES) == (
        "warning",
        "3 emergencies waited longer than 15 s (the longest 20 s); 3 still wait. Cause: OldHost has banned us.",
    )
    assert describe(warned.looked(NONE, Late(3, 1, 31_000), "a ban"), USUAL_PROMISES)[0] == "critical"


def test_one_that_was_late_is_told_of_in_words_that_fit() -> None:
    waits = Incident().looked(NONE, Late(1, 1, 31_000), "a ban")
    assert describe(waits, USUAL_PROMISES)[1].startswith("1 emergency waited longer than the promised 30 s")
    assert "; 1 still waits. Cause: a ban" in describe(waits, USUAL_PROMISES)[1]
    assert (
        "; none waits any more. Cause: a ban" in describe(waits.looked(Late(1, 1, 32_000), NONE, ""), USUAL_PROMISES)[1]
    )


HOURS_MS = 7_200_000


def test_a_clock_that_was_set_makes_nothing_late_and_hides_nothing() -> None:
    forward, back = ClockSteps().stepped(10, HOURS_MS), ClockSteps().stepped(10, -HOURS_MS)
    assert forward.wait_ms(10, HOURS_MS + 5_000) == 5_000
    assert back.wait_ms(10, 20_000 - HOURS_MS) == 20_000
    assert forward.wait_ms(11, 5_000) == 5_000
    assert forward.took_ms(10, HOURS_MS + 5_000) == 5_000
    assert forward.took_ms(10, 5_000) == 5_000
    assert back.took_ms(10, 20_000 - HOURS_MS) == 20_000


@pytest.mark.parametrize("set_by_ms", [-HOURS_MS, HOURS_MS])
def test_each_change_is_corrected_by_the_steps_after_it(set_by_ms: int) -> None:
    """Set after change 10, and corrected after change 20."""
    steps = ClockSteps().stepped(10, set_by_ms).stepped(20, -set_by_ms)
    for change_id, measured_ms in ((10, 97_000), (20, 97_000 - set_by_ms), (21, 97_000)):
        assert steps.wait_ms(change_id, measured_ms) == 97_000
        assert steps.took_ms(change_id, measured_ms) == 97_000
    assert steps.took_ms(10, 97_000 + set_by_ms) == 97_000  # ended between the steps
    assert steps.took_ms(20, 97_000) == 97_000  # ended before the clock was corrected


def test_only_the_last_steps_are_kept() -> None:
    steps = ClockSteps()
    for number in range(1000):
        steps = steps.stepped(number, 5_000)
    assert len(steps.steps) == STEPS_MAX
    assert steps.wait_ms(999, 12_000) == 7_000
