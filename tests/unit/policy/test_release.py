"""Releases of decisions: which one a run keeps, and which workers understand its history."""

from __future__ import annotations

import pytest

from oldhost_sync.policy import snapshot
from oldhost_sync.policy.release import (
    BESIDE_MIN,
    RELEASE,
    RELEASE_MIN,
    SNAPSHOT_SINCE,
    is_known_to,
    release_of_marks,
    release_of_run,
)


@pytest.mark.parametrize("release", range(BESIDE_MIN, RELEASE + 1))
def test_a_run_begun_with_what_all_know_keeps_that_release(release: int) -> None:
    marks: set[str] = set()

    def first_task(mark: str) -> bool:
        if is_known_to(release, mark):
            marks.add(mark)
        return mark in marks

    assert release_of_run(first_task) == release_of_run(marks.__contains__) == release_of_marks(marks) == release


def test_the_marks_of_a_run_tell_a_release_newer_than_this_code() -> None:
    assert release_of_marks({f"release-{RELEASE + 2}", "snapshot-3"}) == RELEASE + 2


def test_the_marks_of_the_first_releases_are_read() -> None:
    assert release_of_marks({"snapshot-2"}) == RELEASE_MIN
    assert release_of_marks({"release-2"}) == 2
    assert release_of_marks({"release-2", "batches-give-way"}) == 3


def test_workers_understand_no_mark_of_a_release_after_theirs() -> None:
    assert is_known_to(RELEASE, f"release-{RELEASE}")
    assert not is_known_to(RELEASE - 1, f"release-{RELEASE}")
    assert is_known_to(BESIDE_MIN, "reset-leaves-at-once")


def test_the_snapshot_s_version_says_since_which_release_it_is_read() -> None:
    assert SNAPSHOT_SINCE[snapshot.VERSION] <= RELEASE
    assert is_known_to(RELEASE, f"snapshot-{snapshot.VERSION}")
    assert not is_known_to(SNAPSHOT_SINCE[snapshot.VERSION] - 1, f"snapshot-{snapshot.VERSION}")
    assert not is_known_to(RELEASE, f"snapshot-{snapshot.VERSION + 1}")


def test_the_oldest_release_beside_these_is_one_that_this_code_has() -> None:
    assert RELEASE_MIN < BESIDE_MIN <= RELEASE
