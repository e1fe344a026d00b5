"""When a run ends, and that a large rebuild does not end the run that it was made for."""

from __future__ import annotations

from workflows.renewal import EVENTS_AFTER_REBUILD, Renewal


def test_a_run_ends_when_temporal_suggests_it_or_new_settings_came() -> None:
    renewal = Renewal()
    assert not renewal.is_due(10, suggested=False)
    assert renewal.is_due(4_096, suggested=True)
    renewal.asked = True
    assert renewal.is_due(10, suggested=False)


def test_a_small_rebuild_changes_nothing() -> None:
    renewal = Renewal()
    renewal.rebuilt(9, suggested=False)
    assert renewal.is_due(10, suggested=True)


def test_a_rebuild_that_alone_made_the_run_long_is_worked_off_before_the_next() -> None:
    """Else the next run would rebuild as well, and no operation would ever be sent."""
    renewal = Renewal()
    renewal.rebuilt(455, suggested=True)
    assert not renewal.is_due(455 + EVENTS_AFTER_REBUILD - 1, suggested=True)
    assert renewal.is_due(455 + EVENTS_AFTER_REBUILD, suggested=True)
