"""Releases of decisions. What a machine does is kept in its run's history and must be the same whenever that is
replayed.

So what it does differently from one release on it does only there; a run stays with the release it was begun with until
it is followed by a new one. `MARKERS`: how a history tells.
"""

from collections.abc import Callable

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

_OLDER_MARKERS = ("release-2", "batches-give-way")


def release_of_run(is_marked: Callable[[str], bool]) -> int:
    """Which release a run keeps. `is_marked`: Temporal's `patched`, true in every new run and remembered there; it must
    be asked for each marker that an older run has.
    """
    for release in range(RELEASE, GIVES_WAY, -1):
        if is_marked(f"release-{release}"):
            return release
    release = RELEASE_MIN
    for marker in _OLDER_MARKERS:
        if not is_marked(marker):
            break
        release += 1
    return release
