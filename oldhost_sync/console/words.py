"""Figures in readable form; the filters of the templates."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup, escape

from oldhost_sync.policy import plain_text


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
    """Rounded: one decimal for small numbers, none from 100 on."""
    if value is None:
        return "–"
    return number(round(value)) if value >= 100 or value == round(value) else f"{value:.1f}"


def clock(moment: datetime | None) -> str:
    """UTC, to the second; with the date unless it is today."""
    if moment is None:
        return "–"
    moment = moment.astimezone(UTC)
    today = moment.date() == datetime.now(UTC).date()
    return f"{moment:%H:%M:%S}" if today else f"{moment:%Y-%m-%d %H:%M:%S}"


def iso(moment: datetime) -> str:
    """For `<time datetime>` and for scripts."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


_TIME = Markup('<time datetime="{0}" title="{0}">{1}</time>')
# As `plain_text.instant` writes it.
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


def time(moment: datetime | None) -> Markup:
    """An instant: UTC in the page, which the script shows as local time when asked to."""
    return Markup("–") if moment is None else _TIME.format(iso(moment), clock(moment))


def rendered(text: str) -> Markup:
    """A sentence whose instants are shown like all others on the page."""
    parts = _INSTANT.split(text)
    parts[::2] = [escape(part) for part in parts[::2]]
    parts[1::2] = [time(datetime.fromisoformat(f"{part}+00:00")) for part in parts[1::2]]
    return Markup().join(parts)


def quantity(count: int, one: str, many: str = "") -> str:
    """With its word: "1 change", "7 changes"."""
    return plain_text.quantity(count, one, many).replace(",", "\u202f")


FILTERS: dict[str, Any] = {
    shown.__name__: shown for shown in (span, number, rough, clock, iso, time, rendered, quantity)
}
