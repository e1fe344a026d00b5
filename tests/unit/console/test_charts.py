"""Charts: peaks are kept, holes are holes, and a time in which nothing was sent is shaded."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from oldhost_sync.console.charts import COLUMNS_MAX, HEIGHT, WIDTH, draw
from oldhost_sync.policy.tuning import USUAL_PROMISES
from oldhost_sync.store.read.figures import RINGS, SeriesPoint

END = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)


def a_sample(seconds_ago: float, **more: int | str | None) -> SeriesPoint:
    values = dict.fromkeys(("emergency", "txn", "lww", "accepted", "applied", "emergency_ms"), 0)
    return SeriesPoint(at=END - timedelta(seconds=seconds_ago), **(values | {"stopped": None} | more))  # type: ignore[arg-type]


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", path)]


@pytest.mark.parametrize("span", RINGS)
def test_a_full_ring_is_drawn_within_the_picture(span: str) -> None:
    ring = RINGS[span]
    samples = [a_sample(ring.step_s * number, lww=number) for number in range(ring.slots, 0, -1)]
    (path,) = draw(samples, span, END, USUAL_PROMISES)[0].lines[2].paths
    drawn = points(path)
    assert len(drawn) <= COLUMNS_MAX + 1
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in drawn)
    assert drawn == sorted(drawn, key=lambda point: point[0])


def test_a_peak_of_one_bucket_is_not_lost() -> None:
    samples = [a_sample(10 * number, lww=9_000 if number == 77 else 3) for number in range(360, 0, -1)]
    chart = draw(samples, "1h", END, USUAL_PROMISES)[0]
    assert chart.peak is not None
    assert chart.peak[0] == 9_000
    assert chart.top > 9_000


def test_where_nobody_looked_the_line_is_broken() -> None:
    samples = [a_sample(number, txn=1) for number in (3_000, 2_990, 600, 590)]
    assert len(draw(samples, "1h", END, USUAL_PROMISES)[0].lines[1].paths) == 2


def test_rates_are_by_the_minute_whatever_the_bucket() -> None:
    for span, ring in RINGS.items():
        chart = draw([a_sample(ring.step_s, accepted=ring.step_s)], span, END, USUAL_PROMISES)[1]
        assert chart.lines[0].last == 60


def test_a_ban_is_one_shade_from_its_begin_to_its_end() -> None:
    samples = [a_sample(n, stopped="BANNED" if 600 < n <= 1_500 else None) for n in range(3_600, 0, -10)]
    (shade,) = draw(samples, "1h", END, USUAL_PROMISES)[0].shades
    assert shade.word == "BANNED"
    assert shade.width == pytest.approx(900 / 3_600 * WIDTH, abs=2 * WIDTH / COLUMNS_MAX)


def test_the_promise_to_emergencies_is_within_the_picture() -> None:
    calm, late = (draw([a_sample(10, emergency_ms=ms)], "1h", END, USUAL_PROMISES)[2] for ms in (500, 90_000))
    assert calm.threshold is not None
    assert late.threshold is not None
    assert 0 < calm.threshold < late.threshold < HEIGHT


def test_nothing_recorded_is_an_empty_picture() -> None:
    for chart in draw([], "1h", END, USUAL_PROMISES):
        assert all(line.paths == [] and line.last is None for line in chart.lines)
        assert chart.peak is None
