"""Numbers and times within texts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from oldhost_sync.policy.plain_text import instant, quantity


@pytest.mark.parametrize(
    ("count", "said"), [(0, "0 emergencies"), (1, "1 emergency"), (2, "2 emergencies"), (1_200, "1,200 emergencies")]
)
def test_one_is_one_and_none_are_many(count: int, said: str) -> None:
    assert quantity(count, "emergency", "emergencies") == said


def test_most_words_take_an_s() -> None:
    assert [quantity(count, "change") for count in (1, 2)] == ["1 change", "2 changes"]


def test_an_instant_is_told_in_utc_to_the_second() -> None:
    moment = datetime(2026, 11, 22, 3, 0, 0, 999, tzinfo=UTC)
    assert instant(moment) == instant(moment.astimezone(timezone(timedelta(hours=5)))) == "2026-11-22 03:00:00 UTC"
