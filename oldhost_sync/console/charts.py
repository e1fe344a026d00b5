"""Charts drawn by the server: lines in an SVG without text, so that it can stretch; labels are HTML around it.

A chart has as many columns as fit. Of the buckets in one column the greatest value is shown, so that no peak is lost.
Where a bucket is missing, the line is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from oldhost_sync.policy.tuning import Promises
from oldhost_sync.store.read.figures import RINGS, SeriesPoint

WIDTH, HEIGHT = 600, 120
COLUMNS_MAX = 180
# So that a line at the top is not cut off.
_HEADROOM = 1.05


@dataclass(frozen=True, slots=True)
class Line:
    """`name` is also its style; `paths`: one for each unbroken stretch."""

    name: str
    label: str
    last: float | None
    paths: list[str]


@dataclass(frozen=True, slots=True)
class Shade:
    """A time when sending was stopped, from `x` on, `width` wide."""

    word: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Chart:
    """`top`: the value at the upper edge. `threshold`: the height of `promised`, if something is promised. `peak`: the
    greatest value and when it was.
    """

    title: str
    unit: str
    lines: list[Line]
    shades: list[Shade]
    top: float
    threshold: float | None
    promised: float | None
    peak: tuple[float, datetime] | None
    begin: datetime
    end: datetime


Value = Callable[[SeriesPoint], float | None]


def draw(samples: Sequence[SeriesPoint], span: str, end: datetime, promised: Promises) -> list[Chart]:
    """The three charts of `span` (a key of RINGS), up to `end`."""
    canvas = _Canvas(samples, span, end)
    per_minute = 60 / RINGS[span].step_s
    return [
        canvas.chart(
            "Waiting, by lane",
            "changes",
            [
                ("EMERGENCY", "EMERGENCY", lambda sample: sample.emergency),
                ("TXN", "TXN", lambda sample: sample.txn),
                ("LWW", "LWW", lambda sample: sample.lww),
            ],
        ),
        canvas.chart(
            "Accepted and applied",
            "a minute",
            [
                ("accepted", "accepted", lambda sample: sample.accepted * per_minute),
                ("applied", "applied", lambda sample: sample.applied * per_minute),
            ],
            least=150,
        ),
        canvas.chart(
            "Slowest emergency",
            "s",
            [("EMERGENCY", "took or has waited", lambda sample: sample.emergency_ms / 1000 or None)],
            threshold=promised.emergency_ms / 1000,
        ),
    ]


class _Canvas:
    def __init__(self, samples: Sequence[SeriesPoint], span: str, end: datetime) -> None:
        self._samples = samples
        ring = RINGS[span]
        self._begin, self._end = end - timedelta(seconds=ring.span_s), end
        self._span_s = ring.span_s
        self._step_s = max(ring.step_s, ring.span_s / COLUMNS_MAX)

    def chart(
        self,
        title: str,
        unit: str,
        wanted: Sequence[tuple[str, str, Value]],
        *,
        least: float = 10,
        threshold: float | None = None,
    ) -> Chart:
        """`least`: the lowest value for the upper edge."""
        columns = {name: self._columns(value) for name, _, value in wanted}
        values = [point for points in columns.values() for point in points]
        peak = max(((value, column) for column, value in values), default=None)
        top = max([least, threshold * 1.2 if threshold else 0, peak[0] * _HEADROOM if peak else 0])
        return Chart(
            title=title,
            unit=unit,
            lines=[
                Line(name, label, columns[name][-1][1] if columns[name] else None, self._paths(columns[name], top))
                for name, label, _ in wanted
            ],
            shades=self._shades(),
            top=top,
            threshold=None if threshold is None else self._y(threshold, top),
            promised=threshold,
            peak=None if peak is None or not peak[0] else (peak[0], self._time(peak[1])),
            begin=self._begin,
            end=self._end,
        )

    def _column(self, at: datetime) -> int:
        return int((at - self._begin).total_seconds() // self._step_s)

    def _time(self, column: int) -> datetime:
        return self._begin + timedelta(seconds=column * self._step_s)

    def _columns(self, value: Value) -> list[tuple[int, float]]:
        """The greatest value of each column that has any."""
        greatest: dict[int, float] = {}
        for sample in self._samples:
            shown = value(sample)
            if shown is not None:
                column = self._column(sample.at)
                greatest[column] = max(greatest.get(column, 0.0), shown)
        return sorted(greatest.items())

    def _paths(self, columns: Sequence[tuple[int, float]], top: float) -> list[str]:
        stretches: list[list[str]] = []
        before = None
        for column, value in columns:
            if before is None or column - before > 2:
                stretches.append([])
            stretches[-1].append(f"{self._x(column):.1f},{self._y(value, top):.1f}")
            before = column
        # A single point would be invisible: it gets a length.
        return [f"M{' L'.join(points)}" + ("h2" if len(points) == 1 else "") for points in stretches]

    def _shades(self) -> list[Shade]:
        shades: list[tuple[str, int, int]] = []
        for sample in self._samples:
            column = self._column(sample.at)
            if sample.stopped is None:
                continue
            if shades and shades[-1][0] == sample.stopped and column - shades[-1][2] <= 1:
                shades[-1] = sample.stopped, shades[-1][1], column
            else:
                shades.append((sample.stopped, column, column))
        return [Shade(word, self._x(first), self._x(last + 1) - self._x(first)) for word, first, last in shades]

    def _x(self, column: int) -> float:
        return min(max(column * self._step_s / self._span_s * WIDTH, 0.0), float(WIDTH))

    @staticmethod
    def _y(value: float, top: float) -> float:
        return HEIGHT - value / top * HEIGHT
