"""Releases of the decisions. A run's history contains what its machine did, and each replay must do the same.

So each change in behaviour applies from one release on, and a run keeps the release that it began with until the next
run follows. The history has that release as marks (Temporal's patches). A run begins with the newest release that all
running workers know (`oldhost_sync/worker/release_watch.py`), so that each of them can continue it.
"""

from collections.abc import Callable, Collection

RELEASE_MIN = 1
# From this release on, sends give way to urgent ones, and are therefore longer.
GIVES_WAY = 3
# A change that one send did not send is still in flight if another send has it, or if it is bound.
KEEPS_ON_ITS_WAY = 4
# The LWW lane is in the order of the keys' first changes.
FIRST_CHANGED_FIRST = 4
# An LWW change that is sent in TXN's turn counts as LWW's turn.
CHARGES_INHERITED = 4
# The oldest change is first, once it is nearly too old for the promise.
OLDEST_FIRST = 4
# If so configured, a quiet key is sent early while OldHost is idle.
SENDS_EARLY = 4
# Within the TXN and the LWW lane, properties take turns.
BY_PROPERTY = 5
# A send to a quick host lasts up to four times as long.
FILLS_LONGER = 6
# An LWW change that is put back replaces an older one of its key that waits, as a retried one does: the ledger sends
# neither while both wait.
PUT_BACK_REPLACES = 7
# A dead letter that was decided holds nothing, though a send that began earlier reports it.
DECIDED_STAYS = 7
# A ban that an earlier run left lasts until OldHost was asked, whatever MariaDB's clock says.
LOADED_BAN_LASTS = 7
# While no TXN changes arrive, a send to a slow host lasts twice as long.
LONG_WHILE_CALM = 8
# The sweep ends holds that MariaDB does not have.
MENDS_HOLDS = 9
# Once one heartbeat of a worker is overdue, all its sends are given up, not each when its own is.
GIVES_UP_TOGETHER = 10
# Alerts, and the search for signals that earlier runs left unread, are done again if a person ended the activity.
DONE_AGAIN = 11
# A session is given up at once if another worker has found that the process that holds it has ended.
KNOWS_ENDED_WORKERS = 12
# Why a send or an opening failed is the reason for a standstill. Time in which nobody ran the writer is none. A run
# that begins without its predecessor's state closes the alerts that a session disproves.
TELLS_WHY = 13
# A run that the relay nudges does not rely on the timers that it has begun: Temporal's clock may have been set back.
OUTLIVES_CLOCKS = RELEASE = 14

# The oldest release whose workers may run at the same time. A worker that does not report its release has this one.
BESIDE_MIN = 5
# The release from which on workers read a version of the snapshot. Each new version needs a new release, and an entry.
SNAPSHOT_SINCE = {2: BESIDE_MIN, 3: BESIDE_MIN}

_MARK = "release-"
_SNAPSHOT_MARK = "snapshot-"
_OLDER_MARKERS = ("release-2", "batches-give-way")


def release_of_run(is_marked: Callable[[str], bool]) -> int:
    """The release of a run. `is_marked`: Temporal's `patched`, which is true in every new run and recorded there; it
    must be called for each marker that an older run has.
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
    """The release of a run with these marks, even if it is newer than this code."""
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
