"""When it is quiet, by the clock on the host's wall."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from oldhost_sync.policy.rules.quiet_hours import QuietHours, duration, time_of_day, window_at, with_quiet_hours

BERLIN = ZoneInfo("Europe/Berlin")


def quiet(start: str, lasts: str) -> QuietHours:
    return QuietHours(time_of_day(start), duration(lasts), BERLIN)


def spans(hours: QuietHours, day: str) -> list[str]:
    """The quiet minutes from noon UTC of the day before until noon UTC of `day`, as begin and end."""
    noon = datetime.fromisoformat(f"{day}T12:00").replace(tzinfo=UTC)
    minutes = [noon + timedelta(minutes=minute) for minute in range(-24 * 60, 0)]
    is_quiet = [hours.window_at(minute) is not None for minute in minutes]
    changes = [at for at, before, now in zip(minutes[1:], is_quiet, is_quiet[1:], strict=False) if before != now]
    return [f"{at:%H:%M}" for at in changes]


@pytest.mark.parametrize(
    ("start", "lasts", "day", "in_utc"),
    [
        ("02:00", "40m", "2027-01-15", ["01:00", "01:40"]),
        ("02:00", "40m", "2027-07-15", ["00:00", "00:40"]),
        ("23:30", "2h", "2027-01-15", ["22:30", "00:30"]),
        ("01:30", "2h", "2027-03-28", ["00:30", "02:30"]),
        ("02:30", "40m", "2027-03-28", ["00:30", "02:10"]),
        ("02:30", "40m", "2027-10-31", ["00:30", "02:10"]),
    ],
    ids=["winter", "summer", "over midnight", "while the clock jumps", "skipped by the clock", "shown twice"],
)
def test_quiet_hours_follow_the_local_clock(start: str, lasts: str, day: str, in_utc: list[str]) -> None:
    assert spans(quiet(start, lasts), day) == in_utc


def test_the_end_is_not_quiet_any_more() -> None:
    begin = datetime(2027, 1, 15, 1, tzinfo=UTC)
    assert quiet("02:00", "40m").window_at(begin) == (begin, begin + timedelta(minutes=40))
    assert quiet("02:00", "40m").window_at(begin + timedelta(minutes=40)) is None


def test_of_several_windows_the_one_that_ends_last_counts() -> None:
    both = [quiet("02:00", "2h"), quiet("02:30", "10m")]
    window = window_at(both, datetime(2027, 1, 15, 1, 35, tzinfo=UTC))
    assert window is not None
    assert window.end == datetime(2027, 1, 15, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("begins", "minutes", "takes"),
    [
        ("00:00", 30, 30),
        ("00:00", 60, 60),
        ("00:00", 61, 101),
        ("00:00", 24 * 60, 24 * 60 + 40),
        ("00:00", 24 * 60 + 21, 24 * 60 + 101),
        ("01:00", 30, 30),
        ("01:10", 60, 60),
    ],
    ids=[
        "before",
        "up to it",
        "into it",
        "beyond it",
        "into the next one's by the first",
        "begun",
        "in the midst of it",
    ],
)
def test_what_meets_quiet_hours_takes_longer_by_them(begins: str, minutes: int, takes: int) -> None:
    now = datetime.fromisoformat(f"2027-01-15T{begins}").replace(tzinfo=UTC)
    assert with_quiet_hours([quiet("02:00", "40m")], now, timedelta(minutes=minutes)) == timedelta(minutes=takes)


def test_windows_that_overlap_are_waited_for_once() -> None:
    hours = [quiet("02:00", "40m"), quiet("02:30", "40m"), quiet("02:10", "10m")]
    now = datetime(2027, 1, 15, tzinfo=UTC)
    assert with_quiet_hours(hours, now, timedelta(minutes=61)) == timedelta(minutes=131)


def test_a_host_that_is_quiet_all_day_is_waited_for_a_week() -> None:
    hours = [quiet("00:00", "12h"), quiet("12:00", "12h")]
    assert timedelta(7) < with_quiet_hours(hours, datetime(2027, 1, 15, tzinfo=UTC), timedelta(days=1)) < timedelta(9)


@pytest.mark.parametrize("text", ["24:00", "2:00", "02:60", "02:00:00", ""])
def test_other_times_of_day_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time of day"):
        time_of_day(text)


@pytest.mark.parametrize("text", ["0m", "13h", "721m", "40", "40s", "-1h", ""])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration of up to 12h"):
        duration(text)
