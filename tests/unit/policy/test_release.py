"""Releases of decisions: which one a run keeps, and which workers understand its history."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from oldhost_sync.policy.machine import release
from oldhost_sync.policy.machine.release import is_known_to, release_of_marks, release_of_run


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> int:
    """This code as the next release would be, beside workers and runs of today's."""
    number = release.RELEASE + 1
    monkeypatch.setattr(release, "RELEASE", number)
    monkeypatch.setattr(release, "RELEASE_MIN", number - 1)
    return number


def first_task(known: int, marks: set[str]) -> Callable[[str], bool]:
    """Temporal's `patched` in a new run while all workers at work know this release; the marks are recorded."""

    def is_marked(mark: str) -> bool:
        if is_known_to(known, mark):
            marks.add(mark)
        return mark in marks

    return is_marked


def test_a_run_of_the_first_release_is_marked_too() -> None:
    """A run without a mark is one that has not begun: it would never be asked to continue as a run of the next."""
    marks: set[str] = set()
    assert release_of_run(first_task(1, marks)) == release.RELEASE == 1
    assert release_of_marks(marks) == 1


@pytest.mark.parametrize("older", [0, 1])
def test_a_run_begun_with_what_all_know_keeps_that_release(next_release: int, older: int) -> None:
    marks: set[str] = set()
    known = next_release - older
    assert release_of_run(first_task(known, marks)) == known
    assert release_of_run(marks.__contains__) == release_of_marks(marks) == known


def test_the_marks_of_a_run_tell_a_release_newer_than_this_code() -> None:
    assert release_of_marks({"release-1", f"release-{release.RELEASE + 2}", "another"}) == release.RELEASE + 2


def test_a_run_that_has_not_begun_has_no_release() -> None:
    assert release_of_marks(set()) is None
    assert release_of_marks({"another"}) is None


def test_workers_understand_no_mark_of_a_release_after_theirs() -> None:
    assert is_known_to(1, "release-1")
    assert not is_known_to(1, "release-2")
    assert is_known_to(1, "another")
