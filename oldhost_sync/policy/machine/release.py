"""Releases of the decisions. A run's history contains what its machine did, and each replay must do the same.

So each change in behaviour applies from one release on, and a run keeps the release that it began with until the next
run follows. The history has that release as a mark (Temporal's patches). A run begins with the newest release that all
running workers know (`oldhost_sync/worker/release_watch.py`), so that each of them can continue it.

To change what the machine does: raise RELEASE, name the change by a constant with that number, and ask
`machine.release >= NAME` where the two differ. The next release but one drops the question and raises RELEASE_MIN.
"""

from collections.abc import Callable, Collection

RELEASE = 1
# The oldest release whose runs this code continues, and whose workers may run at the same time: at most the one before.
RELEASE_MIN = 1

_MARK = "release-"


def release_of_run(is_marked: Callable[[str], bool]) -> int:
    """The release of a run. `is_marked`: Temporal's `patched`, which is true in every new run and recorded there. The
    first release has a mark, too: a run without one would never be asked to continue as a run of the next.
    """
    releases = range(RELEASE, RELEASE_MIN - 1, -1)
    return next((release for release in releases if is_marked(f"{_MARK}{release}")), RELEASE_MIN)


def release_of_marks(marks: Collection[str]) -> int | None:
    """The release of a run with these marks, even if it is newer than this code; None: it has no such mark (yet)."""
    return max((release for mark in marks if (release := _release_of(mark)) is not None), default=None)


def is_known_to(release: int, mark: str) -> bool:
    """Whether workers of `release` understand a history with this mark."""
    of_mark = _release_of(mark)
    return of_mark is None or of_mark <= release


def _release_of(mark: str) -> int | None:
    number = mark.removeprefix(_MARK)
    return int(number) if mark.startswith(_MARK) and number.isdecimal() else None
