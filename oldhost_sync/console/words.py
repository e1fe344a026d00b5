"""Figures as people read them; the filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def span(ms: float | None) -> str:
    """A length of time in two units at most: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min", "4 d 3 h"."""
    if ms is None:
        return "–"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    for size, unit, smaller, name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            rest = seconds % size // smaller
            return f"{seconds // size} {unit}" + (f" {rest} {name}" if rest else "")
    return f"{seconds} s"


def number(value: float | None) -> str:
    """With thin spaces between thousands."""
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def rough(value: float | None) -> str:
    """One digit after the point where it says something."""
    if value is None:
        return "–"
    return number(round(value)) if value >= 100 or value == round(value) else f"{value:.1f}"


def clock(moment: datetime | None) -> str:
    """UTC, to the second; the day only when it is another."""
    if moment is None:
        return "–"
    moment = moment.astimezone(UTC)
    today = moment.date() == datetime.now(UTC).date()
    return f"{moment:%H:%M:%S}" if today else f"{moment:%Y-%m-%d %H:%M:%S}"


def iso(moment: datetime) -> str:
    """For `<time datetime>` and for scripts."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


FILTERS: dict[str, Any] = {"span": span, "number": number, "rough": rough, "clock": clock, "iso": iso}
