"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oldhost_sync.console.words import number, quantity, rendered, span
from oldhost_sync.policy.plain_text import instant


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (940, "0.9 s"),
        (12_400, "12 s"),
        (60_000, "1 min"),
        (200_000, "3 min 20 s"),
        (7_500_000, "2 h 5 min"),
        (356_400_000, "4 d 3 h"),
    ],
)
def test_a_length_of_time_has_two_units_at_most(ms: float | None, said: str) -> None:
    assert span(ms) == said


def test_thousands_are_apart() -> None:
    assert number(4_711_000) == "4\u202f711\u202f000"
    assert quantity(4_711, "change") == "4\u202f711 changes"


def test_an_instant_within_a_sentence_is_shown_as_every_other_time() -> None:
    moment = datetime(2020, 2, 29, 23, 59, 58, tzinfo=UTC)
    assert rendered(f"until {instant(moment)}: <nothing> goes") == (
        'until <time datetime="2020-02-29T23:59:58.000000Z" title="2020-02-29T23:59:58.000000Z">2020-02-29 23:59:58'
        "</time>: &lt;nothing&gt; goes"
    )
