"""A question to the planner's process and its answer survive the way there and back."""

from __future__ import annotations

import subprocess
import sys

from oldhost_sync.planner import Answer, Arrival, Question, Scenario, rehearse
from oldhost_sync.policy.changes import PriorityClass

SMALL = Scenario(units=5, changes=20, bursts=0, duration_s=60, ban_at_s=30, ban_s=60)
ARRIVALS = [
    Arrival(7, -5_000, PriorityClass.EMERGENCY, "unit", "Ü-1", "guest_locked_out", property_id="p1"),
    Arrival(8, 2_000, PriorityClass.LWW, "unit", "U-2", "unit_status_changed"),
]


def test_a_question_is_the_same_after_the_way_as_json() -> None:
    question = Question(SMALL, ARRIVALS)
    assert Question.from_json(question.to_json()) == question


def test_a_question_without_arrivals_stays_without() -> None:
    assert Question.from_json(Question(SMALL).to_json()) == Question(SMALL)


def test_the_planners_process_answers_what_the_planner_finds() -> None:
    asked = Question(SMALL).to_json()
    told = subprocess.run(
        [sys.executable, "-m", "oldhost_sync.planner"], input=asked, capture_output=True, text=True, check=True
    )
    found = Answer.from_json(told.stdout)
    plan = rehearse(SMALL)
    assert found.figures == plan.figures()
    assert found.promises == dict(plan.promises())
    assert len(found.samples) == len(plan.samples)


def test_arrivals_of_the_question_are_played_instead_of_the_scenarios() -> None:
    asked = Question(SMALL, ARRIVALS).to_json()
    told = subprocess.run(
        [sys.executable, "-m", "oldhost_sync.planner"], input=asked, capture_output=True, text=True, check=True
    )
    assert Answer.from_json(told.stdout).figures["operations"] == len(ARRIVALS)
