"""Which rules about turns hold in a run: by the release that it was begun with."""

from __future__ import annotations

import pytest

from oldhost_sync.policy.machine import Machine
from oldhost_sync.policy.release import BY_PROPERTY, GIVES_WAY, RELEASE, RELEASE_MIN
from oldhost_sync.policy.turn_rules import TurnRules
from oldhost_sync.policy.writer_policy import OLDEST_FIRST_MS, WriterPolicy
from tests.unit.policy.play import START_MS


def rules(release: int) -> TurnRules:
    return Machine(WriterPolicy(), START_MS, release).coalescer.rules


@pytest.mark.parametrize("release", range(RELEASE_MIN, GIVES_WAY + 1))
def test_runs_of_earlier_releases_keep_to_turns_and_due_times(release: int) -> None:
    assert rules(release) == TurnRules(
        by_first_change=False, charges_inherited=False, oldest_first_ms=None, by_property=False
    )


def test_runs_of_the_release_before_look_at_classes_and_ages() -> None:
    assert rules(BY_PROPERTY - 1) == TurnRules(
        by_first_change=True, charges_inherited=True, oldest_first_ms=OLDEST_FIRST_MS, by_property=False
    )


def test_todays_runs_look_at_properties_too() -> None:
    assert rules(RELEASE) == TurnRules(
        by_first_change=True, charges_inherited=True, oldest_first_ms=OLDEST_FIRST_MS, by_property=True
    )
