"""The header Retry-After, in each form that hosts and proxies send."""

from __future__ import annotations

import pytest

from oldhost_sync.drivers.events import Banned, Busy, Expected, Replay
from oldhost_sync.drivers.http.oldhost import told_by_header
from oldhost_sync.drivers.http.response import retry_after_seconds

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("0", "", 0.0),
        ("120", "", 120.0),
        ("Wed, 21 Oct 2026 07:30:00 GMT", DATE, 120.0),
        ("Wed, 21 Oct 2026 09:30:00 +0200", DATE, 120.0),
        ("Wed, 21 Oct 2026 07:00:00 GMT", DATE, 0.0),
        ("Thu, 21 Oct 2027 07:28:00 GMT", DATE, 86_400.0),
        ("9" * 5_000, "", 86_400.0),
    ],
)
def test_seconds_and_dates_are_read_without_a_clock_of_ours(value: str, date: str, seconds: float) -> None:
    assert retry_after_seconds(value, date) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-5", "1.5", "١٢٠", "Wed, 99 Oct 2026 07:30:00 GMT", DATE])
def test_what_can_not_be_read_counts_as_absent(value: str) -> None:
    assert retry_after_seconds(value, "") is None


def test_the_header_counts_where_the_body_says_nothing() -> None:
    assert told_by_header(Banned(None), 60.0) == Banned(60.0)
    assert told_by_header(Replay(7, None), 60.0) == Replay(7, 60.0)
    assert told_by_header(Busy(0.0), 2.0) == Busy(2.0)
    assert told_by_header(Banned(30.0), 60.0) == Banned(30.0)
    assert told_by_header(Banned(None), None) == Banned(None)
    assert told_by_header(Expected(7), 60.0) == Expected(7)
