"""Quiet hours: the part of each day, in a host's own time zone, in which it is sent nothing; a night audit, say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import NamedTuple

# Longer ones would leave too little of the day for what was promised within it.
LASTS_MAX = timedelta(hours=12)
# What takes longer is not expected to the hour.
DAYS_AHEAD = 7
_TIME_OF_DAY = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_DURATION = re.compile(r"(\d{1,3})([mh])")


class Window(NamedTuple):
    """One day's quiet hours, in UTC; `end` is not in it."""

    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class QuietHours:
    """Every day from `start` of `zone` on."""

    start: time
    lasts: timedelta
    zone: tzinfo

    def window_at(self, now: datetime) -> Window | None:
        """The window that `now` (aware) is in."""
        return next((each for each in self.windows(now, 1) if each.begin <= now < each.end), None)

    def windows(self, now: datetime, days: int) -> Iterator[Window]:
        """Those of so many days after `now`, and of the day before."""
        today = now.astimezone(self.zone).date()
        return (self._of(datetime.combine(today + timedelta(day), self.start)) for day in range(-1, days + 1))

    def _of(self, local: datetime) -> Window:
        """A time that the clock skips or shows twice is taken for both that it may mean: it is quiet during either."""
        readings = [local.replace(tzinfo=self.zone, fold=fold).astimezone(UTC) for fold in (0, 1)]
        return Window(min(readings), max(readings) + self.lasts)


def window_at(hours: Sequence[QuietHours], now: datetime) -> Window | None:
    """The window that `now` is in; of several the one that ends last."""
    windows = filter(None, (each.window_at(now) for each in hours))
    return max(windows, key=lambda window: window.end, default=None)


def with_quiet_hours(hours: Sequence[QuietHours], now: datetime, span: timedelta) -> timedelta:
    """How long it takes what would take `span` from `now` on, when nothing is done in windows that begin meanwhile."""
    ended = now
    for begin, end in sorted(window for each in hours for window in each.windows(now, DAYS_AHEAD)):
        if now < begin < now + span:
            span += max(timedelta(), end - max(begin, ended))
            ended = max(ended, end)
    return span


def time_of_day(text: str) -> time:
    """`02:00`. Raises ValueError."""
    found = _TIME_OF_DAY.fullmatch(text)
    if found is None:
        raise ValueError("from is a time of day such as 02:00")
    return time(int(found[1]), int(found[2]))


def duration(text: str) -> timedelta:
    """`40m` or `2h`. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    lasts = timedelta(minutes=int(found[1]) * (60 if found[2] == "h" else 1)) if found else timedelta()
    if not timedelta() < lasts <= LASTS_MAX:
        raise ValueError("for is a duration of up to 12h, such as 40m or 2h")
    return lasts
