"""Which refused writes make a process not ready, and for how long."""

from __future__ import annotations

import pytest

from oldhost_sync.api import http_limits
from oldhost_sync.api.problems import Problem
from oldhost_sync.api.refused_writes import LastRefusal


def refused(kind: str) -> LastRefusal:
    last = LastRefusal()
    last.note(Problem(503, kind, "Refused", "It was refused.", "Repeat it."), 100.0)
    return last


@pytest.mark.parametrize("kind", ["database-away", "commit-uncertain"])
def test_what_the_next_write_would_meet_too_counts_for_a_while(kind: str) -> None:
    last = refused(kind)
    assert last.standing(100.0 + http_limits.READY_REFUSED_SECONDS) is not None
    assert last.standing(100.1 + http_limits.READY_REFUSED_SECONDS) is None


@pytest.mark.parametrize("kind", ["contended", "too-busy", "invalid", "internal"])
def test_one_locked_row_or_a_callers_fault_does_not_count(kind: str) -> None:
    assert refused(kind).standing(100.0) is None


def test_a_write_that_was_taken_ends_it() -> None:
    last = refused("database-away")
    last.recorded()
    assert last.standing(100.0) is None
