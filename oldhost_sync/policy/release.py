"""Releases of decisions. What a machine does is kept in its run's history and must be the same whenever that is
replayed.

So what it does differently from one release on it does only there; a run stays with the release it was begun with until
it is followed by a new one. A history tells by marks (Temporal's patches). A run is begun with the newest release that
every worker at work knows (`oldhost_sync/release_watch.py`), so that each of them can go on with it.
"""

from collections.abc import Callable, Collection

RELEASE_MIN = 1
# Sends give way to what is urgent, and so are long.
GIVES_WAY = 3
# A change that one send did not take is still on its way where another one has it, or where it is bound.
KEEPS_ON_ITS_WAY = 4
# The LWW lane is in the order of the keys' first changes.
FIRST_CHANGED_FIRST = 4
# An LWW change that goes in TXN's turn is LWW's.
CHARGES_INHERITED = 4
# The oldest goes first where something is nearly too old.
OLDEST_FIRST = 4
# Where that is wanted, a quiet key goes early to an idle OldHost.
SENDS_EARLY = 4
# Within the TXN and the LWW lane properties take turns.
BY_PROPERTY = RELEASE = 5

# The oldest whose workers may run beside these. A worker that does not tell what it knows, knows this.
BESIDE_MIN = 5
# From which release on workers read a version of the snapshot. A new version comes with a new release, and stands here.
SNAPSHOT_SINCE = {2: BESIDE_MIN, 3: BESIDE_MIN}

_MARK = "release-"
_SNAPSHOT_MARK = "snapshot-"
_OLDER_MARKERS = ("release-2", "batches-give-way")


def release_of_run(is_marked: Callable[[str], bool]) -> int:
    """Which release a run keeps. `is_marked`: Temporal's `patched`, true in every new run and remembered there; it must
    be asked for each marker that an older run has.
    """
    for release in range(RELEASE, GIVES_WAY, -1):
        if is_marked(f"{_MARK}{release}"):
            return release
    release = RELEASE_MIN
    for marker in _OLDER_MARKERS:
        if not is_marked(marker):
            break
        release += 1
    return release


def release_of_marks(marks: Collection[str]) -> int:
    """Which release a run with these marks keeps, also one that is newer than this code."""
    newer = [int(mark.removeprefix(_MARK)) for mark in marks if _has_number(mark, _MARK)]
    return max([release_of_run(marks.__contains__), *newer])


def is_known_to(release: int, mark: str) -> bool:
    """Whether workers of `release` understand a history with this mark."""
    if _has_number(mark, _MARK):
        return int(mark.removeprefix(_MARK)) <= release
    if _has_number(mark, _SNAPSHOT_MARK):
        return SNAPSHOT_SINCE.get(int(mark.removeprefix(_SNAPSHOT_MARK)), RELEASE + 1) <= release
    return True


def _has_number(mark: str, prefix: str) -> bool:
    return mark.startswith(prefix) and mark.removeprefix(prefix).isdecimal()
