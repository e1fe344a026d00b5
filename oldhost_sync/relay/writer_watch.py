"""What to do about one host's writer, given its health: start it, raise an alert, close an alert. Pure.

A writer that has ended is started again at once; one that ends repeatedly, after growing pauses. A problem raises an
alert once it has lasted for a few checks, because a restart of a worker or of Temporal looks the same for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from oldhost_sync.temporal.writer_health import WriterHealth, WriterState

CLOSED, PAUSED, FAILING, NO_WORKER, AWAY = KINDS = (
    "writer-closed",
    "paused-in-temporal",
    "writer-failing",
    "no-worker",
    "temporal-away",
)

# Alerts whose cause may be that no worker is at work.
WORKERS_NEEDED = {FAILING, NO_WORKER}

# How long a problem lasts before it raises an alert. Including detection (a check every few seconds, 8 s for an untaken
# task), the alert is raised well within the 30 s that are promised for emergencies.
LASTS_SECONDS = {FAILING: 6.0, NO_WORKER: 6.0, AWAY: 10.0}
# A writer that was started and has ended again is not started at every check.
START_PAUSE_SECONDS = 5.0
START_PAUSE_SECONDS_MAX = 60.0
# A writer that seems well is nudged so often while changes wait all the time: longer than the debounce, as a rule, so
# that it costs nothing where little happens, and a signal among many where much does.
NUDGE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class StartWriter:
    """Start the writer, or attach to it when it runs."""


@dataclass(frozen=True, slots=True)
class NudgeWriter:
    """Let the running writer begin new timers. Those that it has are hours late if Temporal's clock was set back."""


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """Open an alert of this kind, unless it is open."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class CloseAlerts:
    """Close the alerts of these kinds."""

    kinds: tuple[str, ...]


Action = StartWriter | NudgeWriter | OpenAlert | CloseAlerts


@dataclass(frozen=True, slots=True)
class TemporalAway:
    """Temporal does not answer."""

    error: str


class WriterWatch:
    """Watches one host's writer. `now` in monotonic seconds; `waiting`: whether changes are outstanding."""

    def __init__(self) -> None:
        self._trouble = ""
        self._since = 0.0
        # Alerts that may be open, including those of an earlier relay process.
        self._open = set(KINDS)
        self._starts = 0
        self._started_at = float("-inf")
        # Since when changes wait all the time, or the last nudge.
        self._waits_since: float | None = None

    @property
    def is_calm(self) -> bool:
        """Whether nothing was wrong at the last check."""
        return not self._trouble

    def look(self, seen: WriterHealth | TemporalAway, now: float, *, waiting: bool, silence: str = "") -> list[Action]:
        """What to do now; a start comes first, since it waits for no row. `silence`: that no worker is at work, and
        which was there last.
        """
        kind, message = _trouble(seen, waiting=waiting)
        if silence and kind in WORKERS_NEEDED:
            message = f"{silence} Temporal says: {message}"
        if kind != self._trouble:
            self._trouble, self._since = kind, now
        actions: list[Action] = []
        if _is_gone(seen, waiting=waiting) and now >= self._started_at + self._start_pause():
            self._starts += 1
            self._started_at = now
            actions.append(StartWriter())
        elif not kind and now >= self._started_at + START_PAUSE_SECONDS_MAX:
            self._starts = 0
        if kind or not waiting:
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now >= self._waits_since + NUDGE_SECONDS:
            self._waits_since = now
            actions.append(NudgeWriter())
        if over := tuple(sorted(self._open - {kind})):
            self._open &= {kind}
            actions.append(CloseAlerts(over))
        if kind and now >= self._since + LASTS_SECONDS.get(kind, 0.0):
            self._open.add(kind)
            actions.append(OpenAlert(kind, message))
        return actions

    def could_not_close(self, kinds: tuple[str, ...]) -> None:
        """Their alerts may still be open: the next look closes them."""
        self._open |= set(kinds)

    def _start_pause(self) -> float:
        if not self._starts:
            return 0.0
        return min(START_PAUSE_SECONDS * 2.0 ** min(self._starts - 1, 10), START_PAUSE_SECONDS_MAX)


def _is_gone(seen: WriterHealth | TemporalAway, *, waiting: bool) -> bool:
    """Whether to start the writer. A run that ended may have left messages unread, even if nothing is outstanding; if
    there never was a run, there are none.
    """
    if isinstance(seen, TemporalAway):
        return False
    return seen.state is WriterState.CLOSED or (seen.state is WriterState.MISSING and waiting)


def _trouble(seen: WriterHealth | TemporalAway, *, waiting: bool) -> tuple[str, str]:
    if isinstance(seen, TemporalAway):
        return (AWAY, f"Temporal does not answer ({seen.error}) while changes wait") if waiting else ("", "")
    if seen.state is WriterState.CLOSED:
        return CLOSED, f"the writer does not run: {seen.error}; the relay starts it again"
    if seen.state is WriterState.PAUSED_IN_TEMPORAL:
        return PAUSED, f"the writer waits: {seen.error}; it goes on when a person unpauses it there"
    if seen.state is WriterState.FAILING:
        return FAILING, f"the writer is stuck: {seen.error}"
    # With nothing to do no worker is needed; an untaken task is something to do.
    if seen.state is WriterState.NO_WORKER and (waiting or seen.since is not None):
        return NO_WORKER, f"{seen.error}: {seen.advice or 'start one, or find out why the running ones take no tasks'}"
    return "", ""
