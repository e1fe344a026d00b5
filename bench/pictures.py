"""Line and bar charts as SVG, written by hand: no dependency, readable in a diff, light on a page."""

from __future__ import annotations

from html import escape
from math import log10

from bench.result import Picture, shown

WIDTH, HEIGHT = 720, 380
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 60
COLOURS = ("#0b6e99", "#d9730d", "#6940a5", "#448361", "#9f6b53", "#64748b")


def draw(picture: Picture) -> str:
    body = _bars(picture) if picture.bars else _lines(picture)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{WIDTH / 2}" y="22" text-anchor="middle" font-size="15">{escape(picture.title)}</text>'
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{escape(picture.x)}</text>'
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">'
        f"{escape(picture.y)}</text>{body}</svg>\n"
    )


def _lines(picture: Picture) -> str:
    points = [point for series in picture.series for point in series.points]
    if not points:
        return ""
    across = [_x_value(picture, x) for x, _ in points]
    x_min, x_max = min(across), max(across)
    y_max = _round_up(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        share = (_x_value(picture, x) - x_min) / ((x_max - x_min) or 1)
        return LEFT + share * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM)

    parts = [_y_axis(y_max)]
    ticks = (
        sorted({x for x, _ in points}) if len({x for x, _ in points}) <= 8 else _even(min(points)[0], max(points)[0])
    )
    parts += [_tick(place(x, 0)[0], shown(float(f"{x:.3g}"))) for x in ticks]
    for number, series in enumerate(picture.series):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in series.points))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        if len(series.points) <= 12:
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>'
                for x, y in (place(*point) for point in series.points)
            ]
        parts.append(_legend(number, series.name, colour))
    return "".join(parts)


def _bars(picture: Picture) -> str:
    y_max = _round_up(max(y for series in picture.series for _, y in series.points))
    groups = len(picture.labels)
    group_width = (WIDTH - LEFT - RIGHT) / groups
    width = group_width * 0.8 / len(picture.series)
    parts = [_y_axis(y_max)]
    for group, label in enumerate(picture.labels):
        parts.append(_tick(LEFT + (group + 0.5) * group_width, label))
    for number, series in enumerate(picture.series):
        colour = COLOURS[number % len(COLOURS)]
        for group, (_, y) in enumerate(series.points):
            high = y / y_max * (HEIGHT - TOP - BOTTOM)
            x = LEFT + group * group_width + 0.1 * group_width + number * width
            parts.append(
                f'<rect x="{x:.1f}" y="{HEIGHT - BOTTOM - high:.1f}" width="{width * 0.92:.1f}" height="{high:.1f}" '
                f'fill="{colour}"/><text x="{x + width / 2:.1f}" y="{HEIGHT - BOTTOM - high - 4:.1f}" font-size="10" '
                f'text-anchor="middle">{shown(y)}</text>'
            )
        parts.append(_legend(number, series.name, colour))
    return "".join(parts)


def _y_axis(y_max: float) -> str:
    parts = []
    for step in range(6):
        y = HEIGHT - BOTTOM - step / 5 * (HEIGHT - TOP - BOTTOM)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e3e3"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(y_max * step / 5)}</text>'
        )
    return "".join(parts)


def _tick(x: float, label: str) -> str:
    return f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{escape(label)}</text>'


def _legend(number: int, name: str, colour: str) -> str:
    x = LEFT + 10 + number * 150
    return (
        f'<rect x="{x}" y="{HEIGHT - 32}" width="10" height="10" fill="{colour}"/>'
        f'<text x="{x + 14}" y="{HEIGHT - 23}">{escape(name)}</text>'
    )


def _x_value(picture: Picture, x: float) -> float:
    return log10(x) if picture.log_x else x


def _even(low: float, high: float) -> list[float]:
    return [low + (high - low) * step / 6 for step in range(7)]


def _round_up(value: float) -> float:
    """The next 1, 2, 2.5, 5 or 10 of the value's own size."""
    if value <= 0:
        return 1.0
    size: float = 10.0 ** int(log10(value) // 1)
    return next(size * step for step in (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if size * step >= value)
